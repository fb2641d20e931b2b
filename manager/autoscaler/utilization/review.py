"""One tainted node looked at again, right before its machine is deleted: the scan's verdict must still hold."""

from collections.abc import Sequence
from dataclasses import dataclass

from manager.autoscaler.utilization import classes, reaping
from manager.autoscaler.utilization import memory as memories
from manager.autoscaler.utilization.observation import GroupNode, Observation, Observer
from manager.autoscaler.utilization.reaping import TaintedNodeReason, TaintedNodeStatus
from manager.autoscaler.utilization.scan_context import ScanInputs
from shared.api.core import Node, Pod


@dataclass(frozen=True)
class NodeReview:
    """The verdict `why` on a tainted node, with the inputs of its scan. `healthy_may_go` is the group's decision."""

    inputs: ScanInputs
    node: GroupNode
    why: TaintedNodeReason
    healthy_may_go: bool

    @property
    def is_empty(self) -> bool:
        """Whether the node goes because no pod keeps it."""
        return self.why in (TaintedNodeReason.EMPTY, TaintedNodeReason.FORCED)

    def objection(self, found: Node, pods: Sequence[Pod]) -> str:
        """Why the node stays, given its Node and all its pods as they are now; empty if the verdict still holds."""
        if changed := changes(found, self.node):
            return changed
        verdicts = self._tainted_node_statuses(self._observed(found, pods))
        if not verdicts:
            return f"{self.node.name}: it is not marked any more"
        status = verdicts[0]
        holds = status.drains if self.why is TaintedNodeReason.DRAINING else status.goes
        return "" if holds else f"{self.node.name}: {status.why}"

    def pods_to_evict(self, found: Node, pods: Sequence[Pod]) -> list[Pod]:
        """The pods that keep the node, without those that already terminate."""
        there = reaping.pods_that_keep_nodes(self._observed(found, pods)).by_node[self.node.name]
        leaving = {each.name for each in there if not each.of_node}
        return [pod for pod in pods if pod.metadata.key in leaving and pod.metadata.deletion_timestamp is None]

    def _observed(self, found: Node, pods: Sequence[Pod]) -> Observation:
        seen = Observer(self.inputs.rules).observe([found], pods, self.inputs.seen.cloud)
        marks = memories.marks_on(seen.nodes, self.inputs.memory.marks, now=self.inputs.now)
        return memories.dated(seen, marks)

    def _tainted_node_statuses(self, seen: Observation) -> tuple[TaintedNodeStatus, ...]:
        found, pods = classes.classify(seen.nodes), reaping.pods_that_keep_nodes(seen)
        if self.why is TaintedNodeReason.FORCED:
            return reaping.force_tainted_statuses(found.force_tainted, pods)
        may_go = self.healthy_may_go
        return reaping.tainted_statuses(
            self.inputs.rules, found.tainted, pods, healthy_may_go=may_go, now=self.inputs.now
        )


def changes(found: Node, node: GroupNode) -> str:
    """Why a scan leaves the Node alone as it is now; empty if it does not: it is another machine, or is cordoned, and
    cordoned nodes are left to the person who cordoned them.
    """
    if found.spec.provider_id != node.provider_id:
        return f"{node.name}: it is another machine by now"
    return f"{node.name}: it is cordoned" if found.spec.unschedulable else ""
