"""The initial pods of simulated nodes: prod pods that request more than they use, each with its own curve."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deploy.local.simulated.curves import Curve
from shared import names
from shared.names import PriorityClass
from shared.quantity import Resources

NAMESPACE = "simulated"
IMAGE = "headroom.io/sample"
NODE_SIZE = Resources(cpu_milli=16_000, memory_bytes=64 << 30)

# Keeps all other pods away: no process runs on a simulated node.
TAINT = {"key": names.LABEL_SIMULATED, "value": "true", "effect": "NoSchedule"}


@dataclass(frozen=True)
class Workload:
    """The number of pods of one kind per node."""

    curve: Curve
    per_node: int
    request: Resources


# 11 of 16 cores and 36 of 64 GiB of every node.
WORKLOADS = (
    Workload(Curve.DIURNAL, 2, Resources(2000, 8 << 30)),
    Workload(Curve.BURSTY, 3, Resources(1000, 4 << 30)),
    Workload(Curve.BATCH, 2, Resources(2000, 4 << 30)),
)

BUSY_REQUEST = Resources(4000, 1 << 30)

PODS_PER_NODE = sum(each.per_node for each in WORKLOADS)


def sample_pods(node: str, number: int) -> list[dict[str, object]]:
    """The pods of the node with that number, from 0. They are made on it, as hundreds of nodes would wait long for a
    scheduler.
    """
    return [
        prod_pod(f"{each.curve}-{index}", NAMESPACE, each.curve, each.request, curve=each.curve, spec=_on(node))
        for each in WORKLOADS
        for index in range(each.per_node * number, each.per_node * (number + 1))
    ]


def busy_pod(node: str) -> dict[str, object]:
    """A pod that is idle for a minute, and then uses all that it requests."""
    return prod_pod("burner", NAMESPACE, "burner", BUSY_REQUEST, curve=Curve.BURNER, spec=_on(node))


def _on(node: str) -> dict[str, object]:
    tolerations = [{"key": names.LABEL_SIMULATED, "operator": "Exists"}]
    return {"nodeName": node, "nodeSelector": {names.LABEL_SIMULATED: "true"}, "tolerations": tolerations}


def prod_pod(
    name: str, namespace: str, app: str, request: Resources, *, spec: Mapping[str, object],
    curve: Curve | None = None, command: Sequence[str] = (),
) -> dict[str, object]:  # fmt: skip
    """A pod with one container: a process of this machine, or, with a curve, one without a process."""
    container = {"name": "main", "image": IMAGE, "resources": {"requests": request.quantities()}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"app": app, names.LABEL_PRIORITY_CLASS: PriorityClass.PROD.value},
            "annotations": {names.ANNOTATION_USAGE_CURVE: curve.value} if curve else {},
        },
        "spec": {"containers": [container | ({"command": list(command)} if command else {})], **spec},
    }
