"""The objects of the API server that one iteration reads, as of one moment."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from manager.autoscaler.scale_down.pods_on_nodes import Controllers
from manager.autoscaler.snapshot.pod_info import ReferencedObjects
from manager.node_peaks import NodePeaks
from shared.api.capacityquota import CapacityQuota
from shared.api.core import DaemonSet, Node, Pod
from shared.api.workloads import PodDisruptionBudget
from shared.quantity import Amounts


@dataclass(frozen=True)
class ClusterObjects:
    """`now` in Unix seconds. `pods` are all pods; those without a node are pending.

    `stable_since` overrides, by node, when its readiness last changed. `expected` is the Mid and Batch capacity that
    the node's next report will add. `priorities` is the text of the priority expander's ConfigMap, None without one.

    `controllers` are None where they are not watched; then every owner counts as present. `peaks` holds the nodes with
    a prediction; it is None where no agent reports. `capacity_quotas` are empty where they are not enforced.
    """

    now: float
    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    daemon_sets: tuple[DaemonSet, ...] = ()
    surroundings: ReferencedObjects = field(default_factory=ReferencedObjects)
    stable_since: Mapping[str, float] = field(default_factory=dict)
    expected: Mapping[str, Amounts] = field(default_factory=dict)
    priorities: str | None = None
    controllers: Controllers | None = None
    budgets: tuple[PodDisruptionBudget, ...] = ()
    peaks: Mapping[str, NodePeaks] | None = None
    capacity_quotas: tuple[CapacityQuota, ...] = ()
