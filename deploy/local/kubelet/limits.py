"""A container's requests and limits as kernel settings, in the units of cgroups v1 and v2. Pure."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from shared import names, quantity
from shared.api.core import Container

CFS_PERIOD_MICROSECONDS = 100_000
MIN_QUOTA_MICROSECONDS = 1000
MIN_SHARES = 2
MAX_SHARES = 262_144


class Limits(NamedTuple):
    """`cpu_shares` as kubelet computes them; None means unlimited."""

    cpu_shares: int
    cpu_quota_microseconds: int | None = None
    memory_bytes: int | None = None


def of_container(container: Container) -> Limits:
    """Raises QuantityError."""
    limits = container.resources.limits or {}
    requests = limits | (container.resources.requests or {})
    return Limits(
        _shares(quantity.milli(requests.get(names.CPU, 0))),
        _quota(quantity.milli(limits[names.CPU])) if names.CPU in limits else None,
        quantity.whole(limits[names.MEMORY]) if names.MEMORY in limits else None,
    )


def of_pod(containers: Iterable[Container]) -> Limits:
    """The limits of the pod: the sums over its containers; unlimited if one of them is. Raises QuantityError."""
    each = [of_container(container) for container in containers]
    quotas = [limits.cpu_quota_microseconds for limits in each if limits.cpu_quota_microseconds is not None]
    memory = [limits.memory_bytes for limits in each if limits.memory_bytes is not None]
    return Limits(
        min(MAX_SHARES, sum(limits.cpu_shares for limits in each) or MIN_SHARES),
        sum(quotas) if len(quotas) == len(each) > 0 else None,
        sum(memory) if len(memory) == len(each) > 0 else None,
    )


def cpu_files(limits: Limits, *, v2: bool) -> Mapping[str, str]:
    """The files of the cpu controller and their values."""
    quota = limits.cpu_quota_microseconds
    if v2:
        cpu_max = f"{'max' if quota is None else quota} {CFS_PERIOD_MICROSECONDS}"
        return {"cpu.weight": str(_weight(limits.cpu_shares)), "cpu.max": cpu_max}
    return {"cpu.shares": str(limits.cpu_shares), "cpu.cfs_quota_us": str(-1 if quota is None else quota)}


def memory_files(limits: Limits, *, v2: bool) -> Mapping[str, str]:
    """The files of the memory controller and their values."""
    if limits.memory_bytes is None:
        return {}
    return {"memory.max" if v2 else "memory.limit_in_bytes": str(limits.memory_bytes)}


def _shares(cpu_milli: int) -> int:
    return max(MIN_SHARES, min(MAX_SHARES, cpu_milli * 1024 // 1000))


def _quota(cpu_milli: int) -> int:
    return max(MIN_QUOTA_MICROSECONDS, cpu_milli * CFS_PERIOD_MICROSECONDS // 1000)


def _weight(shares: int) -> int:
    """KEP-2254's mapping from v1 shares 2..262144 to v2 weights 1..10000."""
    return 1 + (shares - MIN_SHARES) * 9999 // (MAX_SHARES - MIN_SHARES)
