"""The directory of a local cluster, and its owner; removes the remains of clusters whose owner died.

A cluster has an id. It names the parent of the cluster's cgroups, and every process of the cluster has it in its
environment, so that the remains of a killed cluster can be found.
"""

import contextlib
import logging
import os
import re
import secrets
import shutil
import signal
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec
import psutil

from deploy.local import private
from deploy.local.kubelet import containment
from deploy.local.kubelet.process import VARIABLE_CLUSTER
from shared.errors import InvalidInput

logger = logging.getLogger(__name__)

_ID = re.compile(r"[0-9a-f]{8}")
_ID_FILE = "cluster-id"
CGROUP_ROOT = Path("/sys/fs/cgroup")


class RunningCluster(NamedTuple):
    """Where a cluster of this user answers."""

    cluster_id: str
    manager_url: str
    kubeconfig: Path


class Claim(msgspec.Struct, frozen=True):
    """The owner and directory of a cluster; `owner_started` (psutil's create time) reveals a reused pid."""

    cluster_id: str
    directory: str
    temporary: bool
    owner_pid: int
    owner_started: float

    @property
    def is_alive(self) -> bool:
        try:
            return psutil.Process(self.owner_pid).create_time() == self.owner_started
        except psutil.NoSuchProcess:
            return False


@dataclass(frozen=True)
class Home:
    """The directory of one running cluster."""

    claim: Claim
    directory: Path

    @property
    def cluster_id(self) -> str:
        return self.claim.cluster_id

    @property
    def cgroup_parent(self) -> str:
        return cgroup_parent(self.cluster_id)

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "kubeconfig"

    @property
    def token_file(self) -> Path:
        return self.directory / "token"

    @property
    def manager_file(self) -> Path:
        """Holds the manager's URL, for the user's other commands."""
        return self.directory / "manager-url"

    @property
    def logs(self) -> Path:
        return self.directory / "logs"


def cgroup_parent(cluster_id: str) -> str:
    return f"headroom-{cluster_id}"


def claims_dir() -> Path:
    """Holds one file for each cluster of this user. Raises InvalidInput if others could have written there."""
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    directory = Path(base) / f"headroom-{os.getuid()}"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = directory.lstat()
    # A claim names processes to kill and a directory to remove, so only the user may write one.
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        problem = "it has to be a directory that only you can use"
        raise InvalidInput(source="runtime directory", field="permissions", value=str(directory), problem=problem)
    return directory


def claim(keep: Path | None) -> Home:
    """Claims `keep`, or a temporary directory. Raises InvalidInput if another cluster runs in `keep`."""
    if keep is None:
        directory, cluster_id = Path(tempfile.mkdtemp(prefix="headroom-")), secrets.token_hex(4)
    else:
        directory = _made(keep)
        cluster_id = _id_of(directory)
        _refuse_if_taken(cluster_id, keep)
    owner = psutil.Process()
    claimed = Claim(cluster_id, str(directory), keep is None, owner.pid, owner.create_time())
    private.write(_claim_file(cluster_id), msgspec.json.encode(claimed).decode())
    home = Home(claimed, directory)
    if not home.token_file.exists():
        private.write(home.token_file, secrets.token_hex(24))
    return home


def running() -> list[RunningCluster]:
    """The clusters of this user that run now, and have chosen their ports."""
    found = []
    for path in sorted(claims_dir().glob("*.json")):
        with contextlib.suppress(OSError, UnicodeDecodeError, msgspec.MsgspecError):
            claimed = msgspec.json.decode(path.read_bytes(), type=Claim)
            if claimed.is_alive:
                home = Home(claimed, Path(claimed.directory))
                found.append(RunningCluster(home.cluster_id, home.manager_file.read_text("ascii"), home.kubeconfig))
    return found


def clear_dead() -> list[str]:
    """Ends what clusters without an owner left behind; returns their ids."""
    cleared = []
    for path in sorted(claims_dir().glob("*.json")):
        try:
            found = msgspec.json.decode(path.read_bytes(), type=Claim)
        except (OSError, msgspec.MsgspecError) as error:
            logger.warning("claim of a cluster not readable, removed: %s", error, extra={"file": str(path)})
            path.unlink(missing_ok=True)
            continue
        if not found.is_alive:
            clear(found)
            cleared.append(found.cluster_id)
    return cleared


def clear(found: Claim) -> None:
    """Removes what a cluster that has ended leaves behind, and its claim."""
    left = set(containment.with_environment(lambda its: its.get(VARIABLE_CLUSTER) == found.cluster_id)) - {os.getpid()}
    containment.signal_all(left, signal.SIGKILL)
    name = cgroup_parent(found.cluster_id)
    for top in [CGROUP_ROOT / name, *CGROUP_ROOT.glob(f"*/{name}")]:
        containment.clear(top)
    if found.temporary:
        shutil.rmtree(found.directory, ignore_errors=True)
    _claim_file(found.cluster_id).unlink(missing_ok=True)


def _made(keep: Path) -> Path:
    """The directory, created for its owner alone. Raises InvalidInput if that fails."""
    try:
        keep.mkdir(private.DIRECTORY_MODE, parents=True, exist_ok=True)
        _make_private(keep)
    except OSError as error:
        raise InvalidInput(source="--keep", field="directory", value=str(keep), problem=str(error.strerror)) from error
    return keep.resolve()


def _make_private(keep: Path) -> None:
    """Makes the directory private, because it holds secrets.

    Changes the mode only of an empty directory or of an earlier cluster's one: any other may belong to something else.
    Refuses a directory that other users can write to. Raises InvalidInput, OSError.
    """
    found = keep.stat()
    problem = ""
    if found.st_uid != os.getuid():
        problem = "it belongs to another user"
    elif found.st_mode & 0o022:
        problem = "other users can write to it: take another directory"
    elif found.st_mode & 0o077:
        if (keep / _ID_FILE).exists() or not any(keep.iterdir()):
            keep.chmod(private.DIRECTORY_MODE)
        else:
            problem = f"other users can read it, and it is to hold Secrets: chmod 700 {keep}, or take a new directory"
    if problem:
        raise InvalidInput(source="--keep", field="directory", value=str(keep), problem=problem)


def _id_of(directory: Path) -> str:
    """The id of the cluster in `directory`, which is the same at every start."""
    file = directory / _ID_FILE
    known = file.read_text().strip() if file.exists() else ""
    if not _ID.fullmatch(known):
        known = secrets.token_hex(4)
        file.write_text(known)
    return known


def _refuse_if_taken(cluster_id: str, keep: Path) -> None:
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        found = msgspec.json.decode(_claim_file(cluster_id).read_bytes(), type=Claim)
        if found.is_alive:
            problem = f"in use by the headroom up with pid {found.owner_pid}"
            raise InvalidInput(source="--keep", field="directory", value=str(keep), problem=problem)


def _claim_file(cluster_id: str) -> Path:
    return claims_dir() / f"{cluster_id}.json"
