"""The initial file system of a Linux kernel: an archive in cpio's "newc" form (Linux, `buffer-format.rst`)."""

import os
import stat
from pathlib import Path
from typing import BinaryIO

_END = "TRAILER!!!"


class Archive:
    """Files of this machine under names of their own, each at most once; folders above them come by themselves."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._names: set[str] = {""}

    def add(self, source: Path, name: str | None = None) -> None:
        """A file, or what a symbolic link to one leads to; `name` is its path in the archive, by default its own."""
        status = source.stat()
        # Readable to every user, as a system's own files are, wherever this machine keeps them.
        mode = stat.S_IFREG | (0o755 if status.st_mode & stat.S_IXUSR else 0o644)
        self._entry(name or str(source), mode, source.read_bytes(), int(status.st_mtime))

    def text(self, name: str, content: str, mode: int = 0o644) -> None:
        self._entry(name, stat.S_IFREG | mode, content.encode())

    def link(self, name: str, target: str) -> None:
        self._entry(name, stat.S_IFLNK | 0o777, target.encode())

    def folder(self, name: str, mode: int = 0o755) -> None:
        self._entry(name, stat.S_IFDIR | mode, b"")

    def tree(self, top: Path, without: frozenset[str]) -> None:
        """All regular files below `top`, but for what lies in a folder or file whose name is one of `without`."""
        for directory, folders, files in os.walk(top, followlinks=False):
            folders[:] = [each for each in folders if each not in without]
            for file in files:
                path = Path(directory, file)
                if file not in without and path.is_file():
                    self.add(path)

    def close(self) -> None:
        self._write(_END, 0, b"", 0)

    def _entry(self, name: str, mode: int, content: bytes, modified: int = 0) -> None:
        name = name.strip("/")
        if name in self._names:
            return
        self._names.add(name)
        if (above := name.rpartition("/")[0]) not in self._names:
            self.folder(above)
        self._write(name, mode, content, modified)

    def _write(self, name: str, mode: int, content: bytes, modified: int) -> None:
        encoded = name.encode() + b"\0"
        # Inode, mode, owner, group, links, time, size, four device numbers, length of the name, no checksum.
        fields = (len(self._names), mode, 0, 0, 1, modified, len(content), 0, 0, 0, 0, len(encoded), 0)
        header = b"070701" + b"".join(b"%08X" % field for field in fields)
        self._file.write(_padded(header + encoded) + _padded(content))


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
