"""What the API server knows of the cluster at one moment: all that a round is decided from, but what the cloud says."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from manager.autoscaler.scale_down.residents import Controllers
from manager.autoscaler.snapshot.pod_info import ReferencedObjects
from manager.node_peaks import NodePeaks
from shared.api.capacityquota import CapacityQuota
from shared.api.core import DaemonSet, Node, Pod
from shared.api.workloads import PodDisruptionBudget
from shared.quantity import Amounts


@dataclass(frozen=True)
class ClusterObjects:
    """`now` in Unix seconds. `pods` are all there are; those without a node wait for one.

    `stable_since` says, by node, when its readiness last changed, where that is not what the node itself says;
    `expected` what its next report will put on offer, Mid and Batch, beside what it offers already; `priorities` is the
    text of the priority expander's ConfigMap, None without.

    `controllers` are None where they are not watched, so that all count as present; `peaks` is by node, of
    those of which something can be predicted, and None where nothing reports at all. `capacity_quotas` are none where
    they are not to count.
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
