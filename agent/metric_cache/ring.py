"""Samples of many series at one sample a slot, in memory that is written in order and never moved.

A row is a slot of time, a column is a series; timestamps are implied by the row. Columns come in blocks, each a
separate array, so that series are added and dropped without a copy. A row records its slot, and a column the slot since
which its owner has it: other values read as NaN. A row gets its stamp after its values and a column its name before its
use, so a process killed at any point leaves either a complete row or a hole.
"""

import math
import struct
import zlib
from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from agent.metric_cache.ring_file import BLOCK_COLUMNS, STAMP_KEY, Block, Samples
from agent.metric_cache.series import Kind, Metric, SeriesKey
from agent.metric_cache.storage import Storage

Columns: TypeAlias = NDArray[np.intp]
Slots: TypeAlias = NDArray[np.int64]

NEVER = -1
_FREE = np.iinfo(np.int64).max  # the last write of a column without an owner, so that it is never the oldest
WRITE_BACK_SECONDS = 60  # the kernel writes a page back within this time; its own defaults give 35
# A series without a sample for this long, or for a whole row, yields its column when no other is free
SILENT_SECONDS = 60

_RECORD = struct.Struct("<IqH")  # CRC-32 of the rest, first slot, bytes of the name; then the name
_CHECKED_FROM = 4


class Ring:
    """Holds the last `rows` slots. Not thread-safe; the owner serialises access."""

    def __init__(self, storage: Storage) -> None:
        self.rows = storage.geometry.rows
        self.step_seconds = storage.geometry.step_seconds
        self.columns: dict[SeriesKey, int] = {}
        self.releases = 0  # the number of column releases; columns resolved before the last one may be wrong
        self.refused: set[SeriesKey] = set()  # series that got no column since the owner last cleared this
        self._silent_rows = math.ceil(SILENT_SECONDS / self.step_seconds)
        self._storage = storage
        self._free: list[int] = []
        self._since = np.empty(0, np.int64)
        self._written = np.empty(0, np.int64)
        self._full = False
        self._retry_at = NEVER
        self.last = self._restore_stamps()
        for number, block in enumerate(storage.blocks):
            self._restore_names(number, block)

    @property
    def capacity(self) -> int:
        """The number of columns, used and unused."""
        return len(self._since)

    @property
    def first(self) -> int:
        """The oldest slot, `NEVER` without any."""
        held = self._storage.stamps[:, 0]
        return int(held[held > max(NEVER, self.last - self.rows)].min(initial=self.last))

    def claim(self, key: SeriesKey) -> int | None:
        """The column of `key`, which gets one if it has none; None when the ring is full."""
        column = self.columns.get(key)
        if column is not None:
            if self._full:
                # The caller is about to write, so the next caller must not take this column.
                self._written[column] = max(self._written[column], self.last + 1 - self._silent_rows)
            return column
        if not self._free and not self._make_room():
            self.refused.add(key)
            return None
        column = self.columns[key] = self._free.pop()
        self._since[column] = self._written[column] = self.last + 1
        self._name(column, key)
        return column

    def release(self, keys: Iterable[SeriesKey]) -> None:
        """Drops series and frees their columns."""
        for key in keys:
            column = self.columns.pop(key)
            self._written[column] = _FREE
            self._unname(column)
            self._free.append(column)
            self.releases += 1

    def expire(self) -> None:
        """Drops the series that have no sample left."""
        oldest = self.last - self.rows
        if self._written.min(initial=_FREE) <= oldest:
            self.release([key for key, column in self.columns.items() if self._written[column] <= oldest])

    def blank(self) -> Samples:
        """An empty row of shape (planes, columns), to be filled and appended."""
        return np.full((self._storage.geometry.planes, self.capacity), np.nan, np.float32)

    def append(self, slot: int, values: Samples) -> None:
        """Writes one slot of all columns, NaN where a series has no value.

        Slots may be skipped, and a slot written twice keeps the later values; ValueError for an earlier slot.
        """
        if slot < self.last:
            raise ValueError(f"slot {slot} is before the last one, {self.last}")
        row = slot % self.rows
        stamp = self._storage.stamps[row]
        stamp[:] = NEVER
        np.copyto(values, np.nan, where=np.isinf(values))
        for number, block in enumerate(self._storage.blocks):
            block.data[row] = values[:, number * BLOCK_COLUMNS : (number + 1) * BLOCK_COLUMNS]
        stamp[:] = slot, slot ^ STAMP_KEY
        np.copyto(self._written, slot, where=~np.isnan(values[0]))
        self.last = slot

    def reach(self, first: int, last: int) -> tuple[int, int]:
        """`first` and `last`, limited to what the ring can hold."""
        return max(first, self.last - self.rows + 1, 0), min(last, self.last)

    def held(self, first: int, last: int) -> Slots:
        """The existing slots from `first` to `last`, both included, in order."""
        first, last = self.reach(first, last)
        wanted = np.arange(first, last + 1, dtype=np.int64)
        held: Slots = wanted[self._storage.stamps[wanted % self.rows, 0] == wanted]
        return held

    def read(self, slots: Slots, columns: Columns, plane: int = 0) -> Samples:
        """The samples of existing slots, as a copy of shape (slots, columns); NaN where a series has no value."""
        rows = slots % self.rows
        if len(columns) == 1:  # copying most of a block for one column would be a waste
            block, column = divmod(int(columns[0]), BLOCK_COLUMNS)
            samples: Samples = self._storage.blocks[block].data[rows, plane, column][:, np.newaxis]
        else:
            samples = self._gather(rows, columns, plane)
        since = self._since[columns]
        if samples.size and since.max() > slots[0]:
            samples[slots[:, np.newaxis] < since] = np.nan
        return samples

    def relinquish(self) -> None:
        self._storage.relinquish()

    def _gather(self, rows: Slots, columns: Columns, plane: int) -> Samples:
        needed, position = np.unique(columns // BLOCK_COLUMNS, return_inverse=True)
        whole = np.empty((len(rows), len(needed) * BLOCK_COLUMNS), np.float32)
        for place, block in enumerate(needed.tolist()):
            data = self._storage.blocks[block].data
            whole[:, place * BLOCK_COLUMNS : (place + 1) * BLOCK_COLUMNS] = data[rows, plane]
        gathered: Samples = whole.take(position * BLOCK_COLUMNS + columns % BLOCK_COLUMNS, axis=1)
        return gathered

    def _make_room(self) -> bool:
        if self._full and self.last < self._retry_at:
            return False
        first = self.capacity
        if self._storage.extend():
            self._add_columns()
            self._free.extend(range(first + BLOCK_COLUMNS - 1, first - 1, -1))
            return True
        self._full = True
        silent = int(self._written.argmin()) if self.columns else NEVER
        if silent == NEVER or self._written[silent] > self.last - self._silent_rows:
            self._retry_at = self.last + self._silent_rows
            return False
        self.release([next(key for key, column in self.columns.items() if column == silent)])
        return True

    def _add_columns(self) -> None:
        self._since = np.append(self._since, np.full(BLOCK_COLUMNS, NEVER, np.int64))
        self._written = np.append(self._written, np.full(BLOCK_COLUMNS, _FREE, np.int64))

    def _name(self, column: int, key: SeriesKey) -> None:
        """Only this process knows a name that is too long for its record."""
        record = self._record(column)
        if record is None:
            return
        name = "\0".join(key).encode("utf-8", "surrogatepass")
        if _RECORD.size + len(name) > len(record):
            record[:] = 0
            return
        content = bytearray(_RECORD.pack(0, self._since[column], len(name)) + name)
        content[:_CHECKED_FROM] = zlib.crc32(content[_CHECKED_FROM:]).to_bytes(_CHECKED_FROM, "little")
        record[: len(content)] = content

    def _unname(self, column: int) -> None:
        record = self._record(column)
        if record is not None:
            record[: _RECORD.size] = 0

    def _record(self, column: int) -> NDArray[np.uint8] | None:
        block, place = divmod(column, BLOCK_COLUMNS)
        records = self._storage.blocks[block].records
        return None if records is None else records[place]

    def _restore_stamps(self) -> int:
        """The last slot; wipes invalid stamps."""
        stamps = self._storage.stamps
        slots = stamps[:, 0]
        good = (slots >= 0) & (slots ^ STAMP_KEY == stamps[:, 1]) & (slots % self.rows == np.arange(self.rows))
        last = int(slots[good].max(initial=NEVER))
        good &= slots > last - self.rows
        if self._storage.rebooted:
            # The kernel writes pages back in any order: a stamp may be on disk without its row.
            good &= slots <= last - math.ceil(WRITE_BACK_SECONDS / self.step_seconds)
            last = int(slots[good].max(initial=NEVER))
        stamps[~good] = NEVER
        self._storage.opened()
        return last

    def _restore_names(self, number: int, block: Block) -> None:
        self._add_columns()
        assert block.records is not None
        for place, record in enumerate(block.records):
            column = number * BLOCK_COLUMNS + place
            found = _decoded(record.tobytes())
            if found is None or found[0] in self.columns:
                self._free.append(column)
                continue
            key, self._since[column] = found
            self._written[column] = self.last  # the exact slot would require reading everything
            self.columns[key] = column


def _decoded(record: bytes) -> tuple[SeriesKey, int] | None:
    checksum, since, length = _RECORD.unpack_from(record)
    end = _RECORD.size + length
    if not length or end > len(record) or zlib.crc32(record[_CHECKED_FROM:end]) != checksum:
        return None
    try:
        kind, _, rest = record[_RECORD.size : end].decode("utf-8", "surrogatepass").partition("\0")
        entity, _, metric = rest.rpartition("\0")
        return SeriesKey(Kind(kind), entity, Metric(metric)), since
    except ValueError:  # written by a version with other metrics
        return None
