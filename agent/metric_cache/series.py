"""The node's series and their names."""

import enum
from typing import NamedTuple

from shared.names import PriorityClass


class Kind(enum.StrEnum):
    """The subject of a series."""

    NODE = "node"
    SYSTEM = "system"  # the node's usage beyond its pods
    CLASS = "class"  # entity: the priority class
    PROD_PEAK = (
        # Usage that a lender of capacity must leave room for: prod and class-less pods and the system, by tick
        "prod-peak"
    )
    POD = "pod"  # entity: uid
    CONTAINER = "container"  # entity: uid/name
    WORKLOAD = "workload"  # entity: namespace/Kind/name of the controlling owner
    NUMA = "numa"  # entity: the NUMA node's number


class Metric(enum.StrEnum):
    """The measured quantity, in the unit of its comment. Ratios are 0 to 1."""

    CPU = "cpu"  # cores
    MEMORY = "memory"  # bytes without page cache
    MEMORY_WITH_PAGE_CACHE = "memory_with_page_cache"  # bytes
    MEMORY_WITH_HOT_PAGE_CACHE = "memory_with_hot_page_cache"  # bytes
    CPU_THROTTLED = "cpu_throttled"  # ratio of periods
    PSI_CPU_SOME = "psi_cpu_some"  # ratio of the last 10 s, like all psi
    PSI_CPU_FULL = "psi_cpu_full"
    PSI_MEMORY_SOME = "psi_memory_some"
    PSI_MEMORY_FULL = "psi_memory_full"
    PSI_IO_SOME = "psi_io_some"
    PSI_IO_FULL = "psi_io_full"
    PROD_CPU_WAIT = "prod_cpu_wait"  # share of Prod pods' time that they waited for CPU, like the next
    PROD_MEMORY_WAIT = "prod_memory_wait"
    PROD_THROTTLED_PODS = "prod_throttled_pods"  # number of Prod pods that their own limits throttled
    CPU_STEAL = "cpu_steal"  # ratio of the CPUs' time that the hypervisor took
    LOAD_1M = "load_1m"
    LOAD_5M = "load_5m"
    LOAD_15M = "load_15m"
    DISK_READ = "disk_read"  # bytes/s
    DISK_WRITE = "disk_write"  # bytes/s
    DISK_USED = "disk_used"  # bytes, file system of the state folder
    DISK_SIZE = "disk_size"  # bytes


class SeriesKey(NamedTuple):
    """Names one series; `entity` is empty where the kind has only one."""

    kind: Kind
    entity: str
    metric: Metric


class Usage(NamedTuple):
    """Usage of the node's resources at one instant, or on average over an interval."""

    cpu_cores: float
    memory_bytes: float

    def plus(self, other: "Usage") -> "Usage":
        return Usage(self.cpu_cores + other.cpu_cores, self.memory_bytes + other.memory_bytes)

    def minus(self, other: "Usage") -> "Usage":
        """The difference, not below 0: readings of different counters never match exactly."""
        return Usage(
            max(0.0, self.cpu_cores - other.cpu_cores),
            max(0.0, self.memory_bytes - other.memory_bytes),
        )


NOTHING = Usage(0.0, 0.0)

# Keys of the models of the predict server, and of usages by entity: pods and workloads have their own names.
NODE = "__node__"
SYSTEM = "__node-sys__"
PROD_PEAK = "__node-prod-peak__"
_WORKLOAD_PREFIX = "workload:"


def of_class(priority_class: PriorityClass) -> str:
    """The entity of all pods of a class together; Koordinator's item UIDs."""
    return f"__node-{priority_class}__"


def of_workload(workload: str) -> str:
    """The model key of a workload, "namespace/Kind/name"."""
    return f"{_WORKLOAD_PREFIX}{workload}"


NODE_ENTITIES = frozenset({NODE, SYSTEM, PROD_PEAK, *map(of_class, PriorityClass)})
_NODE_KEYS: dict[str, tuple[Kind, str]] = {
    NODE: (Kind.NODE, ""),
    SYSTEM: (Kind.SYSTEM, ""),
    PROD_PEAK: (Kind.PROD_PEAK, ""),
    **{of_class(priority_class): (Kind.CLASS, str(priority_class)) for priority_class in PriorityClass},
}
_OF_NODE = {named: key for key, named in _NODE_KEYS.items()}


def named(model_key: str) -> tuple[Kind, str]:
    """The kind and entity of a model key."""
    if model_key in _NODE_KEYS:
        return _NODE_KEYS[model_key]
    if model_key.startswith(_WORKLOAD_PREFIX):
        return Kind.WORKLOAD, model_key.removeprefix(_WORKLOAD_PREFIX)
    return Kind.POD, model_key


def model_key(kind: Kind, entity: str) -> str | None:
    """The model key of a kind and entity; None for kinds without a model."""
    if kind is Kind.POD:
        return entity
    if kind is Kind.WORKLOAD:
        return of_workload(entity)
    return _OF_NODE.get((kind, entity))
