"""Decides which groups grow, and by how many nodes, for the pods that do not fit in the cluster.

One observation in, one decision out; nothing here acts, and the order of the inputs does not matter.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from manager.autoscaler.cloudprovider.contract import Created
from manager.autoscaler.cluster_state.state import GroupStatus, Increase
from manager.autoscaler.estimator import binpacking, problem
from manager.autoscaler.estimator.binpacking import Estimate
from manager.autoscaler.estimator.limits import UNLIMITED
from manager.autoscaler.estimator.packing import Packing
from manager.autoscaler.expander import chain, priority, ranking
from manager.autoscaler.expander.contract import ExpanderContext
from manager.autoscaler.expander.option import Option
from manager.autoscaler.expander.ranking import PricedOption
from manager.autoscaler.pricing.model import PricingModel, Unpriced
from manager.autoscaler.pricing.remembered_prices import RememberedPrices
from manager.autoscaler.scale_up import groups, least_cost_mix, options
from manager.autoscaler.scale_up.balancing import BalancedIncreases, allow_nodes, balance_nodes, increases_to_min_sizes
from manager.autoscaler.scale_up.decisions import (
    Cap,
    Comparison,
    ExpanderStep,
    GroupCreation,
    NodeMix,
    PodDemand,
    RankedOption,
    Reasons,
    ScaleUpDecision,
    ScaleUpOutcome,
)
from manager.autoscaler.scale_up.groups import NOT_CONSIDERED, Headroom, Skipped
from manager.autoscaler.scale_up.least_cost_mix import MixLimits, MixPrices
from manager.autoscaler.scale_up.options import GroupEstimate, ScaleUpInput, ScaleUpSettings, Unestimated
from manager.autoscaler.scale_up.rank_bounds import RankBounds
from manager.autoscaler.scale_up.unscheduled import LaterRoom, Outlook, WhyNot, left_pods
from manager.autoscaler.snapshot.cluster import NodeState, NodeTemplate
from manager.autoscaler.snapshot.equivalence_groups import EquivalenceGroup
from manager.autoscaler.snapshot.templates import with_expected

NO_PRICES = "there are no prices"


def headroom(scale_up_input: ScaleUpInput, settings: ScaleUpSettings) -> Headroom:
    """The cluster's remaining capacity; upcoming nodes count as present."""
    nodes = scale_up_input.snapshot.nodes
    cluster_wide = settings.usage.cluster_wide(settings.bounds, nodes, scale_up_input.templates_of_nodes)
    quotas = (cluster_wide, *scale_up_input.quotas)
    if settings.max_nodes_total == UNLIMITED:
        return Headroom(quotas)
    return Headroom(quotas, max(0, settings.max_nodes_total - len(nodes)))


def decide(scale_up_input: ScaleUpInput, settings: ScaleUpSettings, chance: random.Random) -> ScaleUpDecision:
    """The decision; `chance` is used only if the expanders leave several equally good options."""
    if settings.pricing is not None:
        settings = replace(settings, pricing=RememberedPrices.around(settings.pricing))
    quotas = tuple(sorted(scale_up_input.quotas, key=lambda each: each.name))
    scale_up_input = replace(scale_up_input, quotas=quotas)
    room = headroom(scale_up_input, settings)
    decision = _ScaleUp(scale_up_input, settings, chance, room).decision()
    if settings.enforce_node_group_min_size and decision.outcome is not ScaleUpOutcome.GROW:
        increases, caps, remaining = increases_to_min_sizes(
            scale_up_input.groups, settings.ownership, settings.usage, room
        )
        return replace(decision, increases=increases, caps=(*decision.caps, *caps), remaining=remaining)
    return decision


class UnschedulablePods(NamedTuple):
    """The cluster holding the pods that need no new node.

    `before` counts, by class, the pods that do not fit in the cluster as it is, `left` has those that do not fit after
    reclaiming either. `on_ready` are the ready nodes that take pods as they are. The classes are in the order of
    their pods.
    """

    left: Packing
    before: list[int]
    on_ready: list[tuple[str, ...]]


def filter_out_schedulable(scale_up_input: ScaleUpInput, templates: Sequence[NodeTemplate] = ()) -> UnschedulablePods:
    """Places pods on the present capacity first, then, if needed, on the capacity within a reporting interval."""
    classes = sorted(scale_up_input.classes, key=lambda each: each.pods)
    left = binpacking.pack_on_existing_nodes(problem.packing_problem(scale_up_input.snapshot, classes, templates))
    before: list[int] = left.pending.tolist()
    on_ready = _ready_nodes_used(left)
    if scale_up_input.expected and left.pending.any():
        soon = with_expected(scale_up_input.snapshot, scale_up_input.expected)
        left = binpacking.pack_on_existing_nodes(problem.packing_problem(soon, classes, templates))
    return UnschedulablePods(left, before, on_ready)


def _ready_nodes_used(packing: Packing) -> list[tuple[str, ...]]:
    """By class, the ready nodes that took pods."""
    found: list[tuple[str, ...]] = [()] * len(packing.problem.classes)
    nodes = packing.problem.snapshot.nodes
    for position, rows, *_ in packing.placements:
        used = (nodes[row] for row in rows.tolist())
        found[position] += tuple(node.name for node in used if node.state is NodeState.READY)
    return found


def after_creation(
    decision: ScaleUpDecision,
    creation: GroupCreation,
    made: Created,
    templates: Mapping[str, NodeTemplate],
    settings: ScaleUpSettings,
) -> ScaleUpDecision:
    """The decision after a group was created, possibly with others: the nodes go to the groups that exist now.

    `templates` are those of the new groups by id.
    """
    made_groups = (made.main, *made.extras) if settings.estimates.balance_similar_node_groups else (made.main,)
    states = [GroupStatus(group, template=templates.get(group.id)) for group in made_groups]
    shares = balance_nodes(states, creation.nodes, creation.headroom, settings.usage)

    def why_not(position: int) -> Reasons:
        known = decision.why_not(position)
        return {made.main.id if group == creation.group else group: reasons for group, reasons in known.items()}

    return replace(
        decision,
        caps=(*decision.caps, *shares.caps),
        increases=(*decision.increases, *shares.increases),
        creations=tuple(each for each in decision.creations if each is not creation),
        remaining=shares.remaining,
        why_not=why_not,
    )


@dataclass(frozen=True)
class _ScaleUp:
    scale_up_input: ScaleUpInput
    settings: ScaleUpSettings
    chance: random.Random
    room: Headroom

    def decision(self) -> ScaleUpDecision:
        scale_up_input, settings = self.scale_up_input, self.settings
        validity = groups.validate_groups(scale_up_input.groups, self.room, settings.usage, settings.ownership)
        creates = scale_up_input.new_groups > 0
        states = [each for each in validity.valid if each.exists or creates]
        skipped = [
            *validity.skipped,
            *(Skipped(each.id, groups.AT_MOST_GROUPS) for each in validity.valid if not (each.exists or creates)),
        ]
        templates = [each.template for each in states if each.template is not None]
        left, demands = self._demands(templates)
        base = ScaleUpDecision(
            ScaleUpOutcome.NOT_NEEDED, demands, skipped=tuple(skipped), remaining=self.room, settled=left
        )
        if not left.pending.any():
            return base
        if self.room.nodes == 0:
            return replace(base, outcome=ScaleUpOutcome.ALL_NODES, left=left_pods(demands, self._outlook()))
        estimated, more, unestimated = options.compute_options(
            left, states, self.room, settings.estimates, self._rank_bounds(left)
        )
        skipped += more
        why_not = WhyNot(estimated, tuple(skipped))
        considered = self._rank_options(estimated)
        base = replace(
            base,
            outcome=ScaleUpOutcome.NO_OPTIONS,
            considered=tuple(considered),
            skipped=tuple(sorted(skipped, key=lambda each: each.group)),
            left=left_pods(demands, replace(self._outlook(), unestimated=unestimated)),
            preferred_cpu_milli=None if settings.pricing is None else self._preferred_cpu_milli,
            why_not=why_not,
        )
        chosen, steps, unmatched = self._choose(considered)
        base = replace(base, steps=tuple(steps), unmatched=tuple(unmatched))
        if chosen is None:
            filtered = tuple(Skipped(each.group, each.ranked.problem or NOT_CONSIDERED) for each in considered)
            return replace(base, why_not=WhyNot(estimated, (*skipped, *filtered)))
        return self._grow(left, estimated, unestimated, chosen, base)

    def _demands(self, templates: Sequence[NodeTemplate]) -> tuple[Packing, tuple[PodDemand, ...]]:
        """The classes after placement on the cluster as it is, and as it will be within a reporting interval."""
        left, before, on_ready = filter_out_schedulable(self.scale_up_input, templates)
        demands = []
        pending = left.pending.tolist()
        for each, pending_now, pending_soon, ready in zip(left.problem.classes, before, pending, on_ready, strict=True):
            there = len(each.pods) - max(pending_now, pending_soon)
            reclaimed = len(each.pods) - pending_soon - there
            demands.append(PodDemand(each.facts.namespace, each.pods, there, reclaimed, each.facts.requests, ready))
        return left, tuple(demands)

    def _rank_options(self, estimated: Sequence[GroupEstimate]) -> list[RankedOption]:
        settings = self.settings
        able = [each for each in estimated if each.option is not None]
        found = [each.option for each in able if each.option is not None]
        if settings.pricing is None:
            ranks = [PricedOption(option, None, NO_PRICES) for option in found]
        else:
            ranks = ranking.rank_options(found, settings.pricing, settings.preset, self._preferred_cpu_milli)
        return [
            RankedOption(rank, dict(each.estimate.placed), tuple(other.id for other in each.similar), each.state.spec)
            for each, rank in zip(able, ranks, strict=True)
        ]

    def _rank_bounds(self, left: Packing) -> RankBounds | None:
        """The bounds; None unless the lowest rank wins."""
        settings = self.settings
        if settings.pricing is None or settings.expanders[0] != chain.PRICE:
            return None
        return RankBounds(
            left,
            settings.pricing,
            settings.preset,
            self._preferred_cpu_milli,
            least_cost_mix.MOST_CANDIDATES,
        )

    @property
    def _preferred_cpu_milli(self) -> int | None:
        return ranking.preferred_cpu_milli(self.settings.preset, self.scale_up_input.cluster_nodes)

    def _choose(self, considered: Sequence[RankedOption]) -> tuple[RankedOption | None, list[ExpanderStep], list[str]]:
        """The chosen option, the options that each expander kept, and the groups that no priority matches."""
        settings = self.settings
        context = ExpanderContext({each.group: each.ranked for each in considered}, settings.priorities)
        unmatched: list[str] = []
        problems: dict[str, str] = {}

        def filter_by(name: str) -> chain.Filter[Option]:
            def filter_options(left: Sequence[Option]) -> list[Option]:
                if name == chain.PRIORITY:
                    unmatched.extend(priority.choose(left, settings.priorities).unmatched)
                found, problems[name] = settings.plugins.get(name).best_options(left, context)
                return found

            return filter_options

        filters = {name: filter_by(name) for name in settings.expanders}
        left: list[Option] = [each.ranked.option for each in considered]
        steps = chain.filter_in_order(left, filters, settings.expanders)
        if not steps and settings.expanders[0] == chain.PRICE:  # an unpriced option is not bought
            left = list(filters[chain.PRICE](left))
        equals = steps[-1][1] if steps else left
        if chain.PRICE in settings.expanders:  # a group is only created if it is better than every existing one
            equals = [option for option in equals if option.exists] or equals
        picked = chain.pick(equals, self.chance)
        found = next((each for each in considered if picked is not None and each.group == picked.group), None)
        told = [ExpanderStep(name, tuple(option.group for option in kept), problems[name]) for name, kept in steps]
        return found, told, unmatched

    def _grow(
        self,
        left: Packing,
        estimated: Sequence[GroupEstimate],
        unestimated: Sequence[Unestimated],
        chosen: RankedOption,
        base: ScaleUpDecision,
    ) -> ScaleUpDecision:
        settings = self.settings
        of_group = {each.state.id: each for each in estimated}
        main = of_group[chosen.group]
        wanted = min(chosen.node_count, self._room_of(main))
        allowed, caps = allow_nodes(main.state, wanted, self.room, settings.usage)
        shares = self._balance({chosen.group: allowed}, of_group)
        caps += shares.caps
        grown = shares.node_count
        short = grown < chosen.node_count and (settings.estimates.scale_up_all_or_nothing or main.state.zero_or_max)
        if not grown or (short and not (main.state.zero_or_max and grown == main.state.room)):
            named = [cap.limit for cap in caps]
            reason = groups.not_all_fit(named) if short else "; ".join(named) or main.limit
            why = WhyNot(estimated, (*base.skipped, Skipped(main.state.id, reason)))
            return replace(base, chosen=chosen, caps=tuple(caps), why_not=why)
        limited_by = [cap.limit for cap in caps]
        bought = options.limit_nodes(
            left, main, grown, limited_by, fast_path=settings.estimates.fastpath_binpacking_enabled
        )
        comparison, cheaper = self._compare(left, estimated, main, bought.estimate, shares)
        triggered = bought.estimate.placed
        if cheaper is not None:
            shares, caps = cheaper, cheaper.caps
        creations = []
        states = {state.id: state for each in estimated for state in (each.state, *each.similar)}
        for increase in shares.increases:
            spec = states[increase.group].spec
            if spec is not None:
                room = self.room
                for other in shares.increases:
                    if other is not increase:
                        room = groups.headroom_after(states[other.group], room, settings.usage, other.nodes)
                creations.append(GroupCreation(increase.group, spec, increase.nodes, room, increase.max_size))
        created = {each.group for each in creations}
        outlook = Outlook(self._room_after(shares, len(created)), estimated, unestimated, main.state.id, triggered)
        cut = [bought if each is main else each for each in estimated]
        return replace(
            base,
            outcome=ScaleUpOutcome.GROW,
            chosen=chosen,
            comparison=comparison,
            caps=tuple(caps),
            increases=tuple(each for each in shares.increases if each.group not in created),
            creations=tuple(creations),
            triggered=tuple(
                pod for position, count in sorted(triggered.items()) for pod in base.demands[position].unplaced[:count]
            ),
            left=left_pods(base.demands, outlook),
            remaining=shares.remaining,
            why_not=WhyNot(cut, base.skipped, outlook.limits),
        )

    def _balance(
        self, nodes: Mapping[str, int], of_group: Mapping[str, GroupEstimate], *, balances: bool = True
    ) -> BalancedIncreases:
        """Distributes nodes of each group, with `balances` over its similar groups, too."""
        increases: list[Increase] = []
        caps: list[Cap] = []
        remaining, taken = self.room, set(nodes)
        for group, count in nodes.items():
            each = of_group[group]
            others = [other for other in each.similar if balances and other.id not in taken]
            more = balance_nodes([each.state, *others], count, remaining, self.settings.usage)
            taken |= {increase.group for increase in more.increases}
            increases, remaining, caps = [*increases, *more.increases], more.remaining, [*caps, *more.caps]
        return BalancedIncreases(increases, remaining, caps)

    def _outlook(self) -> Outlook:
        return Outlook(LaterRoom(self.room, self.settings.usage, self.settings.ownership, {}, self._new_groups))

    def _room_after(self, shares: BalancedIncreases, created: int) -> LaterRoom:
        return replace(
            self._outlook().room, remaining=shares.remaining, nodes=shares.nodes, new_groups=self._new_groups - created
        )

    @property
    def _new_groups(self) -> int:
        return self.scale_up_input.new_groups

    def _room_of(self, main: GroupEstimate) -> int:
        return sum(each.room for each in (main.state, *main.similar))

    def _compare(
        self,
        left: Packing,
        estimated: Sequence[GroupEstimate],
        main: GroupEstimate,
        found: Estimate,
        shares: BalancedIncreases,
    ) -> "tuple[Comparison | None, BalancedIncreases | None]":
        """Compares the single group's cost for the pods of `found` with that of several groups; None without prices.

        Also returns the increases of the latter if they replace those of the single group.
        """
        settings = self.settings
        if settings.pricing is None:
            return None, None
        placed = dict(found.placed)
        prices = _prices(settings.pricing, left.problem.classes, estimated)
        cost = prices.of_nodes(shares.nodes)
        minimum = prices.worth(placed) if all(position in prices.pods for position in placed) else None
        single = NodeMix(shares.nodes, placed, cost, (found,))
        if cost is None or minimum is None or settings.estimates.scale_up_all_or_nothing:
            return Comparison(single, None, minimum), None
        most = settings.estimates.max_nodes_per_scaleup
        room = self.room if most == UNLIMITED else replace(self.room, nodes=min(most, self.room.nodes or most))
        time = settings.estimates.time
        several = least_cost_mix.cheapest_mix(
            left,
            placed,
            estimated,
            main,
            prices,
            MixLimits(
                room,
                settings.usage,
                self.scale_up_input.new_groups,
                time.deadline(time.group_seconds) if time else options.no_deadline,
            ),
            least_groups=2 if settings.preset.preferred else 1,
        )
        if several is None or not settings.least_cost_mix or settings.expanders[0] != chain.PRICE:
            return Comparison(single, several, minimum), None
        of_group = {each.state.id: each for each in estimated}
        for balances in (True, False):  # similar groups may differ in price, and in the quotas that cover them
            spread = self._balance(several.nodes, of_group, balances=balances)
            spread_cost = prices.of_nodes(spread.nodes)
            is_whole = spread.node_count == sum(several.nodes.values())
            if is_whole and spread_cost is not None and spread_cost < cost - 1e-9:
                several = replace(several, nodes=spread.nodes, cost=spread_cost)
                return Comparison(single, several, minimum, uses_several=True), spread
        return Comparison(single, several, minimum), None


def _prices(model: PricingModel, classes: Sequence[EquivalenceGroup], estimated: Sequence[GroupEstimate]) -> MixPrices:
    nodes: dict[str, float] = {}
    pods: dict[int, float] = {}
    for each in estimated:
        for state in (each.state, *each.similar):
            if state.id not in nodes and state.template is not None:
                try:
                    nodes[state.id] = model.node_price(state.template.machine)
                except Unpriced:
                    continue
    for position, pending in enumerate(classes):
        try:
            pods[position] = model.pod_price(pending.facts.requests)
        except Unpriced:
            continue
    return MixPrices(nodes, pods)
