"""Labels and taints of EKS's managed node groups, which their Auto Scaling groups do not say."""

import logging
from dataclasses import dataclass

from manager.autoscaler.cloudprovider.aws import messages
from manager.autoscaler.cloudprovider.aws.messages import Ask, Call, NodegroupTaint, ScalingGroup
from manager.autoscaler.cloudprovider.errors import ProviderError
from shared.api.core import Taint
from shared.clock import Clock

TAG_CLUSTER, TAG_NODEGROUP = "eks:cluster-name", "eks:nodegroup-name"
LABEL_NODEGROUP, LABEL_CAPACITY_TYPE = "eks.amazonaws.com/nodegroup", "eks.amazonaws.com/capacityType"
STALE_SECONDS = 300.0  # labels and taints of a node group may be changed

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class NodegroupNode:
    """What EKS gives to nodes of a group."""

    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[Taint, ...] = ()


class ManagedNodegroups:
    """Remembers the answers for a while. The permission to ask is optional: without it, the tags say all."""

    def __init__(self, ask: Ask, clock: Clock) -> None:
        self._ask = ask
        self._clock = clock
        self._known: dict[tuple[str, str], tuple[float, NodegroupNode]] = {}
        self._told = False

    def node(self, group: ScalingGroup) -> NodegroupNode:
        """Of a group that is no node group's, nothing. After an error what was known stays."""
        cluster, name = group.labels.get(TAG_CLUSTER, ""), group.labels.get(TAG_NODEGROUP, "")
        if not cluster or not name:
            return NodegroupNode()
        now = self._clock.now()
        since, known = self._known.get((cluster, name), (0.0, NodegroupNode()))
        if since <= now < since + STALE_SECONDS:
            return known
        try:
            known = self._described(group.auto_scaling_group_name, cluster, name)
        except ProviderError as error:
            if not self._told:
                logger.warning("labels and taints of EKS node groups cannot be read: %s", error, extra={"group": name})
            self._told = True
        self._known[cluster, name] = now, known
        return known

    def _described(self, group: str, cluster: str, name: str) -> NodegroupNode:
        found = messages.answer(
            self._ask, Call.DESCRIBE_NODEGROUP, group, clusterName=cluster, nodegroupName=name
        ).nodegroup
        if found is None:
            return NodegroupNode()
        own = {LABEL_NODEGROUP: name, LABEL_CAPACITY_TYPE: found.capacity_type}
        labels = {key: value for key, value in own.items() if value} | found.labels
        return NodegroupNode(tuple(labels.items()), tuple(map(_taint, found.taints)))


def _taint(found: NodegroupTaint) -> Taint:
    """NO_SCHEDULE as NoSchedule."""
    return Taint(found.key, found.value, found.effect.title().replace("_", ""))
