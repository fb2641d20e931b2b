"""The samples of every entity of the node, written once a second and asked over any window."""

import itertools
import math
import threading
from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from agent.metric_cache import aggregate
from agent.metric_cache.aggregate import Aggregation
from agent.metric_cache.ring import BLOCK_COLUMNS, Ring
from agent.metric_cache.series import Usage

_WIDTH = len(Usage._fields)


class MetricCache:
    """A ring whose columns are held, in pairs, by entities; safe to use from any thread."""

    def __init__(self, retention_seconds: int) -> None:
        self._ring = Ring(retention_seconds)
        self._places: dict[str, int] = {}
        self._free: list[int] = []
        self._asked: tuple[str, ...] = ()
        self._answer = np.empty(0, np.intp)
        self._lock = threading.Lock()

    def append(self, second: int, usages: Mapping[str, Usage]) -> None:
        """Stores one tick; entities not seen before get their series. `second` is on a clock that never goes back."""
        with self._lock:
            places = self._places_of(tuple(usages))
            values = np.full((self._ring.columns // _WIDTH, _WIDTH), np.nan, np.float32)
            flat = itertools.chain.from_iterable(usages.values())
            values[places] = np.fromiter(flat, np.float32, _WIDTH * len(usages)).reshape(-1, _WIDTH)
            self._ring.append(second, values.reshape(-1))

    def retain(self, entities: Collection[str]) -> None:
        """Gives up the series of all other entities."""
        with self._lock:
            for entity in self._places.keys() - entities:
                self._free.append(self._places.pop(entity))
                self._asked = ()

    def aggregate(self, how: Aggregation, window_seconds: int, until: int | None = None) -> dict[str, Usage]:
        """The aggregate over the `window_seconds` seconds up to and including `until` (default: the last one written).

        By entity; those without a sample in the window are absent.
        """
        with self._lock:
            samples = self._ring.window(window_seconds, until)
            places = dict(self._places)
        pairs = aggregate.aggregate(samples, how).reshape(-1, _WIDTH).tolist()
        return {
            entity: Usage(*pairs[place]) for entity, place in places.items() if all(map(math.isfinite, pairs[place]))
        }

    @property
    def last_second(self) -> int:
        """The last second written, -1 before the first."""
        return self._ring.last_second

    @property
    def memory_bytes(self) -> int:
        return self._ring.memory_bytes

    @property
    def series_count(self) -> int:
        return _WIDTH * len(self._places)

    def _places_of(self, entities: tuple[str, ...]) -> NDArray[np.intp]:
        """Where each entity's series are; nearly every tick asks for the same ones as the tick before."""
        if entities != self._asked:
            self._asked = entities
            self._answer = np.array([self._place(entity) for entity in entities], np.intp)
        return self._answer

    def _place(self, entity: str) -> int:
        if entity not in self._places:
            if not self._free:
                first = self._ring.columns // _WIDTH
                self._ring.extend()
                self._free = list(range(first + BLOCK_COLUMNS // _WIDTH - 1, first - 1, -1))
            place = self._places[entity] = self._free.pop()
            self._ring.claim(slice(place * _WIDTH, (place + 1) * _WIDTH))
        return self._places[entity]
