"""Nodes that have to go, over successive rounds of the autoscaler, in a town whose manager may die at any moment."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from manager.autoscaler.cloudprovider.ownership import Ownership
from manager.autoscaler.cluster_state.actions import Action, ActionKind
from manager.autoscaler.cluster_state.replacement import DisruptionReason
from manager.autoscaler.disruption.disruption_limits import DisruptionLimits, parse_limit
from manager.autoscaler.disruption.rules import DisruptionRules, RepairPolicy
from manager.autoscaler.reporting import answers, events
from manager.autoscaler.reporting.metrics import AutoscalerMetrics
from manager.autoscaler.settings.modes import Mode
from shared import durations
from shared.api.core import Condition
from shared.kube.events import NORMAL, ObjectRef
from tests.support.properties import stride
from tests.unit.manager.test_consolidation_rounds import RULES, Town, config, made_node, made_pod

HOUR = 3600.0
STATUS = ObjectRef("v1", "ConfigMap", "status", "home", "")
LOCKED = RepairPolicy("KernelDeadlock", "True", 600.0)


def rules(**more: Any) -> DisruptionRules:
    given: dict[str, Any] = {"limits": DisruptionLimits(()), "pause_seconds": 0.0, **more}
    return DisruptionRules(**given)


EXPIRES = rules(max_node_lifetime_seconds=12 * HOUR)
REPAIRS = rules(repairs=(LOCKED,))
DRIFTS = rules(replace_drifted_nodes=True)


def town_of(found: DisruptionRules, **more: Any) -> Town:
    return Town(config(None, disruption=found), **more)


def lock(town: Town, name: str) -> None:
    """Its kernel hangs since an hour ago."""
    node = town.nodes[name]
    hangs = Condition("KernelDeadlock", "True", "Hung", last_transition_time=durations.timestamp(town.now - HOUR))
    status = msgspec.structs.replace(node.status, conditions=(*(node.status.conditions or ()), hangs))
    town.nodes[name] = msgspec.structs.replace(node, status=status)


def drift(town: Town, name: str) -> None:
    town.cloud.members["dear"] = [
        replace(each, drift="its image is v1, and the group's is v2") if each.provider_id == f"id:{name}" else each
        for each in town.cloud.members["dear"]
    ]


def are_young(town: Town) -> bool:
    return len(town.of_group("dear")) == 2 and not {"a", "b"} & town.nodes.keys()


def is_over(town: Town) -> bool:
    return are_young(town) and (town.registry.replacing, town.registry.requests, town.draining) == (None, {}, {})


def going(town: Town) -> list[tuple[str, ...]]:
    return [each.nodes for each in actions(town) if each.kind is ActionKind.REMOVE_NODES]


def actions(town: Town) -> list[Action]:
    return [action for each in town.seen for action in each.actions]


def said_of(town: Town, name: str) -> str:
    decided = town.seen[-1].consolidation
    return "" if decided is None else str(decided.verdicts.get(name, ""))


def test_expired_nodes_are_replaced_one_at_a_time_by_new_ones_of_their_group() -> None:
    town = town_of(EXPIRES)
    sizes: list[int] = []
    while not is_over(town) and len(sizes) < 40:
        town.go_on()
        sizes.append(len(town.of_group("dear")))
    assert is_over(town)
    assert set(sizes) == {2, 3}, "the new node is there before the old one goes"
    assert going(town) == [("a",), ("b",)]
    assert [(each.group, each.nodes, each.reason) for each in actions(town) if each.kind is ActionKind.INCREASE][
        :1
    ] == [("dear", ("a",), "replaces a, Expired: it is 24h0m0s old, more than 12h0m0s")]
    town.go_on(10)
    assert is_over(town), "young nodes stay"


# A renewal of both nodes passes some 40 moments at which a manager may die; later ones never come.
@pytest.mark.parametrize("moment", range(1, 42, max(1, stride() // 2)))
def test_a_manager_that_dies_at_any_moment_leaves_a_town_that_is_renewed_all_the_same(moment: int) -> None:
    town = town_of(EXPIRES, dies_at=moment)
    town.go_on_until(lambda here: is_over(here) and here.steps > moment, 60)
    assert is_over(town)
    assert town.steps > moment
    assert all(not node.spec.taints for node in town.nodes.values())
    assert town.cloud.target("dear") == 2


def test_a_node_whose_pods_have_places_goes_without_a_new_one() -> None:
    town = town_of(REPAIRS)
    for key in ("ns/a-0", "ns/b-1"):
        del town.pods[key]
    lock(town, "a")
    town.go_on_until(lambda here: "a" not in here.nodes)
    assert sorted(town.nodes) == ["b", "f"]
    assert not [each for each in actions(town) if each.kind is ActionKind.INCREASE]


def test_a_group_at_its_minimum_gets_the_new_node_first_even_where_the_pods_have_places() -> None:
    town = town_of(REPAIRS)
    town.cloud.listed = [replace(each, min_size=2) if each.id == "dear" else each for each in town.cloud.listed]
    town.pods = {key: pod for key, pod in town.pods.items() if key == "ns/a-1"}
    lock(town, "a")
    town.go_on_until(lambda here: "a" not in here.nodes)
    assert len(town.of_group("dear")) == 2
    assert town.cloud.target("dear") == 2


def test_a_node_of_a_full_group_is_replaced_by_one_of_another_group() -> None:
    town = town_of(REPAIRS)
    town.cloud.listed = [replace(each, max_size=2) if each.id == "dear" else each for each in town.cloud.listed]
    lock(town, "a")
    town.go_on_until(lambda here: "a" not in here.nodes)
    assert (town.of_group("dear"), len(town.of_group("cheap"))) == (["b"], 1)


def test_a_drifted_node_is_replaced_and_others_stay() -> None:
    town = town_of(DRIFTS)
    drift(town, "b")
    town.go_on_until(lambda here: "b" not in here.nodes)
    town.go_on(5)
    assert "a" in town.nodes
    assert len(town.of_group("dear")) == 2
    assert town.registry.replacing is None


def test_no_node_is_repaired_while_too_many_are_unhealthy() -> None:
    town = town_of(REPAIRS)
    lock(town, "a")
    lock(town, "b")
    town.go_on(3)
    assert town.of_group("dear") == ["a", "b"]
    assert said_of(town, "a") == (
        "a is not replaced, TooManyUnhealthyNodes: Unhealthy, its condition KernelDeadlock is True (Hung) for 1h1m0s, "
        "longer than 10m0s; 2 of 2 nodes are unhealthy, more than 20 %: something else is wrong"
    )
    assert not actions(town)


def test_a_condition_that_no_node_has_is_reported_in_every_iteration() -> None:
    town = town_of(rules(repairs=(LOCKED, RepairPolicy("Typo", "True", 600.0))))
    town.go_on(2)
    assert [sorted(each.invalid_objects) for each in town.seen] == [["condition KernelDeadlock", "condition Typo"]] * 2
    lock(town, "a")
    town.go_on(2)
    assert town.registry.replacing is not None
    assert [sorted(each.invalid_objects) for each in town.seen[2:]] == [["condition Typo"]] * 2


def test_a_node_that_is_in_order_again_before_it_is_drained_stays() -> None:
    town = town_of(REPAIRS)
    lock(town, "a")
    town.go_on(1)
    assert town.registry.replacing is not None
    town.nodes["a"] = made_node("a", "dear", town.now - 24 * HOUR)
    town.go_on_until(lambda here: here.registry.replacing is None)
    assert "a" in town.nodes
    ends = [each.consolidation.ended for each in town.seen if each.consolidation and each.consolidation.ended]
    assert ends == ["the replacement of a by 1 of dear is given up: it is not needed any more"]


Hindrance = Callable[[Town], None]


def hold_by_pod(town: Town) -> None:
    town.pods["ns/a-0"] = made_pod("a-0", "a", "3", **{"karpenter.sh/do-not-disrupt": "true"})


def hold_by_node(town: Town, mark: str = "cluster-autoscaler.kubernetes.io/scale-down-disabled") -> None:
    node = town.nodes["a"]
    town.nodes["a"] = msgspec.structs.replace(
        node, metadata=msgspec.structs.replace(node.metadata, annotations={mark: "true"})
    )


def close_budget(town: Town) -> None:
    limit = parse_limit("0;reasons=Expired", source="flags", name="disruption-budgets")
    town.chosen = config(None, disruption=replace(EXPIRES, limits=DisruptionLimits((limit,))))


def close_budget_of_its_group(town: Town) -> None:
    limit = parse_limit("0", source="file", name="disruption_budgets")
    limits = DisruptionLimits((), {"dear": (limit,)})
    town.chosen = config(None, disruption=replace(EXPIRES, limits=limits))


def test_a_group_may_have_its_own_lifetime_beside_groups_that_keep_their_nodes() -> None:
    town = town_of(rules(groups={"dear": EXPIRES}))
    town.go_on_until(is_over, 60)
    assert is_over(town)
    town = town_of(rules(max_node_lifetime_seconds=12 * HOUR, groups={"dear": rules()}))
    town.go_on(10)
    assert going(town) == []


@pytest.mark.parametrize(
    ("hinder", "reason", "detail"),
    [
        (close_budget_of_its_group, "DisruptionLimitReached", "the disruption limit '0' allows no node now"),
        (hold_by_pod, "DoNotDisrupt", "pod ns/a-0 has the annotation karpenter.sh/do-not-disrupt"),
        (hold_by_node, "DoNotDisrupt", "its annotation cluster-autoscaler.kubernetes.io/scale-down-disabled is true"),
        (close_budget, "DisruptionLimitReached", "the disruption limit '0;reasons=Expired' allows no node now"),
    ],
)
def test_what_forbids_to_disturb_a_node_keeps_it_and_says_so(hinder: Hindrance, reason: str, detail: str) -> None:
    town = town_of(EXPIRES)
    hinder(town)
    town.go_on(1)
    assert said_of(town, "a") == (
        f"a is not replaced, {reason}: Expired, it is 24h0m0s old, more than 12h0m0s; {detail}"
    )
    town.go_on(8)
    assert "a" in town.nodes


def forbid_eviction(town: Town) -> None:
    town.pods["ns/a-0"] = made_pod("a-0", "a", "3", **{"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"})


@pytest.mark.parametrize("hinder", [hold_by_pod, forbid_eviction])
def test_with_a_grace_pods_keep_their_node_no_longer_than_that(hinder: Hindrance) -> None:
    town = town_of(replace(EXPIRES, grace_seconds=900.0))
    hinder(town)
    town.go_on_until(lambda here: "a" not in here.nodes)
    assert "a" not in town.nodes
    removals = [removal for each in town.seen if each.scale_down is not None for removal in each.scale_down.removals]
    (of_a,) = [each for each in removals if each.node == "a"]
    assert (of_a.grace_seconds, of_a.is_drained) == (900.0, True)


def test_a_node_that_a_person_protects_stays_in_spite_of_a_grace() -> None:
    town = town_of(replace(EXPIRES, grace_seconds=900.0))
    hold_by_node(town)
    town.go_on(8)
    assert "a" in town.nodes


@pytest.mark.parametrize("marks_own_nodes", [False, True])
def test_a_mark_against_disruption_keeps_a_node_unless_its_cloud_marks_all_of_its_nodes(marks_own_nodes: bool) -> None:
    town = Town(replace(config(None, disruption=EXPIRES), marks_own_nodes=marks_own_nodes))
    hold_by_node(town, "karpenter.sh/do-not-disrupt")
    town.go_on(1)
    begun = town.registry.replacing
    assert ([each.name for each in begun.removed] if begun else []) == (["a"] if marks_own_nodes else ["b"])


def test_a_launch_that_fails_leaves_the_old_node() -> None:
    town = town_of(EXPIRES, stockout=True)
    town.go_on_until(lambda here: here.registry.backoffs != {})
    assert sorted(town.nodes) == ["a", "b", "f"]
    assert not going(town)


def test_groups_in_recommend_mode_get_advice_alone() -> None:
    town = Town(config(None, mode=Mode.RECOMMEND, disruption=EXPIRES))
    town.go_on(2)
    assert not actions(town)
    row = answers.plan(town.seen[-1]).scale_down
    assert row is not None
    assert row.replacement.startswith("advised: a: Expired, it is 24h0m0s old, more than 12h0m0s: by 1 of dear")


def test_nodes_that_have_to_go_come_before_cheaper_ones() -> None:
    town = Town(config(RULES, disruption=REPAIRS))
    lock(town, "b")
    town.go_on(1)
    found = town.seen[0].consolidation
    assert found is not None
    assert found.reason is DisruptionReason.UNHEALTHY
    assert found.option is not None
    assert found.option.removed == ("b",)
    town.go_on_until(lambda here: here.price < 1, 60)
    assert town.price == pytest.approx(0.8), "then the rest is made cheaper"


def test_advice_on_a_node_that_has_to_go_delays_no_replacement_of_groups_in_enforce_mode() -> None:
    ownership = Ownership({"dear": None, "cheap": None, "foreign": None})
    chosen = config(RULES, disruption=rules(groups={"foreign": EXPIRES}), group_modes={"foreign": Mode.RECOMMEND})
    town = Town(replace(chosen, scale_up=replace(chosen.scale_up, ownership=ownership)))
    town.pods["ns/f-0"] = made_pod("f-0", "f", "1500m")
    town.go_on(1)
    found = town.seen[0].consolidation
    assert found is not None
    assert found.option is not None
    assert (found.advice, found.option.removed) == (False, ("a", "b"))
    begun = town.registry.replacing
    assert begun is not None
    assert [each.name for each in begun.removed] == ["a", "b"]
    assert said_of(town, "f").startswith(
        "f is not replaced, AnotherReplacementFirst: Expired, it is 24h0m0s old, more than 12h0m0s"
    )


def test_of_two_replacements_that_are_only_advised_one_comes_first() -> None:
    town = Town(config(RULES, mode=Mode.RECOMMEND, disruption=REPAIRS))
    lock(town, "b")
    town.go_on(1)
    found = town.seen[0].consolidation
    assert found is not None
    assert found.option is not None
    assert (found.advice, found.option.removed) == (True, ("b",))
    assert [name for name, each in found.verdicts.items() if each.reason is None] == ["b"]
    assert said_of(town, "a").startswith("a is not replaced, AnotherReplacementFirst: ")


def test_api_events_and_metrics_tell_of_it() -> None:
    town = town_of(EXPIRES)
    town.go_on_until(is_over)
    row = answers.plan(town.seen[0]).scale_down
    assert row is not None
    by_node = {each.node: (each.replacement_reason, each.replacement) for each in row.nodes}
    assert by_node["a"] == ("Expired", "a is replaced: Expired, it is 24h0m0s old, more than 12h0m0s: by 1 of dear")
    assert by_node["b"][1].startswith("b is not replaced, AnotherReplacementFirst: Expired, it is 24h0m0s old")
    assert by_node["f"] == ("", "")
    begun = replace(town.seen[0], actions=tuple(replace(each, done=True) for each in town.seen[0].actions))
    told = [
        (each.type, each.reason, each.message)
        for made in (begun, *town.seen[1:])
        for each in events.events(made, STATUS, uids={}, max_nodes_total=0, before=None)
        if each.reason == events.DISRUPTION
    ]
    assert told[0] == (
        NORMAL,
        "Disruption",
        "Disruption: 1 of dear replaces a, Expired: it is 24h0m0s old, more than 12h0m0s",
    )
    assert told[1] == (NORMAL, "Disruption", "Disruption: the replacement of a by 1 of dear is done")
    registry = CollectorRegistry()
    metrics = AutoscalerMetrics(registry)
    metrics.note(town.seen[0])
    assert 'headroom_autoscaler_due_nodes{reason="Expired"} 2.0' in generate_latest(registry).decode()
    for made in town.seen[1:]:
        metrics.note(made)
    text = generate_latest(registry).decode()
    assert 'headroom_autoscaler_replacements_total{reason="Expired",result="done"} 2.0' in text
    assert 'headroom_autoscaler_due_nodes{reason="Expired"} 0.0' in text
