"""Some models in full, as checkpoints hold them: arrays in bytes, and back into a table after validation."""

import msgspec
import numpy as np
from numpy.typing import NDArray

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
            **{name: as_bytes(values[rows]) for name, values in _of_bank(of).items()},
        )

    return SavedModels(
        keys=keys,
        cpu=bank(table.cpu),
        memory=bank(table.memory),
        maxima=table.maxima.newest_first(rows).astype("<f4").tobytes(),
        maxima_day=table.maxima.day,
        **{name: as_bytes(values[rows].astype(np.float64)) for name, values in _of_table(table).items()},
    )


def _of_bank(bank: Bank) -> dict[str, Floats]:
    """The arrays with one number for each model, by their names in a `BankState`."""
    return {
        "totals": bank.histograms.totals,
        "references": bank.references,
        "moment_weights": bank.moments.weights,
        "means": bank.moments.means,
        "squares": bank.moments.squares,
    }


def _of_table(table: ModelTable) -> dict[str, NDArray[np.float64] | NDArray[np.int64]]:
    """The same of the table, by their names in `SavedModels`."""
    return {
        "samples": table.samples,
        "first_observed": table.first_observed,
        "last_updated": table.last_updated,
    }


class SoundModels:
    """Models as validated arrays. Raises ValueError for invalid models."""

    def __init__(self, models: SavedModels) -> None:
        self._keys, count = models.keys, len(models.keys)
        if len(set(models.keys)) != count:
            raise ValueError("a model is there twice")
        blank = ModelTable(cpu_half_life_seconds=1.0, memory_half_life_seconds=1.0)
        self._of_table = {name: as_array(getattr(models, name), count) for name in _of_table(blank)}
        self._weights, self._of_banks = [], []
        for bank, state in zip(blank.banks, (models.cpu, models.memory), strict=True):
            self._weights.append(_weights(state, count, bank.histograms.buckets.count))
            self._of_banks.append({name: as_array(getattr(state, name), count) for name in _of_bank(bank)})
        self._maxima = None if models.maxima is None else _maxima(models.maxima, models.maxima_day, count)
        self._maxima_day = models.maxima_day

    def put(self, table: ModelTable) -> None:
        rows = table.claim(self._keys, 0.0)
        for name, values in _of_table(table).items():
            values[rows] = self._of_table[name]
        for bank, weights, of_bank in zip(table.banks, self._weights, self._of_banks, strict=True):
            for name, of_models in _of_bank(bank).items():
                of_models[rows] = of_bank[name]
            bank.histograms.weights[rows] = weights
            bank.histograms.trim(rows)
        if not len(rows):
            return
        if self._maxima is not None:
            table.maxima.put(rows, self._maxima, self._maxima_day)
        else:  # the end of the last non-empty bucket, which no sample exceeded
            largest = [bank.histograms.percentiles(rows, np.ones(1)) for bank in table.banks]
            table.maxima.add(rows, np.concatenate(largest, axis=1), float(self._of_table["last_updated"].max()))


def _weights(state: BankState, count: int, buckets: int) -> Floats:
    if state.buckets != buckets:
        raise ValueError("the layout of buckets is another one")
    weights = np.zeros((count, buckets))
    filled = len(state.weights) // 8
    rows, columns = _places(state.weight_rows, filled, count), _places(state.weight_buckets, filled, buckets)
    weights[rows, columns] = as_array(state.weights, filled)
    return weights


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
