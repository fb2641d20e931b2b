"""The durable file behind the store: one SQLite database, fully synchronous, owned by one process.

A file that is foreign or damaged, or contains invalid JSON, is renamed with a message; it is never trusted and never
deleted.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

logger = logging.getLogger(__name__)

FILE_NAME = "store.db"
_APPLICATION_ID = 0x48_44_52_4D  # "HDRM"
_LAYOUT = 1
_SCHEMA = f"""
CREATE TABLE objects (resource TEXT, key TEXT, version INTEGER NOT NULL, value BLOB NOT NULL,
                      PRIMARY KEY (resource, key));
CREATE TABLE revision (version INTEGER NOT NULL);
PRAGMA application_id = {_APPLICATION_ID};
PRAGMA user_version = {_LAYOUT};
"""

_PUT = (
    "INSERT INTO objects VALUES (?, ?, ?, ?) "
    "ON CONFLICT DO UPDATE SET version = excluded.version, value = excluded.value"
)

Row = tuple[str, str, int, bytes]


@dataclass(frozen=True, slots=True)
class Batch:
    """A group of writes and the version of the last one."""

    puts: Sequence[Row]
    deletes: Sequence[tuple[str, str]]
    version: int


class DataError(Exception):
    """The file is foreign or damaged; the text says why."""


class DataInUse(Exception):
    """Another process uses the data directory."""


class Database:
    """Rows (resource, key, version, value) and the last issued version."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=0.2)
        try:
            self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def _prepare(self) -> None:
        run = self._connection.execute
        run("PRAGMA page_size = 4096")
        run("PRAGMA locking_mode = EXCLUSIVE")
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = FULL")
        if run("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
            # The first version comes from the wall clock: a client that still has a version of a renamed or removed
            # store never sees the same number with another meaning.
            self._connection.executescript(_SCHEMA)
            run("INSERT INTO revision VALUES (?)", (time.time_ns() // 1_000_000,))
        identity = run("PRAGMA application_id").fetchone(), run("PRAGMA user_version").fetchone()
        if identity != ((_APPLICATION_ID,), (_LAYOUT,)):
            raise DataError("it is a database of another program or another layout")
        if run("PRAGMA quick_check(1)").fetchone() != ("ok",):
            raise DataError("its integrity check failed")

    def rows(self) -> Iterator[Row]:
        yield from self._connection.execute("SELECT resource, key, version, value FROM objects")

    def revision(self) -> int:
        """The highest version that was ever committed."""
        query = "SELECT max((SELECT max(version) FROM revision), (SELECT ifnull(max(version), 0) FROM objects))"
        result: tuple[int] = self._connection.execute(query).fetchone()
        return result[0]

    def write(self, batch: Batch) -> None:
        """Commits all rows or none; they are synced to disk on return. Raises sqlite3.Error."""
        run = self._connection
        if len(batch.puts) == 1 and not batch.deletes:
            run.execute(_PUT, batch.puts[0])  # a single statement is a transaction
            return
        run.execute("BEGIN IMMEDIATE")
        try:
            run.executemany(_PUT, batch.puts)
            if batch.deletes:
                # Objects contain their own version; only deletions need the counter.
                run.executemany("DELETE FROM objects WHERE resource = ? AND key = ?", batch.deletes)
                run.execute("UPDATE revision SET version = ?", (batch.version,))
            run.execute("COMMIT")
        except BaseException:
            run.execute("ROLLBACK")
            raise

    def close(self) -> None:
        self._connection.close()


def open_database(directory: Path) -> Database:
    """The directory's database; an untrusted one is set aside. Raises DataInUse, OSError."""
    directory.mkdir(0o700, parents=True, exist_ok=True)
    path = directory / FILE_NAME
    _make_private(path)
    try:
        return Database(path)
    except sqlite3.OperationalError as error:
        raise DataInUse(f"{path}: {error} (is another API server using this data directory?)") from error
    except (DataError, sqlite3.DatabaseError) as error:
        set_aside(path, str(error))
        _make_private(path)
        return Database(path)


def _make_private(path: Path) -> None:
    """Makes the file readable by its owner only: it contains plain secrets. SQLite's other files copy the mode."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.fchmod(descriptor, 0o600)  # for a file from an earlier version
    os.close(descriptor)


def set_aside(path: Path, why: str) -> None:
    """Renames the database and its companion files, and keeps them for inspection."""
    suffix = f".set-aside-{time.time_ns()}"
    for companion in (path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")):
        if companion.exists():
            companion.rename(companion.with_name(companion.name + suffix))
    logger.error("%s cannot be used: %s; kept as %s%s, starting with an empty store", path, why, path, suffix)
