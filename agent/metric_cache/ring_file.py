"""A ring on disk: one mapped file that is the state itself, so that nothing needs saving or restoring.

    header     magic, version, geometry, the node it is of, CRC-32; written once, before the file gets its name
    boot       of the machine, when it was last opened
    counts     how many blocks there are: two slots that take turns, so that a torn write leaves the one before
    stamps     which row holds what (see `agent.metric_cache.ring`)
    blocks     each the names of its columns, then its rows

The file is fully allocated before it is mapped, because a write to a page without disk space would kill the process.
The process may be killed between any two stores: a block counts once the counts include it, a row once its stamp is
valid, a column once its name's checksum is. An inconsistent file is renamed and never used. A machine that goes down
may lose pages it has not written back, so the file also records the boot under which it was last open.
"""

import contextlib
import errno
import fcntl
import hashlib
import logging
import mmap
import os
import stat
import struct
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.errors import HeadroomError

logger = logging.getLogger(__name__)

Samples = NDArray[np.float32]

BLOCK_COLUMNS = 256
VERSION = 1
_MAGIC = b"HDRMRING"
_HEADER = struct.Struct("<8sIIIIIII32s")  # followed by its CRC-32
_CHECKSUM = struct.Struct("<I")
_BOOT_AT, _BOOT_BYTES = 1024, 36
_COUNTS_AT, _COUNTS_SHAPE = 2048, (2, 2)
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
HEADER_BYTES = 4096
STAMP_KEY = 0x5EA1_0F_0DD_5EC0_4D  # a number is stored beside itself xor this, a pair that no accident produces


class Geometry(NamedTuple):
    """A slot is `step_seconds` long and has one row; a row has `planes` values for each column."""

    step_seconds: int
    rows: int
    planes: int
    name_bytes: int  # of one column's record

    @property
    def stamps_bytes(self) -> int:
        return self.rows * 2 * 8

    @property
    def data_bytes(self) -> int:
        """The size of one block's samples."""
        return self.rows * self.planes * BLOCK_COLUMNS * 4

    @property
    def base_bytes(self) -> int:
        """The size of the part before the blocks."""
        return _aligned(HEADER_BYTES + self.stamps_bytes)

    @property
    def block_bytes(self) -> int:
        return _aligned(BLOCK_COLUMNS * self.name_bytes + self.data_bytes)


class Block(NamedTuple):
    """`records` (columns, name_bytes), None if they need not outlive the process; `data` (rows, planes, columns)."""

    records: NDArray[np.uint8] | None
    data: Samples


class UnusableRing(HeadroomError):
    """The file is unusable; the text says why."""


class RingFile:
    """An open, locked and mapped ring file."""

    def __init__(self, descriptor: int, geometry: Geometry, directory: Path, reserve_percent: float) -> None:
        self._descriptor = descriptor
        self._geometry = geometry
        self._directory = directory
        self._reserve_percent = reserve_percent
        self._maps = [mmap.mmap(descriptor, geometry.base_bytes)]
        self._counts = np.frombuffer(self._maps[0], np.int64, 4, _COUNTS_AT).reshape(_COUNTS_SHAPE)
        self.stamps = np.frombuffer(self._maps[0], np.int64, geometry.rows * 2, HEADER_BYTES).reshape(-1, 2)
        self._boot = np.frombuffer(self._maps[0], np.uint8, _BOOT_BYTES, _BOOT_AT)
        self.blocks: list[Block] = []
        size = os.fstat(descriptor).st_size
        count = self._count()
        if size < geometry.base_bytes + count * geometry.block_bytes:
            raise UnusableRing(f"torn: {size} bytes are too few for {count} blocks")
        os.ftruncate(descriptor, geometry.base_bytes + count * geometry.block_bytes)  # undoes an interrupted growth
        os.posix_fallocate(descriptor, 0, geometry.base_bytes + count * geometry.block_bytes)  # a copy may have holes
        for number in range(count):
            self._map(number)

    def grow(self) -> Block:
        """Adds a block. Raises OSError when the disk has no room for it, or would keep less than the reserve."""
        number = len(self.blocks)
        require_room(self._directory, self._geometry.block_bytes, self._reserve_percent)
        offset = self._geometry.base_bytes + number * self._geometry.block_bytes
        try:
            os.posix_fallocate(self._descriptor, offset, self._geometry.block_bytes)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, offset)  # releases the part the disk has allocated
            raise
        block = self._map(number)
        self._counts[(number + 1) % 2] = number + 1, (number + 1) ^ STAMP_KEY
        return block

    def keep(self, count: int) -> None:
        """Drops all blocks but the first `count`. No array may refer to the others yet."""
        if count >= len(self.blocks):
            return
        del self.blocks[count:], self._maps[1 + count :]
        for slot in self._counts:
            slot[:] = count, count ^ STAMP_KEY
        self._maps[0].flush()  # otherwise a machine that goes down now might find more blocks counted than exist
        os.ftruncate(self._descriptor, self._geometry.base_bytes + count * self._geometry.block_bytes)

    @property
    def rebooted(self) -> bool:
        """Whether the machine has restarted since the file was last opened."""
        return self._boot.tobytes() != _boot_id()

    def opened(self) -> None:
        """Records the present boot."""
        self._boot[:] = np.frombuffer(_boot_id(), np.uint8)

    def relinquish(self) -> None:
        """Tells the kernel to reclaim the pages in memory; their content stays in the file."""
        for mapped in self._maps:
            mapped.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Releases the file to other processes; the maps close with the last array that refers to them."""
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)
        self._maps.clear()

    def _count(self) -> int:
        counts = [int(number) for number, check in self._counts if number ^ STAMP_KEY == check and number >= 0]
        if not counts:
            raise UnusableRing("torn: the number of blocks is not to be read")
        return max(counts)

    def _map(self, number: int) -> Block:
        geometry = self._geometry
        offset = geometry.base_bytes + number * geometry.block_bytes
        mapped = mmap.mmap(self._descriptor, geometry.block_bytes, offset=offset)
        names = BLOCK_COLUMNS * geometry.name_bytes
        records = np.frombuffer(mapped, np.uint8, names).reshape(BLOCK_COLUMNS, geometry.name_bytes)
        data = np.frombuffer(mapped, np.float32, geometry.data_bytes // 4, names)
        block = Block(records, data.reshape(geometry.rows, geometry.planes, BLOCK_COLUMNS))
        self._maps.append(mapped)
        self.blocks.append(block)
        return block


def open_ring(path: Path, geometry: Geometry, owner: str, reserve_percent: float) -> tuple[RingFile, str]:
    """The ring of `owner` at `path`, created if missing, and why the previous one was set aside ("" if it was not).

    Raises OSError when the disk refuses, or another process uses the ring.
    """
    path.parent.mkdir(0o700, parents=True, exist_ok=True)
    complaint = ""
    try:
        return open_existing(path, geometry, owner, reserve_percent), ""
    except FileNotFoundError:
        pass
    except (UnusableRing, IsADirectoryError) as error:
        complaint = str(error)
        aside = path.with_name(path.name + ".bad")
        path.replace(aside)  # replaces an earlier one, so that they do not fill the disk
        logger.error(
            "samples file is invalid and was renamed: %s", error, extra={"path": str(path), "now_at": str(aside)}
        )
    return _fresh(path, geometry, owner, reserve_percent), complaint


def require_room(directory: Path, size: int, reserve_percent: float) -> None:
    """Raises OSError (ENOSPC) when `size` bytes more would leave less than the reserve free."""
    disk = os.statvfs(directory)
    left = disk.f_bavail * disk.f_frsize - size
    if left < disk.f_blocks * disk.f_frsize * reserve_percent / 100:
        problem = f"{size} bytes would leave less than {reserve_percent:g} % of the disk free"
        raise OSError(errno.ENOSPC, problem, str(directory))


def open_existing(path: Path, geometry: Geometry, owner: str, reserve_percent: float) -> RingFile:
    """Raises UnusableRing, and OSError as `open_ring` does."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UnusableRing("not a regular file")
        _lock(descriptor, path)
        _check(os.pread(descriptor, HEADER_BYTES, 0), _header(geometry, owner))
        if status.st_size < geometry.base_bytes:
            raise UnusableRing(f"torn: {status.st_size} bytes are too few")
        return RingFile(descriptor, geometry, path.parent, reserve_percent)
    except BaseException:
        os.close(descriptor)
        raise


def _fresh(path: Path, geometry: Geometry, owner: str, reserve_percent: float) -> RingFile:
    """Built under another name, so that no other process and no later start sees half a header."""
    require_room(path.parent, geometry.base_bytes, reserve_percent)
    beside = path.with_name(path.name + ".new")
    descriptor = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        _lock(descriptor, path)
        os.posix_fallocate(descriptor, 0, geometry.base_bytes)
        os.pwrite(descriptor, _header(geometry, owner), 0)
        os.pwrite(descriptor, struct.pack("<qq", 0, STAMP_KEY), _COUNTS_AT)
        os.fsync(descriptor)
        made = RingFile(descriptor, geometry, path.parent, reserve_percent)
        beside.replace(path)
        return made
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        os.close(descriptor)
        raise


def _boot_id() -> bytes:
    try:
        return _BOOT_ID.read_bytes()[:_BOOT_BYTES].ljust(_BOOT_BYTES)
    except OSError:
        return b" " * _BOOT_BYTES


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise OSError(error.errno, "another process has it", str(path)) from error


def _header(geometry: Geometry, owner: str) -> bytes:
    digest = hashlib.sha256(owner.encode()).digest()
    fields = _HEADER.pack(_MAGIC, VERSION, mmap.ALLOCATIONGRANULARITY, BLOCK_COLUMNS, *geometry, digest)
    return fields + _CHECKSUM.pack(zlib.crc32(fields))


def _check(found: bytes, expected: bytes) -> None:
    """Raises UnusableRing."""
    fields = found[: _HEADER.size]
    if len(found) < len(expected) or found[: len(_MAGIC)] != _MAGIC:
        raise UnusableRing("not a ring, or less than its header")
    if found[_HEADER.size : len(expected)] != _CHECKSUM.pack(zlib.crc32(fields)):
        raise UnusableRing("torn: the header's checksum does not match")
    if fields != expected[: _HEADER.size]:
        raise UnusableRing("of another version, node or geometry")


def _aligned(size: int) -> int:
    """The next multiple of the alignment of a map."""
    return -(-size // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
