"""Finds the nodes whose replacement saves most for what it disturbs.

Candidates come in the order of Karpenter: price per disruption, dearest first. Of prefixes of this order, the longest
that may be replaced is found by halving; if there is none, nodes are tried one by one. New nodes may be several, of one
group or of two. A replacement has to save a share of what its nodes cost, and its share of the cluster's cost has to be
in balance with its share of the cluster's disruption (Karpenter's policy Balanced). A node without a known price is
neither replaced nor launched.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from manager.autoscaler.cluster_state.state import GroupStatus
from manager.autoscaler.disruption import simulation
from manager.autoscaler.disruption.candidates import SLACK, LaunchTarget, ReplaceableNode, SavingBalance
from manager.autoscaler.disruption.consolidation_rules import ConsolidationRules
from manager.autoscaler.disruption.disruption_limits import Allowed, DisruptionAllowance
from manager.autoscaler.disruption.saving_bounds import SavingBounds
from manager.autoscaler.disruption.simulation import ReplacementSimulation
from manager.autoscaler.disruption.verdicts import (
    HOURS_PER_MONTH,
    ConsolidationDecision,
    ConsolidationReason,
    ReplacementOption,
    ReplacementVerdict,
)
from manager.autoscaler.pricing import list_prices
from manager.autoscaler.scale_down import eligibility
from manager.autoscaler.scale_down.inputs import ScaleDownContext
from manager.autoscaler.scale_up import groups
from manager.autoscaler.scale_up.decisions import GroupCreation
from manager.autoscaler.scale_up.groups import Headroom, QuotaUsage
from manager.autoscaler.scale_up.options import no_deadline
from manager.autoscaler.snapshot.cluster import NodeInfo, NodeState
from shared import durations
from shared.explanation import Term

MOST_AT_ONCE = 100  # nodes of one replacement, as in Karpenter
MIN_SAVINGS_FLAG = "--consolidation-min-savings-percent"
NO_PRICE = "the price model has none for it"


@dataclass(frozen=True)
class ConsolidationInputs:
    """What the search reads beside scale-down's inputs.

    `prices` per hour and `created_at` are by node; `unknown` says of nodes without one why no price is known, and
    `unpriced` the same of groups, which are no targets. `disruptions` are by pod: what the eviction of each costs, 1
    where it is not listed. `held` gives, by node, what forbids to disturb it. `unneeded` are the nodes that scale-down
    is about to remove; `untried` ones come first, because the last search had no time for them. Nothing is replaced
    that `blocked` (a reason and a sentence) delays. `remaining` is what the cluster's limits leave for new nodes, and
    `new_groups` how many groups may be created.
    """

    prices: Mapping[str, float]
    targets: Sequence[LaunchTarget]
    unknown: Mapping[str, str] = field(default_factory=dict)
    unpriced: Mapping[str, str] = field(default_factory=dict)
    created_at: Mapping[str, float] = field(default_factory=dict)
    disruptions: Mapping[str, float] = field(default_factory=dict)
    held: Mapping[str, str] = field(default_factory=dict)
    unneeded: Sequence[str] = ()
    untried: Collection[str] = ()
    remaining: Headroom = field(default_factory=Headroom)
    new_groups: int = 0
    allowed: DisruptionAllowance = field(default_factory=lambda: DisruptionAllowance(Allowed(MOST_AT_ONCE)))
    blocked: tuple[ConsolidationReason, str] | None = None


# What nodes that cost more cannot help.
_OF_PRICE = (ConsolidationReason.SAVES_TOO_LITTLE, ConsolidationReason.DISTURBS_TOO_MUCH)


@dataclass(frozen=True, slots=True)
class _Refusal:
    reason: ConsolidationReason
    detail: str
    saving: float | None = None  # per hour
    terms: tuple[Term, ...] = ()


def search(
    context: ScaleDownContext,
    inputs: ConsolidationInputs,
    rules: ConsolidationRules,
    is_late: Callable[[], bool] = no_deadline,
) -> ConsolidationDecision:
    """The replacement to begin now, and a verdict on every node of a group that may shrink. The order of the inputs
    does not matter.
    """
    return _Search(context, inputs, rules, is_late).run()


def may_add(added: Iterable[LaunchTarget], remaining: Headroom, usage: QuotaUsage, new_groups: int = 0) -> bool:
    """Whether groups and the cluster's limits leave room for these beside all present nodes and groups."""
    counts: dict[str, int] = {}
    states: dict[str, GroupStatus] = {}
    for each in added:
        counts[each.id] = counts.get(each.id, 0) + 1
        states[each.id] = each.state
    if sum(state.makes for state in states.values() if not state.exists) > new_groups:
        return False
    for group, count in counts.items():
        state = states[group]
        if count > state.room or groups.allowance(state, remaining, usage, count).nodes < count:
            return False
        remaining = groups.headroom_after(state, remaining, usage, count)
    return True


def _members(candidates: Iterable[ReplaceableNode], option: ReplacementOption) -> list[ReplaceableNode]:
    names = set(option.removed)
    return [each for each in candidates if each.name in names]


def _creations(states: Mapping[str, GroupStatus], counts: Mapping[str, int]) -> tuple[GroupCreation, ...]:
    return tuple(
        GroupCreation(name, state.spec, counts[name], max_size=state.group.max_size)
        for name, state in sorted(states.items())
        if state.spec is not None
    )


def _unfit(
    node: NodeInfo,
    group: str,
    context: ScaleDownContext,
    inputs: ConsolidationInputs,
    rules: ConsolidationRules,
    simulation: ReplacementSimulation,
) -> _Refusal | None:
    """Why a node cannot be replaced, whatever takes its place."""
    if context.is_leaving(node):
        return _Refusal(ConsolidationReason.NOT_ELIGIBLE, context.why_leaving(node)[1])
    if node.state is not NodeState.READY:
        return _Refusal(ConsolidationReason.NOT_ELIGIBLE, f"it is {node.state}")
    if context.inputs.groups[group].rules.zero_or_max:
        return _Refusal(ConsolidationReason.NOT_ELIGIBLE, "its group has all of its nodes or none")
    if node.name in context.inputs.unreadable:
        return _Refusal(ConsolidationReason.NOT_ELIGIBLE, context.inputs.unreadable[node.name])
    price = inputs.prices.get(node.name)
    if price is None:
        why = inputs.unknown.get(node.name, NO_PRICE)
        return _Refusal(ConsolidationReason.PRICE_UNKNOWN, f"its price is not known: {why}")
    if node.annotations.get(eligibility.ANNOTATION_DISABLED) == "true":
        return _Refusal(ConsolidationReason.DO_NOT_DISRUPT, f"its annotation {eligibility.ANNOTATION_DISABLED} is true")
    if node.name in inputs.held:
        return _Refusal(ConsolidationReason.DO_NOT_DISRUPT, inputs.held[node.name])
    age = context.now - inputs.created_at.get(node.name, 0.0)
    if age < rules.min_age_seconds:
        asked = durations.render(rules.min_age_seconds)
        terms = (
            Term("age", round(age), "seconds", "creation of the node"),
            Term("leastAge", round(rules.min_age_seconds), "seconds", "--consolidation-min-node-age"),
        )
        detail = f"it is {durations.render(round(age))} old, less than {asked}"
        return _Refusal(ConsolidationReason.TOO_YOUNG, detail, terms=terms)
    drains = simulation.drains([node.name])
    return _Refusal(*drains) if isinstance(drains, tuple) else None


def _worthwhile(
    found: ReplacementOption,
    removed: Sequence[ReplaceableNode],
    rules: ConsolidationRules,
    balance: SavingBalance,
) -> ReplacementOption | _Refusal:
    saving = found.saving
    least = max(SLACK, found.before * rules.min_savings_percent / 100)
    if saving < least - SLACK:
        percent = 100 * saving / found.before
        detail = f"{found}: {percent:.3g} %, less than {rules.min_savings_percent:g} % of what it costs"
        terms = (
            *found.terms,
            Term("saved", round(100 * percent), "basisPoints", "of what it costs"),
            Term("leastSaved", round(100 * rules.min_savings_percent), "basisPoints", MIN_SAVINGS_FLAG),
        )
        return _Refusal(ConsolidationReason.SAVES_TOO_LITTLE, detail, saving, terms)
    if found.score < balance.least - SLACK:
        detail = f"{found}, too little for what it disturbs: {balance.explain(saving, removed)}"
        terms = *found.terms, *balance.terms(saving, removed)
        return _Refusal(ConsolidationReason.DISTURBS_TOO_MUCH, detail, saving, terms)
    if found.alternatives is not None and found.alternatives < rules.spot_alternatives:
        detail = f"{found}; {found.alternatives} spot groups would save, fewer than {rules.spot_alternatives}"
        terms = (
            *found.terms,
            Term("spotGroups", found.alternatives, "groups", "spot groups that would save"),
            Term("leastSpotGroups", rules.spot_alternatives, "groups", "--consolidation-spot-alternatives"),
        )
        return _Refusal(ConsolidationReason.FEW_ALTERNATIVES, detail, saving, terms)
    return found


class _Search:
    def __init__(
        self,
        context: ScaleDownContext,
        inputs: ConsolidationInputs,
        rules: ConsolidationRules,
        is_late: Callable[[], bool],
    ) -> None:
        self._context = context
        self._inputs = inputs
        self._rules = rules
        self._is_late = is_late
        self._simulation = ReplacementSimulation(context, inputs.unneeded)
        self._targets = sorted(inputs.targets, key=lambda each: (each.price, not each.state.exists, each.id))
        self._usage = QuotaUsage(context.rules.gpu_label)
        self._balance = SavingBalance(context, inputs.prices, inputs.disruptions, rules.balance)
        self._verdicts: dict[str, ReplacementVerdict] = {}
        # The prefix that would have saved most.
        self._together: tuple[Sequence[ReplaceableNode], _Refusal] | None = None

    def run(self) -> ConsolidationDecision:
        candidates = self._candidates()
        chosen = self._longest_prefix(candidates) if self._inputs.blocked is None else None
        if chosen is None:
            chosen = self._first_single(candidates)
        if chosen is not None:
            terms = *chosen.terms, *self._balance.terms(chosen.saving, _members(candidates, chosen))
            for name in chosen.removed:
                self._verdicts[name] = ReplacementVerdict(name, None, str(chosen), chosen.saves_per_month, terms=terms)
            for each in candidates:
                self._verdicts.setdefault(
                    each.name,
                    ReplacementVerdict(each.name, ConsolidationReason.NOT_ITS_TURN, "another replacement begins now"),
                )
        bounds = SavingBounds(self._context, self._inputs.prices, self._targets, self._simulation)
        verdicts = bounds.completed(self._verdicts, self._is_late)
        return ConsolidationDecision(
            dict(sorted(verdicts.items())), chosen, unpriced_groups=dict(sorted(self._inputs.unpriced.items()))
        )

    def _candidates(self) -> list[ReplaceableNode]:
        """In order; all other nodes of groups that may shrink get their verdict."""
        found = []
        for node in self._context.nodes:
            group = self._context.group_of(node)
            if group not in self._context.inputs.groups or node.name in self._inputs.unneeded:
                continue
            refusal = _unfit(node, group, self._context, self._inputs, self._rules, self._simulation)
            if refusal is not None:
                self._refuse(node.name, refusal)
                continue
            is_spot = list_prices.is_spot_machine(node.machine)
            price = self._inputs.prices[node.name]
            found.append(ReplaceableNode(node, group, price, self._balance.disruption[node.name], is_spot))
        return sorted(found, key=lambda each: each.turn)

    def _longest_prefix(self, candidates: Sequence[ReplaceableNode]) -> ReplacementOption | None:
        """Of at least two nodes. As in Karpenter, a longer prefix is tried only after a shorter one has passed."""
        candidates = self._inputs.allowed.cropped(candidates, lambda each: each.group)
        low, high = 2, min(len(candidates), MOST_AT_ONCE)
        best = None
        while low <= high and not self._is_late():
            middle = (low + high) // 2
            found = self._judge(candidates[:middle])
            if isinstance(found, ReplacementOption):
                best, low = found, middle + 1
            else:
                high = middle - 1
                known = self._together[1].saving if self._together else None
                if found.saving is not None and found.saving > (known or 0.0):
                    self._together = candidates[:middle], found
        return best

    def _first_single(self, candidates: Sequence[ReplaceableNode]) -> ReplacementOption | None:
        untried = self._inputs.untried
        for each in sorted(candidates, key=lambda candidate: candidate.name not in untried):
            if self._is_late():
                detail = "the time of this pass was over before its turn came"
                self._refuse(each.name, _Refusal(ConsolidationReason.OUT_OF_TIME, detail))
                continue
            found = self._judge([each])
            if isinstance(found, _Refusal):
                self._refuse(each.name, self._or_together(each, found))
            elif (delayed := self._delayed(each.group)) is not None:
                self._refuse(each.name, _Refusal(delayed[0], f"{delayed[1]}; {found} then", found.saving, found.terms))
            else:
                return found
        return None

    def _or_together(self, candidate: ReplaceableNode, alone: _Refusal) -> _Refusal:
        """Why a node is not replaced with others, where that would save more than alone; its part of that saving goes
        by its price.
        """
        if self._together is None or candidate not in self._together[0]:
            return alone
        members, refusal = self._together
        saving = (refusal.saving or 0.0) * candidate.price / (sum(each.price for each in members) or 1.0)
        if saving <= (alone.saving or 0.0):
            return alone
        others = len(members) - 1
        named = "1 other node" if others == 1 else f"{others} other nodes"
        return _Refusal(refusal.reason, f"with {named}: {refusal.detail}", saving, refusal.terms)

    def _delayed(self, group: str) -> tuple[ConsolidationReason, str] | None:
        allowed = self._inputs.allowed.of_group(group)
        if self._inputs.blocked is None and allowed.nodes < 1:
            return ConsolidationReason.LIMITED, f"the disruption limit {allowed.limit!r} allows no node now"
        return self._inputs.blocked

    def _refuse(self, node: str, refusal: _Refusal) -> None:
        saving = None if refusal.saving is None else refusal.saving * HOURS_PER_MONTH
        self._verdicts[node] = ReplacementVerdict(node, refusal.reason, refusal.detail, saving, terms=refusal.terms)

    def _judge(self, removed: Sequence[ReplaceableNode]) -> ReplacementOption | _Refusal:
        """The cheapest replacement of these nodes; or why none is made."""
        names = [each.name for each in removed]
        before = sum(each.price for each in removed)
        if self._balance.score(before, removed) < self._balance.least - SLACK:
            weighed = self._balance.explain(before, removed)
            detail = f"even for nothing, new nodes would save too little for its pods: {weighed}"
            terms = self._balance.terms(before, removed)
            return _Refusal(ConsolidationReason.DISTURBS_TOO_MUCH, detail, terms=terms)
        drains = self._simulation.drains(names)
        if isinstance(drains, tuple):
            return _Refusal(*drains)
        own = self._own(removed)
        if all(target.price >= before or target.id in own for target in self._targets):
            detail = f"no other group has nodes at less than {before:.4g}/h{self._left_out()}"
            return _Refusal(ConsolidationReason.NOT_CHEAPER, detail, 0.0)
        present = self._simulation.place(names)
        if present.stuck is None:
            detail = "its pods have places on nodes that stay: it is for scale-down to remove it"
            return _Refusal(ConsolidationReason.LEFT_TO_SCALE_DOWN, detail, before)
        found = self._cheapest(removed, own, before, present, self._targets)
        if found is None and self._is_late():
            return _Refusal(ConsolidationReason.OUT_OF_TIME, "the time of this pass was over while it was looked at")
        if found is None:
            why = f"{present.stuck.detail}{self._left_out()}"
            detail = f"no other nodes at less than {before:.4g}/h hold its pods: {why}"
            return _Refusal(ConsolidationReason.NOT_CHEAPER, detail, 0.0)
        judged = found if isinstance(found, _Refusal) else _worthwhile(found, removed, self._rules, self._balance)
        if not isinstance(judged, _Refusal) or judged.reason in _OF_PRICE or any(each.is_spot for each in removed):
            return judged
        on_demand = [each for each in self._targets if not each.is_spot]
        second = self._cheapest(removed, own, before, present, on_demand)
        if isinstance(second, ReplacementOption):
            second = _worthwhile(second, removed, self._rules, self._balance)
        return second if isinstance(second, ReplacementOption) else judged

    def _left_out(self) -> str:
        """The first of the groups whose price is not known, and how many there are."""
        unpriced = self._inputs.unpriced
        if not unpriced:
            return ""
        group, why = min(unpriced.items())
        others = len(unpriced) - 1
        more = f", nor is that of {others} more group{'s' if others > 1 else ''}" if others else ""
        return f"; the price of group {group} is not known: {why}{more}"

    def _own(self, removed: Sequence[ReplaceableNode]) -> set[str]:
        """The groups of these nodes, and those that could be created for more of the same machines."""
        alike = {each.id for each in self._targets if any(each.is_like(old.node, old.price) for old in removed)}
        return alike | {each.group for each in removed}

    def _cheapest(
        self,
        removed: Sequence[ReplaceableNode],
        own: set[str],
        before: float,
        present: simulation.PodPlacement,
        targets: Sequence[LaunchTarget],
    ) -> ReplacementOption | _Refusal | None:
        """Of one of these groups, or of two if that is cheaper still."""
        spot_goes = any(each.is_spot for each in removed)
        names = [each.name for each in removed]
        best: tuple[float, list[LaunchTarget], simulation.PodPlacement] | None = None
        spot_savers: set[str] = set()
        for target in targets:
            if target.id in own or self._is_late():
                continue
            count = simulation.node_count(present.unplaced, target.template.free)
            bound = before if target.is_spot or best is None else best[0]
            while count is not None and count * target.price < bound - SLACK and self._may_add([target] * count):
                placed = self._simulation.place(names, [target.template] * count)
                if placed.stuck is None:
                    if target.is_spot:
                        spot_savers.add(target.id)
                    if best is None or count * target.price < best[0] - SLACK:
                        best = count * target.price, [target] * count, placed
                    break
                count += 1
        if best is None:
            return None
        best = self._with_cheaper_last(names, own, best, targets)
        after, added, placed = best
        counts: dict[str, int] = {}
        for each in added:
            counts[each.id] = counts.get(each.id, 0) + 1
        is_spot = spot_goes or any(each.is_spot for each in added)
        score = self._balance.score(before - after, removed)
        final = self._simulation.drains(names, [each.template for each in added])
        if isinstance(final, tuple):
            return _Refusal(*final, before - after)
        return ReplacementOption(
            tuple(names),
            counts,
            before,
            after,
            score,
            placed.moves,
            alternatives=len(spot_savers) if is_spot else None,
            creations=_creations({each.id: each.state for each in added}, counts),
            node_prices={each.id: each.price for each in added},
        )

    def _with_cheaper_last(
        self,
        names: Sequence[str],
        own: set[str],
        best: tuple[float, list[LaunchTarget], simulation.PodPlacement],
        targets: Sequence[LaunchTarget],
    ) -> tuple[float, list[LaunchTarget], simulation.PodPlacement]:
        """The same with one node of a cheaper group in place of the last of several, if the pods still fit."""
        _, added, _ = best
        if len(added) < 2:
            return best
        for target in targets:
            if target.price >= added[-1].price - SLACK or self._is_late():
                return best
            mixed = [*added[:-1], target]
            if target.id not in own and self._may_add(mixed):
                placed = self._simulation.place(names, [each.template for each in mixed])
                if placed.stuck is None:
                    return sum(each.price for each in mixed), mixed, placed
        return best

    def _may_add(self, added: Iterable[LaunchTarget]) -> bool:
        return may_add(added, self._inputs.remaining, self._usage, self._inputs.new_groups)
