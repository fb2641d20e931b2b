"""Becomes a container: `python -I -S enter.py PLAN COMMAND...` makes its view of the files, its user, and execs.

It keeps its pid throughout, so that whoever started it knows the container's process. The mount namespace it makes is
the host's, rearranged: a tmpfs as root with the host's folders bound into it, the volumes bound where the pod wants
them. Nothing is written to the host for a mount point that is not there: its parent is covered with a tmpfs into which
the parent's entries are bound. This module stands alone, because it starts once for every container.
"""

import ctypes
import itertools
import json
import os
import signal
import stat
import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_MOVE, MS_REC = 1 << 5, 1 << 12, 1 << 13, 1 << 14
MS_UNBINDABLE, MS_SLAVE = 1 << 17, 1 << 19
CLONE_NEWNS = 0x00020000
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 24, 38, 47, 4

CANNOT_START = 125  # what a shell says of a command it could not set up

_UMASK = 0o022  # as container runtimes have it; the kubelet's own keeps everybody out

_KERNEL_FOLDERS = ("/dev", "/proc")  # a read-only root leaves them alone


class Mount(NamedTuple):
    """`source`, a path of the host, appears at `target`."""

    source: str
    target: str
    read_only: bool = False


class Plan(NamedTuple):
    """What the process is to become; see `main` for the order.

    `stage`: an empty folder to build the new root on; without one the mount namespace stays the host's, or becomes
    that of process `join`. `reachable`: folders that any user gets to see, whatever the modes of the folders above.
    `capabilities`: the numbers that may be had at all; None: no limit. `procs`: files to write the own pid into.
    `told`: a file descriptor that is closed by the exec, and told what went wrong before.
    """

    working_dir: str
    told: int
    procs: Sequence[str] = ()
    stage: str = ""
    join: int = 0
    mounts: Sequence[Mount] = ()
    reachable: Sequence[str] = ()
    read_only_root: bool = False
    user: int | None = None
    group: int | None = None
    groups: Sequence[int] = ()
    capabilities: Sequence[int] | None = None
    no_new_privileges: bool = False

    def encoded(self) -> str:
        return json.dumps(self)

    @classmethod
    def decoded(cls, text: str) -> "Plan":
        plan = cls(*json.loads(text))
        return plan._replace(mounts=[Mount(*each) for each in plan.mounts])


def main(argv: Sequence[str]) -> int:
    """Returns only if it fails."""
    plan, command = Plan.decoded(argv[0]), list(argv[1:])
    os.set_inheritable(plan.told, False)
    os.umask(_UMASK)
    try:
        procs = [os.open(path, os.O_WRONLY) for path in plan.procs]  # by fd: the new root may not show them
        if plan.stage:
            _Root(plan).build()
        elif plan.join:
            _join(plan.join)
        os.chdir(plan.working_dir)
        for fd in procs:  # late, so that what the mounts cost is not the container's
            os.write(fd, str(os.getpid()).encode())
            os.close(fd)
        _become(plan)
        for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(ignored_by_python, signal.SIG_DFL)
        _execute(command)
    except OSError as error:
        os.write(plan.told, str(error).encode())
    return CANNOT_START


def _execute(command: list[str]) -> None:
    try:
        os.execvp(command[0], command)
    except FileNotFoundError as error:
        raise OSError(f"exec: {command[0]!r}: executable file not found on this machine") from error
    except OSError as error:
        raise OSError(f"exec: {command[0]!r}: {error.strerror}") from error


class _Root:
    """The new root, and what of it lies on a tmpfs of ours."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._ours: set[int] = set()  # st_dev of our tmpfs
        self._volumes: list[str] = []  # where volumes have been mounted, links resolved

    def build(self) -> None:
        _call("unshare", CLONE_NEWNS)
        # What the host mounts later shows here as well; nothing of ours shows there.
        _mount(None, "/", MS_REC | MS_SLAVE)
        # By fd, and after the unshare: they must lie in this namespace, and may be covered soon.
        sources = [_open(each.source) for each in self._plan.mounts]
        folders = [(path, _open(path)) for path in self._plan.reachable]
        self._cover("/", self._plan.stage)
        os.chdir(self._plan.stage)
        _mount(".", "/", MS_MOVE)
        os.chroot(".")
        os.chdir("/")
        _mount(None, "/", MS_SLAVE)
        for path, fd in folders:
            self._reach(path, fd)
        for mount, fd in zip(self._plan.mounts, sources, strict=True):
            self._bind(mount, fd)
        for fd in (*sources, *(fd for _, fd in folders)):
            os.close(fd)
        self._protect()

    def _bind(self, mount: Mount, source: int) -> None:
        self._prepare(mount.target, directory=stat.S_ISDIR(os.fstat(source).st_mode))
        target = os.path.realpath(mount.target)
        _mount(_path_of(source), target, MS_BIND | MS_REC)
        self._volumes.append(target)

    def _prepare(self, path: str, *, directory: bool) -> None:
        """Makes sure that something can be mounted at `path`."""
        missing: list[str] = []
        parent = path
        while not os.path.exists(parent):
            parent, _, name = parent.rstrip("/").rpartition("/")
            parent = parent or "/"
            missing.insert(0, name)
        if not missing:
            return
        parent = os.path.realpath(parent)
        if os.stat(parent).st_dev not in self._ours and not _is_below(parent, self._volumes):
            self._cover(parent, parent)
        folders = missing if directory else missing[:-1]
        for name in folders:
            parent = os.path.join(parent, name)
            os.mkdir(parent)
            os.chmod(parent, 0o755)
        if not directory:
            os.close(os.open(os.path.join(parent, missing[-1]), os.O_CREAT | os.O_EXCL, 0o644))

    def _cover(self, folder: str, at: str) -> None:
        """A tmpfs at `at` that looks like `folder`, and to which entries can be added."""
        original = _open(folder)
        entries = list(os.scandir(_path_of(original)))
        self._tmpfs(at, os.fstat(original))
        for entry in entries:
            source, target = f"{_path_of(original)}/{entry.name}", os.path.join(at, entry.name)
            try:
                if entry.is_symlink():
                    os.symlink(os.readlink(source), target)
                    continue
                if entry.is_dir(follow_symlinks=False):
                    os.mkdir(target)
                else:
                    os.close(os.open(target, os.O_CREAT | os.O_EXCL))
                _mount(source, target, MS_BIND | MS_REC)
            except FileNotFoundError:
                continue  # it has just gone
        os.close(original)

    def _tmpfs(self, at: str, like: os.stat_result) -> None:
        mode = stat.S_IMODE(like.st_mode)
        _mount("tmpfs", at, 0, kind="tmpfs", data=f"mode={mode:o},uid={like.st_uid},gid={like.st_gid}")
        # Else the stage would be bound into the copy of the folder it stands in.
        _mount(None, at, MS_UNBINDABLE)
        self._ours.add(os.stat(at).st_dev)

    def _reach(self, path: str, folder: int) -> None:
        """Shows the folder to everybody, at its own path, where a folder above it is for its owner only."""
        # Those that are not there lie below a folder that was closed, and has been opened for another of the folders.
        present = itertools.takewhile(os.path.exists, _ancestors(path))
        closed = next((each for each in present if not os.stat(each).st_mode & stat.S_IXOTH), None)
        if closed is not None:
            _mount("tmpfs", closed, 0, kind="tmpfs", data="mode=755")
            self._ours.add(os.stat(closed).st_dev)
        if not os.path.exists(path) or not os.path.samestat(os.stat(path), os.fstat(folder)):
            os.makedirs(path, 0o755, exist_ok=True)
            _mount(_path_of(folder), path, MS_BIND | MS_REC)

    def _protect(self) -> None:
        """Takes writing away, from the volumes that are read-only and from everything that is no volume."""
        protected = [path for path, mount in zip(self._volumes, self._plan.mounts, strict=True) if mount.read_only]
        for point in _mount_points():
            volume = max((path for path in self._volumes if _is_below(point, [path])), key=len, default=None)
            if volume is None:
                read_only = self._plan.read_only_root and not _is_below(point, _KERNEL_FOLDERS)
            else:
                read_only = volume in protected
            if read_only:
                _make_read_only(point)


def _make_read_only(point: str) -> None:
    try:
        kept = os.statvfs(point).f_flag & (MS_NOSUID | MS_NODEV | MS_NOEXEC)
        _mount(None, point, MS_REMOUNT | MS_BIND | MS_RDONLY | kept)
    except OSError:
        # Covered by another mount, it can neither be named nor reached.
        if os.path.ismount(point) and not os.statvfs(point).f_flag & MS_RDONLY:
            raise


def _mount_points() -> list[str]:
    """All of them below our root."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        escaped = [line.split(" ")[4] for line in file]
    return [os.fsdecode(os.fsencode(path).decode("unicode_escape").encode("latin-1")) for path in escaped]


def _join(pid: int) -> None:
    """Takes over the mount namespace and the root of another process."""
    root = os.open(f"/proc/{pid}/root", os.O_RDONLY | os.O_DIRECTORY)
    namespace = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY)
    _call("setns", namespace, CLONE_NEWNS)
    os.fchdir(root)
    os.chroot(".")
    os.close(namespace)
    os.close(root)


def _become(plan: Plan) -> None:
    """Gives up what is not granted; the order is the kernel's."""
    if plan.capabilities is not None:
        with open("/proc/sys/kernel/cap_last_cap", encoding="ascii") as file:
            last = int(file.read())
        for number in set(range(last + 1)).difference(plan.capabilities):
            _call("prctl", PR_CAPBSET_DROP, number, 0, 0, 0)
        _call("prctl", PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    if plan.user is not None or plan.group is not None or plan.groups:
        os.setgroups(plan.groups)
    if plan.group is not None:
        os.setresgid(plan.group, plan.group, plan.group)
    if plan.user is not None:
        os.setresuid(plan.user, plan.user, plan.user)
    if plan.no_new_privileges:
        _call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def _ancestors(path: str) -> list[str]:
    """The folders above `path`, the highest first, without the root."""
    parts = path.strip("/").split("/")
    return ["/" + "/".join(parts[:count]) for count in range(1, len(parts))]


def _is_below(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def _open(path: str) -> int:
    return os.open(path, os.O_PATH)


def _path_of(fd: int) -> str:
    return f"/proc/self/fd/{fd}"


def _mount(source: str | None, target: str, flags: int, *, kind: str | None = None, data: str | None = None) -> None:
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind, data)]
    _call("mount", *texts[:3], ctypes.c_ulong(flags), texts[3], about=target)


def _call(name: str, *arguments: object, about: str = "") -> None:
    """One call of the C library. Raises OSError."""
    if getattr(_LIBC, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}", about or None)


_LIBC = ctypes.CDLL(None, use_errno=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
