"""The cloud's side of a group that scales by utilization: its members, and the deletion of their machines."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from manager.autoscaler import taints
from manager.autoscaler.actuation.node_writer import NodeWriter
from manager.autoscaler.cloudprovider.contract import InstanceState, NodeRef
from manager.autoscaler.cloudprovider.errors import ProviderError, Refused
from manager.autoscaler.cloudprovider.guard import ObservedGroup
from manager.autoscaler.utilization.observation import GroupNode
from manager.autoscaler.utilization.scan_context import ScanInputs
from shared.api.core import Node
from shared.errors import HeadroomError

logger = logging.getLogger(__name__)

MOST_FAILURES = 10  # of consecutive node writes, after which the next scan takes over


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
        """How many nodes may go under the cloud's minimum."""
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
        """Nodes of no group, or of another one, are not ours, whatever their labels say."""
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
