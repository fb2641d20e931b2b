"""Looks at tainted nodes again right before they are changed: a decision holds only while its verdict does."""

from collections.abc import Callable
from dataclasses import dataclass

from manager.autoscaler.actuation.node_writer import NodeVanished, NodeWriter, UnreadablePod
from manager.autoscaler.actuation.scanned_group import PassedOver
from manager.autoscaler.utilization import classes, reaping
from manager.autoscaler.utilization import memory as memories
from manager.autoscaler.utilization.observation import GroupNode, Observation, Observer
from manager.autoscaler.utilization.reaping import TaintedNodeStatus
from manager.autoscaler.utilization.scan_context import ScanInputs
from shared.api.core import Node, Pod
from shared.kube.errors import ApiError, NotFound, TooManyRequests

MOST_NAMED = 3  # of many, in an error

JudgeNodes = Callable[[Observation], tuple[TaintedNodeStatus, ...]]


@dataclass(frozen=True)
class NodeReview:
    """With the inputs of the scan; `healthy_may_go` as decided for the group."""

    inputs: ScanInputs
    nodes: NodeWriter
    healthy_may_go: bool

    def look_again(
        self, node: GroupNode, judge: JudgeNodes, still: Callable[[TaintedNodeStatus], bool]
    ) -> tuple[Node, Observation, tuple[Pod, ...]]:
        """The present node and its pods, for which the verdict must still hold. Raises PassedOver."""
        try:
            found = check_unchanged(self.nodes.node(node.name), node)
            pods = self.nodes.pods_on(node.name)
        except NodeVanished as error:
            raise PassedOver(f"{node.name}: it is gone") from error
        except UnreadablePod as error:
            raise PassedOver(str(error)) from error
        seen = Observer(self.inputs.rules).observe([found], pods, self.inputs.seen.cloud)
        seen = memories.dated(seen, memories.marks_on(seen.nodes, self.inputs.memory.marks, now=self.inputs.now))
        verdicts = judge(seen)
        if not verdicts:
            raise PassedOver(f"{node.name}: it is not marked any more")
        if not still(verdicts[0]):
            raise PassedOver(f"{node.name}: {verdicts[0].why}")
        return found, seen, pods

    def evict(self, node: GroupNode) -> None:
        """Evicts all pods that keep the node; pods that may not be evicted yet are tried again later.

        A pod that cannot be evicted does not stop the eviction of others, on this node or the next.
        """
        _, seen, pods = self.look_again(node, self.judge_tainted, lambda verdict: verdict.drains)
        there = reaping.pods_that_keep_nodes(self.inputs.rules, seen).by_node[node.name]
        leaving = {each.name for each in there if not each.of_node}
        kept, refused = [], []
        for pod in pods:
            meta = pod.metadata
            if meta.key not in leaving or meta.deletion_timestamp is not None:
                continue
            try:
                self.nodes.evict(meta.namespace, meta.name, meta.uid)
            except NotFound:
                continue
            except TooManyRequests:
                kept.append(meta.key)
            except ApiError as error:  # because of the pod: several budgets, or a webhook
                refused.append(f"{meta.key} stays: {error}")
        if kept:
            refused.insert(0, f"disruption budgets keep {', '.join(kept[:MOST_NAMED])}")
        if refused:
            raise PassedOver(f"{node.name}: {'; '.join(refused[:MOST_NAMED])}")

    def judge_forced(self, seen: Observation) -> tuple[TaintedNodeStatus, ...]:
        """The verdicts on nodes that are to go whatever runs there."""
        marked = classes.classify(seen.nodes).force_tainted
        return reaping.force_tainted_statuses(marked, reaping.pods_that_keep_nodes(self.inputs.rules, seen))

    def judge_tainted(self, seen: Observation) -> tuple[TaintedNodeStatus, ...]:
        """The verdicts on the other tainted nodes."""
        marked = classes.classify(seen.nodes).tainted
        pods = reaping.pods_that_keep_nodes(self.inputs.rules, seen)
        return reaping.tainted_statuses(
            self.inputs.rules, marked, pods, healthy_may_go=self.healthy_may_go, now=self.inputs.now
        )


def check_unchanged(found: Node, node: GroupNode) -> Node:
    """The Node as it is now.

    Raises PassedOver if it is another machine, or is cordoned: cordoned nodes are left to the person who cordoned them.
    """
    if found.spec.provider_id != node.provider_id:
        raise PassedOver(f"{node.name}: it is another machine by now")
    if found.spec.unschedulable:
        raise PassedOver(f"{node.name}: it is cordoned")
    return found
