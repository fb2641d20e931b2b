"""The Karpenter provider against an API server, where the test says what Karpenter does."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from manager.autoscaler.cloudprovider.contract import (
    CloudNotice,
    ErrorClass,
    GroupSpec,
    InstanceError,
    InstanceState,
    NodeRef,
    NoticeKind,
)
from manager.autoscaler.cloudprovider.errors import Refused, Unavailable
from manager.autoscaler.cloudprovider.guard import Guard
from manager.autoscaler.cloudprovider.karpenter import claims, ended_claims, offering_reports, registry
from manager.autoscaler.cloudprovider.node_template import LABEL_ZONE
from manager.autoscaler.cloudprovider.ownership import DEFAULT_PREFIX, Ownership
from manager.autoscaler.cloudprovider.plugin import ManagedGroups
from shared import names
from shared.clock import ManualClock
from shared.kube.errors import AlreadyExists, NotFound
from shared.kube.resources import CONFIGMAPS, EVENTS, NODECLAIMS, NODEPOOLS, NODES, Resource
from tests.integration.manager.conftest import Cluster
from tests.support import eventually
from tests.support.apiserver import ApiServer, rule
from tests.support.custom_kinds import CRDS, definition_of, is_served
from tests.support.http_server import HttpServer, Request
from tests.support.observing import guarded

pytestmark = pytest.mark.embedded_only("on a real API server Karpenter itself answers")

ID = "cloud:///a/i-1"
UP = (claims.LAUNCHED, claims.REGISTERED)
POOL = {
    "apiVersion": NODEPOOLS.api_version,
    "kind": "NodePool",
    "metadata": {"name": "default"},
    "spec": {
        "template": {
            "metadata": {"labels": {"env": "prod", "karpenter.sh/x": "y", names.LABEL_NODE_GROUP: "stray"}},
            "spec": {
                "nodeClassRef": {"group": "cloud.example", "kind": "CloudNodeClass", "name": "default"},
                "taints": [{"key": "prod", "effect": "NoSchedule"}],
                "startupTaints": [{"key": "booting", "effect": "NoExecute"}],
            },
        }
    },
}
FILE: dict[str, Any] = {
    "node_pool": "default",
    "machine_types": [
        {
            "name": "m-4",
            "allocatable": {"cpu": "3900m", "memory": "14Gi", "pods": "58"},
            "offerings": [{"zone": "a", "price": 0.2}, {"zone": "b", "price": 0.3}],
        }
    ],
    "groups": [{"name": "web", "machine_type": "m-4", "zone": "a", "max": 3}],
    "autoprovisioning": {},
}


class Site:
    """The API server as Karpenter and people see it, and our provider, which a test may begin anew."""

    def __init__(self, cluster: Cluster, file: Path) -> None:
        self.client = cluster.client
        self.clock = ManualClock()
        self._namespace = cluster.namespace
        self._file = file
        self._guards: list[Guard] = []
        for kind, plural in (("NodeClaim", "nodeclaims"), ("NodePool", "nodepools")):
            self.define(kind, plural)
        self.client.create(NODEPOOLS, POOL)
        self.pool_is_ready("True")
        self.offer()
        self.guard = self.begin()

    def define(self, kind: str, plural: str) -> None:
        resource = Resource("karpenter.sh", "v1", plural, namespaced=False)
        with contextlib.suppress(AlreadyExists):
            self.client.create(CRDS, definition_of(resource, kind))
        eventually(lambda: is_served(self.client, resource))

    def offer(self, **more: Any) -> None:
        self._file.write_text(yaml.safe_dump(FILE | more))

    def begin(self, *, writes: bool = True, **groups: Any) -> Guard:
        given: dict[str, Any] = {"client": self.client, "namespace": self._namespace, "clock": self.clock}
        given["groups"] = ManagedGroups(**groups)
        self._guards.append(guarded("karpenter", self._file, Ownership({"web": None}), writes=writes, **given))
        return self._guards[-1]

    def pool_is_ready(self, status: str) -> None:
        condition = {"type": "NodeClassReady", "status": status, "reason": "NoSubnet", "message": "no subnet found"}
        self.client.patch(NODEPOOLS, "default", {"status": {"conditions": [condition]}}, subresource="status")

    def claims(self, group: str = "web") -> list[dict[str, Any]]:
        return self.client.list(NODECLAIMS, label_selector=f"{names.LABEL_NODE_GROUP}={group}").items

    def bought(self, count: int = 1) -> list[str]:
        """The names of new claims of the group web."""
        self.guard.observe()
        before = {each["metadata"]["name"] for each in self.claims()}
        self.guard.increase("web", count)
        return sorted({each["metadata"]["name"] for each in self.claims()} - before)

    def says(self, claim: str, *conditions: str, **status: Any) -> None:
        """What Karpenter writes to its status."""
        held = [{"type": each, "status": "True"} for each in conditions]
        self.client.patch(NODECLAIMS, claim, {"status": {"conditions": held, **status}}, subresource="status")

    def add_claim(self, name: str, **labels: str) -> None:
        """One that this provider has not created."""
        body = {
            "apiVersion": NODECLAIMS.api_version,
            "kind": "NodeClaim",
            "metadata": {"name": name, "labels": labels},
            "spec": {},
        }
        self.client.create(NODECLAIMS, body)

    def proves(self) -> None:
        """The offering of the group web has launched before."""
        (name,) = self.bought()
        self.says(name, claims.LAUNCHED, providerID="cloud:///a/i-0")
        self.guard.observe()
        self.guard.delete_nodes("web", [NodeRef("", "cloud:///a/i-0")])

    def failures(self) -> list[InstanceError]:
        return [each.error for each in self.guard.observe().groups["web"].instances if each.error]

    def size(self) -> int:
        return self.guard.observe().groups["web"].group.target_size

    def close(self) -> None:
        for guard in self._guards:
            guard.close()
        for kind in (NODECLAIMS, NODEPOOLS):
            for item in self.client.list(kind).items:
                self.client.delete(kind, item["metadata"]["name"])


def refuses_claims(after: int) -> list[dict[str, Any]]:
    """The API server accepts so many NodeClaims more, and then none."""
    return [
        rule("delay", "nodeclaims", method="POST", times=after, seconds=0),
        rule("status", "nodeclaims", method="POST", times=0, status=403),
    ]


@pytest.fixture
def site(cluster: Cluster, tmp_path: Path) -> Iterator[Site]:
    site = Site(cluster, tmp_path / "karpenter.yaml")
    yield site
    site.close()


def test_a_claim_is_made_as_the_template_of_the_nodepool_says_and_is_no_claim_of_it(site: Site) -> None:
    (name,) = site.bought()
    (claim,) = site.claims()
    assert claim["metadata"]["name"] == name
    assert claim["metadata"]["labels"] == {"env": "prod", names.LABEL_NODE_GROUP: "web"}
    assert claim["spec"]["nodeClassRef"]["kind"] == "CloudNodeClass"
    assert [each["key"] for each in claim["spec"]["taints"]] == ["prod"]
    assert [each["key"] for each in claim["spec"]["startupTaints"]] == ["booting"]
    assert [each.key for each in site.guard.template("web").spec.taints or ()] == ["prod"]


def test_a_nodepool_that_cannot_make_nodes_is_not_asked_for_any(site: Site) -> None:
    site.pool_is_ready("False")
    site.guard.observe()
    with pytest.raises(Refused, match="NodePool default is not ready: NoSubnet no subnet found"):
        site.guard.increase("web", 1)
    with pytest.raises(Refused, match="not ready"):
        site.guard.theoretical(GroupSpec("m-4", DEFAULT_PREFIX))
    site.client.delete(NODEPOOLS, "default")
    site.guard.observe()
    with pytest.raises(Refused, match="cannot be read"):
        site.guard.increase("web", 1)


def test_a_claim_that_vanishes_counts_until_it_is_given_up_and_its_offering_is_left_alone(site: Site) -> None:
    (name,) = site.bought()
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {"kind": "NodeClaim", "name": name},
        "type": "Warning",
        "reason": ended_claims.STOCK_OUT,
        "message": "none left",
    }
    site.client.create(EVENTS, event, "default")
    site.client.delete(NODECLAIMS, name)
    expected = InstanceError(ErrorClass.OUT_OF_RESOURCES, ended_claims.STOCK_OUT, "none left")
    assert (site.failures(), site.size()) == ([expected], 1)
    site.guard = site.begin()  # a new leader has not seen it, and still leaves the offering alone
    assert (site.failures(), site.size()) == ([], 0)
    with pytest.raises(Refused, match="none left"):
        site.guard.increase("web", 1)
    site.clock.advance(301)
    site.bought()
    assert site.size() == 1
    site.client.delete(EVENTS, "e", "default")


def test_a_failed_claim_is_given_up_once(site: Site) -> None:
    (name,) = site.bought()
    site.client.delete(NODECLAIMS, name)
    assert len(site.failures()) == 1
    site.guard.delete_nodes("web", [NodeRef("", claims.SCHEME + name)])
    assert (site.failures(), site.size()) == ([], 0)


def test_while_a_claim_gets_no_machine_nothing_is_bought(site: Site) -> None:
    (name,) = site.bought()
    site.clock.advance(59)
    assert not site.failures()
    site.clock.advance(2)
    site.guard.observe()
    assert [each.code for each in site.failures()] == ["LaunchTimeout"]
    with pytest.raises(Refused, match=f"NodeClaim {name} gets no machine, and blocks Karpenter"):
        site.guard.increase("web", 1)
    site.guard.delete_nodes("web", [NodeRef("", claims.SCHEME + name)])
    site.guard.observe()
    theory = site.guard.theoretical(GroupSpec("m-4", DEFAULT_PREFIX))
    assert (theory.template.metadata.labels or {})["topology.kubernetes.io/zone"] == "b"


def test_of_an_offering_that_never_launched_one_claim_is_made_and_the_rest_once_it_has_a_machine(site: Site) -> None:
    (first,) = site.bought(3)
    message = "2 of its nodes wait until the first one of m-4/a/on-demand has a machine"
    assert site.guard.observe().notices == (CloudNotice(NoticeKind.DELAYED, "web", 2, message),)
    assert site.guard.observe().notices == ()
    assert site.size() == 3
    assert len(site.claims()) == 1
    site.says(first, claims.LAUNCHED, providerID=ID)
    site.guard.observe()
    assert len(site.claims()) == 3
    assert (site.size(), site.failures()) == (3, [])
    site.guard = site.begin()  # a new leader knows from the registry that it launches
    there = site.guard.observe().groups["web"].instances
    site.guard.delete_nodes("web", [NodeRef("", each.provider_id) for each in there])
    assert site.size() == 0
    assert len(site.bought(2)) == 2


def test_what_waits_and_cannot_be_created_is_tried_again_in_the_next_round(site: Site, server: ApiServer) -> None:
    (first,) = site.bought(3)
    site.says(first, claims.LAUNCHED, providerID=ID)
    server.fault(*refuses_claims(after=1))
    assert site.size() == 3
    assert len(site.claims()) == 2
    server.fault()
    assert site.size() == 3
    assert len(site.claims()) == 3


def test_what_waits_for_a_claim_fails_as_that_claim_has(site: Site) -> None:
    (first,) = site.bought(3)
    site.client.delete(NODECLAIMS, first)
    assert [each.code for each in site.failures()] == [ended_claims.VANISHED] * 3
    assert (site.size(), site.claims()) == (3, [])
    failed = [each.provider_id for each in site.guard.observed.groups["web"].instances]
    site.guard.delete_nodes("web", [NodeRef("", each) for each in failed], below_min=True)
    assert (site.failures(), site.size(), site.claims()) == ([], 0, [])


def test_what_waits_for_a_claim_without_a_machine_is_never_made(site: Site) -> None:
    (first,) = site.bought(2)
    site.clock.advance(61)
    assert [each.code for each in site.failures()] == ["LaunchTimeout"] * 2
    assert [each["metadata"]["name"] for each in site.claims()] == [first]


def test_what_waits_is_given_up_like_a_claim(site: Site) -> None:
    (first,) = site.bought(2)
    (waiting,) = {each.provider_id for each in site.guard.observe().groups["web"].instances} - {claims.SCHEME + first}
    site.guard.delete_nodes("web", [NodeRef("", waiting)])
    site.says(first, claims.LAUNCHED, providerID=ID)
    assert (site.size(), len(site.claims())) == (1, 1)


def test_claims_that_were_created_before_one_was_refused_count_and_the_rest_is_asked_for_anew(
    site: Site, server: ApiServer
) -> None:
    site.proves()
    site.guard.observe()
    server.fault(*refuses_claims(after=1))
    with pytest.raises(Unavailable, match="1 of 3 NodeClaims created"):
        site.guard.increase("web", 3)
    assert site.guard.is_in_doubt("web")
    server.fault()
    assert (site.size(), len(site.claims())) == (1, 1)
    site.bought(2)
    assert site.size() == 3


def test_who_has_not_looked_for_long_neither_tells_nor_buys_what_another_leader_may_have(site: Site) -> None:
    (first,) = site.bought(2)
    site.says(first, *UP, providerID=ID)
    site.clock.advance(121)
    assert (site.size(), len(site.claims())) == (1, 1)
    site.clock.advance(121)
    site.client.delete(NODECLAIMS, first)
    assert (site.guard.observe().notices, site.failures()) == ((), [])


def test_exactly_the_named_node_goes(site: Site) -> None:
    site.proves()
    first, second = site.bought(2)
    site.says(first, *UP, providerID=ID)
    site.says(second, *UP, providerID="cloud:///a/i-2")
    site.guard.observe()
    site.guard.delete_nodes("web", [NodeRef("n1", ID)])
    assert [each["metadata"]["name"] for each in site.claims()] == [second]
    assert not site.failures()
    assert site.size() == 1


@pytest.mark.parametrize(
    ("conditions", "why"),
    [
        ([], ""),
        (
            [{"type": claims.DISRUPTION_REASON, "status": "True", "reason": "Expired", "message": "720h"}],
            " Expired 720h",
        ),
    ],
)
def test_a_node_that_expires_or_that_people_or_garbage_collection_delete_is_told_once_and_is_no_failure(
    site: Site, caplog: pytest.LogCaptureFixture, conditions: list[dict[str, str]], why: str
) -> None:
    (name,) = site.bought()
    site.says(name, *UP, providerID=ID, nodeName="n1")
    site.client.patch(NODECLAIMS, name, {"metadata": {"finalizers": ["karpenter.sh/termination"]}})
    site.guard.observe()
    held = [{"type": each, "status": "True"} for each in UP]
    site.client.patch(NODECLAIMS, name, {"status": {"conditions": held + conditions}}, subresource="status")
    site.client.delete(NODECLAIMS, name)
    message = f"a node was deleted, but not by Headroom: NodeClaim {name}, node n1.{why}"
    observed = site.guard.observe()
    assert observed.notices == (CloudNotice(NoticeKind.DELETED_BY_OTHERS, "web", 1, message),)
    assert [each.state for each in observed.groups["web"].instances] == [InstanceState.DELETING]
    assert [line for line in caplog.messages if message in line]
    site.client.patch(NODECLAIMS, name, {"metadata": {"finalizers": []}})
    observed = site.guard.observe()
    assert (observed.notices, observed.groups["web"].instances) == ((), ())
    assert (site.failures(), site.size()) == ([], 0)
    assert len(site.bought(2)) == 2  # it has launched: nothing has to be tried


def test_a_machine_that_is_collected_between_two_looks_is_told(site: Site) -> None:
    (name,) = site.bought()
    site.says(name, *UP, providerID=ID, nodeName="n1")
    site.guard.observe()
    site.client.delete(NODECLAIMS, name)
    assert [(each.kind, each.group) for each in site.guard.observe().notices] == [(NoticeKind.DELETED_BY_OTHERS, "web")]
    assert (site.failures(), site.size()) == ([], 0)


def test_claims_of_a_nodepool_are_never_ours_whatever_else_they_carry(site: Site) -> None:
    labels = {names.LABEL_NODE_GROUP: "web", "karpenter.sh/nodepool": "default"}
    site.add_claim("theirs", **labels)
    site.says("theirs", *UP, providerID=ID)
    observed = site.guard.observe([NodeRef("n1", ID, labels)])
    assert (observed.groups["web"].instances, observed.group_of_node) == ((), {})
    with pytest.raises(Refused, match="is not in it"):
        site.guard.delete_nodes("web", [NodeRef("n1", ID, labels)])


def test_claims_of_a_group_that_is_not_known_are_told_and_go_if_they_get_no_machine(site: Site) -> None:
    for name in ("up", "stuck"):
        site.add_claim(name, **{names.LABEL_NODE_GROUP: "gone"})
    site.says("up", *UP, providerID=ID)
    known = "karpenter: group gone: neither the file nor the registry contains it: "
    assert str(site.guard.observe().refused["gone"]) == known + "NodeClaim stuck, NodeClaim up"
    site.clock.advance(61)
    told = known + "NodeClaim stuck gets no machine, NodeClaim up"
    observed = site.guard.observe()
    assert (str(observed.refused["gone"]), observed.strays) == (told, {"gone": (claims.SCHEME + "stuck",)})
    with pytest.raises(Refused, match="none of its instances without a machine"):
        site.guard.delete_nodes("gone", [NodeRef("up", ID)], below_min=True)
    site.guard.delete_nodes("gone", [NodeRef("stuck", claims.SCHEME + "stuck")], below_min=True)
    assert [each["metadata"]["name"] for each in site.claims("gone")] == ["up"]
    assert site.bought()


def test_where_nothing_is_written_claims_of_unknown_groups_stay(site: Site) -> None:
    site.add_claim("stuck", **{names.LABEL_NODE_GROUP: "gone"})
    guard = site.begin(writes=False)
    guard.observe()
    site.clock.advance(61)
    assert "gets no machine" in str(guard.observe().refused["gone"])
    with pytest.raises(Refused, match="only read"):
        guard.delete_nodes("gone", [NodeRef("stuck", claims.SCHEME + "stuck")], below_min=True)
    assert site.claims("gone")


def test_a_created_group_outlives_the_process_and_with_claims_even_the_registry(site: Site, cluster: Cluster) -> None:
    site.guard.observe()
    made = site.guard.create_group(GroupSpec("m-4", DEFAULT_PREFIX, {"team": "a"})).main
    site.guard = site.begin()
    assert site.guard.observe().groups[made.id].group.autoprovisioned
    site.guard.increase(made.id, 1)
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": registry.CONFIG_MAP},
        "data": {registry.KEY: "{"},
    }
    site.client.replace(CONFIGMAPS, registry.CONFIG_MAP, body, cluster.namespace)
    site.guard = site.begin()
    found = site.guard.observe().groups[made.id].group
    assert (found.autoprovisioned, found.target_size, found.labels) == (True, 1, {"team": "a"})
    with pytest.raises(Refused, match="not empty"):
        site.guard.delete_group(made.id)
    (claim,) = site.claims(made.id)
    site.guard.delete_nodes(made.id, [NodeRef("", claims.SCHEME + claim["metadata"]["name"])])
    site.guard.observe()
    site.guard.delete_group(made.id)
    assert made.id not in site.guard.observe().groups


def test_a_machine_type_that_reports_less_is_withheld_even_after_its_nodes_have_gone(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    (name,) = site.bought()
    site.says(name, *UP, providerID=ID, allocatable={"cpu": "3900m", "memory": "13Gi", "pods": "58"})
    site.guard.observe()
    assert [line for line in caplog.messages if "memory 14.00Gi, and a node of it has 13.00Gi" in line]
    site.guard.delete_nodes("web", [NodeRef("n1", ID)])
    site.guard = site.begin()
    site.guard.observe()
    with pytest.raises(Refused, match=r"memory 14\.00Gi, and a node of it has 13\.00Gi"):
        site.guard.increase("web", 1)
    assert not site.guard.machine_types()
    right = FILE["machine_types"][0] | {"allocatable": {"cpu": "3900m", "memory": "13Gi", "pods": "58"}}
    site.offer(machine_types=[right])
    assert site.bought()


def with_labels(**labels: str) -> dict[str, Any]:
    return {**FILE["machine_types"][0], "labels": labels}


def test_a_machine_type_whose_claim_has_another_label_is_withheld_until_the_file_is_right(site: Site) -> None:
    (name,) = site.bought()
    site.client.patch(NODECLAIMS, name, {"metadata": {"labels": {"family": "m5"}}})
    site.says(name, *UP, providerID=ID)
    site.offer(machine_types=[with_labels(family="m6")])
    site.guard.observe()
    site.guard.delete_nodes("web", [NodeRef("n1", ID)])
    site.guard = site.begin()
    site.guard.observe()
    with pytest.raises(Refused, match="machine type m-4: label family m6, and a node of it has m5"):
        site.guard.increase("web", 1)
    assert not site.guard.machine_types()
    site.offer(machine_types=[with_labels(family="m5")])
    assert site.bought()


def test_a_label_that_neither_claim_nor_node_has_withholds_its_machine_type_and_one_that_comes_late_does_not(
    site: Site,
) -> None:
    site.offer(machine_types=[with_labels(gpu="a")])
    (name,) = site.bought()
    site.says(name, *UP, providerID=ID)
    site.guard.observe()
    assert site.guard.machine_types()  # there may be a label of the Node's
    site.client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    site.says(name, *UP, claims.INITIALIZED, providerID=ID, nodeName="n1")
    site.guard.observe()
    with pytest.raises(Refused, match="machine type m-4: label gpu a, and a node of it has none"):
        site.guard.increase("web", 1)
    site.client.patch(NODES, "n1", {"metadata": {"labels": {"gpu": "a"}}})
    assert site.bought()


def test_a_label_that_a_group_sets_itself_is_no_mismatch(site: Site) -> None:
    site.offer(machine_types=[with_labels(team="any")], groups=[FILE["groups"][0] | {"labels": {"team": "web"}}])
    (name,) = site.bought()
    site.says(name, *UP, providerID=ID)
    assert site.bought()


CLASSES = Resource("cloud.example", "v1", "cloudnodeclasses", namespaced=False)
HASH = "cloud.example/cloudnodeclass-hash"


def hashed(value: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"annotations": {HASH: value, f"{HASH}-version": "v1"}, **more}}


def test_a_claim_has_drifted_once_the_node_class_that_the_nodepool_names_has_changed(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.guard = site.begin(minds_drift=True)
    (name,) = site.bought()
    site.client.patch(NODECLAIMS, name, hashed("1"))
    site.says(name, *UP, providerID=ID)
    with contextlib.suppress(AlreadyExists):
        site.client.create(CRDS, definition_of(CLASSES, "CloudNodeClass"))
    eventually(lambda: is_served(site.client, CLASSES))

    def drift(**file: Any) -> str:
        site.offer(**file)
        (found,) = site.guard.observe().groups["web"].instances
        return found.drift

    def node_class(name: str) -> dict[str, str]:
        return {"group": CLASSES.group, "version": CLASSES.version, "kind": "CloudNodeClass", "name": name}

    try:
        for file, problem in (
            ({}, "the file has no node_pool_class, which CloudNodeClass default needs to be read"),
            (
                {"node_pool_class": node_class("other")},
                "NodePool default names CloudNodeClass default, and node_pool_class",
            ),
            ({"node_pool_class": node_class("default")}, "CloudNodeClass default cannot be read"),
        ):
            assert drift(**file) == ""
            told = f"changes of the node class cannot be detected: {problem}"
            assert [line for line in caplog.messages if line.startswith(told)]
        body = {"apiVersion": CLASSES.api_version, "kind": "CloudNodeClass", **hashed("1", name="default")}
        site.client.create(CLASSES, body)
        assert drift(node_pool_class=node_class("default")) == ""
        site.client.patch(CLASSES, "default", hashed("2"))
        assert (
            drift(node_pool_class=node_class("default")) == f"its node class has changed since it was launched ({HASH})"
        )
    finally:
        site.client.delete(CRDS, f"{CLASSES.plural}.{CLASSES.group}")


def test_who_only_reads_buys_nothing_and_writes_nothing(site: Site, cluster: Cluster) -> None:
    reader = site.begin(writes=False)
    reader.observe()
    for write in (
        lambda: reader.increase("web", 1),
        lambda: reader.create_group(GroupSpec("m-4", DEFAULT_PREFIX)),
    ):
        with pytest.raises(Refused, match="only read"):
            write()
    assert not site.claims()
    with pytest.raises(NotFound):
        site.client.get(CONFIGMAPS, registry.CONFIG_MAP, cluster.namespace)


def test_without_karpenter_in_the_cluster_nothing_is_observed(site: Site) -> None:
    site.client.delete(NODEPOOLS, "default")
    site.client.delete(CRDS, "nodeclaims.karpenter.sh")
    try:
        eventually(lambda: not is_served(site.client, NODECLAIMS))
        with pytest.raises(Unavailable, match=r"does not serve nodeclaims\.karpenter.sh: is Karpenter installed"):
            site.guard.observe()
    finally:
        site.define("NodeClaim", "nodeclaims")


class KarpenterMetrics(HttpServer):
    """What a provider of Karpenter's publishes."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        super().__init__()

    def says(self, metric: str, zone: str, value: float) -> None:
        self.lines.append(f'{metric}{{capacity_type="on-demand",instance_type="m-4",zone="{zone}"}} {value}')

    def answer(self, request: Request) -> tuple[int, bytes]:
        return 200, "\n".join([*self.lines, ""]).encode()


def test_the_cheapest_offering_by_karpenters_own_prices_is_launched_unless_it_is_not_available(site: Site) -> None:
    metrics = KarpenterMetrics()
    try:
        metrics.says(offering_reports.PRICE, "b", 0.1)
        site.offer(metrics_url=metrics.url)
        site.guard.observe()
        spec = GroupSpec("m-4", DEFAULT_PREFIX)
        assert site.guard.theoretical(spec).template.metadata.label(LABEL_ZONE) == "b", "0.2 in zone a"
        metrics.says(offering_reports.AVAILABLE, "b", 0)
        site.clock.advance(offering_reports.READ_SECONDS)
        site.guard.observe()
        assert site.guard.theoretical(spec).template.metadata.label(LABEL_ZONE) == "a"
    finally:
        metrics.close()
