"""Some models in full, as checkpoints hold them: arrays in bytes, and back into a table after validation."""

from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from agent.predict_server import histogram
from agent.predict_server.bank import Bank
from agent.predict_server.decay import Floats
from agent.predict_server.histogram import Rows
from agent.predict_server.maxima import DAYS
from agent.predict_server.table import ModelTable

LAST_DAY = 2**31


class BankState(msgspec.Struct, frozen=True):
    """Rows of a bank, in the order of the keys: little-endian float64 arrays, and int32 places of the weights."""

    buckets: int
    weights: bytes
    weight_rows: bytes
    weight_buckets: bytes
    totals: bytes
    references: bytes
    moment_weights: bytes
    means: bytes
    squares: bytes


class SavedModels(msgspec.Struct, frozen=True):
    """Some models in full, after all events of their file.

    `maxima` are little-endian float32, those of `maxima_day` (counted from 1970) first; absent in version 2.
    """

    keys: list[str]
    samples: bytes
    first_observed: bytes
    last_updated: bytes
    cpu: BankState
    memory: BankState
    maxima: bytes | None = None
    maxima_day: int = 0


def saved(keys: list[str], table: ModelTable) -> SavedModels:
    rows = np.array([table.rows[key] for key in keys], np.intp)

    def bank(of: Bank) -> BankState:
        weights = of.histograms.weights[rows]
        places = np.nonzero(weights)
        return BankState(
            buckets=of.histograms.buckets.count,
            weights=as_bytes(weights[places]),
            weight_rows=places[0].astype("<i4").tobytes(),
            weight_buckets=places[1].astype("<i4").tobytes(),
            totals=as_bytes(of.histograms.totals[rows]),
            references=as_bytes(of.references[rows]),
            moment_weights=as_bytes(of.moments.weights[rows]),
            means=as_bytes(of.moments.means[rows]),
            squares=as_bytes(of.moments.squares[rows]),
        )

    return SavedModels(
        keys=keys,
        samples=as_bytes(table.samples[rows].astype(np.float64)),
        first_observed=as_bytes(table.first_observed[rows]),
        last_updated=as_bytes(table.last_updated[rows]),
        cpu=bank(table.cpu),
        memory=bank(table.memory),
        maxima=table.maxima.newest_first(rows).astype("<f4").tobytes(),
        maxima_day=table.maxima.day,
    )


@dataclass(frozen=True)
class _BankRows:
    weights: Floats
    totals: Floats
    references: Floats
    moment_weights: Floats
    means: Floats
    squares: Floats

    @classmethod
    def of(cls, state: BankState, count: int, buckets: int) -> "_BankRows":
        """Raises ValueError."""
        if state.buckets != buckets:
            raise ValueError("the layout of buckets is another one")
        weights = np.zeros((count, buckets))
        filled = len(state.weights) // 8
        rows, columns = _places(state.weight_rows, filled, count), _places(state.weight_buckets, filled, buckets)
        weights[rows, columns] = as_array(state.weights, filled)
        rest = (state.totals, state.references, state.moment_weights, state.means, state.squares)
        return cls(weights, *(as_array(each, count) for each in rest))

    def put(self, bank: Bank, rows: Rows) -> None:
        bank.histograms.weights[rows] = self.weights
        bank.histograms.totals[rows] = self.totals
        bank.histograms.trim(rows)
        bank.references[rows] = self.references
        bank.moments.weights[rows] = self.moment_weights
        bank.moments.means[rows] = self.means
        bank.moments.squares[rows] = self.squares


@dataclass(frozen=True)
class SoundModels:
    """Models as validated arrays."""

    keys: list[str]
    samples: Floats
    first_observed: Floats
    last_updated: Floats
    cpu: _BankRows
    memory: _BankRows
    maxima: NDArray[np.float32] | None
    maxima_day: int

    @classmethod
    def of(cls, models: SavedModels) -> "SoundModels":
        """Raises ValueError for invalid models."""
        count = len(models.keys)
        if len(set(models.keys)) != count:
            raise ValueError("a model is there twice")
        return cls(
            keys=models.keys,
            samples=as_array(models.samples, count),
            first_observed=as_array(models.first_observed, count),
            last_updated=as_array(models.last_updated, count),
            cpu=_BankRows.of(models.cpu, count, histogram.CPU.count),
            memory=_BankRows.of(models.memory, count, histogram.MEMORY.count),
            maxima=None if models.maxima is None else _maxima(models.maxima, models.maxima_day, count),
            maxima_day=models.maxima_day,
        )

    def put(self, table: ModelTable) -> None:
        rows = table.claim(self.keys, 0.0)
        table.samples[rows] = self.samples.astype(np.int64)
        table.first_observed[rows] = self.first_observed
        table.last_updated[rows] = self.last_updated
        self.cpu.put(table.cpu, rows)
        self.memory.put(table.memory, rows)
        if not len(rows):
            return
        if self.maxima is not None:
            table.maxima.put(rows, self.maxima, self.maxima_day)
        else:  # the end of the last non-empty bucket, which no sample exceeded
            largest = [bank.histograms.percentiles(rows, np.ones(1)) for bank in table.banks]
            table.maxima.add(rows, np.concatenate(largest, axis=1), float(self.last_updated.max()))


def as_bytes(values: Floats) -> bytes:
    return values.astype("<f8").tobytes()


def as_array(content: bytes, count: int) -> Floats:
    if len(content) != 8 * count:
        raise ValueError("an array is of another size than its keys")
    values = np.frombuffer(content, "<f8")
    if not np.isfinite(values).all():
        raise ValueError("a number is not finite")
    return values


def _maxima(content: bytes, day: int, count: int) -> NDArray[np.float32]:
    if len(content) != 4 * count * DAYS * 2 or (count and not 0 <= day < LAST_DAY):
        raise ValueError("the daily maxima are of another size than their keys, or of no day")
    values = np.frombuffer(content, "<f4").reshape(count, DAYS, 2)
    if not (np.isfinite(values) & (values >= 0)).all():
        raise ValueError("a daily maximum is no amount")
    return values


def _places(content: bytes, count: int, below: int) -> Rows:
    if len(content) != 4 * count:
        raise ValueError("an array is of another size than its keys")
    places = np.frombuffer(content, "<i4")
    if count and not 0 <= places.min() <= places.max() < below:
        raise ValueError("a weight is outside of its histogram")
    return places.astype(np.intp)
