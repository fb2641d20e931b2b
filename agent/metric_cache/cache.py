"""The samples of the node: every second for an hour, and means and maxima over five minutes for a week.

Three rings, one file each:

    hour     1 s, an hour: the node, system, non-pod, classes and prod-peak; CPU and memory of pods and workloads
    quarter  1 s, 15 minutes: containers, NUMA nodes, and the colder values of pods
    week     5 minutes, 7 days: mean, maximum and count of every series of the hour ring

A row of the week ring is computed from the hour ring when its five minutes are over, so a restart in between loses
nothing. A window within the reach of single seconds is answered from them. A window that begins earlier, where the week
ring has samples, is widened to whole five minutes and answered from that ring and the unfinished rest.
"""

import enum
import itertools
import logging
import threading
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry

from agent.metric_cache import aggregate, series
from agent.metric_cache.aggregate import Aggregation
from agent.metric_cache.ring import Columns, Ring
from agent.metric_cache.ring_file import Geometry, Samples
from agent.metric_cache.series import Kind, Metric, SeriesKey, Usage
from agent.metric_cache.storage import DEFAULT_LIMIT_BYTES, Disk, Storage, shares
from agent.metric_cache.timeline import Timeline
from agent.metric_cache.windows import (
    ENTITIES,
    NODE_WIDE,
    QUARTER,
    STEP_SECONDS,
    USAGE,
    Windows,
    find_home,
    split_reads,
)
from shared.clock import Clock, SystemClock
from shared.metric_families import CounterFamily, GaugeFamily

logger = logging.getLogger(__name__)

HOUR_SECONDS = 3600
QUARTER_SECONDS = 900
WEEK_SECONDS = 7 * 86400
WEEK_ROWS = WEEK_SECONDS // STEP_SECONDS
LEAST_SECONDS = 2 * STEP_SECONDS  # a row of the week ring needs all of its seconds
TIDY_SECONDS = 60

_LONG_NAME, _SHORT_NAME = 512, 160  # bytes: a workload's name may have 380, a container's 140
_MEAN, _MAX, _COUNT = range(3)

# A pod's columns in each ring: CPU and memory of it and its workload; the less frequent values, with all of two
# containers; the week ring's four.
_POD_COLUMNS = (4, 32, 4)

Floats: TypeAlias = NDArray[np.float64]

_METRIC_CACHE_DAMAGED_FILES = CounterFamily(
    "headroom_agent_metric_cache_damaged_files", "Ring files that were renamed because they are damaged."
)
_METRIC_CACHE_REFUSED_SERIES = GaugeFamily(
    "headroom_agent_metric_cache_refused_series", "Number of series that the metric cache rejected for lack of space."
)
_METRIC_CACHE_RINGS_IN_MEMORY = GaugeFamily(
    "headroom_agent_metric_cache_rings_in_memory",
    "Number of rings of the metric cache that are kept in memory because the disk has no space for them.",
)


class StorageTier(enum.StrEnum):
    """The source of a range."""

    SECONDS = "1s"
    MEANS = "5m-mean"
    MAXIMA = "5m-max"


class Range(NamedTuple):
    """Every slot of a range: its first second and its value, NaN without a sample."""

    times: NDArray[np.int64]
    values: Samples


class _Resolved(NamedTuple):
    """The columns of a tick's values in one ring; valid until the ring releases a column."""

    ring: Ring
    releases: int
    places: Columns
    columns: Columns


class MetricCache:
    """Safe to use from any thread. Without a `disk`, or when it fails, everything is in memory: see `problems`."""

    def __init__(
        self,
        retention_seconds: int = HOUR_SECONDS,
        disk: Disk | None = None,
        *,
        clock: Clock | None = None,
        limit_bytes: int = DEFAULT_LIMIT_BYTES,
        registry: CollectorRegistry | None = None,
    ) -> None:
        damaged = _METRIC_CACHE_DAMAGED_FILES.register(registry)
        self._refused_series = 0
        refused = _METRIC_CACHE_REFUSED_SERIES.register(registry)
        refused.set_function(lambda: self._refused_series)
        in_memory = _METRIC_CACHE_RINGS_IN_MEMORY.register(registry)
        in_memory.set_function(lambda: len(self.problems))
        hour_rows = max(retention_seconds, LEAST_SECONDS)
        geometries = (
            Geometry(1, hour_rows, 1, _LONG_NAME),
            Geometry(1, min(QUARTER_SECONDS, hour_rows), 1, _SHORT_NAME),
            Geometry(STEP_SECONDS, WEEK_ROWS, 3, _LONG_NAME),
        )
        limits = shares(limit_bytes, geometries, _POD_COLUMNS, retention_seconds)
        self._storages = tuple(map(Storage, geometries, limits, itertools.repeat(disk), ("hour", "quarter", "week")))
        damaged.inc(sum(bool(storage.set_aside) for storage in self._storages))
        self._rings = self._hour, self._quarter, self._week = tuple(map(Ring, self._storages))
        self._hot: tuple[SeriesKey, ...] = ()
        self._hot_places: list[_Resolved] = []
        self._usage_names: tuple[str, ...] = ()
        self._usage_keys: tuple[SeriesKey, ...] = ()
        self._lock = threading.Lock()
        self._windows = Windows(self._hour, self._quarter, self._week, self._lock)
        self._timeline = Timeline(clock or SystemClock(), max(self.last_second, self._week.last * STEP_SECONDS))

    def append(
        self, second: int, usages: Mapping[str, Usage], readings: Mapping[SeriesKey, float] | None = None
    ) -> None:
        """Stores one tick: usages by model key, and single values; an unknown key gets its series."""
        names = tuple(usages)
        if names != self._usage_names:
            self._usage_names = names
            self._usage_keys = tuple(SeriesKey(*series.named(name), metric) for name in names for metric in USAGE)
        flat = [value for usage in usages.values() for value in usage]
        self.append_values(second, self._usage_keys, np.array(flat), readings)

    def append_values(
        self,
        second: int,
        keys: tuple[SeriesKey, ...],
        values: Floats,
        readings: Mapping[SeriesKey, float] | None = None,
    ) -> None:
        """The same from an array, with NaN for unknown values.

        It looks up the same tuple of `keys` only once for many ticks. `second` comes from `second()`; ValueError when
        it is before the last one.
        """
        with self._lock:
            if second < self.last_second:
                raise ValueError(f"second {second} is before the last one, {self.last_second}")
            before = self.last_second
            if second // STEP_SECONDS > before // STEP_SECONDS:
                self._roll_up(second // STEP_SECONDS)
                for ring in self._rings:
                    ring.relinquish()
            if second // TIDY_SECONDS > before // TIDY_SECONDS:
                self._tidy()
            hot = self._resolve(keys)
            cold = self._resolved(tuple(readings)) if readings else []
            cold_values = np.fromiter(readings.values(), np.float64, len(readings)) if readings else values
            rows = [ring.blank() for ring in (self._hour, self._quarter)]
            with np.errstate(over="ignore"):  # an overflow becomes infinite, which counts as no sample
                for source, parts in ((values, hot), (cold_values, cold)):
                    for row, part in zip(rows, parts, strict=False):
                        row[0, part.columns] = source[part.places]
            self._timeline.align()
            self._hour.append(second, rows[0])
            self._quarter.append(second, rows[1])

    def retain_pods(self, uids: Collection[str]) -> None:
        """Drops the series of all other pods and of their containers; other series expire without samples."""
        with self._lock:
            for ring in (self._hour, self._quarter, self._week):
                ring.release([key for key in ring.columns if (uid := _uid(key)) is not None and uid not in uids])

    def usages(self, how: Aggregation, window_seconds: int, until: int | None = None) -> dict[str, Usage]:
        """The aggregate over the `window_seconds` seconds up to and including `until` (default: the last one written).

        By model key: NODE, SYSTEM, PROD_PEAK, of_class, of_workload and the uids of pods; those without a
        sample of both resources in the window are absent. A workload's value is the mean over its pods on this node.
        """
        found = self._windows.aggregate(how, window_seconds, until, _of_usage)
        pairs: dict[tuple[Kind, str], dict[Metric, float]] = {}
        for (kind, entity, metric), value in found.items():
            pairs.setdefault((kind, entity), {})[metric] = value
        return {
            name: Usage(pair[Metric.CPU], pair[Metric.MEMORY])
            for named, pair in pairs.items()
            if len(pair) == len(USAGE) and (name := series.model_key(*named)) is not None
        }

    def aggregate(
        self,
        how: Aggregation,
        window_seconds: int,
        *,
        kind: Kind | None = None,
        metric: Metric | None = None,
        until: int | None = None,
    ) -> dict[SeriesKey, float]:
        """The same for every series of a kind and metric (default: any); series without a sample are absent.

        Series of the quarter ring reach back only 15 minutes. For a window answered from the week ring, a percentile is
        one of the five-minute means; other aggregates are exact for the window widened to whole rows.
        """

        def wanted(key: SeriesKey) -> bool:
            return (kind is None or key.kind is kind) and (metric is None or key.metric is metric)

        return self._windows.aggregate(how, window_seconds, until, None if kind is None and metric is None else wanted)

    def aggregate_one(
        self, key: SeriesKey, how: Aggregation, window_seconds: int, until: int | None = None
    ) -> float | None:
        """The same for one series; None without a sample."""
        return self.aggregate_some((key,), how, window_seconds, until).get(key)

    def aggregate_some(
        self, keys: Sequence[SeriesKey], how: Aggregation, window_seconds: int, until: int | None = None
    ) -> dict[SeriesKey, float]:
        """The same for these series, which are all in one ring, in one read; series without a sample are absent."""
        window = self._windows.window(window_seconds, until)
        fine = find_home(keys[0]) == QUARTER or self._windows.is_fine(window)
        return self._windows.answer(how, window, keys, fine=fine)

    def tier(
        self, kind: Kind, window_seconds: int, until: int | None = None, *, metric: Metric = Metric.CPU
    ) -> StorageTier:
        """The source of an aggregate over this window."""
        window = self._windows.window(window_seconds, until)
        coarse = StorageTier.MEANS in tiers(kind, metric) and not self._windows.is_fine(window)
        return StorageTier.MEANS if coarse else StorageTier.SECONDS

    def range(self, key: SeriesKey, start: int, end: int, tier: StorageTier = StorageTier.SECONDS) -> Range:
        """The samples from second `start` to second `end`, both included, as far as the tier reaches back."""
        with self._lock:
            ring = self._rings[find_home(key)] if tier is StorageTier.SECONDS else self._week
            step = ring.step_seconds
            first, last = ring.reach(start // step, end // step)
            values = np.full(max(0, last - first + 1), np.nan, np.float32)
            column = ring.columns.get(key)
            if column is not None:
                held = ring.held(first, last)
                plane = _MAX if tier is StorageTier.MAXIMA else _MEAN
                values[held - first] = ring.read(held, np.array([column]), plane)[:, 0]
            return Range(np.arange(first, first + len(values), dtype=np.int64) * step, values)

    def series_keys(self, kind: Kind | None = None, metric: Metric | None = None) -> list[SeriesKey]:
        """The existing series."""
        with self._lock:
            held = {key for ring in self._rings for key in ring.columns}
        return sorted(key for key in held if kind in (None, key.kind) and metric in (None, key.metric))

    def second(self, wall_time: float | None = None) -> int:
        """The second at a wall time, by the wall clock's present offset; default: the present second."""
        return self._timeline.now if wall_time is None else self._timeline.second(wall_time)

    def wall_time(self, second: int) -> int:
        """The wall time of a second, by the wall clock's present offset."""
        return self._timeline.wall_time(second)

    @property
    def last_second(self) -> int:
        """The last second written, -1 before the first."""
        return max(self._hour.last, self._quarter.last)

    @property
    def memory_bytes(self) -> int:
        """The size of the rings, on disk and in memory."""
        return sum(storage.used_bytes for storage in self._storages)

    @property
    def series_count(self) -> int:
        return sum(len(ring.columns) for ring in self._rings)

    @property
    def problems(self) -> list[str]:
        """Why samples are in memory instead of on disk; empty without a problem."""
        return [storage.problem for storage in self._storages if storage.problem]

    def close(self) -> None:
        """Releases the files to the next process; they contain all written samples already."""
        with self._lock:
            for storage in self._storages:
                storage.close()

    def _resolve(self, keys: tuple[SeriesKey, ...]) -> list[_Resolved]:
        if not (keys is self._hot or keys == self._hot) or any(
            part.releases != part.ring.releases for part in self._hot_places
        ):
            self._hot_places = self._resolved(keys)
        self._hot = keys
        return self._hot_places

    def _resolved(self, keys: tuple[SeriesKey, ...]) -> list[_Resolved]:
        homes: list[list[tuple[int, int]]] = [[], []]
        for place, key in enumerate(keys):
            home = find_home(key)
            column = self._rings[home].claim(key)
            if column is not None:
                homes[home].append((place, column))
        resolved = []
        for ring, pairs in zip((self._hour, self._quarter), homes, strict=True):
            both = np.array(pairs, np.intp).reshape(-1, 2)
            resolved.append(_Resolved(ring, ring.releases, both[:, 0], both[:, 1]))
        return resolved

    def _tidy(self) -> None:
        for ring in self._rings:
            ring.expire()
        refused = sum(len(ring.refused) for ring in self._rings)
        if refused and not self._refused_series:
            logger.warning(
                "the metric cache is full and drops series: raise --metric-cache-bytes or lower --metric-retention"
            )
        self._refused_series = refused
        if self._hour.refused or self._quarter.refused:
            self._hot = ()  # so that series without a column ask again
        self._hour.refused.clear()
        self._quarter.refused.clear()

    def _roll_up(self, before: int) -> None:
        """Writes the complete rows of the week ring before row `before`."""
        self._week.refused.clear()
        first = max(self._week.last + 1, self._hour.first // STEP_SECONDS)
        for row in range(first, min(before, self._hour.last // STEP_SECONDS + 1)):
            slots = self._hour.held(row * STEP_SECONDS, (row + 1) * STEP_SECONDS - 1)
            keys = list(self._hour.columns)
            if not len(slots) or not keys:
                continue
            columns = np.fromiter(self._hour.columns.values(), np.intp, len(keys))
            parts = [aggregate.summary(self._hour.read(slots, part)) for part in split_reads(columns, len(slots))]
            summary = np.concatenate(parts, axis=1)
            pairs = [
                (place, column)
                for place in np.flatnonzero(summary[_COUNT] > 0).tolist()
                if (column := self._week.claim(keys[place])) is not None
            ]
            both = np.array(pairs, np.intp).reshape(-1, 2)
            values = self._week.blank()
            values[:, both[:, 1]] = summary[:, both[:, 0]]
            self._week.append(row, values)


def tiers(kind: Kind, metric: Metric) -> tuple[StorageTier, ...]:
    """The tiers that hold the series of a kind and metric."""
    return (StorageTier.SECONDS,) if find_home(SeriesKey(kind, "", metric)) == QUARTER else tuple(StorageTier)


def _uid(key: SeriesKey) -> str | None:
    """The pod that a series belongs to."""
    if key.kind is Kind.POD:
        return key.entity
    return key.entity.partition("/")[0] if key.kind is Kind.CONTAINER else None


def _of_usage(key: SeriesKey) -> bool:
    return key.metric in USAGE and (key.kind in ENTITIES or key.kind in NODE_WIDE)
