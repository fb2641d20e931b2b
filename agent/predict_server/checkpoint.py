"""The models on disk: a log of small files, each of which is valid as a whole or unused.

Every file holds the events since the previous one (training steps and other changes of the models) and a few models in
full, those not written in full for the longest time. This spreads the writing over time, and a crash loses nothing that
was written: a reader takes the files in order, repeats the events, and sets the models that are there in full. After a
long time without a file, the next one starts over with all models in full. A file is deleted when later files hold
every model in full twice, or its creation: the loss of one of these costs only the events in it.

A file is a magic word, a version, the length and the SHA-256 of what follows, and a msgpack document. It is written
under a temporary name, synced and renamed. A file that is torn, foreign or of an unknown version is renamed, never used
and never deleted. Version 2, without daily maxima, is still readable.
"""

import contextlib
import hashlib
import logging
import math
import os
import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from agent.predict_server.calibration import HOUR_SECONDS
from agent.predict_server.decay import Floats
from agent.predict_server.histogram import Rows
from agent.predict_server.saved_models import SavedModels, SoundModels, as_array, as_bytes, saved
from agent.predict_server.table import ModelTable
from shared.errors import HeadroomError

logger = logging.getLogger(__name__)

VERSION = 3
_READ = (2, VERSION)
CYCLE = 20  # steps until every model has been written in full
_MAGIC = b"HEADROOM"
_HEADER = struct.Struct("<8sIQ32s")
_NAME = re.compile(r"prediction-(\d{12})\.checkpoint")


class UnusableCheckpoint(HeadroomError):
    """The file is unusable; the text says why."""


class Trained(msgspec.Struct, frozen=True, tag=True):
    """One sample for each key at `time`, a float64 array of shape (keys, 2)."""

    time: float
    keys: list[str]
    usages: bytes


class HalfLives(msgspec.Struct, frozen=True, tag=True):
    """Weights decay by these from `time` on."""

    time: float
    cpu_seconds: float
    memory_seconds: float


class Forgotten(msgspec.Struct, frozen=True, tag=True):
    keys: list[str]


class ClockSet(msgspec.Struct, frozen=True, tag=True):
    """The wall clock was set forward by that much, or back if below 0."""

    seconds: float


Event: TypeAlias = Trained | HalfLives | Forgotten | ClockSet


class Content(msgspec.Struct, frozen=True):
    """One file. The half-lives are those before its events; `trained_until` is a second of the metric cache.

    `states` belong to the plug-ins, `outcomes` to the ledger, `forgotten` lists what was dropped on request; each is
    complete. `anew` means that earlier files no longer count. `hour_seconds` is the length of a model hour; all times
    are model times (see `model_time`), except those of `forgotten`.
    """

    node: str
    cpu_half_life_seconds: float
    memory_half_life_seconds: float
    trained_until: int
    events: list[Event]
    models: SavedModels
    states: dict[str, bytes]
    anew: bool = False
    outcomes: bytes = b""
    hour_seconds: int = HOUR_SECONDS
    forgotten: dict[str, float] = {}


class Restored(NamedTuple):
    """The models of all files, and the content of the last one."""

    table: ModelTable
    last: Content


class CheckpointLog:
    """The files of one node's models in one directory; files with another length of hours do not count.

    `restore` comes first, then `begin`. `write` may run in parallel with the other methods, but only once at a time;
    the others exclude each other.
    """

    def __init__(self, directory: Path, node: str, hour_seconds: int = HOUR_SECONDS) -> None:
        self._directory = directory
        self._node = node
        self._hour_seconds = hour_seconds
        self._files: list[int] = []  # their numbers, ascending
        # By model: the last file that holds it in full or its creation, and the one before that.
        self._last: dict[str, int] = {}
        self._previous: dict[str, int] = {}
        self._events: list[Event] = []
        self._anew = False  # whether the events since the last file are incomplete
        self._half_lives = (math.inf, math.inf)  # before those events
        self._next = 1

    def begin(self, table: ModelTable) -> None:
        """Sets the table of all further events."""
        self._half_lives = (table.cpu.half_life_seconds, table.memory.half_life_seconds)

    def trained(self, keys: Sequence[str], usages: Floats, time: float) -> None:
        self._events.append(Trained(time, list(keys), as_bytes(usages)))

    def changed_half_lives(self, table: ModelTable, time: float) -> None:
        self._events.append(HalfLives(time, table.cpu.half_life_seconds, table.memory.half_life_seconds))

    def forgot(self, keys: Sequence[str]) -> None:
        self._events.append(Forgotten(list(keys)))

    def set_clock(self, seconds: float) -> None:
        self._events.append(ClockSet(seconds))

    def next(
        self,
        table: ModelTable,
        *,
        trained_until: int,
        states: Mapping[str, bytes],
        outcomes: bytes = b"",
        forgotten: Mapping[str, float] = MappingProxyType({}),
    ) -> Content | None:
        """The next file's content, copied from the present state; None without events."""
        if not self._events:
            return None
        if len(self._events) > 2 * CYCLE:
            # Writing has failed for long: every model in full says the same in less space.
            self._events.clear()
            self._anew = True
            self.begin(table)
        for key in self._last.keys() - table.rows.keys():
            del self._last[key]
            self._previous.pop(key, None)
        for key in table.rows:
            self._last.setdefault(key, self._next)  # created in this file's events
        steps = sum(isinstance(event, Trained) for event in self._events)
        numbers = np.fromiter(self._last.values(), np.int64, len(self._last))
        limit = len(numbers) if self._anew else -(-len(numbers) * steps // CYCLE)
        keys = list(self._last)
        return Content(
            node=self._node,
            cpu_half_life_seconds=self._half_lives[0],
            memory_half_life_seconds=self._half_lives[1],
            trained_until=trained_until,
            events=list(self._events),
            models=saved([keys[place] for place in due(numbers, limit)], table),
            states=dict(states),
            anew=self._anew,
            outcomes=outcomes,
            hour_seconds=self._hour_seconds,
            forgotten=dict(forgotten),
        )

    def write(self, content: Content) -> None:
        """Raises OSError; the earlier files then remain, and this one's content goes into the next."""
        number = self._next
        save(self._path(number), content)
        self._next += 1
        self._files.append(number)
        for key in content.models.keys:
            self._previous[key], self._last[key] = self._last[key], number
        del self._events[: len(content.events)]
        self._anew = False
        for event in content.events:
            if isinstance(event, HalfLives):
                self._half_lives = (event.cpu_seconds, event.memory_seconds)
        needed = min((self._previous.get(key, last) for key, last in self._last.items()), default=number)
        while self._files[0] < needed:
            with contextlib.suppress(OSError):
                self._path(self._files[0]).unlink()
            del self._files[0]

    def restore(self, now: float) -> Restored | None:
        """The combined state of the files; None without a valid one. Sets invalid ones aside."""
        with contextlib.suppress(OSError):
            for unfinished in self._directory.glob("prediction*.tmp"):
                unfinished.unlink()
        restored = None
        for path in sorted(self._directory.glob("prediction*.checkpoint")):
            named = _NAME.fullmatch(path.name)
            number = int(named[1]) if named else 0
            self._next = max(self._next, number + 1)
            try:
                content = decode(path.read_bytes(), node=self._node, hour_seconds=self._hour_seconds)
                restored = _replayed(content, restored.table if restored else None)
            except OSError as error:
                logger.error("checkpoint cannot be read: %s", error, extra={"path": str(path)})
            except UnusableCheckpoint as error:
                _set_aside(path, error, now)
            else:
                self._files.append(number)
                for key in restored.table.rows.keys() - self._last.keys():
                    self._last[key] = number
                for key in content.models.keys:
                    self._previous[key], self._last[key] = self._last[key], number
        return restored

    def _path(self, number: int) -> Path:
        return self._directory / f"prediction-{number:012}.checkpoint"


def due(written: NDArray[np.int64], limit: int) -> Rows:
    """Places of the `limit` models that were not written in full for the longest time."""
    return np.argsort(written, kind="stable")[:limit]


def save(path: Path, content: Content) -> None:
    """Raises OSError; an existing file then remains."""
    payload = msgspec.msgpack.encode(content)
    header = _HEADER.pack(_MAGIC, VERSION, len(payload), hashlib.sha256(payload).digest())
    path.parent.mkdir(0o700, parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.unlink(missing_ok=True)
    with open(temporary, "wb", opener=_open_private) as file:
        file.write(header + payload)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _open_private(path: str, flags: int) -> int:
    """Only the agent may read the usage of a node's pods."""
    return os.open(path, flags, 0o600)


def decode(file: bytes, *, node: str | None = None, hour_seconds: int | None = None) -> Content:
    """Raises UnusableCheckpoint, also for another node or hour, unless the parameter is None."""
    if len(file) < _HEADER.size:
        raise UnusableCheckpoint("shorter than its header")
    magic, version, length, digest = _HEADER.unpack_from(file)
    payload = file[_HEADER.size :]
    if magic != _MAGIC or version not in _READ:
        raise UnusableCheckpoint("not a checkpoint of this version")
    if len(payload) != length or hashlib.sha256(payload).digest() != digest:
        raise UnusableCheckpoint("torn: length or checksum do not match")
    try:
        content = _DECODER.decode(payload)
    except msgspec.MsgspecError as error:
        raise UnusableCheckpoint(str(error)) from error
    if node is not None and content.node != node:
        raise UnusableCheckpoint(f"of another node, {content.node!r}")
    if hour_seconds is not None and content.hour_seconds != hour_seconds:
        raise UnusableCheckpoint(f"made in hours of {content.hour_seconds} s, not {hour_seconds} s")
    return content


def _set_aside(path: Path, error: UnusableCheckpoint, now: float) -> None:
    aside = path.with_name(f"{path.name}.bad-{int(now)}")
    with contextlib.suppress(OSError):
        path.replace(aside)
    logger.error("checkpoint is invalid and was renamed: %s", error, extra={"path": str(path), "now_at": str(aside)})


def _replayed(content: Content, table: ModelTable | None) -> Restored:
    """Applies the content to the table of the earlier files, or to a new one.

    Raises UnusableCheckpoint, and then changes nothing.
    """
    half_lives = (content.cpu_half_life_seconds, content.memory_half_life_seconds)
    changes = [event for event in content.events if isinstance(event, HalfLives)]
    for seconds in (*half_lives, *(each for one in changes for each in (one.cpu_seconds, one.memory_seconds))):
        if not 0 < seconds < math.inf:
            raise UnusableCheckpoint(f"a half-life of {seconds} s")
    if not all(math.isfinite(event.seconds) for event in content.events if isinstance(event, ClockSet)):
        raise UnusableCheckpoint("a clock was set to no time")
    try:
        steps = [_usages(event) for event in content.events if isinstance(event, Trained)]
        models = SoundModels(content.models)
    except ValueError as error:
        raise UnusableCheckpoint(str(error)) from error
    if table is None or content.anew:
        table = ModelTable(cpu_half_life_seconds=half_lives[0], memory_half_life_seconds=half_lives[1])
    elif math.isfinite(table.time):  # they differ only if a file is missing
        table.change_half_lives(cpu_seconds=half_lives[0], memory_seconds=half_lives[1], time=table.time)
    for event in content.events:
        if isinstance(event, Trained):
            table.train(event.keys, steps.pop(0), event.time)
        elif isinstance(event, HalfLives):
            table.change_half_lives(cpu_seconds=event.cpu_seconds, memory_seconds=event.memory_seconds, time=event.time)
        elif isinstance(event, ClockSet):
            table.set_clock(event.seconds)
        else:
            table.forget([key for key in event.keys if key in table.rows])
    models.put(table)
    return Restored(table, content)


def _usages(step: Trained) -> Floats:
    if len(set(step.keys)) != len(step.keys) or not math.isfinite(step.time):
        raise ValueError("a training step contradicts itself")
    return as_array(step.usages, 2 * len(step.keys)).reshape(-1, 2)


_DECODER = msgspec.msgpack.Decoder(Content)
