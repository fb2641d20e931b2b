"""Of many groups only those that may rank first are estimated, and the decision is that of all estimates."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import event, given

from manager.autoscaler.cloudprovider.contract import Group
from manager.autoscaler.cloudprovider.ownership import Ownership
from manager.autoscaler.cluster_state.state import GroupStatus
from manager.autoscaler.estimator import binpacking
from manager.autoscaler.estimator.binpacking import Estimate, Permissions
from manager.autoscaler.expander import ranking
from manager.autoscaler.pricing.price_file import FilePricing
from manager.autoscaler.scale_up import groups, options, orchestrator
from manager.autoscaler.scale_up.decisions import ScaleUpDecision
from manager.autoscaler.scale_up.options import EstimateRules, ScaleUpInput, ScaleUpSettings
from manager.autoscaler.scale_up.rank_bounds import RankBounds
from manager.autoscaler.snapshot import cluster
from manager.autoscaler.snapshot.cluster import LABEL_HOSTNAME, PODS, NodeInfo, NodeTemplate
from manager.autoscaler.snapshot.equivalence_groups import EquivalenceGroup
from manager.autoscaler.snapshot.pod_info import PodInfo, PodTerm
from shared.api.selectors import LabelSelector
from tests.support.properties import examples
from tests.unit.manager.test_scale_up_properties import Case, mixable_rounds, rounds

GIB = 1 << 30
APART = PodTerm(LABEL_HOSTNAME, frozenset({"ns"}), LabelSelector({"app": "apart"}))
EVERY_GROUP = 1000


@examples(300)
@given(rounds() | mixable_rounds())
def test_no_option_ranks_below_the_bound_of_its_group(case: Case) -> None:
    situation, settings = case.situation(), case.settings
    pricing = settings.pricing
    assert pricing is not None
    room = orchestrator.headroom(situation, settings)
    states = groups.validate_groups(situation.groups, room, settings.usage, settings.ownership).valid
    templates = [each.template for each in states if each.template is not None]
    left, *_ = orchestrator.filter_out_schedulable(situation, templates)
    cores = ranking.preferred_cpu_milli(settings.preset, situation.cluster_nodes)
    bounds = RankBounds(left, pricing, settings.preset, cores, most_candidates=1)
    estimated = options.compute_options(left, states, room, settings.estimates).estimated
    for each in estimated:
        if each.option is None:
            continue
        most = options.most_nodes((each.state, *each.similar), room, settings.estimates)
        least = bounds.least(each.state, each.fit, most)
        rank = ranking.rank_options([each.option], pricing, settings.preset, cores)[0].rank
        assert rank is not None
        height, worth = rank.rank, rank.pods_price
        assert height is None or least.rank <= height * (1 + 1e-9)
        assert not worth or least.per_worth <= rank.nodes_price / worth * (1 + 1e-9)


@examples(300)
@given(rounds() | mixable_rounds())
def test_an_estimate_that_no_amount_limited_is_the_same_with_just_enough_and_with_much_more(case: Case) -> None:
    situation, settings = case.situation(), case.settings
    room = orchestrator.headroom(situation, settings)
    states = groups.validate_groups(situation.groups, room, settings.usage, settings.ownership).valid
    templates = {each.id: each.template for each in states if each.template is not None}
    left, *_ = orchestrator.filter_out_schedulable(situation, list(templates.values()))
    asked = left.problem
    for each in options.compute_options(left, states, room, settings.estimates).estimated:
        found, template = each.estimate, templates[each.state.id]
        if found.same_from is None:
            continue
        event("no amount limited an estimate")
        sufficient = dict(zip(asked.resources, found.same_from.tolist(), strict=True))
        just_enough = {name: amount + template.overhead.get(name, 0) for name, amount in sufficient.items()}
        much_more = {name: 3 * amount for name, amount in template.node.allocatable.items()}
        for allocatable in (just_enough, much_more):
            other = replace(template, node=replace(template.node, allocatable=allocatable))
            positions = each.fit.positions
            if binpacking.in_order(asked, other, positions) != binpacking.in_order(asked, template, positions):
                continue
            most = options.most_nodes((each.state, *each.similar), room, settings.estimates)
            again = binpacking.estimate(asked, other, positions, Permissions(most), after=left)
            assert (again.node_count, again.placed, again.reasons) == (found.node_count, found.placed, found.reasons)
            assert places(again) == places(found)


def places(found: Estimate) -> list[tuple[int, list[int], list[int]]]:
    return [(each.position, each.nodes.tolist(), each.counts.tolist()) for each in found.placements]


def machine(cores: int) -> GroupStatus:
    amounts = {"cpu": cores * 1000, "memory": cores * 2 * GIB, PODS: cores * 10}
    name = f"cores-{cores:03d}"
    return GroupStatus(
        Group(name, 0, 500, 0), template=NodeTemplate(name, NodeInfo(name, capacity=amounts, allocatable=amounts))
    )


def pending(name: str, cpu_milli: int, memory_gib: int, count: int, *, apart: bool = False) -> EquivalenceGroup:
    facts = PodInfo("ns", requests={"cpu": cpu_milli, "memory": memory_gib * GIB})
    if apart:
        facts = replace(facts, labels={"app": "apart"}, anti_affinity=(APART,))
    return EquivalenceGroup(facts, tuple(f"ns/{name}-{index:03d}" for index in range(count)))


CLASSES = (
    pending("generic", 700, 1, 30),
    pending("large", 2500, 1, 3),
    pending("apart", 300, 2, 40, apart=True),
    pending("huge", 50_000, 1, 1),
)


def decided(most_estimated: int, expanders: Sequence[str] = ("price",)) -> ScaleUpDecision:
    states = [machine(cores) for cores in range(1, 81)]
    settings = ScaleUpSettings(
        Ownership({state.id: None for state in states}),
        FilePricing(),
        expanders=tuple(expanders),
        estimates=EstimateRules(all_estimated=most_estimated),
    )
    situation = ScaleUpInput(cluster.snapshot_of_nodes([]), CLASSES, states)
    return orchestrator.decide(situation, settings, random.Random(1))


def test_estimates_left_out_change_no_decision() -> None:
    every, some = decided(EVERY_GROUP), decided(0)
    assert some.nodes == every.nodes
    assert some.comparison == every.comparison
    assert some.triggered == every.triggered
    assert some.left == every.left
    assert {each.group for each in some.considered} <= {each.group for each in every.considered}
    assert len(every.considered) == 80
    assert len(some.considered) < 40
    assert [each.ranked.rank for each in some.considered] == [
        each.ranked.rank for each in every.considered if each.group in {other.group for other in some.considered}
    ]


def test_a_group_that_is_not_estimated_says_so() -> None:
    decision = decided(0)
    told = {each.group: each.reason for each in decision.skipped}
    assert told["cores-080"] == groups.CANNOT_RANK_FIRST
    assert {*told, *(each.group for each in decision.considered)} == {f"cores-{cores:03d}" for cores in range(1, 81)}


def test_a_pod_that_only_a_group_without_an_estimate_could_take_awaits_a_later_round() -> None:
    left = {each.pods: each.awaiting for each in decided(0).left}
    assert left[("ns/huge-000",)]


@pytest.mark.parametrize("expander", ["least-nodes", "most-pods", "least-waste"])
def test_every_group_is_estimated_where_another_expander_than_price_comes_first(expander: str) -> None:
    assert len(decided(0, [expander, "price"]).considered) == 80
