"""The volumes of one pod on this machine: made before its first container, kept fresh while it runs."""

import os
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from deploy.local.kubelet import atomic
from deploy.local.kubelet.enter import Mount
from deploy.local.kubelet.fields import Host
from deploy.local.kubelet.files import Reader
from deploy.local.kubelet.sources import Sources
from deploy.local.kubelet.tokens import Tokens
from deploy.local.kubelet.wire import HostPathVolume, RunnableContainer, RunnablePod, Volume, expanded
from shared.errors import HeadroomError, InvalidInput

FIRST_RETRY_SECONDS = 0.5
MAX_RETRY_SECONDS = 10.0
REFRESH_SECONDS = 60.0  # a changed ConfigMap or Secret shows in its files after this long at most

_EMPTY_DIR_MODE = 0o777
_OPEN_MODE = 0o755
_PRIVATE_MODE = 0o700  # of the folder of all volumes: on the host, tokens are nobody's business
_GROUP_INHERITED = 0o2000

_HOST_PATH_KINDS: dict[str, tuple[str, Callable[[int], bool]]] = {
    "Directory": ("a directory", stat.S_ISDIR),
    "DirectoryOrCreate": ("a directory", stat.S_ISDIR),
    "File": ("a file", stat.S_ISREG),
    "FileOrCreate": ("a file", stat.S_ISREG),
    "Socket": ("a socket", stat.S_ISSOCK),
    "CharDevice": ("a character device", stat.S_ISCHR),
    "BlockDevice": ("a block device", stat.S_ISBLK),
}


class VolumeError(HeadroomError):
    """A volume cannot be had now; `str` is what an Event says about it."""


class PodVolumes:
    """The volumes of one pod below `directory`, one folder each. Not for several threads."""

    def __init__(self, directory: Path, host: Host, sources: Sources) -> None:
        self._directory = directory
        self._host = host
        self._sources = sources
        self._tokens = Tokens(sources)
        self._retry_at = 0.0
        self._failures = 0
        self._refresh_at: float | None = None  # None: not all of them have been made yet

    @property
    def are_ready(self) -> bool:
        return self._refresh_at is not None

    def keep(self, pod: RunnablePod, now: float) -> None:
        """Makes the volumes, or brings them up to date where that is due. Raises VolumeError; call it again then."""
        if now < self._retry_at or (self._refresh_at is not None and now < self._refresh_at):
            return
        reader = Reader(pod, self._host, self._sources, self._tokens)
        try:
            for volume in pod.spec.volumes or ():
                self._keep(volume, reader, now)
        except VolumeError:
            delay = min(MAX_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2 ** min(self._failures, 10))
            self._failures += 1
            self._retry_at = now + delay
            raise
        self._failures = 0
        self._refresh_at = min(now + REFRESH_SECONDS, self._tokens.next_renewal())

    def mounts(self, container: RunnableContainer, pod: RunnablePod, environment: Mapping[str, str]) -> list[Mount]:
        """What the container is to see, where. Raises VolumeError, InvalidInput, OSError."""
        by_name = {volume.name: volume for volume in pod.spec.volumes or ()}
        mounts = []
        for wanted in container.volume_mounts or ():
            volume = by_name.get(wanted.name)
            if volume is None:
                raise VolumeError(f'volume "{wanted.name}" of container {container.name} is not one of the pod\'s')
            sub_path = expanded(wanted.sub_path_expr, environment) if wanted.sub_path_expr else wanted.sub_path
            source = self._source(volume)
            if sub_path:
                source = _inside(source, sub_path)
            read_only = wanted.read_only or _is_written_by_kubelet(volume)
            mounts.append(Mount(str(source), os.path.normpath(f"/{wanted.mount_path}"), read_only))
        return mounts

    def _source(self, volume: Volume) -> Path:
        return Path(volume.host_path.path) if volume.host_path is not None else self._directory / volume.name

    def _keep(self, volume: Volume, reader: Reader, now: float) -> None:
        group = reader.pod.spec.security_context.fs_group
        try:
            self._directory.parent.mkdir(_PRIVATE_MODE, parents=True, exist_ok=True)
            files = reader.files(volume, now)
            if files is not None:
                atomic.write(self._directory / volume.name, files, group=group)
            elif volume.host_path is not None:
                _check_host_path(volume.host_path)
            elif volume.empty_dir is not None:
                _make_empty_dir(self._directory / volume.name, group)
            else:
                raise InvalidInput(
                    source=f"pod {reader.pod.metadata.key}",
                    field="volumes",
                    value=volume.name,
                    problem="this kubelet knows projected, configMap, secret, downwardAPI, emptyDir and hostPath",
                )
        except (HeadroomError, OSError) as error:
            raise VolumeError(f'MountVolume.SetUp failed for volume "{volume.name}" : {error}') from error


def link_below(work_dir: Path, mounts: Iterable[Mount]) -> None:
    """Where nothing can be mounted: each volume as a link at its mount path below the working directory."""
    for mount in mounts:
        link = work_dir / mount.target.lstrip("/")
        if not link.is_symlink():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(mount.source)


def _is_written_by_kubelet(volume: Volume) -> bool:
    return volume.empty_dir is None and volume.host_path is None


def _inside(volume: Path, sub_path: str) -> Path:
    """The part of a volume a container asks for, made if it is not there."""
    root, found = volume.resolve(), (volume / sub_path).resolve()
    if not found.is_relative_to(root):
        raise InvalidInput(source="volumeMount", field="subPath", value=sub_path, problem="must lie inside its volume")
    _make_open(found)
    return found


def _make_open(directory: Path) -> None:
    """Makes it and what is missing above it, for any user of a pod to enter, whatever the kubelet's umask."""
    if not directory.exists():
        _make_open(directory.parent)
        directory.mkdir()
        directory.chmod(_OPEN_MODE)


def _make_empty_dir(directory: Path, group: int | None) -> None:
    if directory.exists():
        return
    directory.mkdir(parents=True)
    if group is not None and os.geteuid() == 0:
        os.chown(directory, -1, group)
    directory.chmod(_EMPTY_DIR_MODE if group is None else _EMPTY_DIR_MODE | _GROUP_INHERITED)


def _check_host_path(volume: HostPathVolume) -> None:
    """Raises OSError, VolumeError."""
    path = Path(volume.path)
    if volume.type in ("", "DirectoryOrCreate"):
        _make_open(path)
    elif volume.type == "FileOrCreate" and not path.exists():
        path.touch()
        path.chmod(0o644)
    if not volume.type:
        return
    if volume.type not in _HOST_PATH_KINDS:
        raise InvalidInput(
            source="volume", field="hostPath.type", value=volume.type, problem=f"not one of {list(_HOST_PATH_KINDS)}"
        )
    what, is_kind = _HOST_PATH_KINDS[volume.type]
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        mode = 0
    if not is_kind(mode):
        raise VolumeError(f"hostPath type check failed: {path} is not {what}")
