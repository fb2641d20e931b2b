"""Nodes bought of real Karpenter: scenarios of node auto-provisioning in which NodeClaims have a part, and what goes
wrong.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from manager.autoscaler.cloudprovider.contract import ErrorClass, GroupSpec, NodeRef
from manager.autoscaler.cloudprovider.errors import Refused
from manager.autoscaler.cloudprovider.karpenter import claims
from manager.autoscaler.cloudprovider.karpenter.ended_claims import STOCK_OUT
from manager.autoscaler.cloudprovider.node_template import LABEL_HOSTNAME
from manager.autoscaler.cloudprovider.ownership import DEFAULT_PREFIX, Ownership
from manager.autoscaler.cloudprovider.plugin import ManagedGroups
from shared import names
from shared.clock import SystemClock
from shared.kube.resources import NODECLAIMS, NODES
from tests.integration.manager.cloud_rights import grant
from tests.integration.manager.karpenter.town import BOUND_SECONDS, KarpenterTown, own_taints
from tests.support import eventually
from tests.support.apiserver import ApiServer
from tests.support.karpenter import NODE_CLASS, NODE_CLASSES, ZONES, catalogue
from tests.support.observing import guarded

pytestmark = pytest.mark.real_only("Karpenter asks for a real API server")

WEB: dict[str, Any] = {"name": "web", "machine_type": "c-4", "zone": ZONES[0], "max": 5, "labels": {"team": "web"}}
GONE_SECONDS = 120.0


class Hands:
    """A provider with its guard, and no manager: what is bought is for the test to say."""

    def __init__(self, town: KarpenterTown, server: ApiServer, *listed: str) -> None:
        self._client = server.client(server.manager_connection())
        given: dict[str, Any] = {"client": self._client, "clock": SystemClock()}
        groups = ManagedGroups(minds_drift=True)
        self.guard = guarded("karpenter", town.file, Ownership(dict.fromkeys(listed)), groups=groups, **given)

    def states(self, group: str) -> list[str]:
        return sorted(each.state.value for each in self.guard.observe().groups[group].instances)

    def close(self) -> None:
        self.guard.close()
        self._client.close()


@pytest.fixture
def hands(town: KarpenterTown, server: ApiServer) -> Iterator[Hands]:
    """Of the group web."""
    town.offer(WEB)
    hands = Hands(town, server, "web")
    yield hands
    hands.close()


def tolerating(value: str) -> dict[str, Any]:
    return {"tolerations": [{"key": "dedicated", "operator": "Equal", "value": value, "effect": "NoSchedule"}]}


def label(node: Any, key: str) -> str:
    return str((node.metadata.labels or {}).get(key, ""))


def test_seed_nap_tc_001_a_pod_with_big_requirements_gets_a_big_node_without_taints(town: KarpenterTown) -> None:
    town.begin()
    town.add_pod("big", "12")
    node = town.bound("big")["big"]
    assert label(node, "node.kubernetes.io/instance-type") == "c-16"
    assert label(node, "topology.kubernetes.io/zone") == ZONES[0]  # the cheaper one
    assert not own_taints(node)
    assert len(town.kept().groups) == 1
    (claim,) = town.claims()
    assert claim.group == label(node, names.LABEL_NODE_GROUP)
    assert eventually(lambda: town.said("big", "TriggeredScaleUp"), BOUND_SECONDS)


def test_seed_nap_tc_005_and_006_pods_with_different_tolerations_get_two_groups_with_taints(
    town: KarpenterTown,
) -> None:
    town.begin(autoprovisioning_tolerations="always")
    town.add_pod("one", "1", **tolerating("a"))
    town.add_pod("two", "1", **tolerating("b"))
    placed = town.bound("one", "two")
    taints = [[(each.key, each.value) for each in own_taints(placed[name])] for name in ("one", "two")]
    assert taints == [[("dedicated", "a")], [("dedicated", "b")]]
    assert len(town.kept().groups) == 2


def test_seed_nap_tc_007_a_group_that_was_made_goes_when_it_is_empty(town: KarpenterTown) -> None:
    town.begin(
        scale_down_unneeded_time_seconds=0.5,
        scale_down_delay_after_add_seconds=0.0,
        node_delete_delay_after_taint_seconds=0.2,
    )
    town.add_pod("picky", nodeSelector={"team": "a"})
    town.bound("picky")
    assert len(town.kept().groups) == 1
    town.delete_pod("picky")
    eventually(lambda: not town.claims() and not town.kept().groups, GONE_SECONDS)


def test_a_nodepool_of_karpenter_and_its_claims_are_left_alone(town: KarpenterTown, hands: Hands) -> None:
    # Somebody's copy of one of our labels does not make their nodes ours.
    town.karpenter.add_node_pool("theirs", {names.LABEL_NODE_GROUP: "web"})
    town.add_pod("theirs")
    placed = town.bound("theirs")["theirs"]
    assert label(placed, "karpenter.sh/nodepool") == "theirs"
    observed = hands.guard.observe([NodeRef.from_node(placed)])
    assert (observed.groups["web"].group.target_size, observed.group_of_node) == (0, {})
    with pytest.raises(Refused, match="is not in it"):
        hands.guard.delete_nodes("web", [NodeRef.from_node(placed)])


def test_claims_become_nodes_and_exactly_the_named_one_goes(town: KarpenterTown, hands: Hands) -> None:
    hands.guard.observe()
    template = hands.guard.template("web")
    hands.guard.increase("web", 2)
    assert hands.guard.observe().groups["web"].group.target_size == 2
    eventually(lambda: hands.states("web") == ["Running", "Running"])
    found = sorted(town.karpenter.nodes(), key=lambda node: node.metadata.name)
    refs = [NodeRef.from_node(node) for node in found]
    assert set(hands.guard.observe(refs).group_of_node.values()) == {"web"}
    given = template.metadata.labels or {}
    eventually(lambda: all(label(node, "karpenter.sh/initialized") for node in town.karpenter.nodes()))
    for node in town.karpenter.nodes():
        known = (node.metadata.labels or {}) | {LABEL_HOSTNAME: given[LABEL_HOSTNAME]}
        assert known.items() >= given.items()
    hands.guard.delete_nodes("web", refs[:1])
    eventually(lambda: hands.states("web") == ["Running"])
    assert [node.metadata.name for node in town.karpenter.nodes()] == [found[1].metadata.name]
    assert hands.guard.observed.groups["web"].group.target_size == 1


def test_a_node_of_a_group_that_has_changed_has_drifted_and_a_new_one_has_not(
    town: KarpenterTown, hands: Hands
) -> None:
    hands.guard.observe()
    hands.guard.increase("web", 1)
    eventually(lambda: hands.states("web") == ["Running"])
    assert [each.drift for each in hands.guard.observed.groups["web"].instances] == [""]
    town.offer({**WEB, "labels": {"team": "shop"}})
    (found,) = hands.guard.observe().groups["web"].instances
    assert found.drift == "it was launched with a label team that differs from its group's"


def test_a_claim_that_vanishes_is_a_stockout_of_its_offering(town: KarpenterTown, hands: Hands) -> None:
    hands.guard.observe()
    town.client.delete(NODE_CLASSES, "default")  # what Karpenter's kwok provider takes for a lack of capacity
    hands.guard.increase("web", 1)
    failed = eventually(lambda: [each for each in hands.guard.observe().groups["web"].instances if each.error])
    assert [(each.error.kind, each.error.code) for each in failed if each.error] == [
        (ErrorClass.OUT_OF_RESOURCES, STOCK_OUT)
    ]
    assert hands.guard.observed.groups["web"].group.target_size == 1
    assert f"c-4/{ZONES[0]}/on-demand" in town.kept().sold_out
    town.karpenter.add_node_class()
    hands.guard.observe()
    with pytest.raises(Refused, match="out of stock"):
        hands.guard.increase("web", 1)
    theory = hands.guard.theoretical(GroupSpec("c-4", DEFAULT_PREFIX))
    assert (theory.template.metadata.labels or {})["topology.kubernetes.io/zone"] == ZONES[1]
    hands.guard.delete_nodes("web", [NodeRef("", each.provider_id) for each in failed])
    assert hands.guard.observe().groups["web"].group.target_size == 0


def test_nothing_is_bought_without_the_node_class_and_the_reason_is_told(
    town: KarpenterTown, hands: Hands, caplog: pytest.LogCaptureFixture
) -> None:
    town.client.delete(NODE_CLASSES, "default")
    eventually(lambda: hands.guard.observe() and "KWOKNodeClass default" in caplog.text)
    with pytest.raises(Refused, match=r"KWOKNodeClass default.*cannot be read"):
        hands.guard.increase("web", 1)
    assert not town.claims()


def test_a_claim_that_gets_no_machine_is_given_up_and_another_zone_helps(town: KarpenterTown) -> None:
    """Karpenter's kwok provider neither launches nor deletes it, and nothing else of Karpenter's goes on meanwhile."""
    karpenter = town.karpenter
    karpenter.stop()
    karpenter.start(missing=[("c-1", ZONES[0])])
    town.offer(launch_timeout="3s", autoprovisioning={"machine_types": ["c-1"]})
    try:
        town.begin()
        town.add_pod("one")
        node = town.bound("one")["one"]
        assert label(node, "topology.kubernetes.io/zone") == ZONES[1]
        assert list(town.kept().sold_out) == [f"c-1/{ZONES[0]}/on-demand"]
        eventually(lambda: len(town.claims()) == 1)
    finally:
        karpenter.stop()
        karpenter.start()


def test_a_machine_that_never_registers_is_given_up(town: KarpenterTown) -> None:
    town.karpenter.add_node_class("slow", registration_seconds=3600)
    town.offer(node_class=NODE_CLASS | {"name": "slow"})
    grant({"node_class": NODE_CLASS | {"name": "slow"}}, town.karpenter.server, "karpenter")
    try:
        town.begin(max_node_provision_time_seconds=4.0)
        town.add_pod("one")
        (claim,) = eventually(lambda: [each for each in town.claims() if each.holds(claims.LAUNCHED)])
        eventually(lambda: claim.metadata.name not in [each.metadata.name for each in town.claims()], GONE_SECONDS)
    finally:
        grant({"node_class": NODE_CLASS}, town.karpenter.server, "karpenter")


def test_a_node_that_others_delete_is_told_and_bought_again(
    town: KarpenterTown, caplog: pytest.LogCaptureFixture
) -> None:
    town.begin()
    town.add_pod("one")
    first = town.bound("one")["one"].metadata.name
    eventually(lambda: [each for each in town.claims() if each.holds(claims.REGISTERED)])
    town.client.delete(NODES, first)  # Karpenter drains it, and gives its machine back
    eventually(lambda: [line for line in caplog.messages if f"node {first}" in line])
    eventually(lambda: first not in [node.metadata.name for node in town.karpenter.nodes()], GONE_SECONDS)
    town.add_pod("two")
    assert town.bound("two")["two"].metadata.name != first


def test_a_manager_that_restarts_in_the_middle_buys_nothing_twice(town: KarpenterTown) -> None:
    first = town.begin()
    town.karpenter.stop()  # so that nothing becomes of the claim meanwhile
    try:
        town.add_pod("one")
        eventually(town.claims)
        first.close()
    finally:
        town.karpenter.start()
    town.begin()
    town.bound("one")
    assert len(town.claims()) == 1
    assert len(town.kept().groups) == 1


def test_a_catalogue_that_promises_too_much_is_told_and_not_bought_from(town: KarpenterTown, server: ApiServer) -> None:
    wrong = [dict(each) for each in catalogue()]
    wrong[2] |= {"allocatable": {"cpu": "4", "memory": "15Gi"}, "capacity": {"cpu": "4", "memory": "16Gi"}}
    town.offer(WEB, machine_types=wrong)
    hands = Hands(town, server, "web")
    try:
        hands.guard.observe()
        hands.guard.increase("web", 1)
        eventually(lambda: hands.states("web") == ["Running"])
        with pytest.raises(Refused, match=r"machine type c-4: cpu 4, and a node of it has 3900m"):
            hands.guard.increase("web", 1)
        assert "c-4" not in hands.guard.machine_types()
        town.offer(WEB)
        hands.guard.observe()
        assert "c-4" in hands.guard.machine_types()
        town.client.delete(NODECLAIMS, town.claims()[0].metadata.name)
    finally:
        hands.close()
