"""A container's requests and limits as kernel settings, in the units of cgroups v1 and v2. Pure."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from agent.enforcer.table import (
    FILES,
    LEAST_SHARES,
    MOST_SHARES,
    PERIOD_USEC,
    UNLIMITED,
    Knob,
    quota_usec,
    shares,
    weight,
)
from shared import names, quantity
from shared.api.core import Container


class CgroupLimits(NamedTuple):
    """`cpu_shares` as kubelet computes them; None means unlimited."""

    cpu_shares: int
    cpu_quota_microseconds: int | None = None
    memory_bytes: int | None = None


def of_container(container: Container) -> CgroupLimits:
    """Raises QuantityError."""
    limits = container.resources.limits or {}
    requests = limits | (container.resources.requests or {})
    return CgroupLimits(
        shares(quantity.milli(requests.get(names.CPU, 0))),
        quota_usec(quantity.milli(limits[names.CPU])) if names.CPU in limits else None,
        quantity.whole(limits[names.MEMORY]) if names.MEMORY in limits else None,
    )


def of_pod(containers: Iterable[Container]) -> CgroupLimits:
    """The limits of the pod: the sums over its containers; unlimited if one of them is. Raises QuantityError."""
    each = [of_container(container) for container in containers]
    quotas = [limits.cpu_quota_microseconds for limits in each if limits.cpu_quota_microseconds is not None]
    memory = [limits.memory_bytes for limits in each if limits.memory_bytes is not None]
    return CgroupLimits(
        min(MOST_SHARES, sum(limits.cpu_shares for limits in each) or LEAST_SHARES),
        sum(quotas) if len(quotas) == len(each) > 0 else None,
        sum(memory) if len(memory) == len(each) > 0 else None,
    )


def files(limits: CgroupLimits, *, v2: bool) -> Mapping[str, str]:
    """The files of the cpu and memory controllers, and their values."""
    name_of, quota = FILES[v2], limits.cpu_quota_microseconds
    most = f"{'max' if quota is None else quota} {PERIOD_USEC}" if v2 else str(UNLIMITED if quota is None else quota)
    cpu = {name_of[Knob.WEIGHT]: str(weight(limits.cpu_shares) if v2 else limits.cpu_shares), name_of[Knob.QUOTA]: most}
    return cpu if limits.memory_bytes is None else cpu | {name_of[Knob.MEMORY]: str(limits.memory_bytes)}
