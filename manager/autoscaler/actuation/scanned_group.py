"""A group that scales by utilization, right before it changes: its members, and the deletion of their machines.

Tainted nodes are looked at again: a decision holds only while its verdict does.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from manager.autoscaler.actuation.node_writer import NodeVanished, NodeWriter, UnreadablePod
from manager.autoscaler.cloudprovider.contract import InstanceState, NodeRef
from manager.autoscaler.cloudprovider.errors import ProviderError, Refused
from manager.autoscaler.cloudprovider.guard import ObservedGroup
from manager.autoscaler.snapshot import taints
from manager.autoscaler.utilization import classes, reaping
from manager.autoscaler.utilization import memory as memories
from manager.autoscaler.utilization.observation import GroupNode, Observation, Observer
from manager.autoscaler.utilization.reaping import TaintedNodeStatus
from manager.autoscaler.utilization.scan_context import ScanInputs
from shared.api.core import Node, Pod
from shared.errors import HeadroomError
from shared.kube.errors import ApiError, NotFound, TooManyRequests

logger = logging.getLogger(__name__)

MOST_FAILURES = 10  # of consecutive node writes, after which the next scan takes over
MOST_NAMED = 3  # of many, in an error

JudgeNodes = Callable[[Observation], tuple[TaintedNodeStatus, ...]]


class PassedOver(HeadroomError):
    """The node is not in the state of the decision, and is left alone."""


@dataclass(frozen=True)
class ScannedGroup:
    """The group of one scan."""

    inputs: ScanInputs
    nodes: NodeWriter

    @property
    def id(self) -> str:
        return self.inputs.rules.group.cloud_provider_group_name

    @property
    def _observed(self) -> ObservedGroup | None:
        return self.nodes.guard.observed.groups.get(self.id)

    @property
    def target_size(self) -> int:
        """The cloud's present target, including writes since the observation."""
        found = self._observed
        return self.inputs.seen.cloud.target_size if found is None else found.group.target_size

    @property
    def deletable(self) -> int:
        """The number of nodes that may go without violating the cloud's minimum."""
        seen = self._observed
        return 0 if seen is None else max(0, seen.group.settled_size - seen.group.min_size)

    def is_lost(self, node: GroupNode) -> bool:
        """Whether the cloud says that the machine no longer exists.

        A tainted, unready node without a machine has only its Node left, which needs no cloud call.
        """
        if node.ready or not taints.has_taint(node.taints, taints.TO_BE_REMOVED) or self._is_member(node):
            return False
        try:
            with self.nodes.cloud_lock:
                return self.nodes.guard.launched_at(NodeRef(node.name, node.provider_id)) is None
        except ProviderError:
            return False

    def check_member(self, node: GroupNode) -> None:
        """Refuses nodes of no group or of another one, regardless of their labels."""
        if self._members.get(node.provider_id) is InstanceState.DELETING:
            raise PassedOver(f"{node.name}: the cloud is deleting it")
        if not self._is_member(node):
            raise PassedOver(f"{node.name} ({node.provider_id}) is not in the cloud's group")

    def delete(self, going: Sequence[Node]) -> dict[str, str]:
        """Deletes the nodes in one cloud call; returns the errors by node.

        If the call is refused, each node gets a call of its own, so that a node that cannot go keeps no other.
        """
        if not going:
            return {}
        guard, before, many = self.nodes.guard, self._members, len(going) > 1
        error = self._try_to_delete(going)
        if error is None:
            return {}
        if guard.is_in_doubt(self.id):
            going = self._still_there(going, before)
        alone = isinstance(error, Refused) and many and self.inputs.rules.fixes.clamps_deletions
        alone = alone and not guard.is_in_doubt(self.id)
        failed: dict[str, str] = {}
        for node in going:
            if alone and len(failed) < MOST_FAILURES:
                last = self._try_to_delete([node])
                if last is None:
                    continue
                error, alone = last, isinstance(last, Refused)
            failed[node.metadata.name] = str(error)
        return failed

    def _is_member(self, node: GroupNode) -> bool:
        return node.provider_id in self._members or self.nodes.guard.observed.group_of_node.get(node.name) == self.id

    @property
    def _members(self) -> Mapping[str, InstanceState]:
        """The states of the cloud's instances, by provider id."""
        seen = self._observed
        return {} if seen is None else {each.provider_id: each.state for each in seen.instances}

    def _try_to_delete(self, nodes: Sequence[Node]) -> HeadroomError | None:
        try:
            with self.nodes.cloud_lock:
                self.nodes.delete_machines(self.id, [NodeRef.from_node(each) for each in nodes])
        except HeadroomError as error:
            return error
        return None

    def _still_there(self, going: Sequence[Node], before: Mapping[str, InstanceState]) -> Sequence[Node]:
        """The nodes that the cloud still has after a failed deletion; all of them if it does not answer."""
        try:
            with self.nodes.cloud_lock:
                observed = self.nodes.guard.observe_again()
        except HeadroomError as error:
            logger.warning("what became of a deletion is not known: %s", error, extra={"group": self.id})
            return going
        if self.id not in observed.groups:
            return going
        after = self._members
        gone = {each for each in before if after.get(each, InstanceState.DELETING) is InstanceState.DELETING}
        return [each for each in going if each.spec.provider_id not in gone]


@dataclass(frozen=True)
class NodeReview:
    """Judges nodes by the inputs of the scan; `healthy_may_go` is the group's decision."""

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
        """The verdicts on nodes that go regardless of their pods."""
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
