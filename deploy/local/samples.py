"""The initial pods of a local cluster.

On this machine, three real processes request far more than they use, each in its own way. For the simulated cloud, the
pods fit on no existing node, so that the manager buys nodes.
"""

import sys
from dataclasses import dataclass

from deploy.local.simulated import annotations
from deploy.local.simulated.curves import Curve
from manager.autoscaler.cloudprovider.simulated import fake_nodes
from shared import names
from shared.names import PriorityClass
from shared.quantity import Resources

NAMESPACE = "default"

# Leaves room for the user's own pods: one pod of a whole CPU, and half of the memory.
KEPT_FREE_CPU_MILLI = 1050
REQUESTED_MEMORY_PERCENT = 50
LEAST_CPU_MILLI = 50

_BURN = (
    "import sys, time\n"
    "share, busy, idle = map(float, sys.argv[1:])\n"
    "while True:\n"
    "    end = time.monotonic() + busy\n"
    "    while time.monotonic() < end:\n"
    "        spent = time.process_time() + share * 0.1\n"
    "        while time.process_time() < spent: pass\n"
    "        time.sleep((1 - share) * 0.1)\n"
    "    time.sleep(idle)\n"
)


@dataclass(frozen=True)
class Sample:
    """One pod; `portion` is its share, in percent, of the total requests of all samples."""

    name: str
    command: tuple[str, ...]
    portion: int


def _burning(share: float, busy_seconds: float, idle_seconds: float) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", _BURN, str(share), str(busy_seconds), str(idle_seconds))


SAMPLES = (
    Sample("idle", ("sleep", "2147483647"), 40),
    Sample("steady", _burning(0.1, 3600, 0), 40),
    Sample("bursty", _burning(0.2, 4, 16), 20),
)


@dataclass(frozen=True)
class CloudSample:
    """The number of pods that only run on the simulated cloud's nodes; if `dedicated`, on nodes reserved for them."""

    name: str
    count: int
    request: Resources
    dedicated: str = ""


CLOUD_SAMPLES = (
    CloudSample("checkout", 3, Resources(1500, 2 << 30)),
    CloudSample("report", 1, Resources(1000, 20 << 30), "analytics"),
)


def cloud_pods() -> list[dict[str, object]]:
    return [_cloud_pod(sample, f"{sample.name}-{number}") for sample in CLOUD_SAMPLES for number in range(sample.count)]


def sample_pods(node_name: str, size: Resources) -> list[dict[str, object]]:
    """Pods with requests in proportion to the machine, so that they fit and their unused part is visible."""
    cpu_milli = max(0, size.cpu_milli - KEPT_FREE_CPU_MILLI)
    memory_mib = size.memory_bytes * REQUESTED_MEMORY_PERCENT // 100 >> 20
    return [
        _pod(
            sample,
            node_name,
            Resources(
                max(LEAST_CPU_MILLI, cpu_milli * sample.portion // 100), (memory_mib * sample.portion // 100) << 20
            ),
        )
        for sample in SAMPLES
    ]


def _cloud_pod(sample: CloudSample, name: str) -> dict[str, object]:
    apart = {"dedicated": sample.dedicated} if sample.dedicated else {}
    selector = {fake_nodes.LABEL_CLOUD: fake_nodes.CLOUD, **apart}
    container = {
        "name": "main",
        "image": "headroom.io/simulated",
        "resources": {"requests": sample.request.quantities()},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {"app": sample.name, names.LABEL_PRIORITY_CLASS: PriorityClass.PROD.value},
            "annotations": {annotations.USAGE_CURVE: Curve.DIURNAL.value},
        },
        "spec": {
            "containers": [container],
            "nodeSelector": selector,
            "tolerations": [{"key": key, "value": value, "effect": "NoSchedule"} for key, value in apart.items()],
        },
    }


def _pod(sample: Sample, node_name: str, request: Resources) -> dict[str, object]:
    container = {
        "name": "main",
        "image": "headroom.io/process",
        "command": list(sample.command),
        "resources": {"requests": request.quantities()},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": sample.name,
            "namespace": NAMESPACE,
            "labels": {"app": sample.name, names.LABEL_PRIORITY_CLASS: PriorityClass.PROD.value},
        },
        "spec": {
            "containers": [container],
            "nodeSelector": {"kubernetes.io/hostname": node_name},
            "terminationGracePeriodSeconds": 2,
        },
    }
