"""Scripts about nodes that are deleted or replaced."""

from typing import Any

from manager.autoscaler.reporting import answers
from manager.autoscaler.snapshot.cluster import TAINT_TO_BE_DELETED
from manager.autoscaler.snapshot.templates import TAINT_DELETION_CANDIDATE
from manager.main import Manager
from shared import durations
from shared.kube.client import Patch
from shared.kube.resources import CONFIGMAPS, NODES, PODS
from tests.simulation.scripts_of_scale_up import NEVER_SECONDS, WEB
from tests.simulation.town import NAMESPACE, Town, answered, eventually, later_decisions, later_iterations, latest, log
from tests.simulation.virtual import WORLD

QUICK: dict[str, Any] = {
    "scale_down_unneeded_time_seconds": 15.0,
    "scale_down_delay_after_add_seconds": 0.0,
    "scale_down_delay_after_failure_seconds": 0.0,
    "unremovable_node_recheck_timeout_seconds": 15.0,
    "scale_down_peaks": False,
}
DEAR: dict[str, Any] = {**WEB, "price": 1.0}
BARGAIN: dict[str, Any] = {**WEB, "name": "bargain", "machine_type": "n1-standard-8", "max": 2}
REPLACING: dict[str, Any] = {
    **QUICK,
    "consolidation": "price",
    "disruption_budgets": ("100%",),
    "consolidation_min_node_age_seconds": 0.0,
    "consolidation_cooldown_seconds": 0.0,
}


def an_idle_node_is_deleted_once_it_has_been_unneeded_for_long_enough(town: Town) -> None:
    town.offer(WEB)
    manager = town.manager("0:10:web", **QUICK | {"scale_down_unneeded_time_seconds": 900.0})
    town.want(2)
    town.eventually_running(2)
    town.spare("p0", "p1")
    eventually(lambda: town.tainted(TAINT_DELETION_CANDIDATE))
    since = WORLD.now
    eventually(lambda: not town.nodes)
    assert 880 < WORLD.now - since < 1000
    assert town.targets() == {"web": 0}
    later_iterations(manager)
    assert town.targets() == {"web": 0}


def a_budget_that_closes_on_the_way_keeps_the_node_and_takes_its_taint_back(town: Town) -> None:
    manager = _half_empty(
        town,
        node_delete_delay_after_taint_seconds=600.0,
        max_pod_eviction_time_seconds=1.0,
        scale_down_delay_after_failure_seconds=float(NEVER_SECONDS),
    )
    (marked,) = eventually(lambda: town.tainted(TAINT_TO_BE_DELETED))
    assert town.nodes[marked].spec.unschedulable
    town.protect("all", 100)
    eventually(lambda: not town.tainted(TAINT_TO_BE_DELETED))
    assert not town.nodes[marked].spec.unschedulable
    later_iterations(manager)
    assert len(town.nodes) == 2
    assert not town.made_again


def the_cordon_of_a_user_outlasts_the_taint(town: Town) -> None:
    first = _half_empty(town, scale_down_unneeded_time_seconds=float(NEVER_SECONDS))
    node = next(iter(town.nodes))
    town.client.patch(NODES, node, {"spec": {"unschedulable": True}})
    first.close()
    more = {"scale_down_utilization_threshold": 0.6, "node_delete_delay_after_taint_seconds": 600.0}
    second = town.manager("0:10:web", **QUICK | more)
    eventually(lambda: town.tainted(TAINT_TO_BE_DELETED) == [node])
    second.close()
    town.manager("0:10:web", **QUICK | {"scale_down_unneeded_time_seconds": float(NEVER_SECONDS)})
    eventually(lambda: not town.tainted(TAINT_TO_BE_DELETED))
    assert town.nodes[node].spec.unschedulable


def no_group_shrinks_below_its_minimum(town: Town) -> None:
    town.offer(WEB)
    manager = town.manager("1:10:web", **QUICK)
    town.want(6)
    town.eventually_running(6)
    town.spare(*(f"p{number}" for number in range(6)))
    eventually(lambda: len(town.nodes) == 1)
    later_iterations(manager, 8)
    assert len(town.nodes) == 1
    assert town.targets() == {"web": 1}


def a_dry_run_names_the_node_to_delete_and_leaves_all_as_it_is(town: Town) -> None:
    first = _half_empty(town, scale_down_enabled=False)
    first.close()
    before = {name: node.spec for name, node in town.nodes.items()}
    manager = town.manager("0:10:web", **QUICK | {"dry_run": True, "scale_down_utilization_threshold": 0.6})

    def removals() -> list[dict[str, Any]]:
        return [action for action in latest(manager).get("decisions", []) if action["what"] == "remove nodes"]

    (action,) = eventually(removals)
    assert (action["group"], action["done"], action["error"]) == ("web", False, "")
    later_iterations(manager)
    assert {name: node.spec for name, node in town.nodes.items()} == before
    assert not town.made_again


def a_created_group_is_deleted_with_its_last_node(town: Town) -> None:
    town.offer(WEB | {"max": 0}, autoprovisioning={"machine_types": ["n1-standard-2"]})
    town.manager("0:0:web", **QUICK | {"node_autoprovisioning": True})
    town.pods(1, nodeSelector={"team": "db"})
    town.eventually_bound(1)
    (group,) = town.targets().keys() - {"web"}
    town.delete_pod("p0")
    eventually(lambda: group not in town.targets())
    assert not town.nodes
    eventually(lambda: town.events("DeletedNodeGroup"))


def two_dear_nodes_that_are_half_empty_are_replaced_by_a_cheaper_one(town: Town) -> None:
    town.offer(DEAR, {**BARGAIN, "price": 9.0})
    manager = town.manager("0:10:web", "0:2:bargain", **REPLACING)
    before = set(_pair(town).values())
    said = eventually(
        lambda: [row["replacement"] for name, row in _rows(manager).items() if name in before and row["replacement"]]
    )
    assert all("NoCheaperNodes" in each for each in said)

    town.offer(DEAR, {**BARGAIN, "price": 0.9})
    eventually(lambda: len(town.nodes) == 1 and not before & town.nodes.keys())
    (name,) = town.nodes
    assert set(town.eventually_running(2).values()) == {name}
    assert sorted(town.made_again) == ["p0", "p1"]
    assert town.targets() == {"web": 0, "bargain": 1}
    eventually(lambda: _is_settled(town))
    eventually(lambda: name in _rows(manager))
    assert _rows(manager)[name]["group"] == "bargain"


def a_group_is_created_for_the_replacement_of_a_dear_pair(town: Town) -> None:
    _replaces_by_a_created_group(town, dies=False)


def a_group_that_is_created_for_a_replacement_outlives_its_manager(town: Town) -> None:
    _replaces_by_a_created_group(town, dies=True)


def a_group_whose_replacement_is_given_up_is_deleted_and_the_old_nodes_stay(town: Town) -> None:
    town.offer(DEAR)
    manager = town.manager("0:10:web", **REPLACING)
    before = set(_pair(town).values())
    manager.close()
    town.offer(DEAR, autoprovisioning={"machine_types": ["n1-standard-8"], "boot_seconds": 3600.0})
    town.manager("0:10:web", **REPLACING, node_autoprovisioning=True, max_node_provision_time_seconds=60.0)
    eventually(lambda: town.registry().backoffs)
    eventually(lambda: town.registry().replacing is None and not _created(town))
    assert set(town.nodes) == before
    assert not town.made_again


def an_unhealthy_node_is_replaced_and_its_pod_runs_again(town: Town) -> None:
    town.offer(WEB)
    town.manager("0:10:web", **QUICK, node_repair_conditions=("KernelDeadlock=True:1m",))
    before = _pair(town)
    sick = before["p0"]
    since = durations.timestamp(town.nodes[sick].metadata.created_at - 3600)
    condition = {"type": "KernelDeadlock", "status": "True", "reason": "Hung", "lastTransitionTime": since}
    status = {"status": {"conditions": [condition]}}
    town.client.patch(NODES, sick, status, kind=Patch.STRATEGIC, subresource="status")

    eventually(lambda: sick not in town.nodes)
    after = town.eventually_running(2)
    assert len(set(after.values())) == 2
    assert after["p1"] == before["p1"], "the other pod is left alone"
    assert town.made_again == ["p0"]
    assert town.targets() == {"web": 2}
    eventually(lambda: _is_settled(town))


def nodes_of_a_group_that_has_changed_are_replaced_unless_a_budget_forbids_it(town: Town) -> None:
    town.offer(WEB)
    drifting = QUICK | {"replace_drifted_nodes": True}
    manager = town.manager("0:10:web", **drifting, disruption_budgets=("0;reasons=Drifted",))
    town.want(1, cpu="2100m")
    (old,) = town.eventually_running(1).values()
    town.offer({**WEB, "labels": {**WEB["labels"], "image": "v2"}})
    eventually(lambda: _rows(manager).get(old, {}).get("replacement"))
    row = _rows(manager)[old]
    assert row["replacement_reason"] == "Drifted"
    assert row["replacement"].startswith(f"{old} is not replaced, DisruptionLimitReached: Drifted, it was launched as ")
    manager.close()

    town.manager("0:10:web", **drifting)
    eventually(lambda: old not in town.nodes and len(town.nodes) == 1)
    (new,) = town.eventually_running(1).values()
    assert (town.nodes[new].metadata.labels or {})["image"] == "v2"
    eventually(lambda: _is_settled(town))
    assert town.made_again == ["p0"]


def a_node_that_the_cloud_takes_has_its_successor_before_it_is_drained(town: Town) -> None:
    town.offer(WEB)
    quiet = QUICK | {"scale_down_unneeded_time_seconds": float(NEVER_SECONDS)}
    first = town.manager("0:10:web", **quiet)
    before = _pair(town)
    taken = before["p0"]
    _adopt(town, "p0")
    told = {"key": "aws-node-termination-handler/spot-itn", "value": "an-event", "effect": "NoSchedule"}
    town.client.patch(NODES, taken, {"spec": {"unschedulable": True, "taints": [told]}})
    eventually(lambda: len(town.nodes) == 3)
    eventually(lambda: _is_settled(town))
    assert _rows(first)[taken]["interruption"] == "SpotInterruption (taint aws-node-termination-handler/spot-itn)"
    assert town.eventually_running(2) == before, "the pod is not evicted"
    first.close()
    later_decisions(town.manager("0:10:web", **quiet))
    assert town.targets() == {"web": 3}, "the next manager launches no other one"

    town.delete_pod("p0")
    eventually(lambda: taken not in town.nodes)
    after = town.eventually_running(2)
    assert after["p1"] == before["p1"]
    assert set(after.values()) == set(town.nodes)
    assert town.targets() == {"web": 2}, "the cloud launches no other one in its place"
    assert taken in [each["involvedObject"]["name"] for each in town.events("NodeInterrupted")]


def _half_empty(town: Town, **settings: Any) -> Manager:
    """Two nodes, each with one pod of two, which would fit on one; the other two are not wanted any more."""
    town.offer(WEB)
    manager = town.manager("0:10:web", **QUICK | {"scale_down_utilization_threshold": 0.6} | settings)
    town.want(4)
    running = town.eventually_running(4)
    nodes = sorted(set(running.values()))
    assert len(nodes) == 2
    town.spare(*(next(pod for pod, node in running.items() if node == each) for each in nodes))
    return manager


def _pair(town: Town) -> dict[str, str]:
    """The nodes of two pods, each of which is too large for the other's node."""
    town.want(2, cpu="2100m")
    running = town.eventually_running(2)
    assert len(set(running.values())) == 2
    return running


def _is_settled(town: Town) -> bool:
    kept = town.registry()
    return kept.replacing is None and not kept.requests and not kept.backoffs


def _adopt(town: Town, pod: str) -> None:
    """The pod has a controller from now on, which the API server knows."""
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}}
    owner = town.client.create(CONFIGMAPS, body, NAMESPACE)
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.uid, "controller": True}
    town.client.patch(PODS, pod, {"metadata": {"ownerReferences": [reference]}}, NAMESPACE)


def _replaces_by_a_created_group(town: Town, *, dies: bool) -> None:
    town.offer(DEAR)
    manager = town.manager("0:10:web", **REPLACING)
    before = set(_pair(town).values())
    manager.close()

    boots = 120.0 if dies else 1.0
    town.offer(DEAR, autoprovisioning={"machine_types": ["n1-standard-8"], "boot_seconds": boots})
    settings = {**REPLACING, "node_autoprovisioning": True, "max_autoprovisioned_node_group_count": 1}
    manager = town.manager("0:10:web", **settings)
    if dies:
        eventually(lambda: _created(town))
        manager.close()
        assert set(town.nodes) == before
        town.manager("0:10:web", **settings)
    eventually(lambda: len(town.nodes) == 1 and not before & town.nodes.keys())
    assert set(town.eventually_running(2).values()) == set(town.nodes)
    (group,) = _created(town)
    assert group.startswith("nodeautoprovisioning-n1-standard-8")
    assert town.targets() == {"web": 0, group: 1}
    eventually(lambda: town.registry().replacing is None)


def _created(town: Town) -> set[str]:
    return set(town.targets()) - {"web", "bargain"}


def _rows(manager: Manager) -> dict[str, Any]:
    """What is answered about each node's removal."""
    found = answered(answers.nodes_answer(log(manager).plan(), "")).get("scale_down")
    return {row["node"]: row for row in (found or {"nodes": []})["nodes"]}


SCRIPTS = (
    an_idle_node_is_deleted_once_it_has_been_unneeded_for_long_enough,
    a_budget_that_closes_on_the_way_keeps_the_node_and_takes_its_taint_back,
    the_cordon_of_a_user_outlasts_the_taint,
    no_group_shrinks_below_its_minimum,
    a_dry_run_names_the_node_to_delete_and_leaves_all_as_it_is,
    a_created_group_is_deleted_with_its_last_node,
    two_dear_nodes_that_are_half_empty_are_replaced_by_a_cheaper_one,
    a_group_is_created_for_the_replacement_of_a_dear_pair,
    a_group_that_is_created_for_a_replacement_outlives_its_manager,
    a_group_whose_replacement_is_given_up_is_deleted_and_the_old_nodes_stay,
    an_unhealthy_node_is_replaced_and_its_pod_runs_again,
    nodes_of_a_group_that_has_changed_are_replaced_unless_a_budget_forbids_it,
    a_node_that_the_cloud_takes_has_its_successor_before_it_is_drained,
)
