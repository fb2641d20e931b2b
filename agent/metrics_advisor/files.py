"""Kernel files read every second: opened once, read in place.

A cgroup or procfs file regenerates its content for each `pread` at offset 0, and opening costs three times as much as
reading. A file whose cgroup has been removed answers ENODEV for ever, also when one of the same name is made.
"""

import errno
import os
import resource

READ_BYTES = 8192  # the longest of the files kept open, a v2 memory.stat, has about 2 KB
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
    """Raises the soft limit of open files as far as it goes without privilege, and returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # forbidden by a sandbox
        hard = soft
    return _UNLIMITED if hard == resource.RLIM_INFINITY else hard


class HotFile:
    """One file, kept open while the budget allows. Every read may raise OSError, which means: gone or not readable.

    Where a call more is too much, `descriptor` is read from directly as long as there is one.
    """

    __slots__ = ("_descriptors", "_inode", "_path", "_size", "descriptor")

    def __init__(self, path: str, descriptors: Descriptors, size: int = READ_BYTES) -> None:
        self._path = path
        self._descriptors = descriptors
        self._size = size  # no more than is needed: the buffer is made anew for each read
        self.descriptor: int | None = None
        self._inode = 0

    def read(self) -> bytes:
        if self.descriptor is None:
            return self._open_and_read()
        return os.pread(self.descriptor, self._size, 0)

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
            return os.pread(opened, self._size, 0)
        try:
            inode = os.fstat(opened).st_ino
            if self._inode not in (0, inode):  # what a kept descriptor would have answered
                raise OSError(errno.ENODEV, "another file took this one's name", self._path)
            self._inode = inode
            return os.pread(opened, self._size, 0)
        finally:
            os.close(opened)


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
