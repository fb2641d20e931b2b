"""When the colder values are read: each at its own pace, their turns spread evenly over the ticks."""

import itertools

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
