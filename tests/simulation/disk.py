"""What a disk holds after a power failure: of each file only what was synced, whatever it is called by then.

A disk without space takes half of a file, and says so when it is synced.
"""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.simulation.virtual import WORLD


class Disk:
    """Notes what is synced. `install` puts it before `os.fsync`. `full` are the directories without space."""

    def __init__(self) -> None:
        self.full: set[Path] = set()
        self._synced: dict[tuple[int, int], int] = {}
        self._synced_at: dict[Path, float] = {}

    def install(self) -> None:
        module: Any = os
        sync = module.fsync

        def fsync(descriptor: int) -> None:
            path, found = Path(os.readlink(f"/proc/self/fd/{descriptor}")), os.fstat(descriptor)
            if path.parent in self.full:
                os.truncate(descriptor, found.st_size // 2)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            sync(descriptor)
            self._synced[found.st_dev, found.st_ino] = found.st_size
            if stat.S_ISDIR(found.st_mode):
                self._synced_at[path] = WORLD.now

        module.fsync = fsync

    def synced_at(self, directory: Path) -> float:
        """When the names of its files were last synced, 0 if never."""
        return self._synced_at.get(directory, 0.0)

    def lose_unsynced(self, directory: Path) -> None:
        """The power fails: files below the directory are cut to what was synced of them."""
        for path in self._files(directory):
            found = path.stat()
            synced = self._synced.get((found.st_dev, found.st_ino), 0)
            if found.st_size > synced:
                os.truncate(path, synced)

    def _files(self, directory: Path) -> Iterator[Path]:
        return (path for path in sorted(directory.rglob("*")) if path.is_file())
