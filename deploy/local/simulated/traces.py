"""Recorded usage from a csv file, plain or gzipped, told apart by its header.

- one column per machine after a time column ("ts,vm001,vm002,...")
- one row per machine and day, in percent every five minutes, as PlanetLab's ("day,vm,s000,s001,...")
- one row per sample ("series,ts,value")

Units differ from trace to trace, so each series is scaled: percent by 100, everything else by its own highest value.
An empty cell is a sample that was not taken; the line between its neighbours stands in for it.
"""

import gzip
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from shared.errors import InvalidInput

PLANETLAB_STEP_SECONDS = 300.0
PERCENT = 100.0
_TIME_COLUMNS = frozenset({"t", "ts", "time", "timestamp"})

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Series:
    """One machine: shares of its peak (or of 100 %) at times from 0."""

    seconds: Floats
    shares: Floats

    def at(self, seconds: float) -> float:
        """The share at that time, on the line between two samples; after its end it starts anew."""
        length = float(self.seconds[-1])
        return float(np.interp(seconds % length if length > 0 else 0.0, self.seconds, self.shares))


@dataclass(frozen=True)
class _Row:
    number: int
    cells: Sequence[str]


def load(path: Path) -> list[Series]:
    """Every series with at least two samples. Raises InvalidInput naming the file, line and column."""
    try:
        with _opened(path) as file:
            rows = (_Row(number, line.rstrip("\r\n").split(",")) for number, line in enumerate(file, 1) if line.strip())
            found = [series for series in _series(path, rows) if len(series.seconds) > 1]
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InvalidInput(source="--trace", field="file", value=str(path), problem=str(error)) from error
    if not found:
        raise InvalidInput(source=str(path), field="(document)", value="", problem="no series with two samples in it")
    return found


def _opened(path: Path) -> TextIO:
    return gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8")


def _series(path: Path, rows: Iterator[_Row]) -> Iterable[Series]:
    header = next(rows, _Row(1, ()))
    names = [name.strip().lower() for name in header.cells]
    if names[:2] == ["day", "vm"] and len(names) > 3:
        return _planetlab(path, rows, header)
    if names == ["series", "ts", "value"]:
        return _long(path, rows, header)
    if len(names) > 1 and names[0] in _TIME_COLUMNS:
        return _wide(path, rows, header)
    raise InvalidInput(
        source=str(path),
        field="line 1",
        value=",".join(header.cells),
        problem="not the header of a trace (expected 'ts,NAME,...', 'day,vm,s000,...' or 'series,ts,value')",
    )


def _wide(path: Path, rows: Iterator[_Row], header: _Row) -> Iterator[Series]:
    table = np.array([_numbers(path, row, header, first=0) for row in rows], dtype=np.float64)
    if not table.size:
        return
    for column in range(1, table.shape[1]):
        yield _scaled(table[:, 0], table[:, column])


def _planetlab(path: Path, rows: Iterator[_Row], header: _Row) -> Iterator[Series]:
    for row in rows:
        values = np.array(_numbers(path, row, header, first=2))
        yield _scaled(np.arange(len(values), dtype=np.float64) * PLANETLAB_STEP_SECONDS, values, full=PERCENT)


def _long(path: Path, rows: Iterator[_Row], header: _Row) -> Iterator[Series]:
    samples: defaultdict[str, list[list[float]]] = defaultdict(list)
    for row in rows:
        samples[row.cells[0]].append(_numbers(path, row, header, first=1))
    for pairs in samples.values():
        table = np.array(pairs)
        yield _scaled(table[:, 0], table[:, 1])


def _scaled(seconds: Floats, values: Floats, full: float | None = None) -> Series:
    """Without the samples that were not taken, from time 0, in shares of `full` or of the highest value."""
    taken = ~np.isnan(values) & ~np.isnan(seconds)
    seconds, values = seconds[taken], values[taken]
    if not len(values):
        return Series(seconds, values)
    order = np.argsort(seconds, kind="stable")
    peak = full or float(values.max()) or 1.0
    return Series(seconds[order] - seconds.min(), np.clip(values[order] / peak, 0.0, 1.0))


def _numbers(path: Path, row: _Row, header: _Row, *, first: int) -> list[float]:
    """The row's cells from column `first`, NaN where one is empty."""
    if len(row.cells) != len(header.cells):
        problem = f"{len(row.cells)} columns, where the header has {len(header.cells)}"
        raise InvalidInput(source=str(path), field=f"line {row.number}", value=",".join(row.cells), problem=problem)
    try:
        return [float(cell) if cell else np.nan for cell in row.cells[first:]]
    except ValueError:
        column = next(index for index in range(first, len(row.cells)) if not _is_number(row.cells[index]))
        raise InvalidInput(
            source=str(path),
            field=f"line {row.number}, column {header.cells[column]}",
            value=row.cells[column],
            problem="not a number",
        ) from None


def _is_number(text: str) -> bool:
    try:
        float(text or "nan")
    except ValueError:
        return False
    return True
