"""Google Kubernetes Engine's rules for its nodes: machine types, reserved resources, GPUs, labels."""

import re
from collections.abc import Iterable, Mapping, Sequence

from manager.autoscaler.pricing.gce import LABEL_ACCELERATOR
from manager.autoscaler.pricing.model import NVIDIA_GPU
from shared.api.core import Taint
from shared.errors import InvalidInput
from shared.names import CPU, MEMORY
from shared.quantity import MILLI_PER_CORE, Amounts

MIB = 1 << 20
POD_CAPACITY = 110
EVICTION_HARD_BYTES = 100 * MIB
MAX_GROUP_SIZE = 1000

DEFAULT_ACCELERATOR = "nvidia-tesla-k80"
GPU_TAINT = Taint(key=NVIDIA_GPU, value="present", effect="NoSchedule")

LABEL_HOSTNAME = "kubernetes.io/hostname"
LABEL_ZONE, LABEL_ZONE_BETA = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"
LABELS_REGION = ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region")
LABELS_MACHINE_TYPE = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
LABELS_OS = ("kubernetes.io/os", "beta.kubernetes.io/os")
LABELS_ARCH = ("kubernetes.io/arch", "beta.kubernetes.io/arch")

_MEMORY_MIB_PER_CORE = {"standard": 3840.0, "highcpu": 921.6, "highmem": 6656.0}
_CORES = {"standard": (1, 2, 4, 8, 16), "highcpu": (2, 4, 8, 16), "highmem": (2, 4, 8, 16)}
_MACHINE_TYPE = re.compile(r"n1-(?:standard|highcpu|highmem)-([0-9]{1,3})")

# Shares in hundredths of a percent, each up to its bound. A "GB" of the memory rule is 1000 MiB.
_RESERVED_MEMORY = ((4000, 2500), (8000, 2000), (16000, 1000), (128000, 600), (None, 200))
_RESERVED_CPU = ((1000, 600), (2000, 100), (4000, 50), (None, 25))
_SMALL_MIB, _RESERVED_SMALL_MIB = 1000, 255

_ACCELERATOR_ZONES: Mapping[str, tuple[str, ...]] = {
    "nvidia-tesla-k80": (
        *("us-west1-b", "us-central1-a", "us-central1-c", "us-east1-c", "us-east1-d"),
        *("europe-west1-b", "europe-west1-d", "asia-east1-a", "asia-east1-b"),
    ),
    "nvidia-tesla-p100": (
        *("us-west1-a", "us-west1-b", "us-central1-c", "us-central1-f", "us-east1-b", "us-east1-c"),
        *("europe-west1-b", "europe-west1-d", "europe-west4-a", "asia-east1-a", "asia-east1-c"),
    ),
    "nvidia-tesla-v100": (
        *("us-west1-a", "us-west1-b", "us-central1-a", "us-central1-f", "europe-west4-a", "asia-east1-c"),
    ),
}
# The maximum number of cores of a machine, by its number of GPUs.
_MAX_CORES: Mapping[str, Mapping[int, int]] = {
    "nvidia-tesla-k80": {1: 8, 2: 16, 4: 32, 8: 64},
    "nvidia-tesla-p100": {1: 16, 2: 32, 4: 64},
    "nvidia-tesla-v100": {1: 12, 2: 24, 4: 48, 8: 96},
}
_GPU_COUNTS = (1, 2, 4, 8)
ACCELERATORS = frozenset(_MAX_CORES)


def _machine_types() -> dict[str, Amounts]:
    return {
        f"n1-{kind}-{cores}": {
            CPU: cores * MILLI_PER_CORE,
            MEMORY: round(cores * _MEMORY_MIB_PER_CORE[kind]) * MIB,
            "pods": POD_CAPACITY,
        }
        for kind, sizes in _CORES.items()
        for cores in sizes
    }


MACHINE_TYPES: Mapping[str, Amounts] = _machine_types()  # capacity by name


def reserved_memory_mib(memory_mib: int) -> int:
    """The memory of a machine that is reserved for the system."""
    if memory_mib <= 0:
        return 0
    if memory_mib <= _SMALL_MIB:
        return _RESERVED_SMALL_MIB
    return _graded(memory_mib, _RESERVED_MEMORY)


def reserved_cpu_milli(cpu_milli: int) -> int:
    """The cores of a machine that are reserved for the system."""
    return _graded(cpu_milli, _RESERVED_CPU)


def _graded(amount: int, grades: Iterable[tuple[int | None, int]]) -> int:
    reserved = below = 0
    for bound, share in grades:
        upper = amount if bound is None else min(amount, bound)
        reserved += max(0, upper - below) * share
        below = bound or below
    return reserved // 10_000


def allocatable(capacity: Amounts) -> dict[str, int]:
    """The resources left for pods."""
    memory = capacity.get(MEMORY, 0)
    left = {
        CPU: capacity.get(CPU, 0) - reserved_cpu_milli(capacity.get(CPU, 0)),
        MEMORY: memory - reserved_memory_mib(memory // MIB) * MIB - EVICTION_HARD_BYTES,
    }
    return {**capacity, **{resource: max(0, amount) for resource, amount in left.items()}}


def normalized_gpus(count: int) -> int:
    """The next larger number of GPUs that a machine can have. Raises InvalidInput."""
    found = next((each for each in _GPU_COUNTS if count <= each), None)
    if found is None:
        raise InvalidInput(source="node group", field=NVIDIA_GPU, value=count, problem=f"at most {_GPU_COUNTS[-1]}")
    return found


def check_gpus(accelerator: str, count: int, zone: str, machine_type: str) -> None:
    """Raises InvalidInput for GPUs that such a machine cannot have in that zone."""

    def refused(field: str, value: object, problem: str) -> InvalidInput:
        return InvalidInput(source="node group", field=field, value=value, problem=problem)

    zones = _ACCELERATOR_ZONES.get(accelerator)
    if zones is None:
        raise refused(LABEL_ACCELERATOR, accelerator, f"known are {', '.join(_ACCELERATOR_ZONES)}")
    if zone not in zones:
        raise refused(LABEL_ZONE, zone, f"there is no {accelerator}")
    cores = _MACHINE_TYPE.fullmatch(machine_type)
    if cores is None:
        raise refused(LABELS_MACHINE_TYPE[0], machine_type, "not a machine type that takes GPUs")
    most = _MAX_CORES[accelerator].get(count)
    if most is None:
        raise refused(NVIDIA_GPU, count, f"of {accelerator}: one of {', '.join(map(str, _MAX_CORES[accelerator]))}")
    if int(cores[1]) > most:
        raise refused(LABELS_MACHINE_TYPE[0], machine_type, f"at most {most} cores beside {count} {accelerator}")


def zones_with_gpus(accelerator: str, count: int, zones: Sequence[str], machine_type: str) -> list[str]:
    """The zones in which such a machine can have these GPUs. Raises InvalidInput if there is none."""
    found, problem = [], None
    for zone in zones:
        try:
            check_gpus(accelerator, count, zone, machine_type)
            found.append(zone)
        except InvalidInput as error:
            problem = problem or error
    if problem is not None and not found:
        raise problem
    return found


def generic_labels(node: str, machine_type: str, zone: str) -> dict[str, str]:
    """The labels of every node."""
    region = zone.rpartition("-")[0]
    return {
        LABEL_HOSTNAME: node,
        **dict.fromkeys((LABEL_ZONE, LABEL_ZONE_BETA), zone),
        **dict.fromkeys(LABELS_REGION, region),
        **dict.fromkeys(LABELS_MACHINE_TYPE, machine_type),
        **dict.fromkeys(LABELS_OS, "linux"),
        **dict.fromkeys(LABELS_ARCH, "amd64"),
    }


def node_labels(node: str, machine_type: str, zone: str, requested: Mapping[str, str]) -> dict[str, str]:
    """The generic labels and the requested ones. Raises InvalidInput where they contradict each other."""
    labels = generic_labels(node, machine_type, zone)
    for key, value in requested.items():
        if labels.setdefault(key, value) != value:
            raise InvalidInput(
                source="node group",
                field=f"labels[{key}]",
                value=value,
                problem=f"it is {labels[key]!r} on all of them",
            )
    return labels
