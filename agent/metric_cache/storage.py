"""Room for a ring: on disk as long as the disk gives some, in memory from then on, and never more than agreed."""

import logging
import mmap
from pathlib import Path
from typing import NamedTuple

import numpy as np

from agent.metric_cache.ring_file import BLOCK_COLUMNS, Block, Geometry, RingFile, open_ring

logger = logging.getLogger(__name__)

DEFAULT_LIMIT_BYTES = 256 << 20
DEFAULT_RESERVE_PERCENT = 10.0


class Disk(NamedTuple):
    """Where the rings of a node are, and how much of the file system is left to others."""

    directory: Path
    owner: str  # the node's name
    reserve_percent: float = DEFAULT_RESERVE_PERCENT


class Space:
    """What all rings of a cache may take together, on disk and in memory."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0

    def take(self, size: int) -> bool:
        if self.used_bytes + size > self.limit_bytes:
            return False
        self.used_bytes += size
        return True


class Storage:
    """A ring's stamps and blocks. `problem` says why it is not, or not all, on disk; empty when it is as it should."""

    def __init__(self, geometry: Geometry, space: Space, disk: Disk | None = None, name: str = "") -> None:
        self.geometry = geometry
        self.problem = ""
        self.set_aside = ""  # why a file was, empty when none was
        self._space = space
        self._file: RingFile | None = None
        self._path = None if disk is None else disk.directory / f"{name}.ring"
        if disk is not None and self._path is not None:
            try:
                self._file, self.set_aside = open_ring(self._path, geometry, disk.owner, disk.reserve_percent)
            except OSError as error:
                self._degrade(error)
        self.stamps = np.full((geometry.rows, 2), -1, np.int64) if self._file is None else self._file.stamps
        self.blocks: list[Block] = [] if self._file is None else list(self._file.blocks)
        # What is there already is kept, even if the limit was larger when it was written.
        space.used_bytes += geometry.base_bytes + len(self.blocks) * geometry.block_bytes

    def extend(self) -> bool:
        """Adds a block; False when the limit is reached."""
        if not self._space.take(self.geometry.block_bytes):
            return False
        self.blocks.append(self._grown())
        return True

    @property
    def rebooted(self) -> bool:
        """Whether the last rows may not be what was written: see `opened`."""
        return self._file is not None and self._file.rebooted

    def opened(self) -> None:
        """To be called once such rows are gone."""
        if self._file is not None:
            self._file.opened()

    def relinquish(self) -> None:
        """Gives back the memory of what is on disk; it is read again when it is asked for."""
        if self._file is not None:
            self._file.relinquish()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _grown(self) -> Block:
        # A block in memory cannot be followed by one on disk: a column's number is its place in the file.
        if self._file is not None and not self.problem:
            try:
                return self._file.grow()
            except OSError as error:
                self._degrade(error)
        geometry = self.geometry
        memory = mmap.mmap(-1, geometry.data_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        data = np.frombuffer(memory, np.float32)
        return Block(None, data.reshape(geometry.rows, geometry.planes, BLOCK_COLUMNS))

    def _degrade(self, error: OSError) -> None:
        self.problem = f"{self._path}: {error.strerror or error}"
        logger.error("samples go to memory and not to disk: %s", error, extra={"path": str(self._path)})
