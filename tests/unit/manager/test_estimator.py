"""Estimates by counting agree with the rule pod by pod, and nothing is placed where it does not fit."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manager.autoscaler.estimator import binpacking, problem
from manager.autoscaler.estimator.binpacking import Estimate, Permissions
from manager.autoscaler.estimator.packing import Packing
from manager.autoscaler.estimator.problem import PackingProblem
from manager.autoscaler.snapshot import cluster, equivalence_groups
from manager.autoscaler.snapshot.cluster import LABEL_HOSTNAME, PODS, NodeInfo, NodeState, NodeTemplate
from manager.autoscaler.snapshot.equivalence_groups import EquivalenceGroup
from manager.autoscaler.snapshot.pod_info import PodInfo
from manager.autoscaler.snapshot.referenced_objects import ReferencedObjects
from shared.api.core import Node, Pod
from tests.support import independent_checker
from tests.support.independent_checker import Machine
from tests.support.properties import examples
from tests.unit.manager import plain_scheduler
from tests.unit.manager.wire_objects import (
    APPS,
    NAMESPACES,
    SURROUNDINGS,
    checked,
    node,
    nodes,
    pod,
    specs,
    terms,
    world,
)


@dataclass
class Case:
    """A cluster with pods on it, pending pods of several owners, and a template."""

    nodes: list[Node]
    placed: list[Pod]
    groups: list[list[Pod]]
    template: Node
    daemons: list[Pod]
    most: int

    def problem(self, pending: Sequence[Pod] | None = None) -> tuple[PackingProblem, NodeTemplate]:
        surroundings = SURROUNDINGS
        found = equivalence_groups.build_equivalence_groups(
            [each for group in self.groups for each in group] if pending is None else pending, surroundings
        )
        assert not found.refused
        daemons = tuple(
            each.facts for each in equivalence_groups.build_equivalence_groups(self.daemons, surroundings).classes
        )
        template = NodeTemplate("g", cluster.node_info(self.template, NodeState.READY), daemons)
        taken = cluster.take_snapshot(
            [(each, NodeState.READY) for each in self.nodes], self.placed, surroundings=surroundings
        )
        assert not taken.refused
        return problem.packing_problem(taken, found.classes, [template]), template

    def plain(self) -> list[Machine]:
        found = {each.metadata.name: plain_node(each) for each in sorted(self.nodes, key=lambda n: n.metadata.name)}
        for each in self.placed:
            found[each.spec.node_name].pods.append(checked(each))
        return list(found.values())

    def fresh(self, index: int) -> Machine:
        found = plain_node(self.template, f"new-e-{index}")
        found.pods = list(map(checked, self.daemons))
        return found


def plain_node(given: Node, name: str = "") -> Machine:
    return independent_checker.machine(msgspec.to_builtins(given), name=name)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    existing = [draw(nodes(f"n{index}")) for index in range(draw(st.integers(0, 3)))]
    placed: list[Pod] = []
    for index in range(draw(st.integers(0, 4)) if existing else 0):
        spec = draw(specs())
        spec["nodeName"] = draw(st.sampled_from(existing)).metadata.name
        namespace = draw(st.sampled_from(sorted(NAMESPACES)))
        placed.append(pod(f"placed-{index}", f"old-{index}", spec, draw(st.sampled_from(APPS)), namespace))
    groups = []
    for index in range(draw(st.integers(1, 4))):
        spec, app = draw(specs()), draw(st.sampled_from(APPS))
        namespace = draw(st.sampled_from(["default", "default", "other"]))
        count = draw(st.integers(1, 12))
        groups.append([pod(f"g{index}-{n:03d}", f"g{index}", spec, app, namespace) for n in range(count)])
    template = draw(nodes("new"))
    daemons = []
    if draw(st.booleans()):
        asked = {"name": "c", "resources": {"requests": {"cpu": "100m"}}, "ports": [{"hostPort": 80}]}
        daemons.append(pod("daemon", "ds", {"containers": [asked]}, draw(st.sampled_from(APPS))))
    return Case(existing, placed, groups, template, daemons, draw(st.sampled_from([0, 1, 2, 5, -1])))


def estimated(case: Case, asked: PackingProblem, template: NodeTemplate, **options: Any) -> Estimate:
    return binpacking.estimate(asked, template, range(len(asked.classes)), Permissions(case.most), **options)


def by_owner(asked: PackingProblem, counts: dict[int, int]) -> dict[str, int]:
    return {asked.classes[position].controller: count for position, count in counts.items() if count}


@examples(300)
@given(cases())
def test_counting_gives_what_the_rule_gives_pod_by_pod(case: Case) -> None:
    asked, template = case.problem()
    found = estimated(case, asked, template)
    order = binpacking.in_order(asked, template, range(len(asked.classes)))
    names = [asked.classes[position].controller for position in order]
    groups = [next(group for group in case.groups if group[0].metadata.name.startswith(name)) for name in names]
    plain = plain_scheduler.estimate(
        world(case.plain()), case.fresh, [list(map(checked, group)) for group in groups], case.most
    )
    assert by_owner(asked, dict(found.placed)) == {
        name: count for name, count in zip(names, plain.placed, strict=True) if count
    }
    assert (found.node_count, found.existing_used) == (plain.new_nodes, plain.existing_used)


@examples(200)
@given(cases(), st.randoms())
def test_every_pod_reported_as_placed_fits_where_it_was_put(case: Case, chance: Any) -> None:
    asked, template = case.problem()
    there = binpacking.pack_on_existing_nodes(asked)
    found = estimated(case, asked, template, after=there)
    plain = case.plain()
    checker = world(plain)
    groups = {
        owner.uid: list(map(checked, group))
        for group in case.groups
        for owner in group[0].metadata.owner_references or ()
    }
    for placement in (*there.placements, *found.placements):
        waiting = groups[asked.classes[placement.position].controller]
        # pods of one class at once need not fit in the order of nodes, but do in some; so try the others first
        where = [index for index, count in zip(placement.nodes, placement.counts, strict=True) for _ in range(count)]
        while where:
            for index in where:
                while index >= len(plain):
                    plain.append(case.fresh(len(plain) - len(case.nodes)))
                if not checker.refusal(waiting[0], plain[index]):
                    plain[index].pods.append(waiting.pop(0))
                    where.remove(index)
                    break
            else:
                pytest.fail(f"{waiting[0].name} does not fit on any of {where}")
    assert found.node_count <= len(plain) - len(case.nodes)


@examples(100)
@given(cases(), st.randoms(use_true_random=False))
def test_no_decision_depends_on_the_order_of_the_input(case: Case, chance: Any) -> None:
    asked, template = case.problem()
    first = estimated(case, asked, template)
    pending = [each for group in case.groups for each in group]
    for mixed in (pending, case.nodes, case.placed):
        chance.shuffle(mixed)
    asked, template = case.problem(pending)
    again = estimated(case, asked, template)
    assert (first.node_count, first.placed, first.reasons) == (again.node_count, again.placed, again.reasons)


@examples(100)
@given(cases())
def test_there_are_never_more_new_nodes_than_permitted_nor_more_pods_than_pending(case: Case) -> None:
    asked, template = case.problem()
    found = estimated(case, asked, template)
    if case.most:
        assert found.node_count <= max(0, case.most)
    for position, each in enumerate(asked.classes):
        placed = found.placed.get(position, 0)
        assert placed <= len(each.pods)
        assert (placed < len(each.pods)) == bool(found.reasons.get(position))


@examples(200)
@given(cases())
def test_a_class_fits_a_template_exactly_when_its_first_pod_would_go_to_the_first_new_node(case: Case) -> None:
    asked, template = case.problem()
    fit = binpacking.fit_on_new_node(asked, template)
    for position, each in enumerate(asked.classes):
        plain = [*case.plain(), case.fresh(0)]
        first = next(group[0] for group in case.groups if group[0].metadata.name.startswith(each.controller))
        fits = not world(plain).refusal(checked(first), plain[-1])
        assert bool(fit.flags[position]) == fits
        assert bool(fit.reasons(position)) != fits


def test_nodes_of_ports_and_of_a_hostname_anti_affinity_are_counted_one_pod_each() -> None:
    spec = {"containers": [{"name": "c", "ports": [{"hostPort": 80}]}]}
    apart = {"containers": [{"name": "c"}], "affinity": {"podAntiAffinity": terms(LABEL_HOSTNAME, "b")}}
    groups = [
        [pod(f"p{n}", "p", spec) for n in range(300)],
        [pod(f"q{n}", "q", apart, "b") for n in range(200)],
    ]
    case = Case([], [], groups, node("new", {}, {"cpu": "4", "memory": "8Gi", "pods": "110"}), [], 0)
    asked, template = case.problem()
    found = estimated(case, asked, template)
    assert (found.node_count, found.pod_count) == (300, 500)


def test_a_group_that_is_empty_or_full_gets_all_its_nodes_or_none() -> None:
    assert binpacking.zero_or_max(Estimate("g", 0), 10) == 0
    assert binpacking.zero_or_max(Estimate("g", 3), 10) == 10
    assert binpacking.zero_or_max(Estimate("g", 11), 10) == 10
    assert binpacking.zero_or_max(Estimate("g", 11), 10, all_or_nothing=True) == 0


def test_time_that_is_up_ends_an_estimate_with_what_it_has() -> None:
    answers = iter([False, False, True])
    permissions = Permissions(0, lambda: next(answers))
    assert [permissions.take(2), permissions.take(3), permissions.take(4)] == [2, 3, 0]
    assert permissions.nodes == 5


def test_pods_of_a_higher_priority_get_the_place_that_is_there() -> None:
    specs_by_owner = {
        "low": {"priority": 1, "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
        "urgent": {"priority": 9, "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
    }
    groups = [[pod(f"{owner}-{n}", owner, spec) for n in range(3)] for owner, spec in specs_by_owner.items()]
    there = [node("n", {}, {"cpu": "4", "memory": "1Gi", "pods": "10"})]
    asked, _ = Case(there, [], groups, there[0], [], 0).problem()
    left = binpacking.pack_on_existing_nodes(asked).pending
    assert by_owner(asked, dict(enumerate(left.tolist()))) == {"low": 2}


def test_pods_find_their_places_on_upcoming_nodes_as_they_were_bought_for_them() -> None:
    def asking(owner: str, cpu: str, count: int) -> list[Pod]:
        spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}
        return [pod(f"{owner}-{n}", owner, spec) for n in range(count)]

    amounts = {"cpu": 4000, "pods": 10}
    pending = [*asking("a", "1", 1), *asking("b", "2", 2), *asking("c", "3", 1)]
    classes = equivalence_groups.build_equivalence_groups(pending, ReferencedObjects()).classes
    upcoming = [NodeInfo(f"n{n}", {}, {}, (), amounts, amounts, NodeState.UPCOMING) for n in range(2)]
    found = binpacking.pack_on_existing_nodes(problem.packing_problem(cluster.snapshot_of_nodes(upcoming), classes))
    assert found.pending.tolist() == [0, 0, 0]


@pytest.mark.parametrize("state", [NodeState.UNREADY, NodeState.CORDONED, NodeState.TO_BE_DELETED])
def test_nothing_is_put_on_a_node_that_is_neither_ready_nor_upcoming(state: NodeState) -> None:
    amounts = {"cpu": 4000, "pods": 10}
    classes = equivalence_groups.build_equivalence_groups(
        [pod("p", "o", {"containers": [{"name": "c"}]})], ReferencedObjects()
    ).classes
    for taken, left in ((state, 1), (NodeState.READY, 0), (NodeState.UPCOMING, 0)):
        taking = cluster.snapshot_of_nodes([NodeInfo("n", {}, {}, (), amounts, amounts, taken)])
        assert binpacking.pack_on_existing_nodes(problem.packing_problem(taking, classes)).pending.tolist() == [left]


def test_the_class_that_counting_helps_most_comes_last_on_the_fast_path() -> None:
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]}
    small = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    groups = [[pod(f"big{n}", "big", spec) for n in range(9)], [pod(f"small{n}", "small", small) for n in range(4)]]
    case = Case([], [], groups, node("new", {}, {"cpu": "4", "memory": "1Gi", "pods": "10"}), [], 0)
    asked, template = case.problem()
    assert estimated(case, asked, template).node_count == 9
    assert estimated(case, asked, template, fast_path=True).node_count == 10


def test_new_nodes_have_room_beyond_what_was_laid_out_first() -> None:
    apart = {"containers": [{"name": "c"}], "affinity": {"podAntiAffinity": terms(LABEL_HOSTNAME, "a")}}
    spread = {
        "containers": [{"name": "c"}],
        "topologySpreadConstraints": [
            {"topologyKey": LABEL_HOSTNAME, "maxSkew": 1, "labelSelector": {"matchLabels": {"app": "b"}}}
        ],
    }
    groups = [[pod(f"p{n}", "p", apart) for n in range(150)], [pod(f"q{n}", "q", spread, "b") for n in range(400)]]
    case = Case([], [], groups, node("new", {}, {"cpu": "4", "memory": "8Gi", "pods": "110"}), [], 0)
    asked, template = case.problem()
    found = estimated(case, asked, template)
    on_node = np.zeros(found.node_count, np.int64)
    for placement in found.placements:
        np.add.at(on_node, placement.nodes, placement.counts)
    assert found.pod_count == 550
    assert found.node_count == 150
    assert set(on_node.tolist()) == {3, 4}


def test_an_empty_problem_needs_nothing() -> None:
    asked = problem.packing_problem(cluster.snapshot_of_nodes([]), [])
    template = NodeTemplate("g", NodeInfo("n"))
    assert Packing(asked).size == 0
    assert binpacking.estimate(asked, template, [], Permissions()).node_count == 0
    assert binpacking.fit_on_new_node(asked, template).positions.tolist() == []


def counted_by_hand(classes: Sequence[tuple[tuple[int, int], int]], node: tuple[int, int]) -> tuple[int, list[int]]:
    """Cluster Autoscaler's rule for pods that ask for nothing but cpu and memory: nodes, and pods of each class.

    Each class has its request and number. The search goes round, from behind the node that took the pod before; behind
    the last node is the first, whatever nodes are added later.
    """
    free: list[tuple[int, int]] = []
    behind = 0
    placed = []

    def put(at: int, asked: tuple[int, int]) -> bool:
        left = free[at][0] - asked[0], free[at][1] - asked[1]
        if min(left) < 0:
            return False
        free[at] = left
        return True

    for asked, count in classes:
        done = 0
        while done < count:
            around = ((behind + step) % len(free) for step in range(len(free)))
            taken = next((at for at in around if put(at, asked)), None)
            if taken is None:
                break
            behind, done = (taken + 1) % len(free), done + 1
        while done < count:
            if not (free and put(len(free) - 1, asked)):
                if free and free[-1] == node:
                    break
                free.append(node)
                if not put(len(free) - 1, asked):
                    break
            done += 1
        placed.append(done)
    return sum(left != node for left in free), placed


def test_the_search_for_a_node_goes_round_as_in_cluster_autoscaler_when_nodes_are_added_in_between() -> None:
    node = 4000, 8000
    names = ("cpu", "memory")
    amounts = {**dict(zip(names, node, strict=True)), PODS: 110}
    template = NodeTemplate("g", NodeInfo("n", {}, capacity=amounts, allocatable=amounts))
    for seed in range(300):
        chance = random.Random(seed)
        kinds = [
            ((chance.randrange(100, 2000, 100), chance.randrange(100, 4000, 100)), chance.randint(1, 6))
            for _ in range(chance.randint(2, 7))
        ]
        classes = [
            EquivalenceGroup(
                PodInfo("ns", requests=dict(zip(names, asked, strict=True))),
                tuple(f"ns/{index}-{number}" for number in range(count)),
            )
            for index, (asked, count) in enumerate(kinds)
        ]
        asked = problem.packing_problem(cluster.snapshot_of_nodes([]), classes, [template])
        order = binpacking.in_order(asked, template, range(len(classes)))
        found = binpacking.estimate(asked, template, order, Permissions())
        placed = [found.placed.get(position, 0) for position in order]
        assert (found.node_count, placed) == counted_by_hand([kinds[each] for each in order], node), seed


def test_what_is_remembered_of_a_pod_does_not_grow_with_the_nodes_it_could_have_gone_to() -> None:
    amounts = {"cpu": 4000, "memory": 8000, PODS: 110}
    nodes = [NodeInfo(f"n{number}", {}, capacity=amounts, allocatable=amounts) for number in range(500)]
    one = EquivalenceGroup(PodInfo("ns", requests={"cpu": 10}), ("ns/a",))
    packing = Packing(problem.packing_problem(cluster.snapshot_of_nodes(nodes), [one]))
    for count in (1, 2, 3):
        assert packing.fill(0, count, 0) == count
        latest = packing.placements[-1]
        for kept in (latest.nodes, latest.counts):
            assert (kept if kept.base is None else kept.base).nbytes == 8 * count
