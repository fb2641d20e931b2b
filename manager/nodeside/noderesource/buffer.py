"""The share of Mid that the buffer holds back, so that the usual change between two reports does not cause an
overcommitment.

With `midBuffer: auto`, the share is the 95th percentile of the losses of this node's raw offer from one report to the
next; a step without a loss counts as 0. At most 20 % are held back, in steps of half a percent, rounded up. Fewer than
20 steps give no share. About two hours of reports, one per minute, are remembered, and older ones fade.

A new process has not seen the steps that another one learned from. Until it has enough, it holds back what that one
did: the share of the first raw offer that the Node does not show.
"""

from functools import lru_cache
from typing import NamedTuple

from shared.quantity import Resources

QUANTILE_PERCENT = 95
LEAST_STEPS = 20
RESOLUTION_PERMILLE = 5
MOST_PERMILLE = 200

BINS = MOST_PERMILLE // RESOLUTION_PERMILLE + 1  # the first for steps without a loss, the last for all larger ones
_FULL = 255


class Share(NamedTuple):
    """The share of an offer that is held back, in thousandths, and the number of steps behind it.

    With too few steps it is the previous share.
    """

    permille: int = 0
    steps: int = 0

    @property
    def source(self) -> str:
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
    """The losses that one node has shown, as one-byte counters per size. Not safe for two threads at once."""

    __slots__ = ("_before", "_cpu", "_last", "_memory", "learned")

    def __init__(self) -> None:
        self._last: Resources | None = None
        self._cpu, self._memory = bytearray(BINS), bytearray(BINS)
        self._before = (0, 0)
        self.learned = NOTHING_LEARNED

    def inherit(self, raw: Resources, shown: Resources) -> None:
        """Takes over the share that the previous writer of the Node held back of the raw offer."""
        cpu, memory = (min(MOST_PERMILLE, held_permille(*pair)) for pair in zip(raw, shown, strict=True))
        self._before = cpu, memory
        self._conclude()

    def learn(self, raw: Resources) -> None:
        """Takes in the raw offer of the next report."""
        last, self._last = self._last, raw
        if last is None:
            return
        count(self._cpu, lost_permille(last.cpu_milli, raw.cpu_milli))
        count(self._memory, lost_permille(last.memory_bytes, raw.memory_bytes))
        self._conclude()

    def interrupt(self) -> None:
        """Without a comparison, the next offer is a new start."""
        self._last = None

    def _conclude(self) -> None:
        cpu, memory = self._before
        self.learned = Learned(share(self._cpu, cpu), share(self._memory, memory))


def lost_permille(before: int, after: int) -> int:
    """The loss of an offer, in thousandths, rounded up."""
    return 0 if after >= before or before <= 0 else -(-1000 * (before - after) // before)


def held_permille(raw: int, shown: int) -> int:
    """The share of an offer that is not shown, in thousandths, rounded down like the shown amount."""
    return 1000 * (raw - shown) // raw if 0 <= shown < raw else 0


def count(steps: bytearray, permille: int) -> None:
    """Counts one step; when a counter is full, all are halved."""
    where = min(BINS - 1, -(-permille // RESOLUTION_PERMILLE))
    if steps[where] == _FULL:
        steps[:] = bytes(each >> 1 for each in steps)
    steps[where] += 1


def share(steps: bytearray, before: int = 0) -> Share:
    """The smallest share that covers the quantile of the counted steps; with too few steps the one `before`."""
    seen = sum(steps)
    if seen < LEAST_STEPS:
        return Share(before, seen)
    left = -(-seen * QUANTILE_PERCENT // 100)
    for where, many in enumerate(steps):
        left -= many
        if left <= 0:
            return Share(where * RESOLUTION_PERMILLE, seen)
    raise AssertionError("a share of all is never more than all")
