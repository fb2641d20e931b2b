"""Reads usage and requests from CSV (also gzip'd) and Parquet files, wide or long.

Wide: a column of times, and a column for each series. Long: a row for each sample, with columns for time, series and
value, and perhaps for the node. Times are Unix seconds or RFC 3339. An empty field is no sample.
"""

import array
import csv
import datetime as dt
import gzip
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from agent.predict_server.decay import Floats
from deploy.backtest.samples import UNITS, Samples, Unit, unit_named
from shared.errors import InvalidInput

TIMES = ("ts", "t", "time", "timestamp")
SERIES = ("series", "pod", "vm", "container", "machine")
NODE = "node"

Row: TypeAlias = Sequence[object]


class Table(NamedTuple):
    """A header, and rows with as many fields; the first row is on line 2."""

    source: str
    header: tuple[str, ...]
    rows: Iterable[Row]

    def lines(self) -> Iterator[tuple[int, Row]]:
        """The rows with their line numbers. Raises InvalidInput for a row whose fields do not match the header."""
        for line, row in enumerate(self.rows, 2):
            if len(row) != len(self.header):
                raise self.invalid(line, "(all)", len(row), f"expected {len(self.header)} fields")
            yield line, row

    def invalid(self, line: int, column: str, value: object, problem: str) -> InvalidInput:
        return InvalidInput(source=self.source, field=f"line {line}, column {column}", value=value, problem=problem)


@contextmanager
def opened(path: Path) -> Iterator[Table]:
    """The table in a file. Raises InvalidInput for an unreadable file."""
    try:
        if path.suffix == ".parquet":
            yield _parquet(path)
            return
        with (
            gzip.open(path, "rt", encoding="utf-8", newline="")
            if path.suffix == ".gz"
            else path.open(encoding="utf-8", newline="") as file
        ):
            rows = csv.reader(file)
            header = tuple(next(rows, ()))
            if len(header) < 2 or len(set(header)) < len(header):
                problem = "expected a header of two or more columns with different names"
                raise InvalidInput(source=path.name, field="line 1", value=",".join(header), problem=problem)
            yield Table(path.name, header, rows)
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(source=path.name, field="file", value=str(path), problem=str(error)) from error


def _parquet(path: Path) -> Table:
    try:
        import polars  # in the extra `backtest`
    except ImportError as error:
        problem = "Parquet needs polars: pip install 'headroom-k8s[backtest]'"
        raise InvalidInput(source=path.name, field="file", value=str(path), problem=problem) from error
    try:
        frame = polars.read_parquet(path)
    except polars.exceptions.PolarsError as error:
        raise InvalidInput(source=path.name, field="file", value=str(path), problem=str(error)) from error
    return Table(path.name, tuple(frame.columns), frame.iter_rows())


def samples(path: Path, unit: str = "", aggregate: str = "") -> Samples:
    """The samples in a file; `unit` is one of UNITS, or empty if the name of the column or file says it. Of a file that
    has several aggregates of each interval those of `aggregate` are taken, the maxima if it is empty.
    """
    with opened(path) as table:
        header = [column.lower() for column in table.header]
        time = next((place for place, column in enumerate(header) if column in TIMES), None)
        if time is None:
            raise table.invalid(1, "time", ",".join(table.header[:6]), f"no column of times ({', '.join(TIMES)})")
        series = next((place for place, column in enumerate(header) if column in SERIES), None)
        if series is None:
            return _wide(table, time, _unit(table, unit, path.name.split(".")[0]))
        return _long(table, time, series, unit, path, aggregate)


def _unit(table: Table, told: str, name: str) -> Unit:
    found = UNITS[told] if told else unit_named(name)
    if found is None:
        problem = f"what it counts is not known; name it with --unit ({', '.join(UNITS)}), or end the name with one"
        raise InvalidInput(source=table.source, field="unit", value=name, problem=problem)
    return found


def _wide(table: Table, time: int, unit: Unit) -> Samples:
    names = [column for place, column in enumerate(table.header) if place != time]
    times, rows = array.array("d"), []
    for line, row in table.lines():
        times.append(_time(table, line, table.header[time], row[time]))
        fields = [*row[:time], *row[time + 1 :]]
        rows.append(_amounts(table, line, names, fields))
    values = np.array(rows).reshape(len(rows), len(names))
    ticks, codes = np.nonzero(~np.isnan(values))
    return Samples(table.source, unit, np.array(times)[ticks], codes, values[ticks, codes] * unit.factor, names)


def _aggregates(header: Sequence[str]) -> dict[str, str]:
    """By aggregate, the maximum first, its column: `max`, `mean` or `avg`, alone or before a unit as max_cpu_cores."""
    found: dict[str, str] = {}
    for name, words in (("max", ("max",)), ("mean", ("mean", "avg"))):
        for column in header:
            word, _, unit = column.partition("_")
            if word in words and (not unit or unit in UNITS):
                found.setdefault(name, column)
    return found


def _long(table: Table, time: int, series: int, told: str, path: Path, aggregate: str) -> Samples:
    header = [column.lower() for column in table.header]
    several = _aggregates(header)
    taken = aggregate if aggregate in several else next(iter(several), "")
    if taken:
        name = several[taken].partition("_")[2] or "value"
        header[header.index(several[taken])] = name
    values = [place for place, column in enumerate(header) if column in ("value", "usage", *UNITS)]
    named = [place for place, column in enumerate(header) if told and column == told]
    value = next(iter(named or values), None)
    if value is None:
        raise table.invalid(1, "value", ",".join(table.header), "no column of values (value, usage, or a unit's name)")
    unit = _unit(table, told, header[value] if header[value] in UNITS else path.name.split(".")[0])
    node = header.index(NODE) if NODE in header else None
    places: dict[tuple[str, str], int] = {}
    times, amounts, codes = array.array("d"), array.array("d"), array.array("q")
    for line, row in table.lines():
        if row[value] in ("", None):
            continue
        key = (str(row[series]), "" if node is None else str(row[node]))
        times.append(_time(table, line, table.header[time], row[time]))
        amounts.extend(_amounts(table, line, table.header[value : value + 1], row[value : value + 1]))
        codes.append(places.setdefault(key, len(places)))
    return Samples(
        table.source,
        unit,
        np.array(times),
        np.array(codes, np.intp),
        np.array(amounts) * unit.factor,
        [name for name, _ in places],
        () if node is None else [on for _, on in places],
        aggregate=taken,
    )


def _time(table: Table, line: int, column: str, value: object) -> float:
    try:
        seconds = float(str(value))
    except ValueError:
        try:
            seconds = dt.datetime.fromisoformat(str(value)).timestamp()
        except ValueError:
            raise table.invalid(line, column, value, "neither Unix seconds nor an RFC 3339 time") from None
    if not 0 <= seconds < 2**33:
        raise table.invalid(line, column, value, "not a time in Unix seconds")
    return seconds


def _amounts(table: Table, line: int, columns: Sequence[str], fields: Sequence[object]) -> Floats:
    try:
        amounts = np.array([math.nan if field in ("", None) else float(str(field)) for field in fields])
    except ValueError:
        amounts = np.array([-1.0])  # the message below names the column
    if (amounts < 0).any() or np.isinf(amounts).any():
        column, field = next(pair for pair in zip(columns, fields, strict=True) if not _is_amount(pair[1]))
        raise table.invalid(line, column, field, "expected a number of 0 or more, or nothing")
    return amounts


def _is_amount(field: object) -> bool:
    try:
        return field in ("", None) or 0 <= float(str(field)) < math.inf
    except ValueError:
        return False


class SeriesRequests(NamedTuple):
    """The requests (or limits) of each series by name, in cores and bytes; machines are separate nodes."""

    source: str
    cores: dict[str, float]
    memory_bytes: dict[str, float]
    of_machines: bool


def requested(path: Path) -> SeriesRequests:
    """The requests from a table with one row for each series, its name in the first column.

    Amounts are in columns such as cpu_request_cores, cpu_limit_millicores or mem_limit_mib; requests take precedence
    over limits. Machine sizes are in cpu_capacity and mem_capacity, as shares of one machine.
    """
    with opened(path) as table:
        header = [column.lower() for column in table.header]
        of_machines = header[0] in ("machine", NODE)
        found = {resource: _column(header, resource, of_machines) for resource in ("cpu", "memory")}
        if found["cpu"] is None and found["memory"] is None:
            problem = "no column of requests or limits, as cpu_limit_cores or mem_limit_mib"
            raise table.invalid(1, "(all)", ",".join(table.header), problem)
        amounts: dict[str, dict[str, float]] = {"cpu": {}, "memory": {}}
        for line, row in table.lines():
            for resource, column in found.items():
                if column is not None and row[column.place] not in ("", None):
                    name = table.header[column.place]
                    (amount,) = _amounts(table, line, [name], [row[column.place]]).tolist()
                    amounts[resource][str(row[0])] = amount * column.factor
    return SeriesRequests(table.source, amounts["cpu"], amounts["memory"], of_machines)


class _Column(NamedTuple):
    place: int
    factor: float


def _column(header: Sequence[str], resource: str, of_machines: bool) -> _Column | None:
    kinds = ("capacity",) if of_machines else ("request", "limit")
    for kind in kinds:
        for place, column in enumerate(header):
            if of_machines and column in (f"{name}_capacity" for name in _names(resource)):
                return _Column(place, 1.0)
            unit = UNITS.get(column.replace(f"_{kind}_", "_", 1)) if f"_{kind}_" in column else None
            if unit is not None and unit.resource == resource:
                return _Column(place, unit.factor)
    return None


def _names(resource: str) -> Sequence[str]:
    return ("cpu",) if resource == "cpu" else ("memory", "mem")
