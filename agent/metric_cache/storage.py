"""Space for a ring: on disk while the disk has room, in memory after that, and never more than its share."""

import logging
import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from agent.metric_cache.ring_file import BLOCK_COLUMNS, Block, Geometry, RingFile, open_ring
from shared import durations
from shared.errors import InvalidInput

logger = logging.getLogger(__name__)

DEFAULT_LIMIT_BYTES = 256 << 20
DEFAULT_RESERVE_PERCENT = 10.0


class Disk(NamedTuple):
    """The location of a node's rings, and how much of the file system to leave to others."""

    directory: Path
    owner: str  # the node's name
    reserve_percent: float = DEFAULT_RESERVE_PERCENT


def shares(
    limit_bytes: int, geometries: Sequence[Geometry], pod_columns: Sequence[int], retention_seconds: int
) -> list[int]:
    """Each ring's share of `limit_bytes`, by the columns that a pod needs in it: all rings have room for the same
    number of pods, and none takes another's share. Raises InvalidInput if a ring would have no room.
    """
    weights = [geometry.block_bytes * columns for geometry, columns in zip(geometries, pod_columns, strict=True)]
    limits = [limit_bytes * weight // sum(weights) for weight in weights]
    if not all(map(_most_blocks, geometries, limits)):
        raise InvalidInput(
            source="settings",
            field="--metric-retention",
            value=durations.render(retention_seconds),
            problem=f"needs more room than --metric-cache-bytes {limit_bytes}",
        )
    return limits


def _most_blocks(geometry: Geometry, limit_bytes: int) -> int:
    return max(0, limit_bytes - geometry.base_bytes) // geometry.block_bytes


class Storage:
    """A ring's stamps and blocks. `problem` says why it is not, or only partly, on disk; empty without a problem.

    A ring written under a larger limit loses the blocks beyond the present one.
    """

    def __init__(self, geometry: Geometry, limit_bytes: int, disk: Disk | None = None, name: str = "") -> None:
        self.geometry = geometry
        self.problem = ""
        self.set_aside = ""  # the reason for setting a file aside, empty without one
        self._most_blocks = _most_blocks(geometry, limit_bytes)
        self._file: RingFile | None = None
        self._path = None if disk is None else disk.directory / f"{name}.ring"
        if disk is not None and self._path is not None:
            try:
                self._file, self.set_aside = open_ring(self._path, geometry, disk.owner, disk.reserve_percent)
                self._file.keep(self._most_blocks)
            except OSError as error:
                self._degrade(error)
        self.stamps = np.full((geometry.rows, 2), -1, np.int64) if self._file is None else self._file.stamps
        self.blocks: list[Block] = [] if self._file is None else list(self._file.blocks)

    @property
    def used_bytes(self) -> int:
        """Bytes used on disk and in memory."""
        return self.geometry.base_bytes + len(self.blocks) * self.geometry.block_bytes

    def extend(self) -> bool:
        """Adds a block; False at the limit."""
        if len(self.blocks) >= self._most_blocks:
            return False
        self.blocks.append(self._grown())
        return True

    @property
    def rebooted(self) -> bool:
        """Whether the last rows may be corrupt: see `opened`."""
        return self._file is not None and self._file.rebooted

    def opened(self) -> None:
        """Call it once such rows are removed."""
        if self._file is not None:
            self._file.opened()

    def relinquish(self) -> None:
        """Releases the memory of what is on disk; a later read loads it again."""
        if self._file is not None:
            self._file.relinquish()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _grown(self) -> Block:
        # A block in memory cannot precede one on disk: a column's number is its place in the file.
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
        logger.error("samples are kept in memory and not on disk: %s", error, extra={"path": str(self._path)})
