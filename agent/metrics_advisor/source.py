"""The interface between measuring and reading: real machine or simulated node."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

from agent.metric_cache.series import SeriesKey, Usage
from shared.api.core import Pod

__all__ = ["Sample", "Usage", "UsageSource"]

_NO_USAGES: Mapping[str, Usage] = MappingProxyType({})
_NO_READINGS: Mapping[SeriesKey, float] = MappingProxyType({})


class Sample(NamedTuple):
    """One tick. An unreadable value is absent, never zero.

    `pods` are by uid, `containers` by "uid/name". `readings` are the less frequent values
    due at this tick: page cache policies, throttling, pressure, NUMA nodes, load, disk.
    """

    node: Usage
    pods: Mapping[str, Usage]
    containers: Mapping[str, Usage] = _NO_USAGES
    readings: Mapping[SeriesKey, float] = _NO_READINGS


class UsageSource(Protocol):
    """Keeps the counters of the previous tick and turns them into rates, which are never negative or implausible."""

    @property
    def description(self) -> str:
        """How usage is read: "cgroup v2 systemd", "process trees", "simulated"."""
        ...

    def sample(self, pods: Sequence[Pod]) -> Sample | None:
        """Usage since the previous tick; None without one."""
        ...
