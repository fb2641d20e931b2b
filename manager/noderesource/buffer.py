"""How much of Mid is held back, so that the usual change between two reports leaves no more on offer than there is.

Where it is left to learn (`midBuffer: auto`), the share is what the raw offer of this very node has lost from one
report to the next, at the 95th percentile of all such steps; a step that loses nothing counts as none. Up to 20 % are
held back, in steps of half a percent, rounded up. Fewer than 20 steps say nothing. About two hours of reports a
minute are remembered, and what is older fades.
"""

from functools import lru_cache
from typing import NamedTuple

from shared.quantity import Resources

QUANTILE_PERCENT = 95
LEAST_STEPS = 20
RESOLUTION_PERMILLE = 5
MOST_PERMILLE = 200

BINS = MOST_PERMILLE // RESOLUTION_PERMILLE + 1  # the first for steps that lose nothing, the last for all beyond
_FULL = 255


class Share(NamedTuple):
    """What is held back of an offer, in thousandths, out of how many steps that was learned."""

    permille: int = 0
    steps: int = 0

    @property
    def source(self) -> str:
        """How that was learned."""
        return _source(self)


@lru_cache(maxsize=4096)
def _source(learned: Share) -> str:
    if learned.steps < LEAST_STEPS:
        return f"midBuffer auto: {learned.steps} steps between reports say nothing yet"
    return (
        f"midBuffer auto: {QUANTILE_PERCENT} % of the last {learned.steps} steps between reports "
        f"lost at most {learned.permille / 10:g} %"
    )


class Learned(NamedTuple):
    """The shares of both resources."""

    cpu: Share = Share()
    memory: Share = Share()


class Learner:
    """What one node has shown: how many steps lost how much, in a byte each. Not for use by two threads at once."""

    __slots__ = ("_cpu", "_last", "_memory", "learned")

    def __init__(self) -> None:
        self._last: Resources | None = None
        self._cpu, self._memory = bytearray(BINS), bytearray(BINS)
        self.learned = Learned()

    def learn(self, raw: Resources) -> None:
        """Takes in what the next report makes of the offer, before anything is held back."""
        last, self._last = self._last, raw
        if last is None:
            return
        count(self._cpu, lost_permille(last.cpu_milli, raw.cpu_milli))
        count(self._memory, lost_permille(last.memory_bytes, raw.memory_bytes))
        self.learned = Learned(share(self._cpu), share(self._memory))

    def interrupt(self) -> None:
        """There was nothing to compare with: the next offer is a new beginning."""
        self._last = None


def lost_permille(before: int, after: int) -> int:
    """How much of an offer went, in thousandths, rounded up."""
    return 0 if after >= before or before <= 0 else -(-1000 * (before - after) // before)


def count(steps: bytearray, permille: int) -> None:
    """Counts one step; when a counter is full all are halved."""
    where = min(BINS - 1, -(-permille // RESOLUTION_PERMILLE))
    if steps[where] == _FULL:
        steps[:] = bytes(each >> 1 for each in steps)
    steps[where] += 1


def share(steps: bytearray) -> Share:
    """The least share that is enough for the quantile of the steps counted."""
    seen = sum(steps)
    if seen < LEAST_STEPS:
        return Share(0, seen)
    left = -(-seen * QUANTILE_PERCENT // 100)
    for where, many in enumerate(steps):
        left -= many
        if left <= 0:
            return Share(where * RESOLUTION_PERMILLE, seen)
    raise AssertionError("a share of all is never more than all")
