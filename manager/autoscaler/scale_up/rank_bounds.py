"""Finds groups that need no estimate: they can neither rank first, nor be candidates of a mix.

The bound of a group comes from pods that its estimate certainly places. These are the pods whose place only the node
itself decides: their requests need a certain number of nodes, and each needs its own where they exclude each other.
These nodes take, at most, all pods that fit, and on each no more worth than its free amounts allow. No estimate of the
group has a lower cost for its pods than these nodes have for these pods, and no lower rank.
"""

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from manager.autoscaler.cluster_state.state import GroupStatus
from manager.autoscaler.estimator.binpacking import Fit
from manager.autoscaler.estimator.limits import UNLIMITED
from manager.autoscaler.estimator.packing import Packing
from manager.autoscaler.estimator.problem import PackingProblem
from manager.autoscaler.expander import ranking
from manager.autoscaler.expander.option import Option
from manager.autoscaler.expander.ranking import Preset
from manager.autoscaler.pricing.model import PricingModel, Unpriced
from manager.autoscaler.snapshot.affinity import OF_ONE_NODE
from manager.autoscaler.snapshot.cluster import LABEL_HOSTNAME, Flags, Integers
from shared.cached_property import cached_property
from shared.quantity import Amounts

Floats: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

_TOLERANCE = 1e-9  # the rounding of sums in different orders


class LeastCost(NamedTuple):
    """Lower bounds of a group's rank, and of its nodes' price per worth of their pods. Zero: nothing is known."""

    rank: float = 0.0
    per_worth: float = 0.0


class _Worth(NamedTuple):
    """The classes that fit on a node: the requests and the worth of one pod of each; their greatest worth, in all and
    apart from new nodes; by resource, the requests of certainly placed pods; and the number of nodes that these need
    because they exclude each other.
    """

    of_each: tuple[Integers, Floats]
    of_all: float
    elsewhere: float
    requests: Integers
    apart: int


@dataclass(frozen=True)
class RankBounds:
    """Bounds under these prices. A mix has `most_candidates` candidates."""

    left: Packing
    pricing: PricingModel
    preset: Preset
    preferred_cpu_milli: int | None
    most_candidates: int

    def least(self, state: GroupStatus, fit: Fit, most_nodes: int) -> LeastCost:
        """The bounds of a group whose estimate may have `most_nodes`."""
        assert state.template is not None
        worths = self._worths
        if state.zero_or_max or most_nodes < 0 or worths is None or not fit.flags.any():
            return LeastCost()
        try:
            price = self.pricing.node_price(state.template.machine)
        except Unpriced:
            return LeastCost()
        free = self._asked.new_node(state.template).free
        amounts = tuple(state.template.free.get(name, 0) for name in self._asked.resources)
        key = (price, amounts, free.tobytes(), fit.flags.tobytes(), most_nodes, state.exists)
        found = self._alike.get(key)
        if found is None:  # groups of one machine type in several zones mostly are alike
            worth = self._worth_of(fit.flags, worths)
            found = self._alike[key] = self._least(price, amounts, free, worth, most_nodes, exists=state.exists)
        return found

    def _least(
        self,
        price: float,
        amounts: tuple[int, ...],
        free: Integers,
        worth: _Worth,
        most_nodes: int,
        *,
        exists: bool,
    ) -> LeastCost:
        needed = np.maximum.reduce(np.ceil(worth.requests / np.maximum(free, 1)), initial=0)
        fewest = float(max(needed, worth.apart, 1))
        if most_nodes != UNLIMITED:
            fewest = min(fewest, float(max(1, most_nodes - 1)))  # one node may be added, and stay unused
        of_node = self._most_worth_of_node(amounts, free, *worth.of_each)
        unfitness = self.preset.gpu_unfitness
        factor = min(1.0, math.inf if unfitness is None else unfitness)
        factor *= 1.0 if exists else self.preset.new_group_factor

        def least_ratio(stabilization: float) -> float:
            full = (worth.of_all - worth.elsewhere) / of_node if of_node else math.inf
            return min(
                ranking.stabilized_price(
                    price * nodes, min(worth.of_all, of_node * nodes + worth.elsewhere), stabilization
                )
                for nodes in (fewest, max(fewest, full))
                if math.isfinite(nodes)
            )

        return LeastCost(factor * least_ratio(self._stabilization), least_ratio(0.0))

    @property
    def _asked(self) -> PackingProblem:
        return self.left.problem

    @cached_property
    def _worths(self) -> Floats | None:
        """The worth of one pod of each class; None if one has no price."""
        try:
            return np.array([self.pricing.pod_price(each.facts.requests) for each in self._asked.classes], np.float64)
        except Unpriced:
            return None

    @cached_property
    def _stabilization(self) -> float:
        return _price_of(self.pricing, self.preset.stabilization)

    @cached_property
    def _known(self) -> dict[bytes, _Worth]:
        return {}

    @cached_property
    def _alike(self) -> dict[Hashable, LeastCost]:
        return {}

    def _worth_of(self, flags: Flags, worths: Floats) -> _Worth:
        key = flags.tobytes()
        if key not in self._known:
            self._known[key] = self._worth_of_classes(flags, worths)
        return self._known[key]

    def _worth_of_classes(self, flags: Flags, worths: Floats) -> _Worth:
        pending = np.where(flags, self.left.pending, 0)
        certain = np.where(self._is_certain, pending, 0)
        moved = np.where(self._may_move_others, pending, 0)
        counters, classes = self._apart
        apart = np.bincount(counters, weights=certain[classes]).max() if len(counters) else 0
        of_each = self._asked.requests[flags], worths[flags]
        return _Worth(
            of_each, float(pending @ worths), float(moved @ worths), certain @ self._asked.requests, int(apart)
        )

    @cached_property
    def _is_certain(self) -> Flags:
        """The classes that an estimate places completely if they fit on a new node, and nodes may be added."""
        rules = self._asked.bonds.rules
        return np.array([at not in rules or rules[at].of_one_node for at in range(len(self._asked.classes))], np.bool_)

    @cached_property
    def _may_move_others(self) -> Flags:
        """The classes that may find a place on present nodes once new nodes have evened out their spread."""
        found = np.zeros(len(self._asked.classes), np.bool_)
        if self.left.known:
            for position, rules in self._asked.bonds.rules.items():
                found[position] = any(
                    self._asked.bonds.counters[each.counter].key == LABEL_HOSTNAME for each in rules.spread
                )
        return found

    @cached_property
    def _apart(self) -> tuple[Integers, Integers]:
        """Pairs of a counter and a class: no two pods of the classes of one counter may share a node."""
        bonds = self._asked.bonds
        pairs = [
            (number, position)
            for position, rules in bonds.rules.items()
            for number in set(rules.excluding)  # a pod's own rule, and that of its kind against it, may be one counter
            if position in bonds.counters[number].members and bonds.counters[number].key in OF_ONE_NODE
        ]
        counters, classes = np.array(pairs, np.int64).reshape(-1, 2).T
        return counters, classes

    def _most_worth_of_node(self, amounts: tuple[int, ...], free: Integers, requests: Integers, worth: Floats) -> float:
        """An upper bound on the worth of pods that fit on a node together.

        The pods' shares of each resource sum up to one at most; each resource weighs as much as it costs.
        """
        priced = zip(self._asked.resources, amounts, strict=True)
        weights = np.array([_price_of(self.pricing, {name: amount}) for name, amount in priced])
        shares = requests @ (weights / np.maximum(free, 1))
        if ((shares <= 0) & (worth > 0)).any():
            return math.inf
        best = np.maximum.reduce(np.divide(worth, shares, out=np.zeros_like(worth), where=shares > 0), initial=0.0)
        return float(best * weights.sum())


class RankContest:
    """The best ranks and costs of the options estimated so far, which a group would have to match."""

    def __init__(self, bounds: RankBounds, states: Iterable[GroupStatus]) -> None:
        """`states` are all groups."""
        self._bounds = bounds
        self._best = math.inf
        self._per_worth: list[float] = []
        self._there = {self._likeness(state) for state in states if state.exists}

    def add(self, state: GroupStatus, option: Option) -> None:
        """Adds an option that was estimated."""
        bounds = self._bounds
        rank = ranking.rank_options([option], bounds.pricing, bounds.preset, bounds.preferred_cpu_milli)[0].rank
        if rank is None or rank.rank is None:
            return
        self._best = min(self._best, rank.rank)
        is_candidate = not state.zero_or_max and (state.exists or self._likeness(state) not in self._there)
        if is_candidate and rank.pods_price > 0:
            self._per_worth.append(rank.nodes_price / rank.pods_price)
            self._per_worth.sort()

    def is_lost(self, least: LeastCost) -> bool:
        """Whether a group with these bounds can neither rank first, nor be a candidate of a mix."""
        if len(self._per_worth) < self._bounds.most_candidates:
            return False
        last = self._per_worth[self._bounds.most_candidates - 1]
        return least.rank > self._best * (1 + _TOLERANCE) and least.per_worth > last * (1 + _TOLERANCE)

    def _likeness(self, state: GroupStatus) -> object:
        """The properties by which a mix excludes groups to create that resemble existing ones."""
        assert state.template is not None
        return tuple(sorted(state.template.free.items()))


def _price_of(pricing: PricingModel, amounts: Amounts) -> float:
    try:
        return pricing.pod_price(amounts)
    except Unpriced:
        return 0.0
