"""The initial pods of a local cluster: real processes that request far more than they use, and pods for the cloud."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from deploy.local.simulated.curves import Curve
from deploy.local.simulated.workloads import prod_pod
from manager.autoscaler.cloudprovider.simulated import fake_nodes
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
class SamplePod:
    """One pod; `portion` is its share, in percent, of the total requests of all samples."""

    name: str
    command: tuple[str, ...]
    portion: int


def _burning(share: float, busy_seconds: float, idle_seconds: float) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", _BURN, str(share), str(busy_seconds), str(idle_seconds))


SAMPLES = (
    SamplePod("idle", ("sleep", "2147483647"), 40),
    SamplePod("steady", _burning(0.1, 3600, 0), 40),
    SamplePod("bursty", _burning(0.2, 4, 16), 20),
)


def cloud_pods() -> list[dict[str, object]]:
    """Pods that fit on no node but the simulated cloud's, so that the manager buys some, one reserved for its kind."""
    web = [_cloud_pod(f"checkout-{number}", "checkout", Resources(1500, 2 << 30), {}) for number in range(3)]
    return [*web, _cloud_pod("report-0", "report", Resources(1000, 20 << 30), {"dedicated": "analytics"})]


def _cloud_pod(name: str, app: str, request: Resources, apart: Mapping[str, str]) -> dict[str, object]:
    spec = {
        "nodeSelector": {fake_nodes.LABEL_CLOUD: fake_nodes.CLOUD, **apart},
        "tolerations": [{"key": key, "value": value, "effect": "NoSchedule"} for key, value in apart.items()],
    }
    return prod_pod(name, NAMESPACE, app, request, curve=Curve.DIURNAL, spec=spec)


def sample_pods(node_name: str, size: Resources) -> list[dict[str, object]]:
    """Pods with requests in proportion to the machine, so that they fit and their unused part is visible."""
    cpu_milli = max(0, size.cpu_milli - KEPT_FREE_CPU_MILLI)
    memory_mib = size.memory_bytes * REQUESTED_MEMORY_PERCENT // 100 >> 20
    spec = {"nodeSelector": {"kubernetes.io/hostname": node_name}, "terminationGracePeriodSeconds": 2}
    pods = []
    for sample in SAMPLES:
        least = max(LEAST_CPU_MILLI, cpu_milli * sample.portion // 100)
        request = Resources(least, (memory_mib * sample.portion // 100) << 20)
        pods.append(prod_pod(sample.name, NAMESPACE, sample.name, request, command=sample.command, spec=spec))
    return pods
