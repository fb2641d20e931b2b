"""Writes the kubelet's cgroups: below its own tree only, known files only, and never through a link."""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from agent.enforcer.table import FILES, MOST_SHARES, OF_MEMORY, PERIOD_USEC, Knob, quota_usec, weight
from agent.enforcer.watch import FileWatch
from agent.metrics_advisor.cgroups import Layout
from shared.names import KubeQoS

_READ_BYTES = 128
_PARTS = 16  # of a path: no tree is deeper
GONE = frozenset({errno.ENOENT, errno.ENODEV})  # before or during the access
_HOLD_ATTEMPTS = 5
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST = {Knob.IDLE: 1, Knob.OOM_GROUP: 1, Knob.WEIGHT: MOST_SHARES, Knob.QUOTA: 1 << 24, Knob.MEMORY: 1 << 50}


class CpuQuota(NamedTuple):
    """A cpu quota, negative for none, and its period, in microseconds."""

    usec: int
    period_usec: int


class Stood(NamedTuple):
    """The content of a file `before`, and the wanted text; `changed` tells whether they differ."""

    before: str
    wanted: str
    changed: bool


class NotAllowed(Exception):
    """The cgroup belongs to no pod, or the value is not permitted for a pod: a defect of ours, or an attack."""


class Tree:
    """All calls raise OSError, with an errno in `GONE` when a cgroup no longer exists, and NotAllowed."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        hierarchy = layout.hierarchy
        self.v2 = hierarchy.v2
        cpu = hierarchy.throttling or hierarchy.roots["cpu"]  # v1's quota may be mounted apart from its usage
        self._roots = {False: str(cpu), True: str(hierarchy.roots["memory"])}
        self._top = layout.class_path(KubeQoS.GUARANTEED)
        self.best_effort = layout.class_path(KubeQoS.BEST_EFFORT)
        self._classes = {self._top, self.best_effort, layout.class_path(KubeQoS.BURSTABLE)}

    def set(self, path: str, knob: Knob, value: int) -> Stood:
        """Changes the knob to `value`, unless it has that value already.

        v1 refuses a memory limit below what it cannot reclaim (EBUSY). The limit is then the cgroup's current usage, so
        that it does not grow until the wanted limit can be written.
        """
        if not -1 <= value <= _MOST[knob] or (value < 0 and knob not in (Knob.QUOTA, Knob.MEMORY)):
            raise NotAllowed(f"{knob.name} of {path} to {value}")
        with self._opened(path, knob, os.O_RDWR) as file:
            before = _text(file)
            wanted = self._rendered(path, knob, value, before)
            changed = not _agree(before, wanted)
            if changed:
                try:
                    _write(file, wanted)
                except OSError as error:
                    if error.errno == errno.EBUSY and knob is Knob.MEMORY and not self.v2:
                        self._hold(path, file)
                    raise
            return Stood(before, wanted, changed)

    def _hold(self, path: str, limit: int) -> None:
        """Limits the memory of a v1 cgroup to its usage, which may grow during the attempt."""
        for _ in range(_HOLD_ATTEMPTS):
            with contextlib.suppress(OSError):
                _write(limit, self._read(path, "memory.usage_in_bytes", memory=True))
                return

    def has(self, path: str, knob: Knob) -> bool:
        """Whether the kernel has this knob there."""
        try:
            with self._opened(path, knob, os.O_RDONLY):
                return True
        except OSError as error:
            if error.errno in GONE:
                return False
            raise

    def quota(self, path: str) -> CpuQuota:
        """The current cpu quota."""
        with self._opened(path, Knob.QUOTA, os.O_RDONLY) as file:
            text = _text(file)
            if not self.v2:
                return CpuQuota(int(text), self._period_v1(path))
        given, _, period = text.partition(" ")
        return CpuQuota(-1 if given == "max" else int(given), int(period or PERIOD_USEC))

    def set_quota(self, path: str, usec: int) -> None:
        """Sets the quota in microseconds of the current period; negative is none."""
        with self._opened(path, Knob.QUOTA, os.O_RDWR) as file:
            text = str(usec)
            if self.v2:
                _, _, period = _text(file).partition(" ")
                text = f"{'max' if usec < 0 else usec} {period or PERIOD_USEC}"
            _write(file, text)

    def follow_quota(self, watch: FileWatch) -> None:
        """Makes the watch tell of writes to the quota of best-effort pods."""
        with self._opened(self.best_effort, Knob.QUOTA, os.O_RDONLY) as file:
            watch.follow(file)

    def _rendered(self, path: str, knob: Knob, value: int, before: str) -> str:
        if knob is Knob.QUOTA and self.v2:
            period = int(before.partition(" ")[2] or PERIOD_USEC)
            usec = quota_usec(value, period)
            return f"{'max' if usec < 0 else usec} {period}"
        if knob is Knob.QUOTA:
            return str(quota_usec(value, self._period_v1(path)))
        if knob is Knob.WEIGHT and self.v2:
            return str(weight(value))
        if knob is Knob.MEMORY:
            page = os.sysconf("SC_PAGE_SIZE")
            none = "max" if self.v2 else "-1"
            return none if value < 0 else str(value // page * page)  # the kernel keeps whole pages
        return str(value)

    def _period_v1(self, path: str) -> int:
        return int(self._read(path, "cpu.cfs_period_us", memory=False))

    def _read(self, path: str, name: str, *, memory: bool) -> str:
        with self._directory(path, memory=memory) as directory:
            opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        try:
            return _text(opened)
        finally:
            os.close(opened)

    @contextlib.contextmanager
    def _opened(self, path: str, knob: Knob, mode: int) -> Iterator[int]:
        name = FILES[self.v2].get(knob)
        is_quota_of_all = path == self.best_effort and knob is Knob.QUOTA
        if name is None or not path.startswith(f"{self._top}/") or (path in self._classes and not is_quota_of_all):
            raise NotAllowed(f"{knob.name} of {path}")
        with self._directory(path, memory=knob in OF_MEMORY) as directory:
            opened = os.open(name, mode | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=directory)
        try:
            if not stat.S_ISREG(os.fstat(opened).st_mode):
                raise NotAllowed(f"{path}/{name} is no file")
            yield opened
        finally:
            os.close(opened)

    @contextlib.contextmanager
    def _directory(self, path: str, *, memory: bool) -> Iterator[int]:
        """Opens each part of the path relative to the previous one, so that no link can redirect it."""
        parts = path.split("/")
        if len(parts) > _PARTS or any(part in ("", ".", "..") for part in parts):
            raise NotAllowed(path)
        opened = os.open(self._roots[memory], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in parts:
                inner = os.open(part, _DIRECTORY, dir_fd=opened)
                os.close(opened)
                opened = inner
            yield opened
        finally:
            os.close(opened)


def _text(file: int) -> str:
    return os.pread(file, _READ_BYTES, 0).decode("ascii", "replace").partition("\n")[0].strip()


def _write(file: int, text: str) -> None:
    os.pwrite(file, f"{text}\n".encode(), 0)


def _agree(before: str, wanted: str) -> bool:
    """Whether no change is needed; v1 shows no memory limit as a number beyond all memory."""
    return before == wanted or (wanted == "-1" and before.isdigit() and int(before) >= 1 << 60)
