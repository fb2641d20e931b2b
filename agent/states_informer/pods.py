"""A pod of this node with everything the agent derives from it, worked out once per version of the object."""

from dataclasses import dataclass

from shared.api import pods
from shared.api.core import Pod
from shared.names import PriorityClass, QoS
from shared.quantity import Resources


@dataclass(frozen=True, slots=True)
class NodePod:
    """`holds_request`: neither finished nor on its way out. `lends`: its unused request may be lent to Mid."""

    pod: Pod
    uid: str
    request: Resources
    priority_class: PriorityClass
    qos: QoS
    created_at: float
    running: bool
    holds_request: bool
    lends: bool


def describe(pod: Pod) -> NodePod:
    """Raises ValueError when a quantity or an instant in the pod means nothing, or it has no uid."""
    if not pod.metadata.uid:
        raise ValueError("metadata.uid is missing")
    active = pods.is_active(pod)
    return NodePod(
        pod=pod,
        uid=pod.metadata.uid,
        request=pods.native_request(pod),
        priority_class=pods.priority_class(pod),
        qos=pods.qos(pod),
        created_at=pod.metadata.created_at,
        running=active,
        holds_request=active and not pods.is_terminating(pod),
        lends=pods.is_reclaimable(pod),
    )
