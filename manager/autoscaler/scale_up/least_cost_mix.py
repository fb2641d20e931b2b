"""Several groups at once: a cheaper way than the chosen group to place the same pods.

The search adds one group after another, always the group whose next node costs least for the worth of its pods, and all
of its nodes but the last, partly filled one. The remaining pods may go to a smaller machine. Whenever nodes of one
group would take all remaining pods, that completes one plan. A plan starts from nothing, from the chosen group, or from
each class of pods on the machine where its share costs least. The cheapest plans lose needless groups, then exchange up
to two nodes at a time for cheaper ones, as long as all pods have a place. Where the rank prefers a size of machine, it
alone decides whether another single group is better.
"""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations_with_replacement, islice

import numpy as np

from manager.autoscaler.estimator import binpacking
from manager.autoscaler.estimator.binpacking import Estimate, Permissions
from manager.autoscaler.estimator.packing import Packing
from manager.autoscaler.scale_up import groups
from manager.autoscaler.scale_up.decisions import NodeMix
from manager.autoscaler.scale_up.groups import Headroom, QuotaUsage
from manager.autoscaler.scale_up.options import GroupEstimate
from manager.autoscaler.snapshot.cluster import Integers
from shared.cached_property import cached_property

MOST_CANDIDATES = 12
MOST_ROUNDS = 24
MOST_IMPROVED = 4
MOST_EXCHANGED = 40  # nodes of a plan, and exchanges of it; among more, one node's price is a few percent at most
MOST_PACKED = 1200  # classes of pods, over all exchanges that one plan tries at a time
_LEAST_SAVED = 1e-9
_ANY = 1 << 31


@dataclass(frozen=True)
class MixPrices:
    """Per hour: the price of a node of each group, if known, and the worth of one pod of each class."""

    nodes: Mapping[str, float]
    pods: Mapping[int, float]

    def of_nodes(self, nodes: Mapping[str, int]) -> float | None:
        """The price of these nodes by group; None if one of the groups has no price."""
        if not nodes.keys() <= self.nodes.keys():
            return None
        return sum(self.nodes[group] * count for group, count in nodes.items())

    def worth(self, placed: Mapping[int, int]) -> float:
        """The worth of these pods, counted by class."""
        return sum(self.pods[position] * count for position, count in placed.items())


@dataclass(frozen=True)
class _Partial:
    """An incomplete plan, and the pods that it has not placed yet."""

    remaining: Integers
    headroom: Headroom
    nodes: Mapping[str, int] = field(default_factory=dict)
    created: frozenset[str] = frozenset()
    cost: float = 0.0
    estimates: tuple[Estimate, ...] = ()

    @property
    def node_count(self) -> int:
        return sum(self.nodes.values())


@dataclass(frozen=True)
class MixLimits:
    """What bounds a plan: the `headroom` of the cluster, the number of groups that may be created, and the time."""

    headroom: Headroom
    usage: QuotaUsage
    new_groups: int
    is_late: Callable[[], bool]


def cheapest_mix(
    left: Packing,
    wanted: Mapping[int, int],
    estimated: Sequence[GroupEstimate],
    chosen: GroupEstimate,
    prices: MixPrices,
    limits: MixLimits,
    *,
    least_groups: int,
) -> NodeMix | None:
    """The cheapest plan found that uses at least `least_groups` groups and places all of `wanted`, counted by class.

    Classes bound to the location of other pods (affinity, spread, host ports) go to
    the chosen group first, so that no later pods take their place.
    """
    candidates = _candidates(estimated, chosen, prices)
    bound = np.array([position for position in wanted if position in left.problem.bonds.rules], np.int64)
    if len(candidates) < 2 or len(bound) == len(wanted) or (len(bound) and chosen not in candidates):
        return None
    search = _Search(left, candidates, limits.usage, prices, limits.new_groups, limits.is_late)
    remaining = left.pending * 0
    for position, count in wanted.items():
        remaining[position] = count
    start = _Partial(remaining, limits.headroom)
    if len(bound):
        begun = search.placing(start, chosen, bound)
        if begun is None:
            return None
        start = begun
    found = search.finished(start)
    after_chosen = search.all_but_last(start, chosen) if chosen in candidates else None
    if after_chosen is not None:
        found += search.finished(after_chosen)
    for is_whole in (True, False):
        found += search.finished(search.each_class_where_cheapest(start, is_whole=is_whole))
    found.sort(key=_cost_order)
    distinct = {tuple(sorted(each.nodes.items())): each for each in reversed(found) if len(each.nodes) >= least_groups}
    needed = (search.needed(start, each) for each in reversed(distinct.values()))
    plans = list(islice((each for each in needed if len(each.nodes) >= least_groups), MOST_IMPROVED))
    improved = (search.improved(start, each) for each in plans)
    plans += [each for each in improved if len(each.nodes) >= least_groups]
    best = min(plans, key=_cost_order, default=None)
    return None if best is None else NodeMix(dict(sorted(best.nodes.items())), dict(wanted), best.cost, best.estimates)


def _few(groups: Sequence[str]) -> list[tuple[str, ...]]:
    """Up to two of these, each as often as wanted."""
    return [few for many in range(3) for few in combinations_with_replacement(groups, many)]


def _cost_order(plan: _Partial) -> tuple[float, int, list[tuple[str, int]]]:
    return plan.cost, len(plan.created), sorted(plan.nodes.items())


def _candidates(estimated: Sequence[GroupEstimate], chosen: GroupEstimate, prices: MixPrices) -> list[GroupEstimate]:
    """The groups with the best worth for their cost when completely used, and the chosen group."""

    def ratio(each: GroupEstimate) -> float:
        worth = prices.worth(each.estimate.placed)
        return prices.nodes[each.state.id] * each.estimate.node_count / worth if worth else math.inf

    able = [
        each
        for each in estimated
        if each.option is not None and each.state.id in prices.nodes and not each.state.zero_or_max
    ]
    there = [each for each in able if each.state.exists]
    able = [
        each
        for each in able
        if each is chosen or each.state.exists or not any(_replaces(other, each, prices) for other in there)
    ]
    able.sort(key=lambda each: (ratio(each), not each.state.exists, each.state.id))
    best = able[:MOST_CANDIDATES]
    return best if chosen in best or chosen not in able else [*best, chosen]


def _replaces(there: GroupEstimate, other: GroupEstimate, prices: MixPrices) -> bool:
    """Whether an existing group makes the creation of another needless: same pods, same machines, same price."""
    assert there.state.template is not None
    assert other.state.template is not None
    return (
        prices.nodes[there.state.id] == prices.nodes[other.state.id]
        and there.state.room >= other.estimate.node_count
        and there.state.template.free == other.state.template.free
        and np.array_equal(there.fit.flags, other.fit.flags)
    )


@dataclass(frozen=True)
class _Search:
    left: Packing
    candidates: Sequence[GroupEstimate]
    usage: QuotaUsage
    prices: MixPrices
    new_groups: int
    is_late: Callable[[], bool]
    _known: dict[Hashable, Estimate] = field(default_factory=dict)

    def finished(self, partial: _Partial) -> list[_Partial]:
        """All complete plans that this one leads to."""
        found: list[_Partial] = []
        current: _Partial | None = partial
        for _ in range(MOST_ROUNDS):
            if current is None or self.is_late():
                break
            if not current.remaining.any():
                found.append(current)
                break
            ways = [(each, self._estimate(current, each, 1)) for each in self.candidates]
            helpful = [(each, one) for each, one in ways if one is not None and one.pod_count]
            left = int(current.remaining.sum())
            for each, _ in helpful:
                rest = self._estimate(current, each, _ANY)
                if rest is not None and rest.pod_count == left:
                    found.append(self._extend(current, each, rest))
            if not helpful:
                break
            best, one = min(helpful, key=lambda pair: (self._ratio(*pair), not pair[0].state.exists, pair[0].state.id))
            current = self.all_but_last(current, best) or self._extend(current, best, one)
        return found

    def needed(self, start: _Partial, plan: _Partial) -> _Partial:
        """The plan without groups whose pods the other groups can take."""
        for group in sorted(plan.nodes.keys() - start.nodes.keys(), key=lambda each: (-self.prices.nodes[each], each)):
            without = start
            for each in self.candidates:
                more = plan.nodes.get(each.state.id, 0) - start.nodes.get(each.state.id, 0)
                estimate = self._estimate(without, each, more) if more and each.state.id != group else None
                without = without if estimate is None else self._extend(without, each, estimate)
            if self.is_late():
                break
            if not without.remaining.any():
                return self.needed(start, without)
        return plan

    def improved(self, start: _Partial, plan: _Partial) -> _Partial:
        """The plan after exchanges of up to two of its nodes for up to two cheaper ones, while any helps."""
        if plan.node_count - start.node_count > MOST_EXCHANGED:
            return plan
        for _ in range(MOST_EXCHANGED):
            cheaper = self._exchanged(start, plan)
            if cheaper is None:
                break
            plan = cheaper
        return plan

    def _exchanged(self, start: _Partial, plan: _Partial) -> _Partial | None:
        """The plan after the first exchange, in the order of savings, after which all pods fit."""
        counts = Counter(dict(plan.nodes))
        counts.subtract(start.nodes)
        free = self._sum_of_free(counts) - start.remaining @ self.left.problem.requests
        added, added_costs, added_free = self._additions
        ways = []
        for removed in map(Counter, _few(sorted(+counts))):
            saved = self._cost(removed) - added_costs
            is_way = (saved > _LEAST_SAVED) & (free - self._sum_of_free(removed) + added_free >= 0).all(axis=1)
            if removed <= counts:
                ways += [(-saved[at], sorted((counts - removed + added[at]).items())) for at in is_way.nonzero()[0]]
        for _, nodes in sorted(ways)[: MOST_PACKED // max(1, int((start.remaining > 0).sum()))]:
            if self.is_late():
                break
            packed = self._packed(start, dict(nodes))
            if packed is not None:
                return packed
        return None

    @cached_property
    def _additions(self) -> "tuple[list[Counter[str]], np.ndarray[tuple[int, ...], np.dtype[np.float64]], Integers]":
        """Up to two new nodes of the candidates: their cost, and their room by resource."""
        few = [Counter(groups) for groups in _few([each.state.id for each in self.candidates])]
        return few, np.array([self._cost(each) for each in few]), np.array([self._sum_of_free(each) for each in few])

    def _cost(self, nodes: Mapping[str, int]) -> float:
        return sum(self.prices.nodes[group] * count for group, count in nodes.items())

    def _sum_of_free(self, nodes: Mapping[str, int]) -> Integers:
        return sum((self._free[group] * count for group, count in nodes.items()), self.left.problem.row({}))

    @cached_property
    def _free(self) -> dict[str, Integers]:
        templates = {each.state.id: each.state.template for each in self.candidates}
        return {group: self.left.problem.row(each.free) for group, each in templates.items() if each is not None}

    def _packed(self, start: _Partial, nodes: Mapping[str, int]) -> _Partial | None:
        """All pods on at most these nodes, by the dearest or the cheapest first; None if they do not fit."""
        able = sorted(
            (each for each in self.candidates if each.state.id in nodes),
            key=lambda each: self.prices.nodes[each.state.id],
        )
        for ordered in (able[::-1], able):
            plan = start
            for each in ordered:
                estimate = self._estimate(plan, each, nodes[each.state.id])
                plan = plan if estimate is None else self._extend(plan, each, estimate)
            if not plan.remaining.any():
                return plan
        return None

    def placing(self, partial: _Partial, each: GroupEstimate, positions: Integers) -> _Partial | None:
        """The plan with all pods of these classes on nodes of a group; None if not all of them fit."""
        estimate = self._estimate(partial, each, _ANY, positions)
        if estimate is None or any(estimate.placed.get(int(at), 0) < partial.remaining[at] for at in positions):
            return None
        return self._extend(partial, each, estimate)

    def all_but_last(
        self, partial: _Partial, each: GroupEstimate, positions: Integers | None = None
    ) -> _Partial | None:
        """The plan with all nodes but the last of a group that the rest needs; None if that leaves none."""
        full = self._estimate(partial, each, _ANY, positions)
        if full is None or full.node_count < 2:
            return None
        fewer = self._estimate(partial, each, full.node_count - 1, positions)
        return None if fewer is None else self._extend(partial, each, fewer)

    def each_class_where_cheapest(self, partial: _Partial, *, is_whole: bool) -> _Partial:
        """The plan with every class on the group where its share of a node costs least; with `is_whole` on all of these
        nodes, else on all but the last of each group.
        """
        costs = np.array([self._share_costs(each) for each in self.candidates])
        if not len(costs):
            return partial
        cheapest = costs.argmin(axis=0)
        is_possible = np.isfinite(costs.min(axis=0)) & (partial.remaining > 0)
        for index, each in enumerate(self.candidates):
            positions = (is_possible & (cheapest == index)).nonzero()[0]
            if not is_whole:
                partial = self.all_but_last(partial, each, positions) or partial
            elif (estimate := self._estimate(partial, each, _ANY, positions)) is not None and estimate.node_count:
                partial = self._extend(partial, each, estimate)
        return partial

    def _share_costs(self, each: GroupEstimate) -> "np.ndarray[tuple[int, ...], np.dtype[np.float64]]":
        """The price of the largest share of a node that one pod of each class takes; infinite if none fits."""
        assert each.state.template is not None
        free = self.left.problem.row(each.state.template.free)
        asked = self.left.problem.requests
        shares = np.where(asked > 0, asked / np.maximum(free, 1), 0.0).max(axis=1)
        return np.where(each.fit.flags, shares * self.prices.nodes[each.state.id], np.inf)

    def _estimate(
        self, partial: _Partial, each: GroupEstimate, most: int, positions: Integers | None = None
    ) -> Estimate | None:
        state = each.state
        assert state.template is not None
        planned = partial.nodes.get(state.id, 0)
        if not state.exists and not planned and len(partial.created) >= self.new_groups:
            return None
        if positions is None:
            positions = each.fit.positions
        positions = positions[partial.remaining[positions] > 0]
        wanted = min(most, state.room - planned)
        allowed = groups.allowance(state, partial.headroom, self.usage, wanted).nodes if wanted > 0 else 0
        if not len(positions) or allowed <= 0:
            return None
        key = state.id, allowed, positions.tobytes(), partial.remaining.tobytes()
        if key not in self._known:  # exchanges mostly begin with the same nodes
            after = Packing(self.left.problem, None, self.left)
            after.pending[:] = partial.remaining
            self._known[key] = binpacking.estimate(
                after.problem, state.template, positions, Permissions(allowed), after=after
            )
        return self._known[key]

    def _extend(self, partial: _Partial, each: GroupEstimate, estimate: Estimate) -> _Partial:
        state, count = each.state, estimate.node_count
        remaining = partial.remaining.copy()
        for position, pods in estimate.placed.items():
            remaining[position] -= pods
        return _Partial(
            remaining,
            groups.headroom_after(state, partial.headroom, self.usage, count),
            {**partial.nodes, state.id: partial.nodes.get(state.id, 0) + count} if count else partial.nodes,
            partial.created if state.exists or not count else partial.created | {state.id},
            partial.cost + self.prices.nodes[state.id] * count,
            (*partial.estimates, estimate),
        )

    def _ratio(self, each: GroupEstimate, one: Estimate) -> float:
        worth = self.prices.worth(one.placed)
        return self.prices.nodes[each.state.id] / worth if worth else math.inf
