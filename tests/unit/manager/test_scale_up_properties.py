"""What holds of every decision, whatever the cluster is like; places are judged by the independent checker."""

import itertools
import math
import pickle
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from manager.autoscaler.cloudprovider.contract import Group, GroupOptions, GroupSpec
from manager.autoscaler.cloudprovider.ownership import Ownership
from manager.autoscaler.cluster_state.state import GroupBackoff, GroupStatus
from manager.autoscaler.estimator import binpacking
from manager.autoscaler.estimator.binpacking import Permissions
from manager.autoscaler.estimator.limits import UNLIMITED, ResourceBounds
from manager.autoscaler.estimator.packing import PackedPods
from manager.autoscaler.expander import chain
from manager.autoscaler.expander.ranking import LEAST_COST, SEED
from manager.autoscaler.pricing.gce import LABELS_INSTANCE_TYPE
from manager.autoscaler.pricing.model import Machine as PricedMachine
from manager.autoscaler.pricing.price_file import FilePricing
from manager.autoscaler.scale_up import groups, orchestrator, salvo
from manager.autoscaler.scale_up.candidate_labels import TolerationMode
from manager.autoscaler.scale_up.candidates import AutoprovisioningRules
from manager.autoscaler.scale_up.capacity_quotas import CapacityLimits
from manager.autoscaler.scale_up.decisions import NodeMix, RankedOption, ScaleUpDecision, ScaleUpOutcome
from manager.autoscaler.scale_up.options import EstimateRules, ScaleUpInput, ScaleUpSettings
from manager.autoscaler.snapshot import cluster, equivalence_groups
from manager.autoscaler.snapshot.cluster import LABEL_HOSTNAME, NodeState, NodeTemplate
from shared.api.core import Node, Pod
from shared.api.selectors import LabelRequirement, LabelSelector
from shared.names import MID_CPU
from tests.support import independent_checker
from tests.support.candidates import first_specs
from tests.support.independent_checker import CheckedPod, Machine, World
from tests.support.properties import examples
from tests.unit.manager.wire_objects import (
    APPS,
    NAMESPACES,
    RACK,
    SURROUNDINGS,
    ZONE,
    raw_node,
    raw_nodes,
    raw_pod,
    specs,
    terms,
    world,
)

PREFIX = "nodeautoprovisioning"
PER_CORE, PER_GIB, PER_GPU, GIB = 0.033174, 0.004446, 0.7, 1 << 30
EXPANDERS = (("price",), ("price", "least-nodes"), ("most-pods", "price"), ("least-nodes",), ("least-waste",))
ZONE_FACTORS = {"z2": 1.4}
PREFERRED = ((2, 1), (6, 2), (20, 4), (80, 8), (300, 16), (math.inf, 32))  # cores by size of the cluster
SELECTORS: dict[str, LabelSelector | None] = {
    "x": LabelSelector({"pool": "x"}),
    "not x": LabelSelector(match_expressions=(LabelRequirement("pool", "NotIn", ("x",)),)),
    "any": LabelSelector(match_expressions=(LabelRequirement("pool", "Exists"),)),
    "all": None,
}

Raw = dict[str, Any]


@dataclass
class GroupCase:
    """A group with a new node of it as its cloud prints it, and the pods that come with each."""

    state: GroupStatus
    node: Raw
    daemons: list[Raw]
    upcoming: int = 0


@dataclass
class Case:
    """Everything of one round in wire form, and what the product makes of it."""

    nodes: list[tuple[Raw, NodeState]]
    placed: list[Raw]
    pending: list[Raw]
    groups: list[GroupCase]
    prices: dict[str, float]
    expected: dict[str, dict[str, int]]
    cluster_nodes: int
    new_groups: int
    quotas: tuple[CapacityLimits, ...]
    settings: ScaleUpSettings
    by_group: dict[str, GroupCase] = field(init=False)

    def __post_init__(self) -> None:
        self.by_group = {each.state.id: each for each in self.groups}

    def situation(self) -> ScaleUpInput:
        pods = [msgspec.convert(each, Pod) for each in self.pending]
        classes = equivalence_groups.build_equivalence_groups(pods, SURROUNDINGS)
        snapshot = cluster.take_snapshot(
            [(msgspec.convert(node, Node), state) for node, state in self.nodes],
            [msgspec.convert(each, Pod) for each in self.placed],
            surroundings=SURROUNDINGS,
            upcoming=[(each.state.template, each.upcoming) for each in self.groups if each.state.template],
        )
        assert not classes.refused
        assert not snapshot.refused
        states = [each.state for each in self.groups]
        quotas = tuple(each.remaining_quota(snapshot.nodes, {}, self.settings.usage) for each in self.quotas)
        return ScaleUpInput(
            snapshot, classes.classes, states, self.cluster_nodes, quotas, self.expected, self.new_groups
        )

    def decided(self) -> ScaleUpDecision:
        return orchestrator.decide(self.situation(), self.settings, random.Random(1))

    def machines(self) -> list[Machine]:
        """The nodes there are, by name, and then the upcoming ones, by group."""
        taking = (NodeState.READY, NodeState.UPCOMING)
        found = {
            node["metadata"]["name"]: independent_checker.machine(node, accepts=state in taking)
            for node, state in sorted(self.nodes, key=lambda pair: str(pair[0]["metadata"]["name"]))
            if state is not NodeState.NOT_STARTED
        }
        for each in self.placed:
            if each["spec"]["nodeName"] in found:
                found[each["spec"]["nodeName"]].pods.append(CheckedPod(each))
        upcoming = [
            self.fresh(name, f"upcoming-{name}-{number}")
            for name in sorted(self.by_group)
            for number in range(self.by_group[name].upcoming)
        ]
        return [*found.values(), *upcoming]

    def fresh(self, group: str, name: str) -> Machine:
        """A new node of a group."""
        found = independent_checker.machine(self.by_group[group].node, name=name)
        found.pods = [CheckedPod(each) for each in self.by_group[group].daemons]
        return found


class ZonalPricing(FilePricing):
    """Machines are dearer in some zones than in others."""

    def node_price(self, machine: PricedMachine) -> float:
        return super().node_price(machine) * ZONE_FACTORS.get(machine.labels.get(ZONE, ""), 1.0)


def rarely(draw: st.DrawFn, once_in: int) -> bool:
    return draw(st.integers(1, once_in)) == once_in


@st.composite
def plain_specs(draw: st.DrawFn) -> Raw:
    requests = {"cpu": f"{draw(st.integers(1, 20))}00m", "memory": f"{draw(st.integers(1, 20))}Mi"}
    return {"containers": [{"name": "c", "resources": {"requests": requests}}]}


@st.composite
def group_cases(draw: st.DrawFn, index: int, is_plain: bool, others: Sequence[GroupCase]) -> GroupCase:
    """Some of them with the machine of another one, maybe in another zone."""
    is_new = rarely(draw, 4)
    name = f"{PREFIX}-{index}" if is_new else f"group-{index}"
    daemons: list[Raw] = []
    if others and rarely(draw, 3):
        like = draw(st.sampled_from(others))
        shape, daemons = deepcopy(like.node), like.daemons
        shape["metadata"]["labels"][ZONE] = draw(st.sampled_from(["z1", "z2"]))
    elif is_plain:
        amounts = {"cpu": str(draw(st.integers(1, 8))), "memory": f"{draw(st.integers(4, 60))}Mi", "pods": "9"}
        shape = raw_node(name, {}, amounts)
    else:
        shape = draw(raw_nodes(name))
        if rarely(draw, 3):
            asked = {"name": "c", "resources": {"requests": {"cpu": "100m"}}, "ports": [{"hostPort": 80}]}
            daemons.append(raw_pod(f"daemon-{index}", f"ds-{index}", {"containers": [asked]}, draw(_APPS)))
    shape["metadata"]["labels"].setdefault(LABELS_INSTANCE_TYPE[0], f"m{index}")
    low, size, high = sorted(draw(st.tuples(*[st.integers(0, 12)] * 3)))
    template = NodeTemplate(
        name,
        cluster.node_info(msgspec.convert(shape, Node), NodeState.READY),
        tuple(
            each.facts
            for each in equivalence_groups.build_equivalence_groups(
                [msgspec.convert(each, Pod) for each in daemons], SURROUNDINGS
            ).classes
        ),
    )
    state = GroupStatus(
        Group(name, low, high + 8 * is_plain, 0 if is_new else size),
        template=None if not is_new and rarely(draw, 12) else template,
        healthy=is_new or not rarely(draw, 12),
        backoff=GroupBackoff("it failed", 0.0, 300.0, 300.0) if rarely(draw, 12) else None,
        options=GroupOptions(zero_or_max_node_scaling=not is_plain and rarely(draw, 6)),
        spec=GroupSpec(f"m{index}", PREFIX) if is_new else None,
    )
    upcoming = 0 if is_new or state.template is None or not size else draw(st.sampled_from([0, 0, 0, 1, 2]))
    return GroupCase(state, shape, daemons, min(size, upcoming))


_APPS = st.sampled_from(APPS)
_STATES = st.sampled_from([NodeState.READY] * 4 + [each for each in NodeState if each is not NodeState.UPCOMING])


@st.composite
def cases(draw: st.DrawFn, plain: bool = False, most_pods: int = 12) -> Case:
    """Half of them with nothing but amounts, so that much is possible, and half with all that pods can demand."""
    is_plain = plain or draw(st.booleans())
    nodes: list[tuple[Raw, NodeState]] = []
    placed: list[Raw] = []
    for index in range(0 if plain else draw(st.integers(0, 3))):
        state = draw(_STATES)
        node = draw(raw_nodes(f"n{index}", unschedulable=state is NodeState.CORDONED))
        nodes.append((node, state))
        for number in range(draw(st.integers(0, 2))):
            spec = {**draw(specs()), "nodeName": f"n{index}"}
            namespace = draw(st.sampled_from(sorted(NAMESPACES)))
            placed.append(raw_pod(f"placed-{index}-{number}", f"old-{index}{number}", spec, draw(_APPS), namespace))
    pending: list[Raw] = []
    for index in range(draw(st.integers(1, 4))):
        spec, app = draw(plain_specs() if is_plain else specs()), draw(_APPS)
        spec["priority"] = draw(st.sampled_from([0, 0, 7]))
        namespace = draw(st.sampled_from(["default", "default", "other"]))
        count = draw(st.integers(1, most_pods))
        pending += [raw_pod(f"g{index}-{n:03d}", f"g{index}", spec, app, namespace) for n in range(count)]
    found: list[GroupCase] = []
    for index in range(draw(st.integers(1, 5))):
        found.append(draw(group_cases(index, is_plain, found)))
    return Case(
        nodes,
        placed,
        pending,
        found,
        prices=(
            {f"m{index}": draw(st.floats(0.01, 1.0)) for index in range(len(found))} if draw(st.booleans()) else {}
        ),
        expected={node["metadata"]["name"]: {MID_CPU: 700} for node, _ in nodes if draw(st.booleans())},
        cluster_nodes=draw(st.integers(0, 400)),
        new_groups=draw(st.integers(0, 2)),
        quotas=tuple(
            CapacityLimits(name, {"nodes": draw(st.integers(0, 9)), "cpu": draw(st.integers(0, 40))}, SELECTORS[name])
            for name in draw(st.lists(st.sampled_from(list(SELECTORS)), unique=True, max_size=2))
        ),
        settings=ScaleUpSettings(
            Ownership(),
            bounds=draw(
                st.sampled_from([{}, {}])
                | st.fixed_dictionaries(
                    {
                        "cpu": st.integers(1, 40).map(lambda high: ResourceBounds(0, high)),
                        "memory": st.integers(1, 300).map(lambda high: ResourceBounds(0, high << 20)),
                    }
                )
            ),
            preset=draw(st.sampled_from([SEED, LEAST_COST])),
            expanders=draw(st.sampled_from(EXPANDERS)),
            max_nodes_total=draw(st.sampled_from([0, 0, 2, 4, 6])),
            estimates=EstimateRules(
                balance_similar_node_groups=draw(st.booleans()),
                fastpath_binpacking_enabled=draw(st.booleans()),
                scale_up_all_or_nothing=rarely(draw, 6),
                max_nodes_per_scaleup=draw(st.sampled_from([1000, 3])),
            ),
            enforce_node_group_min_size=draw(st.booleans()),
            least_cost_mix=draw(st.sampled_from([True, True, False])),
        ),
    )


def owning(case: Case, listed: Sequence[str]) -> Case:
    """The case with these groups as ours, and priced."""
    ownership = Ownership(dict.fromkeys(listed))
    return replace(case, settings=replace(case.settings, ownership=ownership, pricing=ZonalPricing(case.prices)))


@st.composite
def rounds(draw: st.DrawFn) -> Case:
    case = draw(cases() | cases(plain=True, most_pods=30))
    return owning(case, [each.state.id for each in case.groups if not rarely(draw, 6)])


@st.composite
def mixable_rounds(draw: st.DrawFn) -> Case:
    """What several groups may serve: many pods of different forms, some of which keep apart from their own kind."""
    case = draw(cases(plain=True, most_pods=30))
    for each in case.groups:
        group = replace(each.state.group, max_size=each.state.group.target_size + 40)
        each.state, each.upcoming = replace(each.state, group=group, healthy=True, backoff=None), 0
    if draw(st.booleans()):
        app, key = draw(_APPS), draw(st.sampled_from([LABEL_HOSTNAME, ZONE]))
        kept_apart = [each for each in case.pending if each["metadata"]["labels"]["app"] == app]
        for pod in kept_apart:
            pod["spec"]["affinity"] = {"podAntiAffinity": terms(key, app, matchLabelKeys=["hash"])}
    bounds = draw(st.sampled_from([case.settings.bounds, {}, {}]))
    chosen = replace(case.settings, expanders=("price",), least_cost_mix=True, bounds=bounds, max_nodes_total=0)
    return owning(replace(case, settings=chosen), list(case.by_group))


def bought(decision: ScaleUpDecision) -> dict[str, int]:
    """All that grows, and by how many nodes."""
    named = [each.group for each in decision.increases] + [each.group for each in decision.creations]
    assert sorted(set(named)) == sorted(named)
    return decision.nodes


@examples(150)
@given(rounds())
def test_a_group_neither_listed_nor_prefixed_is_never_changed(case: Case) -> None:
    decision = case.decided()
    listed = case.settings.ownership.listed
    several = decision.comparison.several if decision.comparison else None
    named = {*bought(decision), *(several.nodes if several else ()), *(each.group for each in decision.considered)}
    assert all(name in listed or name.startswith(PREFIX) for name in named)
    for each in case.groups:
        if each.state.id not in listed and each.state.exists:
            assert groups.NOT_OURS in [skip.reason for skip in decision.skipped if skip.group == each.state.id]


@examples(150)
@given(rounds(), st.integers(1, 8), st.booleans())
def test_an_estimate_of_fewer_nodes_adds_exactly_these(case: Case, most: int, fast_path: bool) -> None:
    left, *_ = orchestrator.filter_out_schedulable(case.situation())
    for each in case.groups:
        if (template := each.state.template) is not None:
            fit = binpacking.fit_on_new_node(left.problem, template, left)
            full, limited = (
                binpacking.estimate(
                    left.problem, template, fit.positions, Permissions(nodes), after=left, fast_path=fast_path
                )
                for nodes in (UNLIMITED, most)
            )
            assert limited.node_count == min(most, full.node_count)
            event(f"cuts the estimate: {most < full.node_count}")


@examples(250)
@given(rounds())
def test_a_plan_never_exceeds_any_limit(case: Case) -> None:
    decision = case.decided()
    check_limits(bought(decision), case)
    atomic = {each.state.id for each in case.groups if each.state.zero_or_max}
    if decision.outcome is ScaleUpOutcome.GROW and not atomic & bought(decision).keys():
        assert sum(bought(decision).values()) <= case.settings.estimates.max_nodes_per_scaleup
    several = decision.comparison.several if decision.comparison else None
    if several is not None:  # also where it is not what is done
        check_limits(several.nodes, case)
        assert len(several.nodes) > 1 or case.settings.preset is LEAST_COST


def check_limits(nodes: Mapping[str, int], case: Case) -> None:
    for name, count in nodes.items():
        state = case.by_group[name].state
        assert 0 < count <= state.group.max_size - state.group.target_size
        assert not state.zero_or_max or count == state.room
    chosen = case.settings
    there = case.machines()
    if nodes and chosen.max_nodes_total:
        assert len(there) + sum(nodes.values()) <= chosen.max_nodes_total
    used = Counter[str]()
    for each in there:
        used.update(quota_usage(each))
    more = Counter[str]()
    for name, count in nodes.items():
        for resource, amount in quota_usage(case.fresh(name, "new")).items():
            more[resource] += amount * count
    for resource, bound in chosen.bounds.items():
        assert bound.high is not None
        assert not more[resource] or used[resource] + more[resource] <= bound.high
    for quota in case.quotas:
        selected = [each for each in there if is_selected(quota.name, each)]
        new = {name: count for name, count in nodes.items() if is_selected(quota.name, case.fresh(name, ""))}
        for resource, most in quota.most.items():
            added = sum(quota_usage(case.fresh(name, ""))[resource] * count for name, count in new.items())
            assert not added or sum(quota_usage(each)[resource] for each in selected) + added <= most
    assert sum(not case.by_group[name].state.exists for name in nodes) <= case.new_groups


def is_selected(quota: str, machine: Machine) -> bool:
    """Told without selectors; see `SELECTORS`."""
    pool = machine.labels.get("pool")
    return {"x": pool == "x", "not x": pool != "x", "any": pool is not None, "all": True}[quota]


def quota_usage(machine: Machine) -> dict[str, int]:
    return {
        "cpu": math.ceil(machine.allocatable["cpu"]),
        "memory": int(machine.allocatable["memory"]),
        "nodes": 1,
    }


@examples(300)
@given(rounds() | mixable_rounds())
def test_every_pod_reported_as_placed_fits(case: Case) -> None:
    decision = case.decided()
    waiting, machines = settled(case, decision)
    comparison = decision.comparison
    if decision.outcome is not ScaleUpOutcome.GROW or comparison is None:
        return
    for plan in (comparison.single, comparison.several):
        if plan is not None:
            bound = any(each.terms("podAntiAffinity") for position in plan.pods for each in waiting[position][:1])
            event(f"{'several groups' if plan is comparison.several else 'one group'}{', some apart' * bound}")
            check_places(plan, waiting, machines, case)


def key_of(pod: Raw) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def settled(case: Case, decision: ScaleUpDecision) -> tuple[dict[int, list[CheckedPod]], list[Machine]]:
    """What is left of each class once all have gone where there is room, and the machines then.

    Checks each place; that the decision counts the same; and that nothing which fits is left over.
    """
    situation = case.situation()
    by_name = {key_of(each): CheckedPod(each) for each in case.pending}
    waiting = {position: [by_name[key] for key in each.pods] for position, each in enumerate(decision.demands)}
    machines = case.machines()
    packing, before, _ = orchestrator.filter_out_schedulable(situation)
    for machine in machines:
        if any(before) and machine.name in case.expected:
            machine.allocatable = {
                **machine.allocatable,
                MID_CPU: machine.allocatable[MID_CPU] + case.expected[machine.name][MID_CPU],
            }
    checker = world(machines)
    for placement in packing.placements:
        put(placement, waiting[placement.position], checker, lambda index: machines[index])
    for position, each in enumerate(decision.demands):
        assert len(each.unplaced) == len(waiting[position])
        left = waiting[position][:1]
        bound = any(pod.terms("podAffinity") or pod.constraints for pod in left)  # others, coming later, may help these
        assert bound or not any(not checker.refusal(pod, machine) for pod in left for machine in machines)
    return waiting, machines


def check_places(plan: NodeMix, waiting: Mapping[int, list[CheckedPod]], machines: list[Machine], case: Case) -> None:
    left = {position: list(pods) for position, pods in waiting.items()}
    there = [copy_of(machine) for machine in machines]
    known = len(there)
    checker = world(there)
    new: dict[tuple[int, int], Machine] = {}
    for number, estimate in enumerate(plan.estimates):

        def at(index: int, number: int = number, group: str = estimate.group) -> Machine:
            if index < known:
                return there[index]
            if (number, index) not in new:
                new[number, index] = case.fresh(group, f"{group}-{number}-{index}")
                checker.machines.append(new[number, index])
            return new[number, index]

        for placement in estimate.placements:
            put(placement, left[placement.position], checker, at)
    placed = {position: len(pods) - len(left[position]) for position, pods in waiting.items()}
    assert {position: count for position, count in placed.items() if count} == dict(plan.pods)
    assert len(new) <= sum(plan.nodes.values())


def copy_of(machine: Machine) -> Machine:
    return replace(machine, pods=list(machine.pods))


def put(placement: PackedPods, waiting: list[CheckedPod], checker: World, at: Callable[[int], Machine]) -> None:
    """Puts pods of one class where a placement has them. They need not fit in the order of nodes, but do in some."""
    where = [int(n) for n, count in zip(placement.nodes, placement.counts, strict=True) for _ in range(count)]
    machines = {index: at(index) for index in where}
    while where:
        for index in where:
            if not checker.refusal(waiting[0], machines[index]):
                machines[index].pods.append(waiting.pop(0))
                where.remove(index)
                break
        else:
            reasons = {index: checker.refusal(waiting[0], machines[index]) for index in where}
            pytest.fail(f"{waiting[0].name} does not fit: {reasons}")


@examples(200)
@given(rounds())
def test_the_chosen_option_is_the_best_of_all_that_were_valid(case: Case) -> None:
    decision = case.decided()
    for each in decision.considered:
        assert each.ranked.rank is not None
        assert each.ranked.rank.rank == pytest.approx(plain_rank(each, case, decision))
    waiting, machines = settled(case, decision)
    accounted = {*(each.group for each in decision.considered), *(each.group for each in decision.skipped)}
    if decision.outcome in (ScaleUpOutcome.GROW, ScaleUpOutcome.NO_OPTIONS):
        for group in case.by_group.keys() - accounted:  # nothing that could have helped was passed by
            fresh = case.fresh(group, "new")
            checker = world([*machines, fresh])
            assert all(checker.refusal(pods[0], fresh) for pods in waiting.values() if pods)
    if decision.chosen is None:
        return
    best = list(decision.considered)
    for name in case.settings.expanders:
        values = [VALUES[name](each, case, decision) for each in best]
        best = [each for each, value in zip(best, values, strict=True) if value <= min(values) + 1e-12]
    assert decision.chosen in best


def plain_rank(each: RankedOption, case: Case, decision: ScaleUpDecision) -> float:
    """The formula once more, out of the wire form."""
    pods_price = sum(unit_price(pod_of(case, decision, position)) * count for position, count in each.pods.items())
    machine = case.fresh(each.group, "new")
    nodes_price = node_price(case, each.group) * each.node_count
    preferred = next(cores for most, cores in PREFERRED if case.cluster_nodes <= most)
    unfitness = float(max(preferred / machine.allocatable["cpu"], machine.allocatable["cpu"] / preferred))
    unfitness = 1.0 if case.settings.preset is LEAST_COST else unfitness
    suppressed = (unfitness - 1) * (1 - math.tanh((each.node_count - 1) / 15)) + 1
    half_core = 0.5 * PER_CORE
    return suppressed * (nodes_price + half_core) / (pods_price + half_core)


def idle(each: RankedOption, case: Case, decision: ScaleUpDecision) -> float:
    machine = case.fresh(each.group, "new")
    found = 0.0
    for resource in ("cpu", "memory"):
        capacity = machine.allocatable[resource] * each.node_count
        taken = sum(
            pod_of(case, decision, position).get(resource, Fraction(0)) * count for position, count in each.pods.items()
        )
        found += float((capacity - taken) / capacity)
    return found


VALUES: dict[str, Callable[[RankedOption, Case, ScaleUpDecision], float]] = {
    "price": lambda each, *_: each.ranked.rank.height[0] if each.ranked.rank else math.inf,
    "most-pods": lambda each, *_: -sum(each.pods.values()),
    "least-nodes": lambda each, *_: each.node_count,
    "least-waste": idle,
}


def pod_of(case: Case, decision: ScaleUpDecision, position: int) -> dict[str, Fraction]:
    """What each pod of a class requests."""
    name = decision.demands[position].pods[0].partition("/")[2]
    return CheckedPod(next(each for each in case.pending if each["metadata"]["name"] == name)).requests


def unit_price(amounts: Mapping[str, Fraction]) -> float:
    return float(amounts.get("cpu", 0)) * PER_CORE + float(amounts.get("memory", 0)) / GIB * PER_GIB


def node_price(case: Case, group: str) -> float:
    labels: dict[str, str] = case.by_group[group].node["metadata"]["labels"]
    of_type = case.prices.get(labels[LABELS_INSTANCE_TYPE[0]])
    price = unit_price(case.fresh(group, "new").allocatable) if of_type is None else of_type
    return price * ZONE_FACTORS.get(labels.get(ZONE, ""), 1.0)


@examples(300)
@given(mixable_rounds() | rounds())
def test_several_groups_never_cost_more_than_the_single_one_and_place_the_same_pods(case: Case) -> None:
    decision = case.decided()
    comparison = decision.comparison
    if comparison is None:
        return
    assert comparison.single.cost is not None
    assert comparison.minimum is not None
    assert comparison.single.cost == pytest.approx(cost(case, comparison.single.nodes))
    done = cost(case, bought(decision)) if decision.outcome is ScaleUpOutcome.GROW else 0.0
    assert done <= comparison.single.cost + 1e-9
    if not case.prices:  # a machine is at least as dear as its parts
        assert comparison.minimum <= comparison.single.cost + 1e-9
    several = comparison.several
    if several is None:
        return
    assert several.pods == comparison.single.pods
    assert several.cost == pytest.approx(cost(case, several.nodes))
    if comparison.uses_several:
        event("several groups")
        assert case.settings.least_cost_mix
        assert case.settings.expanders[0] == "price"


def cost(case: Case, nodes: Mapping[str, int]) -> float:
    return sum(node_price(case, group) * count for group, count in nodes.items())


@examples(150)
@given(rounds())
def test_every_pod_is_accounted_for_once(case: Case) -> None:
    decision = case.decided()
    left = {each.position: each.pods for each in decision.left}
    counted: list[str] = list(decision.triggered)
    for position, each in enumerate(decision.demands):
        counted += each.pods[: each.schedulable + each.reclaimed]
        counted += left.get(position, ())
    assert sorted(counted) == sorted(map(key_of, case.pending))
    for waiting in decision.left:
        reasons = decision.reasons(waiting)
        named = {group for group, why in reasons.items() if why}
        assert not waiting.awaiting or decision.considered
        assert waiting.awaiting or decision.outcome is ScaleUpOutcome.ALL_NODES or named == case.by_group.keys()


@examples(200)
@given(cases(plain=True, most_pods=30))
def test_pods_that_await_nothing_get_no_node_in_the_next_round_either(case: Case) -> None:
    case = owning(case, list(case.by_group))
    situation, settings = case.situation(), replace(case.settings, enforce_node_group_min_size=False)
    decision = orchestrator.decide(situation, settings, random.Random(1))
    hopeless = {pod for each in decision.left if not each.awaiting for pod in each.pods}
    following = orchestrator.decide(salvo.apply_decision(situation, decision), settings, random.Random(1))
    event(f"some await nothing: {bool(hopeless)}, some await: {any(each.awaiting for each in decision.left)}")
    assert not hopeless & set(following.triggered)


@examples(200)
@given(cases(plain=True, most_pods=30))
def test_what_is_bought_has_room_for_the_pods_that_triggered_it(case: Case) -> None:
    situation = case.situation()
    decision = orchestrator.decide(situation, case.settings, random.Random(1))
    triggered = Counter(decision.triggered)
    event("capped" if decision.caps else "not capped")
    for resource in ("cpu", "memory", "pods"):
        asked = sum(
            (each.facts.requests.get(resource, 0) or (resource == "pods")) * sum(triggered[pod] for pod in each.pods)
            for each in situation.classes
        )
        there = sum(
            template.free.get(resource, 0) * count
            for name, count in bought(decision).items()
            if (template := case.by_group[name].state.template)
        )
        assert asked <= there


@examples(150)
@given(rounds())
def test_a_salvo_keeps_to_all_limits_together_and_buys_for_no_pod_twice(case: Case) -> None:
    situation = case.situation()
    nodes, triggered = Counter[str](), Counter[str]()
    chosen = replace(case.settings, enforce_node_group_min_size=False)
    for _ in range(len(case.pending) + 1):
        pods = {pod for each in situation.classes for pod in each.pods}
        decision = orchestrator.decide(situation, chosen, random.Random(1))
        if decision.outcome is not ScaleUpOutcome.GROW:
            break
        nodes.update(bought(decision))
        triggered.update(decision.triggered)
        found = salvo.apply_decision(situation, decision)
        there = sum(each.schedulable + each.reclaimed for each in decision.demands)
        assert len(found.snapshot.nodes) == len(situation.snapshot.nodes) + sum(bought(decision).values())
        assert {pod for each in found.classes for pod in each.pods} == pods - placed_by(decision)
        assert sum(len(each.pods) for each in found.classes) == len(pods) - there - len(decision.triggered)
        new = found.snapshot.free[len(situation.snapshot.nodes) :]
        assert (new >= 0).all()
        situation = found
    else:
        pytest.fail("a salvo that does not end")
    event(f"{min(len(triggered), 1) and len(nodes)} groups")
    check_limits(nodes, case)
    assert not triggered or max(triggered.values()) == 1


@examples(200)
@given(cases(plain=True, most_pods=30))
def test_nothing_more_is_bought_while_the_nodes_for_the_same_pods_are_on_their_way(case: Case) -> None:
    for each in case.pending:
        each["spec"]["priority"] = 0
    settled_groups = [replace(each, upcoming=0) for each in case.groups]
    chosen = replace(case.settings, least_cost_mix=False, estimates=EstimateRules(), enforce_node_group_min_size=False)
    case = owning(replace(case, groups=settled_groups, settings=chosen), list(case.by_group))
    situation = case.situation()
    decision = orchestrator.decide(situation, case.settings, random.Random(1))
    if decision.outcome is not ScaleUpOutcome.GROW or decision.caps:
        return
    coming = [(case.by_group[name].state.template, count) for name, count in bought(decision).items()]
    snapshot = cluster.take_snapshot([], [], upcoming=[(template, count) for template, count in coming if template])
    same = [
        each._replace(pods=tuple(pod for pod in each.pods if pod in decision.triggered)) for each in situation.classes
    ]
    again = replace(situation, snapshot=snapshot, classes=[each for each in same if each.pods])
    event("several kinds of pods" if len(again.classes) > 1 else "pods of one kind")
    assert orchestrator.decide(again, case.settings, random.Random(1)).outcome is ScaleUpOutcome.NOT_NEEDED


def placed_by(decision: ScaleUpDecision) -> set[str]:
    found = set(decision.triggered)
    for each in decision.demands:
        found |= {*each.pods[: each.schedulable + each.reclaimed]}
    return found


@examples(150)
@given(rounds(), st.randoms(use_true_random=False))
def test_no_decision_depends_on_the_order_of_the_input(case: Case, chance: random.Random) -> None:
    first = case.decided()
    for mixed in (case.nodes, case.placed, case.pending, case.groups):
        chance.shuffle(mixed)
    situation = case.situation()
    classes = list(situation.classes)
    chance.shuffle(classes)
    again = orchestrator.decide(replace(situation, classes=classes), case.settings, random.Random(1))
    assert again == first
    assert list(map(again.reasons, again.left)) == list(map(first.reasons, first.left))


@examples(100)
@given(rounds())
def test_deciding_changes_nothing_that_it_is_given_and_says_the_same_again(case: Case) -> None:
    situation = case.situation()
    for name in case.settings.expanders:
        if name != chain.RANDOM:
            case.settings.plugins.get(name)  # made with the configuration, and kept
    before = pickle.dumps((situation, case.settings))
    first = orchestrator.decide(situation, case.settings, random.Random(1))
    for each in first.left:
        first.reasons(each)
    assert pickle.dumps((situation, case.settings)) == before
    assert orchestrator.decide(situation, case.settings, random.Random(1)) == first


@st.composite
def machines_on_offer(draw: st.DrawFn) -> dict[str, Raw]:
    found = {}
    for index in range(draw(st.integers(1, 3))):
        machine = draw(raw_nodes(f"type-{index}"))
        machine["spec"]["taints"] = []
        for key in ("pool", RACK):
            machine["metadata"]["labels"].pop(key, None)
        found[f"type-{index}"] = machine
    return found


@st.composite
def lonely_pods(draw: st.DrawFn) -> list[Raw]:
    """Of several owners, none of which asks where pods of others are."""
    found = []
    for index in range(draw(st.integers(1, 5))):
        spec = draw(specs())
        spec.pop("topologySpreadConstraints", None)
        for kind in ("podAffinity", "podAntiAffinity"):
            spec["affinity"].pop(kind, None)
        found += [raw_pod(f"g{index}-{n}", f"g{index}", spec) for n in range(draw(st.integers(1, 3)))]
    return found


@examples(150)
@given(machines_on_offer(), lonely_pods(), st.sampled_from(TolerationMode))
def test_every_pod_that_a_machine_on_offer_could_take_gets_a_group_in_the_end(
    offered: dict[str, Raw], pods: list[Raw], mode: TolerationMode
) -> None:
    machines = {
        name: NodeTemplate(name, cluster.node_info(msgspec.convert(raw, Node), NodeState.READY))
        for name, raw in offered.items()
    }
    rules = AutoprovisioningRules(node_autoprovisioning=True, autoprovisioning_tolerations=mode)
    classes = equivalence_groups.build_equivalence_groups(
        [msgspec.convert(each, Pod) for each in pods], SURROUNDINGS
    ).classes
    situation = ScaleUpInput(cluster.snapshot_of_nodes([]), classes, new_groups=100)
    chosen = ScaleUpSettings(Ownership(), FilePricing())
    for number in range(2 * len(pods) + 1):
        states = []
        for index, spec in enumerate(first_specs(situation.classes, machines, rules)):
            node = machines[spec.machine_type].node
            node = replace(node, labels={**node.labels, **spec.labels}, taints=spec.taints)
            name = f"{PREFIX}-{number}-{index}"
            states.append(GroupStatus(Group(name, 0, 50, 0), template=NodeTemplate(name, node), spec=spec))
        situation = replace(situation, groups=states)
        decision = orchestrator.decide(situation, chosen, random.Random(1))
        if decision.outcome is not ScaleUpOutcome.GROW:
            break
        situation = salvo.apply_decision(situation, decision)
    left = {pod for each in decision.left for pod in each.pods}
    event("some are left" if left else "all run")
    for pod in pods:
        assert key_of(pod) not in left or not any(could_take(machine, CheckedPod(pod)) for machine in offered.values())


def could_take(machine: Raw, pod: CheckedPod) -> bool:
    """Whether such a machine takes the pod with some labels of its group's own."""
    for values in itertools.product((None, "x", "y"), (None, "r1", "r2")):
        found = independent_checker.machine(machine, name="new")
        found.labels |= {key: value for key, value in zip(("pool", RACK), values, strict=True) if value}
        if not world([found]).refusal(pod, found):
            return True
    return False
