"""The limits of growth: quotas over the sum of all nodes, and limits of one scale-up.

Quotas are not enforcing: a cluster beyond one stays as it is, and only ever moves towards its bounds ("Node
Auto-provisioning", Configuration). Cores count whole, rounded up per node, as in Cluster Autoscaler.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from shared.api.selectors import LabelSelector
from shared.errors import InvalidInput
from shared.quantity import MILLI_PER_CORE, Amounts

CLUSTER_WIDE = "cluster-wide"
CPU, MEMORY, NODES = "cpu", "memory", "nodes"

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")

DENIED = -1  # limit value: no node at all
UNLIMITED = 0


@dataclass(frozen=True, slots=True)
class ResourceBounds:
    """The bounds of one resource; None where unset."""

    low: int | None = None
    high: int | None = None


@dataclass(frozen=True, slots=True)
class Quota:
    """The remainder of each limited resource: whole cores, bytes, nodes, GPUs.

    The quota covers the nodes that `selector` selects, or all without one.
    """

    name: str
    left: Mapping[str, int]
    selector: LabelSelector | None = None

    def matches(self, labels: Mapping[str, str]) -> bool:
        return self.selector is None or self.selector.matches(labels)


@dataclass(frozen=True, slots=True)
class Exceeded:
    """A quota that does not allow the whole request, and the resources that run short."""

    name: str
    resources: tuple[str, ...]

    def __str__(self) -> str:
        return f'exceeded quota: "{self.name}", resources: {", ".join(self.resources)}'


@dataclass(frozen=True, slots=True)
class Allowance:
    """The number of nodes that may be added, and the quotas that forbid the rest."""

    nodes: int
    exceeded: tuple[Exceeded, ...] = ()


def usage_of(capacity: Amounts, gpus: Mapping[str, int] | None = None) -> dict[str, int]:
    """The usage of a quota by one node; no GPU type is named cpu, memory or nodes."""
    taken = {
        **capacity,
        **(gpus or {}),
        CPU: -(-capacity.get("cpu", 0) // MILLI_PER_CORE),
        MEMORY: capacity.get("memory", 0),
        NODES: 1,
    }
    return {resource: amount for resource, amount in taken.items() if amount}


def remaining_quota(
    name: str,
    most: Mapping[str, int],
    usages: Iterable[Mapping[str, int]],
    selector: LabelSelector | None = None,
) -> Quota:
    """The remainder under these upper limits, given the usage of every node that they cover."""
    used = total_usage(most, usages)
    return Quota(name, {resource: max(0, limit - used[resource]) for resource, limit in most.items()}, selector)


def total_usage(resources: Iterable[str], usages: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The nodes' total usage of these resources."""
    used = dict.fromkeys(resources, 0)
    for usage in usages:
        for resource in used:
            used[resource] += usage.get(resource, 0)
    return used


def cluster_wide(bounds: Mapping[str, ResourceBounds], usages: Iterable[Mapping[str, int]]) -> Quota:
    """The remainder under the cluster's upper bounds, given the usage of every node."""
    most = {resource: bound.high for resource, bound in bounds.items() if bound.high is not None}
    return remaining_quota(CLUSTER_WIDE, most, usages)


def check_quotas(quotas: Iterable[Quota], usage: Mapping[str, int], node_count: int) -> Allowance:
    """The number of nodes, up to `node_count` of this `usage` each, that all quotas allow.

    Raises ValueError for a negative count.
    """
    if node_count < 0:
        raise ValueError(f"a number of nodes to add is not negative: {node_count}")
    allowed = node_count
    exceeded: list[Exceeded] = []
    for quota in quotas:
        short = tuple(
            resource
            for resource, left in quota.left.items()
            if usage.get(resource, 0) > 0 and left < usage[resource] * node_count
        )
        if short:
            exceeded.append(Exceeded(quota.name, short))
            allowed = min(allowed, *(quota.left[resource] // usage[resource] for resource in short))
    return Allowance(allowed, tuple(exceeded))


def consume_quotas(quotas: Sequence[Quota], usage: Mapping[str, int], node_count: int) -> tuple[Allowance, list[Quota]]:
    """The allowance, and the quotas after these nodes; the quotas stay unchanged unless all nodes fit."""
    allowance = check_quotas(quotas, usage, node_count)
    if allowance.exceeded:
        return allowance, list(quotas)
    return allowance, [
        replace(
            quota,
            left={resource: left - usage.get(resource, 0) * node_count for resource, left in quota.left.items()},
        )
        for quota in quotas
    ]


def parse_gpu_total(text: str) -> tuple[str, ResourceBounds]:
    """A `--gpu-total` flag, "<type>:<min>:<max>". Raises InvalidInput."""

    def refused(problem: str) -> InvalidInput:
        return InvalidInput(source="flags", field="gpu-total", value=text, problem=problem)

    parts = text.split(":")
    if len(parts) != 3:
        raise refused(f"incorrect gpu limit specification: {text}")
    if not parts[0] or parts[0] in (CPU, MEMORY, NODES):
        raise refused(f"incorrect gpu limit - {parts[0]!r} is no type of GPU: {text}")
    values = dict[str, int]()
    for name, part in zip(("min", "max"), parts[1:], strict=True):
        if not _INTEGER.fullmatch(part):
            raise refused(f"incorrect gpu limit - {name} is not integer: {text}")
        values[name] = int(part)
    for name, value in values.items():
        if value < 0:
            raise refused(f"incorrect gpu limit - {name} is less than 0; {text}")
    if values["min"] > values["max"]:
        raise refused(f"incorrect gpu limit - min is greater than max; {text}")
    return parts[0], ResourceBounds(values["min"], values["max"])


def lowest_limit(first: int, second: int) -> int:
    """The stricter of two limits, where 0 means unlimited and a negative value denies all."""
    if first < 0 or second < 0:
        return DENIED
    return min(first, second) if first and second else first or second


def group_capacity(sizes: Iterable[tuple[int, int]]) -> int:
    """The number of nodes that the groups can still take, from (max, target) of each; DENIED if none."""
    room = sum(max(0, most - target) for most, target in sizes)
    return room or DENIED
