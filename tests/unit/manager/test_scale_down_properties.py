"""What holds of every pass of scale-down, whatever the cluster; places are judged by the independent checker."""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import msgspec
from hypothesis import event, given
from hypothesis import strategies as st

from manager.autoscaler.cloudprovider.contract import Group
from manager.autoscaler.estimator import problem
from manager.autoscaler.estimator.limits import ResourceBounds
from manager.autoscaler.scale_down import planner, pods_on_nodes
from manager.autoscaler.scale_down.drain import DisruptionBudget
from manager.autoscaler.scale_down.eligibility import ANNOTATION_DISABLED
from manager.autoscaler.scale_down.removal_simulation import NoPlace, PodBatch, Rescheduling
from manager.autoscaler.scale_down.removal_status import (
    DeletionCounts,
    GroupRules,
    NodeStanding,
    ScaleDownDecision,
    ScaleDownHistory,
    ScaleDownRules,
    SimulatedRemoval,
)
from manager.autoscaler.scale_down.scale_down_context import ScaleDownContext, ShrinkingGroup
from manager.autoscaler.settings.scale_down import Parallelism
from manager.autoscaler.snapshot import cluster
from manager.autoscaler.snapshot.cluster import TAINT_TO_BE_DELETED, NodeState
from manager.autoscaler.snapshot.equivalence_groups import EquivalenceGroup
from shared.api.core import Node, Pod
from shared.api.selectors import LabelSelector
from shared.names import MID_CPU
from shared.quantity import Resources
from tests.support import independent_checker
from tests.support.independent_checker import CheckedPod, Machine
from tests.support.properties import examples
from tests.unit.manager.objects import NOW
from tests.unit.manager.wire_objects import APPS, NAMESPACES, SURROUNDINGS, raw_node, raw_nodes, raw_pod, specs, world

Raw = dict[str, Any]

SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
GROUPS = ("g0", "g1")
JUST_NOW = str(round(NOW - 30))
_STATES = st.sampled_from([NodeState.READY] * 6 + [NodeState.UNREADY, NodeState.CORDONED, NodeState.TO_BE_DELETED])
_APPS = st.sampled_from(APPS)


@dataclass
class Case:
    """A cluster in wire form, and what else a pass looks at."""

    nodes: list[tuple[Raw, NodeState]]
    pods: list[Raw]
    rules: ScaleDownRules
    more: dict[str, Any] = field(default_factory=dict)

    def situation(self, order: random.Random | None = None) -> ScaleDownContext:
        nodes = [cluster.node_info(msgspec.convert(node, Node), state) for node, state in self.nodes]
        read = pods_on_nodes.read_pods([msgspec.convert(pod, Pod) for pod in self.pods], SURROUNDINGS)
        assert not read.unreadable
        found = list(read.residents)
        if order is not None:
            order.shuffle(nodes)
            order.shuffle(found)
        return ScaleDownContext(NOW, nodes, found, self.rules, **self.more)

    def is_leaving(self, node: Raw) -> bool:
        """Whether a node goes already: somebody says so, or has marked it a short while ago."""
        marks = [each["value"] for each in node["spec"].get("taints") or () if each["key"] == TAINT_TO_BE_DELETED]
        return node["metadata"]["name"] in self.more["leaving"] or marks == [JUST_NOW]

    def decided(self) -> ScaleDownDecision:
        return planner.decide(self.situation())

    def machines(self) -> dict[str, Machine]:
        found = {
            node["metadata"]["name"]: independent_checker.machine(node, accepts=state is NodeState.READY)
            for node, state in self.nodes
        }
        for each in self.pods:
            found[each["spec"]["nodeName"]].pods.append(CheckedPod(each))
        return found


def rarely(draw: st.DrawFn, once_in: int) -> bool:
    return draw(st.integers(1, once_in)) == once_in


@st.composite
def plain_specs(draw: st.DrawFn) -> Raw:
    requests = {"cpu": f"{draw(st.integers(0, 9))}00m", "memory": f"{draw(st.integers(0, 6))}Mi"}
    if rarely(draw, 5):
        requests[MID_CPU] = "300"
    return {"containers": [{"name": "c", "resources": {"requests": requests}}]}


@st.composite
def some_nodes(draw: st.DrawFn, name: str, is_plain: bool) -> tuple[Raw, NodeState]:
    state = draw(_STATES)
    if is_plain:
        amounts = {"cpu": "2", "memory": "20Mi", "pods": "8", MID_CPU: "1000"}
        node = raw_node(name, {}, amounts, unschedulable=state is NodeState.CORDONED)
    else:
        node = draw(raw_nodes(name, unschedulable=state is NodeState.CORDONED))
    if state is NodeState.TO_BE_DELETED:
        marked = draw(st.sampled_from([JUST_NOW, str(round(NOW - 3000))]))
        node["spec"]["taints"].append({"key": TAINT_TO_BE_DELETED, "value": marked, "effect": "NoSchedule"})
    if rarely(draw, 8):
        node["metadata"]["annotations"] = {ANNOTATION_DISABLED: "true"}
    return node, state


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Half of them with nothing but amounts, so that much is possible, and half with all that pods can demand."""
    is_plain = draw(st.booleans())
    nodes = [draw(some_nodes(f"n{index}", is_plain)) for index in range(draw(st.integers(1, 7)))]
    kinds = [(draw(plain_specs() if is_plain else specs()), draw(_APPS)) for _ in range(draw(st.integers(1, 4)))]
    pods = []
    for node, _ in nodes:
        name = node["metadata"]["name"]
        for number in range(draw(st.integers(0, 3))):
            kind = draw(st.integers(0, len(kinds) - 1))
            spec, app = kinds[kind]
            namespace = draw(st.sampled_from(["default", "default", *sorted(NAMESPACES)]))
            pod = raw_pod(f"{name}-{number}", f"{namespace}-{kind}", {**spec, "nodeName": name}, app, namespace)
            if rarely(draw, 8):
                pod["metadata"]["annotations"] = {SAFE_TO_EVICT: draw(st.sampled_from(["false", "on-completion"]))}
            elif rarely(draw, 8):
                pod["metadata"]["ownerReferences"][0].update(kind="DaemonSet", uid=f"ds-{namespace}-{kind}")
            pods.append(pod)
    names = [node["metadata"]["name"] for node, _ in nodes]
    group_of = {name: draw(st.sampled_from(GROUPS)) for name in names if not rarely(draw, 8)}
    groups = {}
    for group in GROUPS:
        size = sum(each == group for each in group_of.values())
        rules = GroupRules(
            scale_down_utilization_threshold=draw(st.sampled_from([0.5, 1.0])),
            ignore_daemonsets_utilization=draw(st.booleans()),
            zero_or_max_node_scaling=rarely(draw, 5),
        )
        known = Group(group, draw(st.sampled_from([0, 0, 0, 1, 3])), 10, size)
        groups[group] = ShrinkingGroup(known, rules, deleting=draw(st.sampled_from([0, 0, 1])))
    peaks = {
        name: Resources(draw(st.integers(0, 20)) * 100, draw(st.integers(0, 20)) << 20)
        for name in names
        if not rarely(draw, 8)
    }
    moments = st.sampled_from([NOW - 5000, NOW - 650, NOW - 600, NOW + 60])
    more = {
        "groups": groups,
        "group_of": group_of,
        "disruption_budgets": [
            DisruptionBudget("default", f"of-{app}", LabelSelector({"app": app}), draw(st.integers(0, 4)))
            for app in APPS
            if draw(st.booleans())
        ],
        "memory": ScaleDownHistory({name: draw(moments) for name in names if draw(st.booleans())}),
        "leaving": frozenset(name for name in names if rarely(draw, 4)),
        "in_progress": DeletionCounts(draw(st.integers(0, 2)), draw(st.integers(0, 1))),
        "peaks": peaks if draw(st.booleans()) else None,
    }
    bounds = {"cpu": ResourceBounds(draw(st.integers(0, 12)), None)} if draw(st.booleans()) else {}
    return Case(nodes, pods, ScaleDownRules(bounds=bounds, parallelism=Parallelism(3, 2)), more)


def settled(
    case: Case, simulated: Iterable[SimulatedRemoval], going: Iterable[SimulatedRemoval] = ()
) -> dict[str, Machine]:
    """The machines once all of these have left; checks each place that a pod finds on the way. Of `going` ones, pods
    may be left over."""
    machines = case.machines()
    checker = world(list(machines.values()))
    going = tuple(going)
    goes_anyway = [each.node for each in going]
    for left in (*going, *simulated):
        leaving = machines[left.node]
        leaving.accepts = False
        pods = {f"{each.namespace}/{each.name}": each for each in leaving.pods}
        leaving.pods = []
        for key, to in left.moves:
            pod = pods.pop(key)
            assert checker.refusal(pod, machines[to]) == "", f"{key} of {left.node} on {to}"
            machines[to].pods.append(pod)
        for pod in pods.values() if left.node not in goes_anyway else ():  # what goes with its node, or ends by itself
            annotations = pod.given["metadata"].get("annotations") or {}
            is_daemon = pod.given["metadata"]["ownerReferences"][0]["kind"] == "DaemonSet"
            assert is_daemon or annotations.get(SAFE_TO_EVICT) == "on-completion"
    return machines


@examples(150)
@given(cases())
def test_every_pod_of_an_unneeded_node_has_a_place_where_it_fits(case: Case) -> None:
    decision = case.decided()
    machines = settled(case, decision.simulated, decision.going)
    event(f"{len(decision.unneeded)} unneeded, {sum(len(left.moves) for left in decision.simulated)} moves")
    assert all(not machines[name].pods for name in decision.unneeded)


@examples(400)
@given(cases())
def test_no_group_and_no_cluster_shrinks_below_its_minimum(case: Case) -> None:
    decision = case.decided()
    groups: dict[str, ShrinkingGroup] = case.more["groups"]
    for name, group in groups.items():
        going = sum(case.more["group_of"][node] == name for node in decision.unneeded)
        assert not going or group.group.target_size - group.deleting - going >= group.group.min_size
    low = case.rules.bounds["cpu"].low if case.rules.bounds else None
    if low and decision.unneeded:
        cores = sum(
            int(node["status"]["capacity"]["cpu"])
            for node, _ in case.nodes
            if node["metadata"]["name"] not in decision.unneeded and not case.is_leaving(node)
        )
        assert cores >= low


@examples(150)
@given(cases())
def test_a_protected_node_is_never_unneeded(case: Case) -> None:
    decision = case.decided()
    machines = case.machines()
    budgets: list[DisruptionBudget] = case.more["disruption_budgets"]
    evictions = [0] * len(budgets)
    for node, _ in case.nodes:
        name = node["metadata"]["name"]
        if name not in decision.unneeded:
            assert name not in [each.node for each in decision.removals]
            continue
        assert name in case.more["group_of"]
        assert ANNOTATION_DISABLED not in (node["metadata"].get("annotations") or {})
        assert not case.is_leaving(node)
        for pod in machines[name].pods:
            if pod.given["metadata"]["ownerReferences"][0]["kind"] == "DaemonSet":
                continue
            wish = (pod.given["metadata"].get("annotations") or {}).get(SAFE_TO_EVICT)
            assert wish != "false"
            for number, budget in enumerate(budgets):
                evictions[number] += wish is None and budget.covers(pod.namespace, pod.labels)
    assert all(taken <= budget.allowed for budget, taken in zip(budgets, evictions, strict=True))


@examples(100)
@given(cases(), st.randoms(use_true_random=False))
def test_the_order_of_nodes_and_pods_does_not_matter(case: Case, order: random.Random) -> None:
    assert planner.decide(case.situation(order)) == case.decided()


@examples(100)
@given(cases())
def test_every_node_has_one_clear_reason_to_be_here_or_goes(case: Case) -> None:
    decision = case.decided()
    assert set(decision.statuses) == {node["metadata"]["name"] for node, _ in case.nodes}
    going = {each.node for each in decision.removals}
    for name, verdict in decision.statuses.items():
        assert verdict.detail
        assert (verdict.reason is None) is (name in going) is (verdict.standing is NodeStanding.GOES)
        assert (verdict.standing is NodeStanding.NEEDED) is (name not in decision.unneeded)


@examples(100)
@given(cases())
def test_no_more_nodes_go_at_one_time_than_may(case: Case) -> None:
    decision = case.decided()
    atomic = {name for name, group in case.more["groups"].items() if group.rules.zero_or_max_node_scaling}
    whole = {each.group for each in decision.removals} & atomic
    for group in whole:
        members = {name for name, of in case.more["group_of"].items() if of == group}
        assert members == {each.node for each in decision.removals if each.group == group}
    if not whole:
        parallelism, going = case.rules.parallelism, case.more["in_progress"]
        drained = sum(each.is_drained for each in decision.removals)
        assert drained <= max(0, parallelism.max_drain_parallelism - going.drained)
        assert len(decision.removals) <= max(0, parallelism.max_scale_down_parallelism - going.empty - going.drained)


@examples(300)
@given(cases())
def test_nodes_that_take_pods_hold_their_predicted_peaks_with_the_margin(case: Case) -> None:
    peaks: dict[str, Resources] | None = case.more["peaks"]
    if peaks is None:
        return
    decision = case.decided()
    brought: dict[str, list[Fraction]] = {}  # what goes with a pod: of cpu, of memory
    final: dict[str, str] = {}
    for left in decision.simulated:
        own = [pod for pod in case.machines()[left.node].pods if f"{pod.namespace}/{pod.name}" in dict(left.moves)]
        for row, resource in enumerate(("cpu", "memory")):
            total = sum(pod.requests.get(resource, Fraction(0)) for pod in own)
            for pod in own:
                share = pod.requests.get(resource, Fraction(0)) / total if total else Fraction(1, len(own))
                load = share * peaks[left.node][row]
                if resource == "cpu":
                    load += pod.requests.get(MID_CPU, Fraction(0))
                brought.setdefault(f"{pod.namespace}/{pod.name}", [Fraction(0), Fraction(0)])[row] = load
        final |= dict(left.moves)
    machines = case.machines()
    left_over = 1 - Fraction(case.rules.removal.scale_down_peak_margin_percent, 100)
    for name in set(final.values()) - set(decision.unneeded):
        here = [brought[pod] for pod, node in final.items() if node == name and pod in brought]
        if not here:  # what came there is of nodes that go anyway
            continue
        lent = sum(pod.requests.get(MID_CPU, Fraction(0)) for pod in machines[name].pods)
        loads = [sum(column, Fraction(0)) for column in zip(*here, strict=True)]
        for row, (resource, unit) in enumerate((("cpu", 1000), ("memory", 1))):
            if loads[row]:
                there = peaks[name][row] + loads[row] + (lent if resource == "cpu" else 0)
                assert there <= machines[name].allocatable[resource] * unit * left_over


def remaining(case: Case) -> Rescheduling:
    """The case's nodes, of which any may leave with all its pods, each pod bringing some load along."""
    situation = case.situation()
    rows = {node.name: row for row, node in enumerate(situation.nodes)}
    snapshot = cluster.snapshot_of_nodes(
        situation.nodes, [(rows[each.node], each.facts) for each in situation.residents]
    )
    position: dict[int, int] = {}
    classes: list[EquivalenceGroup] = []
    moving: dict[int, list[PodBatch]] = {}
    for each in situation.residents:
        if each.facts.of_node:
            continue
        if position.setdefault(id(each.facts), len(classes)) == len(classes):
            classes.append(EquivalenceGroup(each.facts, ()))
        batch = PodBatch(position[id(each.facts)], (each.key,), Resources(150 * len(classes), 1 << 20))
        moving.setdefault(rows[each.node], []).append(batch)
    room = None if situation.peaks is None else [situation.peaks.get(node.name) for node in situation.nodes]
    return Rescheduling(problem.packing_problem(snapshot, classes), moving, room)


@examples(300)
@given(cases())
def test_pods_of_nodes_that_leave_one_after_the_other_go_where_they_fit(case: Case) -> None:
    names = [str(node["metadata"]["name"]) for node, _ in case.nodes]
    left = []
    nodes = remaining(case)
    for row, name in enumerate(names):
        moves = nodes.leave(row)
        if not isinstance(moves, NoPlace):
            left.append(SimulatedRemoval(name, tuple((move.pod, names[move.row]) for move in moves)))
    event(f"{sum(len(each.moves) for each in left)} moves")
    settled(case, left)


@examples(150)
@given(cases())
def test_a_node_that_cannot_leave_leaves_no_trace(case: Case) -> None:
    tried, known = remaining(case), remaining(case)
    stuck = 0
    for row in range(len(case.nodes)):
        first = tried.leave(row)
        if isinstance(first, NoPlace):
            stuck += 1
            assert tried.leave(row) == first
        else:
            assert known.leave(row) == first
    event(f"{stuck} stuck")
