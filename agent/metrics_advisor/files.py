"""Kernel files read every second: opened once, read in place.

A cgroup or procfs file regenerates its content for each `pread` at offset 0, and opening costs three times as much as
reading. A file whose cgroup has been removed answers ENODEV for ever, also when one of the same name is made.
"""

import errno
import math
import os
from collections.abc import Callable, Sequence

from shared import descriptors

READ_BYTES = 8192  # the longest of the files kept open, a v2 memory.stat, has about 2 KB
_RESERVED_DESCRIPTORS = 256  # for sockets, the checkpoint and libraries


class Descriptors:
    """How many files may be kept open; beyond it they are opened for each read."""

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
    """One file, kept open while the budget allows. Every read may raise OSError, which means: gone or not readable."""

    __slots__ = ("_descriptors", "_inode", "_path", "descriptor", "size")

    def __init__(self, path: str, descriptors: Descriptors, size: int = READ_BYTES) -> None:
        self._path = path
        self._descriptors = descriptors
        self.size = size  # no more than is needed: the buffer is made anew for each read
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
            if self._inode not in (0, inode):  # what a kept descriptor would have answered
                raise OSError(errno.ENODEV, "another file took this one's name", self._path)
            self._inode = inode
            return os.pread(opened, self.size, 0)
        finally:
            os.close(opened)


class HotFiles:
    """Files of one kind, read one after the other. None of them may be closed as long as this is read.

    Between two ticks most of what a process touched goes from the CPU's caches, and fetching it again costs more than
    working on it. So a read touches as little as it can: where all of the files are kept open, their descriptors alone.
    """

    def __init__(self, files: Sequence[HotFile], parse: Callable[[bytes], float]) -> None:
        self._files = files
        self._parse = parse
        self._descriptors: list[int] = []  # of all files, or none where one of them is not known to be open

    def __len__(self) -> int:
        return len(self._files)

    def read(self) -> list[float]:
        """What each file says, NaN for one that is gone or makes no sense."""
        if self._descriptors:
            parse, size, pread = self._parse, self._files[0].size, os.pread
            try:
                return [parse(pread(descriptor, size, 0)) for descriptor in self._descriptors]
            except (OSError, ValueError):
                pass  # they are asked one by one
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
    """The first `size` bytes, for the least CPU time. Raises OSError."""
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(opened, size, 0)
    finally:
        os.close(opened)
