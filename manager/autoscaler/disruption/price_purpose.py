"""Nodes that are dear for what they hold: those go whose replacement saves most for what it disturbs.

Candidates come in the order of Karpenter: price per disruption, dearest first. New nodes may be several, of one group
or of two. A replacement has to save a share of what its nodes cost, and its share of the cluster's cost has to be in
balance with its share of the cluster's disruption (Karpenter's policy Balanced). A node without a known price is
neither replaced nor launched.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from manager.autoscaler.disruption.candidates import (
    SLACK,
    LaunchTarget,
    Limit,
    ReplaceableNode,
    SavingBalance,
    explain_limits,
)
from manager.autoscaler.disruption.replacement_search import Launchable, Purpose, SearchInputs
from manager.autoscaler.disruption.simulation import PodPlacement, ReplacementSimulation
from manager.autoscaler.disruption.verdicts import (
    HOURS_PER_MONTH,
    ConsolidationDecision,
    ConsolidationReason,
    Denied,
    ReplacementOption,
    ReplacementVerdict,
    price_term,
)
from manager.autoscaler.pricing import list_prices
from manager.autoscaler.scale_up.decisions import GroupCreation
from manager.autoscaler.settings.replacement import ConsolidationRules
from manager.autoscaler.snapshot.cluster import NodeInfo, NodeState
from shared import durations
from shared.explanation import Term
from shared.quantity import Amounts

MOST_AT_ONCE = 100  # nodes of one replacement, as in Karpenter
MOST_SIMULATED = 100  # nodes of one pass, the dearest first, to see what each would save
MIN_SAVINGS_FLAG = "--consolidation-min-savings-percent"
NO_PRICE = "the price model has none for it"
# What nodes that cost more cannot help.
_OF_PRICE = (ConsolidationReason.SAVES_TOO_LITTLE, ConsolidationReason.DISTURBS_TOO_MUCH)


@dataclass(frozen=True)
class Prices:
    """`known` per hour and `created_at` are by node; `unknown` says of nodes without one why no price is known, and
    `unpriced` why groups have no price, so that they are no targets. `disruptions` are by pod: what the eviction of
    each costs, 1 where it is not listed.
    """

    known: Mapping[str, float]
    unknown: Mapping[str, str] = field(default_factory=dict)
    unpriced: Mapping[str, str] = field(default_factory=dict)
    created_at: Mapping[str, float] = field(default_factory=dict)
    disruptions: Mapping[str, float] = field(default_factory=dict)


def _worthwhile(
    found: ReplacementOption,
    removed: Sequence[ReplaceableNode],
    rules: ConsolidationRules,
    balance: SavingBalance,
) -> ReplacementOption | Denied:
    saving = found.saving
    least = max(SLACK, found.before * rules.consolidation_min_savings_percent / 100)
    if saving < least - SLACK:
        percent = 100 * saving / found.before
        detail = f"{found}: {percent:.3g} %, less than {rules.consolidation_min_savings_percent:g} % of what it costs"
        terms = (
            *found.terms,
            Term("saved", round(100 * percent), "basisPoints", "of what it costs"),
            Term("leastSaved", round(100 * rules.consolidation_min_savings_percent), "basisPoints", MIN_SAVINGS_FLAG),
        )
        return Denied(ConsolidationReason.SAVES_TOO_LITTLE, detail, saving, terms)
    if found.score < balance.least - SLACK:
        detail = f"{found}, too little for what it disturbs: {balance.explain(saving, removed)}"
        terms = *found.terms, *balance.terms(saving, removed)
        return Denied(ConsolidationReason.DISTURBS_TOO_MUCH, detail, saving, terms)
    if found.alternatives is not None and found.alternatives < rules.consolidation_spot_alternatives:
        detail = (
            f"{found}; {found.alternatives} spot groups would save, fewer than {rules.consolidation_spot_alternatives}"
        )
        terms = (
            *found.terms,
            Term("spotGroups", found.alternatives, "groups", "spot groups that would save"),
            Term("leastSpotGroups", rules.consolidation_spot_alternatives, "groups", "needed for spot nodes"),
        )
        return Denied(ConsolidationReason.FEW_ALTERNATIVES, detail, saving, terms)
    return found


class PricePurpose(Purpose):
    most_at_once: ClassVar = MOST_AT_ONCE
    looks_ahead: ClassVar = True

    def __init__(self, inputs: SearchInputs, prices: Prices, rules: ConsolidationRules) -> None:
        super().__init__(inputs, ReplacementSimulation(inputs.context, inputs.unneeded))
        self._prices = prices
        self._rules = rules
        self._targets = sorted(inputs.targets, key=lambda each: (each.price, not each.state.exists, each.id))
        self._balance = SavingBalance(inputs.context, prices.known, prices.disruptions, rules.consolidation_balance)

    def candidates(self) -> tuple[list[ReplaceableNode], dict[str, Denied]]:
        context, found, refused = self.inputs.context, [], {}
        for node in context.registered:
            group = context.group_id(node)
            if group not in context.groups or node.name in self.inputs.unneeded:
                continue
            why = self._unfit(node)
            if why is not None:
                refused[node.name] = why
                continue
            is_spot = list_prices.is_spot_machine(node.machine)
            price, disruption = self._prices.known[node.name], self._balance.disruption[node.name]
            found.append(ReplaceableNode(node, group, price, disruption, is_spot))
        return sorted(found, key=lambda each: each.turn), refused

    def verdict(
        self, node: str, judged: ReplacementOption | Denied, removed: Sequence[ReplaceableNode] = ()
    ) -> ReplacementVerdict:
        if isinstance(judged, Denied):
            saving = None if judged.saving is None else judged.saving * HOURS_PER_MONTH
            return ReplacementVerdict(node, judged.reason, judged.detail, saving, terms=judged.terms)
        terms = *judged.terms, *self._balance.terms(judged.saving, removed)
        return ReplacementVerdict(node, None, str(judged), judged.saves_per_month, terms=terms)

    def completed(self, decision: ConsolidationDecision) -> ConsolidationDecision:
        """With the price of each node among the terms of its verdict; those on nodes that stay also with what the
        replacement of each node alone would save at most, where they do not say what would be saved.
        """
        context, found, left = self.inputs.context, dict(decision.verdicts), MOST_SIMULATED
        nodes = [node for node in context.registered if node.name in found and node.name in self._prices.known]
        for node in sorted(nodes, key=lambda each: (-self._prices.known[each.name], each.name)):
            price, verdict = self._prices.known[node.name], found[node.name]
            verdict = replace(verdict, terms=(price_term("price", price), *verdict.terms))
            if verdict.reason is not None and verdict.saves_per_month is None and not context.is_leaving(node):
                is_simulated = left > 0 and bool(context.pods_that_move(node.name)) and not self.inputs.is_late()
                left -= is_simulated
                saving = self._most_saved(node.name) if is_simulated else price
                verdict = replace(verdict, saves_per_month=saving * HOURS_PER_MONTH, is_upper_bound=saving > 0)
            found[node.name] = verdict
        unpriced = dict(sorted(self._prices.unpriced.items()))
        return replace(decision, verdicts=dict(sorted(found.items())), unpriced_groups=unpriced)

    def _most_saved(self, node: str) -> float:
        """Per hour: its price, less what new nodes cost at least for the pods that nodes that stay have no room for."""
        price, present = self._prices.known[node], self.simulation.place([node])
        return price if present.stuck is None else max(0.0, price - self._least_cost(present.unplaced, price))

    def _unfit(self, node: NodeInfo) -> Denied | None:
        """Why a node cannot be replaced, whatever takes its place."""
        unpriced = None
        if node.name not in self._prices.known:
            why = f"its price is not known: {self._prices.unknown.get(node.name, NO_PRICE)}"
            unpriced = Denied(ConsolidationReason.PRICE_UNKNOWN, why)
        not_now = "" if node.state is NodeState.READY else f"it is {node.state}"
        if (refused := self.inputs.unfit(node, not_now, unpriced)) is not None:
            return refused
        age = self.inputs.context.now - self._prices.created_at.get(node.name, 0.0)
        if age < self._rules.consolidation_min_node_age_seconds:
            asked = durations.render(self._rules.consolidation_min_node_age_seconds)
            terms = (
                Term("age", round(age), "seconds", "creation of the node"),
                Term(
                    "leastAge",
                    round(self._rules.consolidation_min_node_age_seconds),
                    "seconds",
                    "--consolidation-min-node-age",
                ),
            )
            detail = f"it is {durations.render(round(age))} old, less than {asked}"
            return Denied(ConsolidationReason.TOO_YOUNG, detail, terms=terms)
        drains = self.simulation.drains([node.name])
        return drains if isinstance(drains, Denied) else None

    def judge(self, removed: Sequence[ReplaceableNode]) -> ReplacementOption | Denied:
        """The cheapest replacement of these nodes; or why none is made."""
        names = [each.name for each in removed]
        before = sum(each.price for each in removed)
        if self._balance.score(before, removed) < self._balance.least - SLACK:
            weighed = self._balance.explain(before, removed)
            detail = f"even for nothing, new nodes would save too little for its pods: {weighed}"
            terms = self._balance.terms(before, removed)
            return Denied(ConsolidationReason.DISTURBS_TOO_MUCH, detail, terms=terms)
        drains = self.simulation.drains(names)
        if isinstance(drains, Denied):
            return drains
        own = self._own(removed)
        if all(target.price >= before or target.id in own for target in self._targets):
            detail = f"no other group has nodes at less than {before:.4g}/h{self._left_out()}"
            return Denied(ConsolidationReason.NOT_CHEAPER, detail, 0.0)
        present = self.simulation.place(names)
        if present.stuck is None:
            detail = "its pods fit on other nodes, so scale-down deletes it"
            return Denied(ConsolidationReason.LEFT_TO_SCALE_DOWN, detail, before)
        targets = [each for each in self._targets if each.id not in own]
        found, limits = self._cheapest(removed, before, present, targets)
        if found is None and self.inputs.is_late():
            return Denied(ConsolidationReason.OUT_OF_TIME, "the time of this pass was over while it was looked at")
        if found is None and limits:
            why = f"{explain_limits(limits)}{self._left_out()}"
            detail = f"cheaper nodes, at less than {before:.4g}/h, cannot be launched: {why}"
            return Denied(ConsolidationReason.NO_NEW_NODE, detail, 0.0)
        if found is None:
            why = f"{present.stuck.detail}{self._left_out()}"
            detail = f"no nodes at less than {before:.4g}/h have room for its pods: {why}"
            return Denied(ConsolidationReason.NOT_CHEAPER, detail, 0.0)
        judged = found if isinstance(found, Denied) else _worthwhile(found, removed, self._rules, self._balance)
        if not isinstance(judged, Denied) or judged.reason in _OF_PRICE or any(each.is_spot for each in removed):
            return judged
        on_demand = [each for each in targets if not each.is_spot]
        second, _ = self._cheapest(removed, before, present, on_demand)
        if isinstance(second, ReplacementOption):
            second = _worthwhile(second, removed, self._rules, self._balance)
        return second if isinstance(second, ReplacementOption) else judged

    def _left_out(self) -> str:
        """The first of the groups whose price is not known, and how many there are."""
        unpriced = self._prices.unpriced
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
        before: float,
        present: PodPlacement,
        targets: Sequence[LaunchTarget],
    ) -> tuple[ReplacementOption | Denied | None, Mapping[str, Limit]]:
        """The replacement by new nodes of one of these groups, or of two if that is cheaper still; and the limits that
        keep groups from the nodes that they would need.
        """
        names, limits = [each.name for each in removed], {}
        best: Launchable | None = None
        spot_savers: set[str] = set()
        for target in targets:
            if self.inputs.is_late():
                continue
            most = before if target.is_spot or best is None else best.price
            found = self.launch(names, present, target, below_price=most - SLACK)
            if isinstance(found, Limit):
                limits[target.id] = found
            elif found is not None:
                if target.is_spot:
                    spot_savers.add(target.id)
                if best is None or found.price < best.price - SLACK:
                    best = found
        if best is None:
            return None, limits
        best = self._with_cheaper_last(names, best, targets)
        templates = [each.template for each in best.added]
        final = self.simulation.drains(names, templates)
        if isinstance(final, Denied):
            return final._replace(saving=before - best.price), limits
        is_spot = any(each.is_spot for each in removed) or any(each.is_spot for each in best.added)
        return self._option(removed, before, best, len(spot_savers) if is_spot else None), limits

    def _option(
        self, removed: Sequence[ReplaceableNode], before: float, found: Launchable, alternatives: int | None
    ) -> ReplacementOption:
        counts = dict(Counter(each.id for each in found.added))
        states = {each.id: each.state for each in found.added}
        score = self._balance.score(before - found.price, removed)
        return ReplacementOption(
            tuple(each.name for each in removed),
            counts,
            before,
            found.price,
            score,
            found.placed.moves,
            alternatives=alternatives,
            creations=tuple(
                GroupCreation(name, state.spec, counts[name], max_size=state.group.max_size)
                for name, state in sorted(states.items())
                if state.spec is not None
            ),
            node_prices={each.id: each.price for each in found.added},
        )

    def _with_cheaper_last(self, names: Sequence[str], best: Launchable, targets: Sequence[LaunchTarget]) -> Launchable:
        """The same with one node of a cheaper group in place of the last of several, if the pods still fit."""
        if len(best.added) < 2:
            return best
        for target in targets:
            if target.price >= best.added[-1].price - SLACK or self.inputs.is_late():
                return best
            mixed = *best.added[:-1], target
            if not self.limit_on(mixed):
                placed = self.simulation.place(names, [each.template for each in mixed])
                if placed.stuck is None:
                    return Launchable(mixed, placed)
        return best

    def _least_cost(self, unplaced: Sequence[Amounts], most: float) -> float:
        """Of nodes of any groups: one, or each resource where it is cheapest; `most` where a pod fits none of them."""
        offered = [(target.price, target.template.free) for target in self._targets if not target.closed]
        total: dict[str, int] = {}
        for requests in unplaced:
            if not any(_holds(free, requests) for _, free in offered):
                return most
            for name, amount in requests.items():
                total[name] = total.get(name, 0) + amount
        costs = [
            min((amount * price / free[name] for price, free in offered if free.get(name, 0) > 0), default=0.0)
            for name, amount in total.items()
        ]
        return max([min((price for price, _ in offered), default=most), *costs])


def _holds(free: Amounts, requests: Amounts) -> bool:
    return all(free.get(name, 0) >= amount for name, amount in requests.items())
