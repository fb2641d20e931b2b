"""Kernel files read every second: opened once, read in place.

A cgroup or procfs file regenerates its content for each `pread` at offset 0, and opening costs three times as much as
reading. A file whose cgroup has been removed answers ENODEV for ever, also when one of the same name is made.
"""

import os
import resource
from pathlib import Path

READ_BYTES = 8192  # the longest of the files read here, a v2 memory.stat, has about 2 KB
_UNLIMITED = 1 << 20
_RESERVED_DESCRIPTORS = 256  # for sockets, the checkpoint and libraries


class Descriptors:
    """How many files may be kept open; beyond it they are opened for each read."""

    def __init__(self, limit: int | None = None) -> None:
        self._free = raise_limit() - _RESERVED_DESCRIPTORS if limit is None else limit

    def take(self) -> bool:
        if self._free <= 0:
            return False
        self._free -= 1
        return True

    def give_back(self) -> None:
        self._free += 1


def raise_limit() -> int:
    """Raises the soft limit of open files to the hard one, and returns it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return _UNLIMITED if hard == resource.RLIM_INFINITY else hard


class HotFile:
    """One file, kept open while the budget allows. Every read may raise OSError, which means: gone or not readable."""

    def __init__(self, path: Path, descriptors: Descriptors) -> None:
        self._path = path
        self._descriptors = descriptors
        self._descriptor: int | None = None

    def read(self) -> bytes:
        if self._descriptor is None:
            opened = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            if not self._descriptors.take():
                try:
                    return os.pread(opened, READ_BYTES, 0)
                finally:
                    os.close(opened)
            self._descriptor = opened
        return os.pread(self._descriptor, READ_BYTES, 0)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
            self._descriptors.give_back()
