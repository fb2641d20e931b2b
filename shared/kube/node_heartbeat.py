"""A node's heartbeat: the conditions of its status, and its Lease."""

from shared import durations
from shared.kube.client import Client
from shared.kube.errors import NotFound
from shared.kube.lease import LeaseSpec
from shared.kube.resources import LEASES

LEASE_NAMESPACE = "kube-node-lease"
LEASE_SECONDS = 40
KUBELET_VERSION = "v1.34.0+headroom"  # of the nodes that we make; an API server may be three minor versions newer

_HEALTHY = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)
_READY = ("Ready", "True", "KubeletReady", "kubelet is posting ready status")
_NOT_READY = ("Ready", "False", "KubeletNotReady", "container runtime network not ready")


def conditions(now: float, *, ready: bool = True) -> list[dict[str, str]]:
    """The conditions of a node that is healthy, and `ready` or not, since `now`."""
    return [_condition(*each, now) for each in (*_HEALTHY, _READY if ready else _NOT_READY)]


def renew_lease(client: Client, node: str, node_uid: str, now: float) -> None:
    """Renews the node's Lease, or creates it; the Node owns it."""
    stamp = durations.micro_timestamp(now)
    spec = LeaseSpec(holder_identity=node, lease_duration_seconds=LEASE_SECONDS, renew_time=stamp)
    try:
        client.patch(LEASES, node, {"spec": spec}, LEASE_NAMESPACE)
    except NotFound:
        owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid}
        body = {
            "apiVersion": LEASES.api_version,
            "kind": "Lease",
            "metadata": {"name": node, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]},
            "spec": spec,
        }
        client.create(LEASES, body, LEASE_NAMESPACE)


def _condition(kind: str, status: str, reason: str, message: str, now: float) -> dict[str, str]:
    stamp = durations.timestamp(now)
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": stamp,
        "lastTransitionTime": stamp,
    }
