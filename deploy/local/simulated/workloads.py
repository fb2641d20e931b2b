"""The initial pods of simulated nodes: prod pods that request more than they use, each with its own curve."""

from dataclasses import dataclass

from deploy.local.simulated import annotations
from deploy.local.simulated.curves import Curve
from shared import names
from shared.names import PriorityClass
from shared.quantity import Resources

NAMESPACE = "simulated"
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


def sample_pods(node_count: int) -> list[dict[str, object]]:
    return [_pod(workload, number) for workload in WORKLOADS for number in range(workload.per_node * node_count)]


def _pod(workload: Workload, number: int) -> dict[str, object]:
    container = {
        "name": "main",
        "image": "headroom.io/simulated",
        "resources": {"requests": workload.request.quantities()},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{workload.curve}-{number}",
            "namespace": NAMESPACE,
            "labels": {"app": workload.curve.value, names.LABEL_PRIORITY_CLASS: PriorityClass.PROD.value},
            "annotations": {annotations.USAGE_CURVE: workload.curve.value},
        },
        "spec": {
            "containers": [container],
            "nodeSelector": {names.LABEL_SIMULATED: "true"},
            "tolerations": [{"key": names.LABEL_SIMULATED, "operator": "Exists"}],
        },
    }
