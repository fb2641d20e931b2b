"""What the replacement of a node could save at most, where no search has found what it would save."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from manager.autoscaler.disruption.candidates import LaunchTarget
from manager.autoscaler.disruption.simulation import ReplacementSimulation
from manager.autoscaler.disruption.verdicts import HOURS_PER_MONTH, ReplacementVerdict, price_term
from manager.autoscaler.scale_down.inputs import ScaleDownContext
from shared.quantity import Amounts

MOST_SIMULATED = 100  # nodes of one pass, the dearest first


@dataclass(frozen=True)
class SavingBounds:
    """`prices` are by node, per hour, and `targets` the groups that may grow, the cheapest first."""

    context: ScaleDownContext
    prices: Mapping[str, float]
    targets: Sequence[LaunchTarget]
    simulation: ReplacementSimulation

    def completed(
        self, verdicts: Mapping[str, ReplacementVerdict], is_late: Callable[[], bool]
    ) -> dict[str, ReplacementVerdict]:
        """The verdicts with the price of their nodes among the terms; those on nodes that stay also with what the
        replacement of each node alone would save at most, where they do not say what would be saved.
        """
        found = dict(verdicts)
        left = MOST_SIMULATED
        nodes = [node for node in self.context.nodes if node.name in verdicts and node.name in self.prices]
        for node in sorted(nodes, key=lambda each: (-self.prices[each.name], each.name)):
            price, verdict = self.prices[node.name], verdicts[node.name]
            verdict = replace(verdict, terms=(price_term("price", price), *verdict.terms))
            if verdict.reason is not None and verdict.saves_per_month is None and not self.context.is_leaving(node):
                is_simulated = left > 0 and bool(self.context.pods_that_move(node.name)) and not is_late()
                left -= is_simulated
                saving = self._bound(node.name) if is_simulated else price
                verdict = replace(verdict, saves_per_month=saving * HOURS_PER_MONTH, is_upper_bound=saving > 0)
            found[node.name] = verdict
        return found

    def _bound(self, node: str) -> float:
        """Per hour: its price, less what new nodes cost at least for the pods that nodes that stay have no room for."""
        price, present = self.prices[node], self.simulation.place([node])
        return price if present.stuck is None else max(0.0, price - self._least_cost(present.unplaced, price))

    def _least_cost(self, unplaced: Sequence[Amounts], most: float) -> float:
        """Of nodes of any groups: one, or each resource where it is cheapest; `most` where a pod fits none of them."""
        offered = [(target.price, target.template.free) for target in self.targets]
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
