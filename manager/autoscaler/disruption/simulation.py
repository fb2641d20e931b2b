"""Whether nodes may go, and whether their pods find places on the nodes that stay and on new ones."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from manager.autoscaler.disruption.verdicts import ConsolidationReason, Denied
from manager.autoscaler.estimator.limits import Quota
from manager.autoscaler.scale_down import eligibility, pods_on_nodes
from manager.autoscaler.scale_down.drain import RemainingDisruptions
from manager.autoscaler.scale_down.pods_on_nodes import BlockingPod, DrainPlan
from manager.autoscaler.scale_down.removal_simulation import Arrival, NoPlace, RemainingNodes
from manager.autoscaler.scale_down.scale_down_context import GroupSizeLimits, ScaleDownContext, above_bounds
from manager.autoscaler.scale_up.groups import QuotaUsage
from manager.autoscaler.snapshot import cluster
from manager.autoscaler.snapshot.cluster import NodeTemplate
from shared.cached_property import cached_property
from shared.quantity import Amounts


@dataclass(frozen=True, slots=True)
class PodPlacement:
    """The new places of the pods, as pairs of pod and node; the requests of those without one, and why the first of
    these has none.
    """

    moves: tuple[tuple[str, str], ...]
    unplaced: tuple[Amounts, ...] = ()
    stuck: NoPlace | None = None


class ReplacementSimulation:
    """Of one observation. `unneeded` nodes go first, in this order: scale-down has promised their pods' new places.
    Nodes in `silent` may go without a prediction: their pods count by what they request. Nodes in `forced` go in the
    end whatever protects their pods.
    """

    def __init__(
        self,
        context: ScaleDownContext,
        unneeded: Sequence[str],
        silent: Container[str] = (),
        forced: Container[str] = (),
    ) -> None:
        self._context = context
        self._forced = forced
        self._silent = silent
        self._deleted = [node.name for node in context.registered if context.is_leaving(node)]
        self._unneeded = list(unneeded)
        self._by_name = {node.name: node for node in context.registered}
        self._usage = QuotaUsage(context.rules.gpu_label)
        self._disruptions = self._left_by_going()
        self._spare = {name: group.spare for name, group in context.groups.items()}
        for name in self._unneeded:
            self._spare[context.group_id(self._by_name[name])] -= 1

    def _left_by_going(self) -> RemainingDisruptions:
        """The budgets without what the evictions still to come on nodes that go anyway take of them."""
        left = RemainingDisruptions(self._context.disruption_budgets, self._context.gangs)
        for name in (*self._deleted, *self._unneeded):
            for each in self._context.pods_that_move(name):
                who = each.drain_info
                if who is not None and who.deleted_at is None:
                    left.take(left.used_by(who))
        return left

    def drains(
        self, removed: Sequence[str], added: Sequence[NodeTemplate] | None = None
    ) -> dict[str, DrainPlan] | Denied:
        """What happens to the pods of each of these nodes; or why the nodes may not go together, wherever their pods
        would find places. Without `added` nodes, the cluster's lower bounds do not count yet.
        """
        context = self._context
        disruptions = self._disruptions.copy()
        sizes = GroupSizeLimits(self._spare, self._above_bounds(added))
        for template in added or ():
            sizes.give(template.group)
        found: dict[str, DrainPlan] = {}
        for name in removed:
            node = self._by_name[name]
            group = context.group_id(node)
            if not sizes.has_node(group):
                return Denied(ConsolidationReason.AT_MINIMUM, eligibility.at_minimum(context.groups[group])[1])
            usage = self._usage.node_usage(node)
            if short := sizes.short_of(usage):
                short_of = f"the cluster would have too little {', '.join(short)}"
                return Denied(ConsolidationReason.BELOW_LIMIT, short_of)
            plan = context.drain_plan(name, disruptions)
            if name in self._forced and (isinstance(plan, BlockingPod) or plan.awaited):
                plan = pods_on_nodes.forced_drain_plan(context.pods_on(name), context.now)
            if isinstance(plan, BlockingPod):
                return Denied(ConsolidationReason.BLOCKED_BY_POD, str(plan))
            if plan.awaited:
                return Denied(ConsolidationReason.BLOCKED_BY_POD, f"pod {plan.awaited[0].key} is to end by itself")
            is_known = context.known_peaks is None or name in context.known_peaks or name in self._silent
            if plan.moving and not is_known:
                return Denied(ConsolidationReason.PEAK_UNKNOWN, "it has pods to move, and nothing is predicted of it")
            disruptions.take(plan.disruptions)
            sizes.take(group, usage)
            found[name] = plan
        return found

    def _above_bounds(self, added: Sequence[NodeTemplate] | None) -> Quota:
        """What the cluster has above its lower bounds, with these nodes and without those that go anyway."""
        context, bounds = self._context, self._context.rules.bounds
        if added is None or not bounds:
            return above_bounds({}, ())
        going = {*self._deleted, *self._unneeded}
        usages = [self._usage.node_usage(node) for node in context.registered if node.name not in going]
        usages += [self._usage.node_usage(template.node) for template in added]
        return above_bounds(bounds, usages)

    def place(self, removed: Sequence[str], added: Sequence[NodeTemplate] = ()) -> PodPlacement:
        """Places the pods of these nodes: on nodes that stay before new ones, and on no node that goes. With them, pods
        are placed anew that were to come to these nodes from others that go anyway.
        """
        context, (nodes, arrived) = self._context, self._settled
        new = [
            (cluster.fresh_node(template, f"{template.group}-{number}"), template)
            for number, template in enumerate(added)
        ]
        remaining, rows = nodes.rescheduling(removed, new)
        remaining.close(rows[name] for name in (*self._deleted, *self._unneeded, *removed))
        names = list(rows)
        moves: dict[str, str] = {}
        unplaced: list[Amounts] = []
        stuck: NoPlace | None = None
        for name in removed:
            own = {each.key: each.facts.requests for each in context.pods_that_move(name)}
            found = remaining.leave(rows[name])
            if isinstance(found, NoPlace):
                stuck = stuck or found
                found = remaining.empty_out(rows[name])
                here = {move.pod for move in found}
                unplaced += [requests for pod, requests in own.items() if pod not in here]
                unplaced += [
                    each.facts.requests for each in arrived.get(name, ()) for pod in each.pods if pod not in here
                ]
            moves |= {move.pod: names[move.row] for move in found if move.pod in own}
        return PodPlacement(tuple(moves.items()), tuple(unplaced), stuck)

    @cached_property
    def _settled(self) -> tuple[RemainingNodes, Mapping[str, Sequence[Arrival]]]:
        """The nodes once the pods of those that go anyway have moved, and which pods have moved to each."""
        going = [*self._deleted, *self._unneeded]
        present = RemainingNodes(self._context, self._context.registered)
        if not going:
            return present, {}
        remaining, rows = present.rescheduling(sorted(going))
        remaining.close(rows[name] for name in going)
        for name in going:
            remaining.empty_out(rows[name])
        names = list(rows)
        arrived = {names[row]: found for row, found in remaining.arrivals.items()}
        return RemainingNodes(self._context, self._context.registered, set(going), arrived), arrived


def node_count(unplaced: Iterable[Amounts], free: Amounts) -> int | None:
    """So many nodes with so much free hold these requests at the very least; None if no number of them does."""
    total: dict[str, int] = {}
    for requests in unplaced:
        for name, amount in requests.items():
            if amount > free.get(name, 0):
                return None
            total[name] = total.get(name, 0) + amount
    return max([1, *(-(-amount // free[name]) for name, amount in total.items() if amount)])
