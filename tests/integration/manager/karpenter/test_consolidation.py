"""Dear nodes of real Karpenter are replaced by cheaper ones, and the pods run again."""

from typing import Any

import pytest

from manager.autoscaler.reporting.events import CONSOLIDATION
from manager.main import Manager
from tests.integration.manager.conftest import fetch
from tests.integration.manager.karpenter.town import KarpenterTown, own_taints
from tests.support import eventually
from tests.support.karpenter import ZONES, catalogue

pytestmark = pytest.mark.real_only("Karpenter asks for a real API server")

PATIENT_SECONDS = 120.0
EAGER: dict[str, Any] = {
    "consolidation": "price",
    "consolidation_balance": 0.0,
    "disruption_budgets": ("100%",),
    "consolidation_min_node_age_seconds": 0.0,
    "consolidation_cooldown_seconds": 0.0,
    "unremovable_node_recheck_timeout_seconds": 0.3,
    "scale_down_unneeded_time_seconds": 0.3,
    "scale_down_delay_after_add_seconds": 0.0,
    "node_delete_delay_after_taint_seconds": 0.2,
}


def offer(town: KarpenterTown, *machine_types: str, **more: Any) -> None:
    town.offer(autoprovisioning={"machine_types": machine_types, "zones": ZONES[:1]}, **more)


def ours(town: KarpenterTown) -> dict[str, str]:
    """The machine type of each claim of Headroom's."""
    return {each.metadata.name: each.offering.machine_type for each in town.claims() if each.is_ours}


def groups(town: KarpenterTown) -> list[str]:
    """The machine type of each group."""
    return [each.machine_type for each in town.kept().groups.values()]


def nodes(town: KarpenterTown) -> set[str]:
    return {node.metadata.name for node in town.karpenter.nodes()}


def told(town: KarpenterTown, what: str) -> list[str]:
    return [each["message"] for each in town.cluster.events(CONSOLIDATION) if what in each["message"]]


def eventually_stays(manager: Manager, node: str) -> dict[str, Any]:
    """The row of a node that is a candidate, and for which there is nothing cheaper."""

    def look() -> dict[str, Any]:
        found = fetch(manager, "/api/v1/autoscaler/nodes").json()["scale_down"] or {"nodes": []}
        rows = (row for row in found["nodes"] if row["node"] == node)
        return next((row for row in rows if "NoCheaperNodes" in row["replacement"]), {})

    return eventually(look, PATIENT_SECONDS)


def eventually_costs(manager: Manager, per_hour: float) -> None:
    """All groups together."""

    def look() -> bool:
        by_group: dict[str, float] = fetch(manager, "/api/v1/groups").json()["cost_per_hour"]["by_group"]
        return abs(sum(cost for group, cost in by_group.items() if group) - per_hour) < 0.001

    eventually(look, PATIENT_SECONDS)


def test_two_nodes_are_replaced_by_three_cheaper_ones_and_that_of_a_nodepool_is_left_alone(town: KarpenterTown) -> None:
    taint = {"key": "theirs", "effect": "NoSchedule"}
    town.karpenter.add_node_pool("theirs", {}, taints=[taint])
    town.add_pod("theirs", nodeSelector={"karpenter.sh/nodepool": "theirs"}, tolerations=[taint])
    offer(town, "c-4")
    manager = town.begin(**EAGER)
    town.replicate(3, "1500m")
    before = town.replicas(3)
    theirs = town.bound("theirs")["theirs"].metadata
    for node in set(before.values()):
        row = eventually_stays(manager, node)
        assert row["replacement_saves_per_month"] == 0
        assert ("price", 200_000) in [(each["name"], each["value"]) for each in row["replacement_terms"]]
    assert list(ours(town).values()) == ["c-4"] * 2
    eventually_costs(manager, 0.4)

    offer(town, "c-2", "c-4")
    eventually(lambda: told(town, "is done") and groups(town) == ["c-2"], PATIENT_SECONDS)
    assert list(ours(town).values()) == ["c-2"] * 3
    after = town.replicas(3)
    assert len(set(after.values())) == 3
    assert nodes(town) == {*after.values(), theirs.name}
    assert told(town, "which saves 73/month")
    eventually_costs(manager, 0.3)
    assert town.bound("theirs")["theirs"].metadata.uid == theirs.uid
    assert len(town.claims()) == 4


def test_a_node_that_is_too_big_is_replaced_although_its_manager_dies_after_the_launch(town: KarpenterTown) -> None:
    offer(town, "c-16")
    dying = town.begin(**EAGER)
    town.replicate(1, "500m")
    before = town.replicas(1)
    eventually_stays(dying, *before.values())
    town.karpenter.stop()  # so that nothing becomes of the new claim meanwhile
    try:
        offer(town, "c-1", "c-16")
        eventually(lambda: sorted(ours(town).values()) == ["c-1", "c-16"], PATIENT_SECONDS)
        launched = ours(town)
        dying.close()
        (node,) = town.karpenter.nodes()
        assert not own_taints(node)
        assert town.replicas(1) == before
    finally:
        town.karpenter.start()
    manager = town.begin(**EAGER)
    eventually(lambda: told(town, "is done") and groups(town) == ["c-1"], PATIENT_SECONDS)
    assert ours(town).items() < launched.items(), "nothing is launched twice"
    assert not told(town, "is given up")
    after = town.replicas(1)
    assert nodes(town) == set(after.values())
    eventually_costs(manager, 0.05)


def test_a_node_whose_replacement_gets_no_machine_stays_and_nothing_is_left_behind(town: KarpenterTown) -> None:
    offer(town, "c-16")
    manager = town.begin(**EAGER)
    town.replicate(1, "500m")
    before, launched = town.replicas(1), ours(town)
    eventually_stays(manager, *before.values())
    unknown = {**catalogue()[0], "name": "c-1-unknown"}  # Karpenter neither launches nor deletes a claim of it
    offer(town, "c-1-unknown", "c-16", machine_types=[*catalogue(), unknown], launch_timeout="3s")
    eventually(lambda: told(town, "is given up") and groups(town) == ["c-16"], PATIENT_SECONDS)
    assert ours(town) == launched
    assert list(town.kept().sold_out) == [f"c-1-unknown/{ZONES[0]}/on-demand"]
    eventually_stays(manager, *before.values())
    (node,) = town.karpenter.nodes()
    assert not own_taints(node)
    assert not node.spec.unschedulable
    assert town.replicas(1) == before
