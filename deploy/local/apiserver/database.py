"""The file behind the store: one SQLite database, owned by one process; never changed if foreign or damaged."""

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

FILE_NAME = "store.db"
_LAYOUT = 0x48_44_52_4E  # "HDRN", the application_id of this layout
_SCHEMA = f"""
CREATE TABLE objects (resource TEXT, key TEXT, version INTEGER NOT NULL, value BLOB NOT NULL,
                      PRIMARY KEY (resource, key));
PRAGMA application_id = {_LAYOUT};
"""
_PUT = (
    "INSERT INTO objects VALUES (?, ?, ?, ?) "
    "ON CONFLICT DO UPDATE SET version = excluded.version, value = excluded.value"
)

Row = tuple[str, str, int, bytes]


class UnusableData(Exception):
    """Another process uses the file, or it is foreign or damaged; the text says which."""


class Database:
    """Rows (resource, key, version, value). A deletion leaves an empty value, so that its version is not reused."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=0.2)
        try:
            self.version = self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def _prepare(self) -> int:
        """The highest version that was ever written."""
        run = self._connection.execute
        run("PRAGMA locking_mode = EXCLUSIVE")
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = NORMAL")
        if run("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
            self._connection.executescript(_SCHEMA)
            # The first version comes from the wall clock: a client that still has a version of a renamed or removed
            # store never sees the same number with another meaning.
            self.write("", "", time.time_ns() // 1_000_000)
        if run("PRAGMA application_id").fetchone() != (_LAYOUT,):
            raise UnusableData("it is a database of another program or another layout")
        if run("PRAGMA quick_check(1)").fetchone() != ("ok",):
            raise UnusableData("its integrity check failed")
        found: tuple[int] = run("SELECT max(version) FROM objects").fetchone()
        return found[0]

    def rows(self) -> Iterator[Row]:
        """The objects."""
        yield from self._connection.execute("SELECT * FROM objects WHERE value != x''")

    def write(self, resource: str, key: str, version: int, value: bytes = b"") -> None:
        """Stores one object, or without a value its deletion. Raises sqlite3.Error."""
        self._connection.execute(_PUT, (resource, key, version, value))  # a single statement is a transaction

    def forget_deletions(self, version: int) -> None:
        """Keeps their highest version alone. Raises sqlite3.Error."""
        self.write("", "", version)
        self._connection.execute("DELETE FROM objects WHERE value = x'' AND resource != ''")

    def close(self) -> None:
        self._connection.close()


def open_database(directory: Path) -> Database:
    """The directory's database. Raises UnusableData, OSError."""
    directory.mkdir(0o700, parents=True, exist_ok=True)
    path = directory / FILE_NAME
    path.touch(0o600)  # it contains plain secrets; SQLite's other files copy the mode
    try:
        return Database(path)
    except sqlite3.OperationalError as error:
        raise UnusableData(f"{path}: {error} (is another API server using this data directory?)") from error
    except (UnusableData, sqlite3.DatabaseError) as error:
        raise UnusableData(f"{path}: {error}; move it away to start with an empty store") from error
