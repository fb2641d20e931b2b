"""The pods this machine starts with: three real processes that ask for far more than they use, each in its own way."""

import sys
from dataclasses import dataclass

from shared import names
from shared.names import PriorityClass
from shared.quantity import Resources

NAMESPACE = "default"

# Room left for what people apply themselves: a pod of one whole CPU, and half of the memory.
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
    """One pod; `portion` is its part, in percent, of what all samples request together."""

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


def sample_pods(node_name: str, size: Resources) -> list[dict[str, object]]:
    """Requests in proportion to the machine, so that the pods fit and what they leave unused shows."""
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
