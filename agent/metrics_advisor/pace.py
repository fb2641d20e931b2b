"""When the less frequent values are read: each at its own pace, with turns spread evenly over the ticks."""

import itertools
from collections.abc import Sequence

import numpy as np

_GOLDEN = 0.6180339887498949  # its multiples, taken modulo 1, spread evenly
_turns = itertools.count()


class Pace:
    """The turns of one reader, `seconds` apart on a clock that never goes back; readers created together take turns."""

    __slots__ = ("_seconds", "due_at")

    def __init__(self, seconds: float, now: float) -> None:
        self._seconds = seconds
        self.due_at = now + next(_turns) * _GOLDEN % 1 * seconds

    def due(self, now: float) -> bool:
        """Whether a turn is due. Missed turns are dropped; the next ones stay equally spread."""
        late = now - self.due_at
        if late < 0:
            return False
        self.due_at += (late // self._seconds + 1) * self._seconds
        return True


class Turns:
    """Many paces as one, so that only due ones cost time. No other caller may use them."""

    def __init__(self, paces: Sequence[Pace]) -> None:
        self._paces = paces
        self._due_at = np.array([pace.due_at for pace in paces], np.float64)

    def due(self, now: float) -> list[int]:
        """The places of the due paces."""
        places: list[int] = np.flatnonzero(self._due_at <= now).tolist()
        for place in places:
            pace = self._paces[place]
            pace.due(now)
            self._due_at[place] = pace.due_at
        return places
