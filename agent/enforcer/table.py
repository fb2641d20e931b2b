"""The values for a pod, and the cgroup files that get them. Pure: the enforcer writes only what this table has.

Weights follow from requests of the tier, so that Mid and Batch share the remaining CPU in proportion; Batch counts with
a part of its requests. This holds among best-effort pods. A Burstable pod runs beside pods of Prod and keeps the least
weight, so that weights only distinguish its containers. Where the kernel has cpu.idle, a pod of Batch runs only when no
sibling needs the CPU. The table sets the limits of the tier's resources, which the kubelet does not know. A pod that
also requests cpu of the node gets its weight from the kubelet.
"""

import enum
from dataclasses import dataclass
from typing import NamedTuple

from agent.enforcer.orders import PodBounds, PodOrder
from agent.metrics_advisor.cgroups import Layout
from shared.names import KubeQoS, Tier

PERIOD_USEC = 100_000  # the kernel's usual period of a cpu quota
LEAST_QUOTA_USEC = 1_000  # the kernel's minimum
LEAST_SUPPRESS_USEC = 2_000  # Koordinator's
LEAST_SHARES, MOST_SHARES = 2, 262_144
UNLIMITED = -1


class Knob(enum.Enum):
    """A setting of a cgroup."""

    IDLE = enum.auto()  # 0 or 1
    WEIGHT = enum.auto()  # cpu.shares as v1 counts them
    QUOTA = enum.auto()  # cpu, in milli-cores
    MEMORY = enum.auto()  # bytes
    OOM_GROUP = enum.auto()  # 0 or 1


# The file of each knob, by version; v1 has no OOM group.
FILES = {
    False: {
        Knob.IDLE: "cpu.idle",
        Knob.WEIGHT: "cpu.shares",
        Knob.QUOTA: "cpu.cfs_quota_us",
        Knob.MEMORY: "memory.limit_in_bytes",
    },
    True: {
        Knob.IDLE: "cpu.idle",
        Knob.WEIGHT: "cpu.weight",
        Knob.QUOTA: "cpu.max",
        Knob.MEMORY: "memory.max",
        Knob.OOM_GROUP: "memory.oom.group",
    },
}
OF_MEMORY = frozenset({Knob.MEMORY, Knob.OOM_GROUP})


class BoundTerm(NamedTuple):
    """The origin of a value; `unit` is that of the amount: "milli", "bytes" or ""."""

    name: str
    amount: int | None = None
    unit: str = ""


LEAST = BoundTerm("the least: pods of Prod are beside it")
HELD_TOGETHER = BoundTerm("none of its own while best-effort pods are held together")


@dataclass(frozen=True, slots=True)
class Setting:
    """One knob of the cgroup at `path` below the roots; `only_without_idle` skips a cgroup that has cpu.idle."""

    path: str
    knob: Knob
    value: int
    term: BoundTerm
    only_without_idle: bool = False


@dataclass(frozen=True, slots=True)
class Choices:
    """How Batch ranks against Mid: the share of its weight that counts, and whether it runs only in idle time."""

    batch_weight_percent: int = 25
    batch_idle: bool = True


def shares(cpu_milli: int) -> int:
    """Kubernetes' rule."""
    return min(MOST_SHARES, max(LEAST_SHARES, cpu_milli * 1024 // 1000))


def weight(of_shares: int) -> int:
    """v2's weight for v1's shares, Kubernetes' rule."""
    return 1 + (of_shares - 2) * 9_999 // 262_142


def quota_usec(cpu_milli: int, period_usec: int = PERIOD_USEC) -> int:
    """The quota of a limit; a negative one means none."""
    return UNLIMITED if cpu_milli < 0 else max(LEAST_QUOTA_USEC, cpu_milli * period_usec // 1000)


def settings(order: PodOrder, layout: Layout, choices: Choices, *, suppressed: bool) -> list[Setting]:
    """The settings of the pod and of its existing containers, in the order of writing.

    While best-effort pods are `suppressed` together, v1 refuses a quota of one of them above their common one, so they
    have none of their own.
    """
    path = layout.find_pod(order.qos, [order.uid])
    if path is None:
        return []
    v2, batch = layout.hierarchy.v2, order.tier is Tier.BATCH
    percent = choices.batch_weight_percent if batch else 100
    idle = batch and choices.batch_idle
    without_quota = suppressed and not v2 and order.qos is KubeQoS.BEST_EFFORT
    requested = f"{order.tier}-cpu requested" + (f" x {percent} %" if batch else "")
    idle_term = BoundTerm("batchIdle", int(idle))
    found = [Setting(path, Knob.IDLE, int(idle), idle_term)] if batch and not order.native else []
    if not order.native:
        best_effort = order.qos is KubeQoS.BEST_EFFORT
        own = order.cpu_milli * percent // 100 if best_effort else 0
        term = BoundTerm(requested, order.cpu_milli, "milli") if best_effort else LEAST
        found.append(Setting(path, Knob.WEIGHT, shares(own), term, only_without_idle=idle))
    found += _limits(path, order, order.tier, without_quota=without_quota)
    if batch and v2:
        found.append(Setting(path, Knob.OOM_GROUP, 1, BoundTerm("a pod of Batch")))
    for container in order.containers:
        inner = layout.find_container(path, container.id)
        if inner is not None:
            if not order.native:
                term = BoundTerm(requested, container.cpu_milli, "milli")
                found.append(Setting(inner, Knob.WEIGHT, shares(container.cpu_milli * percent // 100), term))
            found += _limits(inner, container, order.tier, without_quota=without_quota)
    return found


def _limits(path: str, bounds: PodBounds, tier: Tier, *, without_quota: bool) -> list[Setting]:
    found = []
    if without_quota:
        found.append(Setting(path, Knob.QUOTA, UNLIMITED, HELD_TOGETHER))
    elif bounds.limit_milli is not None:
        term = BoundTerm(f"{tier}-cpu limit", bounds.limit_milli, "milli")
        found.append(Setting(path, Knob.QUOTA, bounds.limit_milli, term))
    if bounds.limit_bytes is not None:
        term = BoundTerm(f"{tier}-memory limit", bounds.limit_bytes, "bytes")
        found.append(Setting(path, Knob.MEMORY, bounds.limit_bytes, term))
    return found


def next_quota(current_usec: int, wanted_milli: int, capacity_milli: int, period_usec: int) -> int | None:
    """The quota of best-effort pods for the next second; None keeps it. Negative is none.

    A change below a hundredth of the node is ignored, and the quota grows by at most a tenth of the node.
    """
    wanted = max(LEAST_SUPPRESS_USEC, wanted_milli * period_usec // 1000)
    if current_usec < 0:
        return wanted
    capacity = capacity_milli * period_usec // 1000
    if abs(wanted - current_usec) * 100 < capacity:
        return None
    if wanted < current_usec:
        return wanted
    return max(LEAST_SUPPRESS_USEC, min(wanted, current_usec + max(1, capacity // 10)))
