"""What the replacement of a node could save at most, where no search has found what it would save."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from manager.autoscaler.disruption import simulation
from manager.autoscaler.disruption.candidates import LaunchTarget
from manager.autoscaler.disruption.simulation import ReplacementSimulation
from manager.autoscaler.disruption.verdicts import HOURS_PER_MONTH, ReplacementVerdict, price_term
from manager.autoscaler.scale_down.inputs import ScaleDownContext

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
        """The verdicts with the price of their nodes among the terms; those on nodes that stay also with what would be
        saved at most, where they do not say what would be saved.
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
        """Per hour: its price, less that of the cheapest new nodes that could hold the pods for which nodes that stay
        have no room, by the sums of their requests alone.
        """
        price, present = self.prices[node], self.simulation.place([node])
        if present.stuck is None:
            return price
        counts = (
            (target.price, simulation.node_count(present.unplaced, target.template.free)) for target in self.targets
        )
        least = min((each * count for each, count in counts if count is not None), default=price)
        return max(0.0, price - least)
