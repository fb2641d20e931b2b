"""How much of Mid is held back, so that the usual change between two reports leaves no more on offer than there is.

Where it is left to learn (`midBuffer: auto`), the share is what the raw offer of this very node has lost from one
report to the next, at the 95th percentile of all such steps; a step that loses nothing counts as none. Up to 20 % are
held back, in steps of half a percent, rounded up. Fewer than 20 steps say nothing. About two hours of reports a
minute are remembered, and what is older fades.

A process that has just begun has seen no steps of nodes that another one has learned about. As long as they say
nothing, it holds back what that one did: the share of the first raw offer that the Node does not show.
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
    """What is held back of an offer, in thousandths, out of how many steps that was learned.

    Out of too few to say anything, it is what was held back before.
    """

    permille: int = 0
    steps: int = 0

    @property
    def source(self) -> str:
        """How that was learned."""
        return _source(self)


@lru_cache(maxsize=4096)
def _source(learned: Share) -> str:
    if learned.steps < LEAST_STEPS:
        nothing_yet = f"midBuffer auto: {learned.steps} steps between reports say nothing yet"
        return f"{nothing_yet}, {learned.permille / 10:g} % were held back before" if learned.permille else nothing_yet
    return (
        f"midBuffer auto: {QUANTILE_PERCENT} % of the last {learned.steps} steps between reports "
        f"lost at most {learned.permille / 10:g} %"
    )


class Learned(NamedTuple):
    """The shares of both resources."""

    cpu: Share = Share()
    memory: Share = Share()


NOTHING_LEARNED = Learned()


class Learner:
    """What one node has shown: how many steps lost how much, in a byte each. Not for use by two threads at once."""

    __slots__ = ("_before", "_cpu", "_last", "_memory", "learned")

    def __init__(self) -> None:
        self._last: Resources | None = None
        self._cpu, self._memory = bytearray(BINS), bytearray(BINS)
        self._before = (0, 0)
        self.learned = NOTHING_LEARNED

    def inherit(self, raw: Resources, shown: Resources) -> None:
        """Takes over what was held back of the raw offer by who wrote what the Node shows."""
        cpu, memory = (min(MOST_PERMILLE, held_permille(*pair)) for pair in zip(raw, shown, strict=True))
        self._before = cpu, memory
        self._conclude()

    def learn(self, raw: Resources) -> None:
        """Takes in what the next report makes of the offer, before anything is held back."""
        last, self._last = self._last, raw
        if last is None:
            return
        count(self._cpu, lost_permille(last.cpu_milli, raw.cpu_milli))
        count(self._memory, lost_permille(last.memory_bytes, raw.memory_bytes))
        self._conclude()

    def interrupt(self) -> None:
        """There was nothing to compare with: the next offer is a new beginning."""
        self._last = None

    def _conclude(self) -> None:
        cpu, memory = self._before
        self.learned = Learned(share(self._cpu, cpu), share(self._memory, memory))


def lost_permille(before: int, after: int) -> int:
    """How much of an offer went, in thousandths, rounded up."""
    return 0 if after >= before or before <= 0 else -(-1000 * (before - after) // before)


def held_permille(raw: int, shown: int) -> int:
    """How much of an offer is not shown, in thousandths, rounded down as what is shown was."""
    return 1000 * (raw - shown) // raw if 0 <= shown < raw else 0


def count(steps: bytearray, permille: int) -> None:
    """Counts one step; when a counter is full all are halved."""
    where = min(BINS - 1, -(-permille // RESOLUTION_PERMILLE))
    if steps[where] == _FULL:
        steps[:] = bytes(each >> 1 for each in steps)
    steps[where] += 1


def share(steps: bytearray, before: int = 0) -> Share:
    """The least share that is enough for the quantile of the steps counted; the one `before` while they are few."""
    seen = sum(steps)
    if seen < LEAST_STEPS:
        return Share(before, seen)
    left = -(-seen * QUANTILE_PERCENT // 100)
    for where, many in enumerate(steps):
        left -= many
        if left <= 0:
            return Share(where * RESOLUTION_PERMILLE, seen)
    raise AssertionError("a share of all is never more than all")
