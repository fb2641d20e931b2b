"""When the colder values are read: each at its own pace, their turns spread evenly over the ticks."""

import itertools
from collections.abc import Sequence

import numpy as np

_GOLDEN = 0.6180339887498949  # its multiples, taken modulo 1, never crowd
_turns = itertools.count()


class Pace:
    """The turns of one reader, `seconds` apart on a clock that never goes back; readers made together take turns."""

    __slots__ = ("_seconds", "due_at")

    def __init__(self, seconds: float, now: float) -> None:
        self._seconds = seconds
        self.due_at = now + next(_turns) * _GOLDEN % 1 * seconds

    def due(self, now: float) -> bool:
        """Whether a turn has come. Turns missed meanwhile are dropped; the next ones stay as spread as they were."""
        late = now - self.due_at
        if late < 0:
            return False
        self.due_at += (late // self._seconds + 1) * self._seconds
        return True


class Turns:
    """Many paces looked at as one, so that only those whose turn has come are touched. Nobody else may ask them."""

    def __init__(self, paces: Sequence[Pace]) -> None:
        self._paces = paces
        self._due_at = np.array([pace.due_at for pace in paces], np.float64)

    def due(self, now: float) -> list[int]:
        """The places of those whose turn has come."""
        places: list[int] = np.flatnonzero(self._due_at <= now).tolist()
        for place in places:
            pace = self._paces[place]
            pace.due(now)
            self._due_at[place] = pace.due_at
        return places
