"""The models on disk: one file that is whole or is not believed.

The file is a magic word, a version, the length and the SHA-256 of what follows, and a msgpack document. It is written
beside its place, synced and renamed there, so that a crash at any instant leaves the old or the new one. A file that
is torn, foreign or of another version is renamed, never trusted and never deleted.
"""

import contextlib
import hashlib
import logging
import math
import os
import struct
from pathlib import Path

import msgspec
import numpy as np

from agent.predict_server.bank import Bank
from agent.predict_server.decay import Floats
from agent.predict_server.table import ModelTable
from shared.errors import HeadroomError

logger = logging.getLogger(__name__)

FILE_NAME = "prediction.checkpoint"
VERSION = 1
_MAGIC = b"HEADROOM"
_HEADER = struct.Struct("<8sIQ32s")


class UnusableCheckpoint(HeadroomError):
    """The file cannot be believed; the text says why."""


class BankState(msgspec.Struct, frozen=True):
    """One bank's rows, in the order of the keys: little-endian float64 arrays, `weights` of shape (keys, buckets)."""

    half_life_seconds: float
    buckets: int
    weights: bytes
    totals: bytes
    references: bytes
    moment_weights: bytes
    means: bytes
    squares: bytes


class State(msgspec.Struct, frozen=True):
    """The models of `node` as of `saved_at`, a wall time in Unix seconds."""

    node: str
    saved_at: float
    keys: list[str]
    samples: bytes
    first_observed: bytes
    last_updated: bytes
    cpu: BankState
    memory: BankState


def of(table: ModelTable, *, node: str, now: float) -> State:
    """The table's present state, copied."""
    keys = list(table.rows)
    rows = np.array([table.rows[key] for key in keys], np.intp)

    def bank(of: Bank) -> BankState:
        return BankState(
            half_life_seconds=of.half_life_seconds,
            buckets=of.histograms.buckets.count,
            weights=_bytes(of.histograms.weights[rows]),
            totals=_bytes(of.histograms.totals[rows]),
            references=_bytes(of.references[rows]),
            moment_weights=_bytes(of.moments.weights[rows]),
            means=_bytes(of.moments.means[rows]),
            squares=_bytes(of.moments.squares[rows]),
        )

    return State(
        node=node,
        saved_at=now,
        keys=keys,
        samples=_bytes(table.samples[rows].astype(np.float64)),
        first_observed=_bytes(table.first_observed[rows]),
        last_updated=_bytes(table.last_updated[rows]),
        cpu=bank(table.cpu),
        memory=bank(table.memory),
    )


def restored(state: State) -> ModelTable:
    """A table in that state, with its half-lives. Raises UnusableCheckpoint when it contradicts itself."""
    table = ModelTable(
        cpu_half_life_seconds=state.cpu.half_life_seconds,
        memory_half_life_seconds=state.memory.half_life_seconds,
    )
    count = len(state.keys)
    rows = table.claim(state.keys, state.saved_at)
    if len(set(state.keys)) != count:
        raise UnusableCheckpoint("a model is there twice")
    table.samples[rows] = _array(state.samples, count).astype(np.int64)
    table.first_observed[rows] = _array(state.first_observed, count)
    table.last_updated[rows] = _array(state.last_updated, count)
    table.time = float(table.last_updated[rows].max(initial=-math.inf))
    for bank, saved in ((table.cpu, state.cpu), (table.memory, state.memory)):
        buckets = bank.histograms.buckets.count
        if saved.buckets != buckets or not saved.half_life_seconds > 0:
            raise UnusableCheckpoint("the layout of buckets or the half-life is another one")
        bank.histograms.weights[rows] = _array(saved.weights, count * buckets).reshape(count, buckets)
        bank.histograms.totals[rows] = _array(saved.totals, count)
        bank.histograms.trim(rows)
        bank.references[rows] = _array(saved.references, count)
        bank.moments.weights[rows] = _array(saved.moment_weights, count)
        bank.moments.means[rows] = _array(saved.means, count)
        bank.moments.squares[rows] = _array(saved.squares, count)
    return table


def save(path: Path, state: State) -> None:
    """Raises OSError; the file before it is then still there."""
    payload = msgspec.msgpack.encode(state)
    header = _HEADER.pack(_MAGIC, VERSION, len(payload), hashlib.sha256(payload).digest())
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        file.write(header + payload)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def load(path: Path, *, node: str, now: float) -> ModelTable | None:
    """The saved models of `node`; None when there are none that can be believed. A file that cannot is set aside."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        logger.error("checkpoint cannot be read: %s", error, extra={"path": str(path)})
        return None
    try:
        return restored(decode(content, node=node))
    except UnusableCheckpoint as error:
        aside = path.with_name(f"{path.name}.bad-{int(now)}")
        with contextlib.suppress(OSError):
            path.replace(aside)
        logger.error("checkpoint set aside: %s", error, extra={"path": str(path), "now_at": str(aside)})
        return None


def decode(content: bytes, *, node: str) -> State:
    """Raises UnusableCheckpoint."""
    if len(content) < _HEADER.size:
        raise UnusableCheckpoint("shorter than its header")
    magic, version, length, digest = _HEADER.unpack_from(content)
    payload = content[_HEADER.size :]
    if magic != _MAGIC or version != VERSION:
        raise UnusableCheckpoint("not a checkpoint of this version")
    if len(payload) != length or hashlib.sha256(payload).digest() != digest:
        raise UnusableCheckpoint("torn: length or checksum do not match")
    try:
        state = msgspec.msgpack.decode(payload, type=State)
    except msgspec.MsgspecError as error:
        raise UnusableCheckpoint(str(error)) from error
    if state.node != node:
        raise UnusableCheckpoint(f"of another node, {state.node!r}")
    return state


def _bytes(values: Floats) -> bytes:
    return values.astype("<f8").tobytes()


def _array(content: bytes, count: int) -> Floats:
    if len(content) != 8 * count:
        raise UnusableCheckpoint("an array is of another size than its keys")
    values = np.frombuffer(content, "<f8")
    if not np.isfinite(values).all():
        raise UnusableCheckpoint("a number is not finite")
    return values
