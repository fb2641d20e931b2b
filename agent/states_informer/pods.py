"""A pod of this node with all values that the agent derives from it, computed once per version of the object."""

from dataclasses import dataclass

from shared import names
from shared.api import pods
from shared.api.core import Pod
from shared.names import PriorityClass, QoS
from shared.quantity import Resources

NOTHING = Resources()


@dataclass(frozen=True, slots=True)
class NodePod:
    """`holds_request`: neither finished nor being deleted. `lends`: its unused request may be lent to Mid.

    `workload` is "namespace/Kind/name" of the owner that replaces the pod, empty without one or with too long a name.
    `held` is the pod's request of Mid and Batch.
    """

    pod: Pod
    uid: str
    workload: str
    request: Resources
    limit: tuple[float, float]  # milli-cores and bytes; infinite without a limit
    priority_class: PriorityClass
    qos: QoS
    created_at: float
    running: bool
    holds_request: bool
    lends: bool
    held: Resources = NOTHING


def describe(pod: Pod) -> NodePod:
    """Raises ValueError for an invalid quantity or instant in the pod, or a missing uid."""
    if not pod.metadata.uid:
        raise ValueError("metadata.uid is missing")
    active = pods.is_active(pod)
    return NodePod(
        pod=pod,
        uid=pod.metadata.uid,
        workload=pods.workload(pod),
        request=pods.native_request(pod),
        limit=pods.native_limit(pod),
        priority_class=pods.priority_class(pod),
        qos=pods.qos(pod),
        created_at=pod.metadata.created_at,
        running=active,
        holds_request=active and not pods.is_terminating(pod),
        lends=pods.is_reclaimable(pod),
        held=_held(pod),
    )


def _held(pod: Pod) -> Resources:
    asked = pods.requests(pod)
    cpus, memories = zip(*names.TIER_RESOURCES.values(), strict=True)
    return Resources(sum(asked.get(name, 0) for name in cpus), sum(asked.get(name, 0) for name in memories))
