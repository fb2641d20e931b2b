"""Kernel files read every second: opened once, read in place.

A cgroup or procfs file regenerates its content for each `pread` at offset 0, and opening costs three times as much as
reading. A file of a removed cgroup always answers ENODEV, even after a cgroup of the same name is created.
"""

import errno
import math
import os
from collections.abc import Callable, Sequence

from shared import descriptors

READ_BYTES = 8192  # the longest of these files, a v2 memory.stat, has about 2 KB
_RESERVED_DESCRIPTORS = 256  # for sockets, the checkpoint and libraries


class Descriptors:
    """The number of files that may stay open; others are opened for each read."""

    def __init__(self, limit: int | None = None) -> None:
        self._free = descriptors.raise_limit() - _RESERVED_DESCRIPTORS if limit is None else limit

    def take(self) -> bool:
        if self._free <= 0:
            return False
        self._free -= 1
        return True

    def give_back(self) -> None:
        self._free += 1


class HotFile:
    """One file, kept open while the budget allows. Every read may raise OSError: the file is gone or unreadable."""

    __slots__ = ("_descriptors", "_inode", "_path", "descriptor", "size")

    def __init__(self, path: str, descriptors: Descriptors, size: int = READ_BYTES) -> None:
        self._path = path
        self._descriptors = descriptors
        self.size = size  # no more than needed: each read allocates the buffer
        self.descriptor: int | None = None
        self._inode = 0

    def read(self) -> bytes:
        if self.descriptor is None:
            return self._open_and_read()
        return os.pread(self.descriptor, self.size, 0)

    def close(self) -> None:
        self._inode = 0
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None
            self._descriptors.give_back()

    def _open_and_read(self) -> bytes:
        opened = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        if self._descriptors.take():
            self.descriptor = opened
            return os.pread(opened, self.size, 0)
        try:
            inode = os.fstat(opened).st_ino
            if self._inode not in (0, inode):  # the error that an open descriptor would have given
                raise OSError(errno.ENODEV, "another file took this one's name", self._path)
            self._inode = inode
            return os.pread(opened, self.size, 0)
        finally:
            os.close(opened)


class HotFiles:
    """Files of one kind, read one after the other. None of them may be closed while this object is in use.

    Between two ticks most of the process's memory leaves the CPU's caches, and fetching it again costs more than the
    work on it. So a read touches as little as it can: if all files are open, only their descriptors.
    """

    def __init__(self, files: Sequence[HotFile], parse: Callable[[bytes], float]) -> None:
        self._files = files
        self._parse = parse
        self._descriptors: list[int] = []  # of all files, or empty unless all are known to be open

    def __len__(self) -> int:
        return len(self._files)

    def read(self) -> list[float]:
        """The value of each file, NaN for a removed or malformed one."""
        if self._descriptors:
            parse, size, pread = self._parse, self._files[0].size, os.pread
            try:
                return [parse(pread(descriptor, size, 0)) for descriptor in self._descriptors]
            except (OSError, ValueError):
                pass  # the loop below reads them one by one
        values = [self._read_one(file) for file in self._files]
        kept = [file.descriptor for file in self._files if file.descriptor is not None]
        self._descriptors = kept if len(kept) == len(self._files) else []
        return values

    def _read_one(self, file: HotFile) -> float:
        try:
            return self._parse(file.read())
        except (OSError, ValueError):
            return math.nan


def read_once(path: str) -> bytes:
    """The whole of a file that is not worth a descriptor. Raises OSError."""
    with open(path, "rb", buffering=0) as file:
        return file.readall()


def read_small(path: str, size: int = READ_BYTES) -> bytes:
    """The first `size` bytes, with the least CPU time. Raises OSError."""
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(opened, size, 0)
    finally:
        os.close(opened)
