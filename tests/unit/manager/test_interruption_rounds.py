"""Nodes that the cloud takes away or recommends to leave, over successive rounds, in a town whose manager may die."""

from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from deploy import plan_nodes
from manager.autoscaler.cloudprovider.contract import Instance, InstanceState
from manager.autoscaler.cluster_state.actions import ActionKind
from manager.autoscaler.cluster_state.replacement import DisruptionReason
from manager.autoscaler.disruption.disruption_limits import DisruptionLimits, parse_limit
from manager.autoscaler.disruption.rules import DisruptionRules
from manager.autoscaler.planning.iteration import Iteration
from manager.autoscaler.reporting import answers, events
from manager.autoscaler.reporting.metrics import AutoscalerMetrics
from manager.autoscaler.settings.modes import Mode
from shared.api.core import Condition, Pod, Taint, Toleration
from shared.api.meta import OwnerReference
from shared.kube.events import WARNING, ObjectRef
from tests.support.properties import stride
from tests.unit.manager.test_consolidation_rounds import RULES, Town, config

TAKEN = "aws-node-termination-handler/spot-itn"
ENDED = "aws-node-termination-handler/asg-lifecycle-termination"
ADVISED = "aws-node-termination-handler/rebalance-recommendation"
STATUS = ObjectRef("v1", "ConfigMap", "status", "home", "")
UNSCHEDULABLE = Condition("PodScheduled", "False", "Unschedulable")


@dataclass
class SpotTown(Town):
    """With what a handler of interruptions and the cloud do to nodes."""

    def announce(self, name: str, key: str = TAKEN, *, cordons: bool = True) -> None:
        """As the handler does: it taints the node, and cordons it."""
        spec = msgspec.structs.replace(
            self.nodes[name].spec, taints=(Taint(key, "id", "NoSchedule"),), unschedulable=cordons
        )
        self.nodes[name] = msgspec.structs.replace(self.nodes[name], spec=spec)

    def call_off(self, name: str) -> None:
        spec = msgspec.structs.replace(self.nodes[name].spec, taints=None, unschedulable=False)
        self.nodes[name] = msgspec.structs.replace(self.nodes[name], spec=spec)

    def evict(self, name: str) -> None:
        """The pods are made again, and wait where there is no room."""
        for key, pod in self.pods.items():
            if pod.spec.node_name == name:
                self.pods[key] = waiting(pod)

    def take(self, name: str) -> None:
        """The cloud takes the machine, and launches another one as long as it is to have as many."""
        self.evict(name)
        group = next(
            each for each in self.cloud.members if f"id:{name}" in [m.provider_id for m in self.cloud.members[each]]
        )
        members = [each for each in self.cloud.members[group] if each.provider_id != f"id:{name}"]
        if len(members) < self.cloud.target(group):
            members.append(Instance(f"{group}/in-place-of-{name}", InstanceState.CREATING))
        self.cloud.members[group] = members
        self.nodes.pop(name, None)
        self.draining.pop(name, None)

    @property
    def pending(self) -> list[str]:
        return [key for key, pod in self.pods.items() if not pod.spec.node_name]

    @property
    def bought(self) -> int:
        """How many nodes the manager has asked for."""
        return sum(
            each.to_size - each.from_size
            for made in self.seen
            for each in made.actions
            if each.kind is ActionKind.INCREASE
        )

    @property
    def size(self) -> int:
        return sum(self.cloud.target(group) for group in ("dear", "cheap"))

    def check(self) -> None:
        """Pods may wait here; whatever else holds in the other town is not at stake."""

    def _live(self) -> None:
        super()._live()
        for key in self.pending:
            self.pods[key] = self._scheduled(self.pods[key])


def waiting(pod: Pod) -> Pod:
    spec = msgspec.structs.replace(pod.spec, node_name="")
    return msgspec.structs.replace(
        pod, spec=spec, status=msgspec.structs.replace(pod.status, phase="Pending", conditions=(UNSCHEDULABLE,))
    )


def town_of(found: DisruptionRules | None = None, **more: Any) -> SpotTown:
    return SpotTown(config(None, disruption=found or DisruptionRules()), **more)


ADVICE = DisruptionRules(replace_interrupted_nodes=True, limits=DisruptionLimits(()), pause_seconds=0.0)


def is_quiet(town: SpotTown) -> bool:
    return not town.pending and (town.registry.requests, town.registry.replacing, town.draining) == ({}, None, {})


def test_a_node_is_launched_in_the_round_of_the_announcement_and_no_second_one_until_the_old_one_is_gone() -> None:
    town = town_of()
    town.announce("a")
    town.go_on(1)
    assert town.bought == 1
    town.go_on(3)
    assert "a" in town.nodes, "what drains it takes its time, and nothing of ours hurries it"
    town.evict("a")
    town.go_on_until(lambda here: "a" not in here.nodes)
    town.go_on(3)
    assert is_quiet(town)
    assert (town.bought, town.size) == (1, 2), "the empty node has left its group, so that the cloud replaces it not"


def test_a_node_that_is_empty_before_the_new_one_is_there_goes_and_nothing_more_is_bought() -> None:
    town = town_of(boots=False)
    town.announce("a")
    town.go_on(1)
    town.evict("a")
    town.go_on(2)
    assert "a" not in town.nodes
    assert town.pending == ["ns/a-0"], "the other pod has found a place"
    town.boots = True
    town.go_on(3)
    assert (is_quiet(town), town.bought, town.size) == (True, 1, 2)


def test_a_machine_that_the_cloud_takes_before_it_is_empty_has_no_second_one_bought_for_its_pods() -> None:
    town = town_of()
    town.announce("a")
    town.go_on(1)
    town.take("a")
    town.go_on(3)
    assert not town.pending
    assert town.bought == 1
    town.go_on(8)
    assert (is_quiet(town), town.size) == (True, 2), "what the cloud has launched in its place goes for want of pods"


@pytest.mark.parametrize("gone_after", [2, 4])
@pytest.mark.parametrize("moment", range(1, 16, max(1, stride() // 4)))
def test_a_manager_that_dies_at_any_moment_buys_no_second_node(moment: int, gone_after: int) -> None:
    town = town_of(dies_at=moment)
    town.announce("a")
    town.go_on(gone_after)
    town.evict("a")
    town.go_on(1)
    if "a" in town.nodes:
        town.take("a")
    town.go_on_until(lambda here: is_quiet(town) and town.size == 2 and here.steps > moment)
    assert (is_quiet(town), town.size) == (True, 2)
    assert len(town.of_group("dear")) + len(town.of_group("cheap")) == 2
    asked = [each for made in town.seen for each in made.actions if each.kind is ActionKind.INCREASE]
    assert len(asked) <= 2, "the death may have come between the decision and the books, and then it is decided again"
    assert max(each.to_size for each in asked) == 3


def test_a_false_alarm_leaves_the_node_and_the_new_one_goes_for_want_of_pods() -> None:
    town = town_of()
    town.announce("a")
    town.go_on(2)
    town.call_off("a")
    town.go_on(6)
    assert sorted(town.nodes) == ["a", "b", "f"]
    assert (town.bought, town.size, is_quiet(town)) == (1, 2, True)


def test_a_pod_that_tolerates_everything_is_not_expected_on_a_node_that_goes() -> None:
    town = town_of()
    del town.pods["ns/a-0"], town.pods["ns/a-1"]
    town.announce("a", cordons=False)
    pod = waiting(town.pods["ns/b-0"])
    spec = msgspec.structs.replace(pod.spec, tolerations=(Toleration(operator="Exists"),))
    meta = msgspec.structs.replace(pod.metadata, name="any")
    town.pods["ns/any"] = msgspec.structs.replace(pod, metadata=meta, spec=spec)
    town.go_on(1)
    assert town.bought == 1


def test_pods_that_nothing_makes_again_and_those_of_the_node_itself_have_nothing_bought_for_them() -> None:
    town = town_of()
    for key, owner in (("ns/a-0", ()), ("ns/a-1", (OwnerReference(kind="DaemonSet", name="logs", controller=True),))):
        meta = msgspec.structs.replace(town.pods[key].metadata, owner_references=owner)
        town.pods[key] = msgspec.structs.replace(town.pods[key], metadata=meta)
    town.announce("a")
    town.go_on(3)
    assert town.bought == 0
    assert "a" in town.nodes, "a pod is still on it"
    del town.pods["ns/a-0"]
    town.go_on(3)
    assert (town.of_group("dear"), town.size) == (["b"], 1)


def test_a_pod_that_has_been_made_again_elsewhere_counts_once() -> None:
    town = town_of()
    town.announce("a")
    ends = msgspec.structs.replace(town.pods["ns/a-0"].metadata, deletion_timestamp="2026-08-03T08:17:37Z")
    town.pods["ns/again"] = waiting(town.pods["ns/a-0"])
    town.pods["ns/again"] = msgspec.structs.replace(
        town.pods["ns/again"], metadata=msgspec.structs.replace(ends, name="again", deletion_timestamp=None)
    )
    town.pods["ns/a-0"] = msgspec.structs.replace(town.pods["ns/a-0"], metadata=ends)
    town.go_on(2)
    assert town.bought == 1
    del town.pods["ns/a-1"]
    town.go_on(2)
    assert "a" in town.nodes, "a pod that is being terminated has its time"


def test_an_empty_node_of_a_group_at_its_minimum_is_left_to_the_cloud() -> None:
    town = town_of()
    town.cloud.listed = [replace(each, min_size=2) if each.id == "dear" else each for each in town.cloud.listed]
    del town.pods["ns/a-0"], town.pods["ns/a-1"]
    town.announce("a")
    town.go_on(2)
    assert "a" in town.nodes
    assert town.size == 2


def test_an_annotation_of_the_node_leaves_even_an_empty_one_to_the_cloud() -> None:
    town = town_of()
    del town.pods["ns/a-0"], town.pods["ns/a-1"]
    town.announce("a")
    annotations = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
    meta = msgspec.structs.replace(town.nodes["a"].metadata, annotations=annotations)
    town.nodes["a"] = msgspec.structs.replace(town.nodes["a"], metadata=meta)
    town.go_on(2)
    assert "a" in town.nodes


def test_a_cloud_that_ends_a_machine_and_wants_as_many_as_before_replaces_it_itself() -> None:
    town = town_of()
    town.announce("a", ENDED)
    town.cloud.members["dear"][0] = Instance("id:a", InstanceState.DELETING)
    town.go_on(1)
    assert town.bought == 0
    town = town_of()
    town.announce("a", ENDED)
    town.cloud.members["dear"][0] = Instance("id:a", InstanceState.DELETING)
    town.cloud.listed = [replace(each, target_size=1) if each.id == "dear" else each for each in town.cloud.listed]
    town.go_on(1)
    assert town.bought == 1, "it was told to have one node fewer, and somebody's pods are on it"


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.RECOMMEND])
def test_groups_that_are_not_enforced_are_left_to_their_cloud(mode: Mode) -> None:
    town = SpotTown(config(None, mode=mode))
    town.announce("a")
    town.go_on(2)
    advised = [each for made in town.seen for each in made.actions]
    assert all(each.mode is Mode.RECOMMEND for each in advised)
    assert bool(advised) is (mode is Mode.RECOMMEND)


def test_a_node_that_is_taken_before_it_has_started_is_not_waited_for() -> None:
    town = town_of(boots=False)
    town.pods["ns/more"] = waiting(town.pods["ns/a-0"])
    meta = msgspec.structs.replace(town.pods["ns/more"].metadata, name="more")
    town.pods["ns/more"] = msgspec.structs.replace(town.pods["ns/more"], metadata=meta)
    town.go_on(1)
    assert town.bought == 1
    group = next(name for name, members in town.cloud.members.items() if members[-1].state is InstanceState.CREATING)
    del town.cloud.members[group][-1]
    town.register("new", group, town.now)
    status = msgspec.structs.replace(town.nodes["new"].status, conditions=())
    town.nodes["new"] = msgspec.structs.replace(town.nodes["new"], status=status)
    town.go_on(1)
    assert town.bought == 1, "the node is expected to start"
    town.announce("new")
    town.go_on(1)
    assert town.bought == 2


def test_nodes_that_stop_reporting_while_the_cloud_takes_them_are_no_failure_of_cluster_or_group() -> None:
    town = town_of()
    for name in ("a", "b"):
        town.announce(name)
        ready = Condition("Ready", "Unknown", "NodeStatusUnknown", last_transition_time="2020-08-03T08:17:37Z")
        status = msgspec.structs.replace(town.nodes[name].status, conditions=(ready,))
        town.nodes[name] = msgspec.structs.replace(town.nodes[name], status=status)
    town.go_on(1)
    made = town.seen[0]
    assert made.blocked_reason == ""
    group = made.state.groups["dear"]
    assert (group.healthy, group.readiness.unready, group.readiness.suspended) == (True, 0, 2)
    assert town.bought == 1, "one cheap node holds the pods of both"
    assert not town.registry.backoffs


def cordoned_and_advised(town: SpotTown) -> SpotTown:
    town.announce("a", ADVISED)
    return town


def test_a_node_that_the_cloud_recommends_to_leave_is_replaced_where_that_is_asked_for() -> None:
    town = cordoned_and_advised(town_of(ADVICE))
    town.go_on_until(lambda here: "a" not in here.nodes)
    town.go_on(2)
    assert (is_quiet(town), town.bought, town.size) == (True, 1, 2)
    launches = [each for made in town.seen for each in made.actions if each.kind is ActionKind.INCREASE]
    assert [each.reason for each in launches] == [
        f"replaces a, Interrupted: the cloud has announced RebalanceRecommendation (taint {ADVISED})"
    ]
    ends = [each.consolidation.ended for each in town.seen if each.consolidation and each.consolidation.ended]
    assert ends == ["the replacement of a by 1 of dear is done"]


def test_otherwise_it_stays() -> None:
    town = cordoned_and_advised(town_of())
    town.go_on(3)
    assert "a" in town.nodes
    assert town.bought == 0


def test_a_budget_of_one_is_not_used_up_by_the_cordon_of_the_node_that_is_to_be_replaced() -> None:
    limit = parse_limit("1", source="flags", name="disruption-budgets")
    town = cordoned_and_advised(town_of(replace(ADVICE, limits=DisruptionLimits((limit,)))))
    town.go_on_until(lambda here: "a" not in here.nodes)
    assert "a" not in town.nodes


def test_a_budget_of_none_keeps_the_node_and_says_so() -> None:
    limit = parse_limit("0;reasons=Interrupted", source="flags", name="disruption-budgets")
    town = cordoned_and_advised(town_of(replace(ADVICE, limits=DisruptionLimits((limit,)))))
    town.go_on(2)
    decided = town.seen[-1].consolidation
    assert decided is not None
    assert str(decided.verdicts["a"]) == (
        "a is not replaced, DisruptionLimitReached: Interrupted, the cloud has announced RebalanceRecommendation "
        f"(taint {ADVISED}); the disruption limit '0;reasons=Interrupted' allows no node now"
    )


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_a_recommendation_that_becomes_an_interruption_has_one_node_bought_and_not_two(rounds: int) -> None:
    town = cordoned_and_advised(town_of(ADVICE, boots=False))
    town.go_on(rounds)
    town.announce("a", TAKEN)
    town.go_on(1)
    ends = [each.consolidation.ended for each in town.seen if each.consolidation and each.consolidation.ended]
    assert ends == ["the replacement of a by 1 of dear is given up: the cloud takes a node of it now"]
    town.boots = True
    town.go_on(2)
    town.evict("a")
    town.go_on(4)
    assert (is_quiet(town), town.bought, town.size) == (True, 1, 2)


def test_a_node_that_is_taken_is_neither_consolidated_nor_a_place_for_the_pods_of_others() -> None:
    town = SpotTown(config(RULES))
    town.announce("b")
    town.go_on(2)
    decided = town.seen[-1].consolidation
    assert decided is not None
    assert str(decided.verdicts["b"]).endswith(f"NotEligible: the cloud deletes it: SpotInterruption (taint {TAKEN})")
    moved_to = {
        to for made in town.seen if made.scale_down for each in made.scale_down.simulated for _, to in each.moves
    }
    assert "b" not in moved_to


def noted(*seen: Iteration) -> str:
    registry = CollectorRegistry()
    metrics = AutoscalerMetrics(registry)
    for made in seen:
        metrics.note(made)
    return generate_latest(registry).decode()


def test_api_events_and_metrics_tell_of_it() -> None:
    town = cordoned_and_advised(town_of())
    town.announce("b")
    town.go_on(2)
    row = answers.plan(town.seen[-1]).scale_down
    assert row is not None
    said = {each.node: (each.interruption, each.reason, each.detail) for each in row.nodes if each.node in ("a", "b")}
    taken = f"SpotInterruption (taint {TAKEN})"
    assert said["b"] == (taken, "NodeInterrupted", f"the cloud deletes it: {taken}")
    assert said["a"][0] == f"RebalanceRecommendation (taint {ADVISED})"
    (block,) = [
        each for each in plan_nodes.blocks(answers.plan(town.seen[-1])) if each and each[0].startswith("Interruptions")
    ]
    assert [line.split()[:3] for line in block[2:]] == [
        ["a", "dear", "RebalanceRecommendation"],
        ["b", "dear", "SpotInterruption"],
    ]

    def told(made: Iteration, before: Iteration | None) -> list[tuple[str, str, str, str]]:
        found = events.events(made, STATUS, uids={}, max_nodes_total=0, before=before)
        return [
            (each.regarding.name, each.type, each.reason, each.message)
            for each in found
            if each.reason == "NodeInterrupted"
        ]

    assert told(town.seen[0], None) == [
        (
            "a",
            WARNING,
            "NodeInterrupted",
            f"the cloud may interrupt the node: RebalanceRecommendation (taint {ADVISED})",
        ),
        ("b", WARNING, "NodeInterrupted", f"the cloud deletes the node within minutes: {taken}"),
    ]
    assert told(town.seen[1], town.seen[0]) == [], "once"
    text = noted(*town.seen)
    assert 'headroom_autoscaler_interrupted_nodes{reason="SpotInterruption"} 1.0' in text
    assert 'headroom_autoscaler_interrupted_nodes{reason="RebalanceRecommendation"} 1.0' in text
    assert 'headroom_autoscaler_interrupted_nodes{reason="InstanceTermination"} 0.0' in text


def test_without_the_setting_the_reason_is_off() -> None:
    assert not DisruptionRules().is_on(DisruptionReason.INTERRUPTED, 0.0)
    assert ADVICE.is_on(DisruptionReason.INTERRUPTED, 0.0)


def test_what_is_brief_names_them_in_the_last_round_and_not_in_past_ones() -> None:
    town = cordoned_and_advised(town_of())
    town.announce("b")
    town.go_on(2)
    plan = answers.plan(town.seen[-1])
    last, past = answers.brief(plan).scale_down, answers.brief(answers.without_untouched_nodes(plan)).scale_down
    assert last is not None
    assert past is not None
    assert [row.node for row in last.nodes] == ["a", "b"]
    assert past.nodes == []
