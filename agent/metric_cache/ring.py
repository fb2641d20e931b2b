"""Samples of many series at one sample a second, in memory that is written in order and never moved.

A row is a second, a column is a series; timestamps are implied by the row. Columns come in blocks, each one array of
its own, so that series come and go without a copy, and so that a block can be a part of a mapped file. A row says
which second it holds and a column since when it is its owner's: whatever does not belong to both reads as NaN.
"""

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float32]

BLOCK_COLUMNS = 256
_NEVER = -1


class Ring:
    """Holds the last `seconds` seconds. Not thread-safe; its owner serialises."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds
        self.last_second = _NEVER
        self._held = np.full(seconds, _NEVER, np.int64)
        self._blocks: list[Samples] = []
        self._since = np.empty(0, np.int64)

    @property
    def columns(self) -> int:
        """How many columns there are, in use or not."""
        return len(self._since)

    @property
    def memory_bytes(self) -> int:
        """What the samples and their seconds take, all columns filled."""
        return self._held.nbytes + sum(block.nbytes for block in self._blocks)

    def extend(self) -> None:
        """Adds a block of columns."""
        self._blocks.append(np.empty((self.seconds, BLOCK_COLUMNS), np.float32))
        self._since = np.append(self._since, np.full(BLOCK_COLUMNS, self.last_second + 1, np.int64))

    def claim(self, columns: slice) -> None:
        """Gives columns to a new owner, to whom what they hold so far is unknown."""
        self._since[columns] = self.last_second + 1

    def append(self, second: int, values: Samples) -> None:
        """Writes one second of all columns, NaN where a series has no value.

        Seconds may be skipped, and a second written twice keeps the later values; ValueError for one gone by.
        """
        if second < self.last_second:
            raise ValueError(f"second {second} is before the last one, {self.last_second}")
        row = second % self.seconds
        for number, block in enumerate(self._blocks):
            block[row] = values[number * BLOCK_COLUMNS : (number + 1) * BLOCK_COLUMNS]
        self._held[row] = second
        self.last_second = second

    def window(self, seconds: int, until: int | None = None) -> Samples:
        """The rows of the `seconds` seconds up to and including `until` (default: the last one written).

        Oldest first, as a copy; seconds not held are left out. Shape (at most `seconds`, columns), NaN where a series
        has no value.
        """
        end = (self.last_second if until is None else until) + 1
        wanted = np.arange(end - min(seconds, self.seconds), end)
        wanted = wanted[(wanted >= 0) & (self._held[wanted % self.seconds] == wanted)]
        if not self._blocks:
            return np.empty((len(wanted), 0), np.float32)
        rows = wanted % self.seconds
        samples = np.concatenate([block[rows] for block in self._blocks], axis=1)
        if len(wanted) and self._since.max() > wanted[0]:
            samples[wanted[:, np.newaxis] < self._since] = np.nan
        return samples
