"""Waits for writes to files, by inotify(7)."""

import ctypes
import os
import select

_IN_MODIFY = 0x2
_READ_BYTES = 4096


class FileWatch:
    """Making one raises OSError where the user has no more of them left."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._called("inotify_init1", os.O_NONBLOCK | os.O_CLOEXEC)

    def follow(self, file: int) -> None:
        """Tells of this open file, too, once however often it is asked to. Raises OSError."""
        self._called("inotify_add_watch", self._descriptor, f"/proc/self/fd/{file}".encode(), _IN_MODIFY)

    def wait(self, seconds: float) -> bool:
        """Whether any process, this one included, has written since the last call; waits up to `seconds` for it."""
        readable, _, _ = select.select([self._descriptor], [], [], seconds)
        return bool(readable and os.read(self._descriptor, _READ_BYTES))

    def close(self) -> None:
        os.close(self._descriptor)

    def _called(self, name: str, *arguments: int | bytes) -> int:
        found = int(getattr(self._libc, name)(*arguments))
        if found < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"{name}: {os.strerror(number)}")
        return found
