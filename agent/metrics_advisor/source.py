"""The seam between what is measured and where it is read: real machine or simulated node."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from agent.metric_cache.series import Usage
from shared.api.core import Pod

__all__ = ["Sample", "Usage", "UsageSource"]


class Sample(NamedTuple):
    """One tick. A pod (by uid) whose usage could not be read is absent, never zero."""

    node: Usage
    pods: Mapping[str, Usage]


class UsageSource(Protocol):
    """Holds the counters of the tick before and turns them into rates, which are never negative or absurd."""

    @property
    def description(self) -> str:
        """How usage is read: "cgroup v2 systemd", "process trees", "simulated"."""
        ...

    def sample(self, pods: Sequence[Pod]) -> Sample | None:
        """Usage since the tick before; None when there is nothing to compare with yet."""
        ...
