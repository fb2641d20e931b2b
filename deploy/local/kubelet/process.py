"""One container's process on this machine: starts it in its cgroups, finds it again, ends it."""

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from shared.errors import HeadroomError

# All processes of a container inherit it, however often they fork, as they inherit the agent's variable for the pod.
VARIABLE_CONTAINER_ID = "HEADROOM_CONTAINER_ID"

_INHERITED = ("LANG", "HEADROOM_CLUSTER")

# Enters the cgroups given by the leading arguments, and then executes the command with the same pid. A preexec_fn could
# do the same, but may deadlock in a process with threads.
_LAUNCHER = (
    "/bin/sh", "-c",
    'umask 022; left=$1; shift; while [ "$left" -gt 0 ]; do echo 0 > "$1" || exit 125; shift; left=$((left - 1)); done;'
    ' exec "$@"',
    "launcher",
)  # fmt: skip

PAUSE_COMMAND = ("sleep", "2147483647")


class StartError(HeadroomError):
    """The command cannot be executed on this machine."""


@dataclass(frozen=True)
class Launch:
    """What a process needs to start. `procs`: files through which it enters its cgroups."""

    command: Sequence[str]
    environment: Mapping[str, str]
    log_file: Path
    working_dir: Path
    procs: Sequence[Path]


class ContainerProcess:
    """The main process of a container, started by this kubelet or by an earlier one."""

    def __init__(self, process: psutil.Process, child: subprocess.Popen[bytes] | None) -> None:
        self._process = process
        self._child = child

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def started_at(self) -> float:
        """psutil's create time, which distinguishes two processes with the same pid."""
        return self._process.create_time()

    def returncode(self) -> int | None:
        """Like Popen's once the process has ended, else None. Raises Orphaned if the code is unknown."""
        if self._child is not None:
            return self._child.poll()
        if self._process.is_running() and self._process.status() != psutil.STATUS_ZOMBIE:
            return None
        raise Orphaned

    def is_alive(self) -> bool:
        try:
            return self.returncode() is None
        except Orphaned:
            return False


class Orphaned(Exception):
    """An adopted process ended; only the process that became its parent could read the exit code."""


def new_container_id() -> str:
    return secrets.token_hex(32)


def start(launch: Launch) -> ContainerProcess:
    """Runs the command in its own session. Raises StartError, OSError."""
    name = launch.command[0]
    if shutil.which(name, path=launch.environment.get("PATH")) is None:
        raise StartError(f"exec: {name!r}: executable file not found on this machine")
    with launch.log_file.open("ab") as log:
        child = subprocess.Popen(
            [*_LAUNCHER, str(len(launch.procs)), *map(str, launch.procs), *launch.command],
            cwd=launch.working_dir,
            env=dict(launch.environment),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    return ContainerProcess(psutil.Process(child.pid), child)


def adopt(pid: int, started_at: float) -> ContainerProcess | None:
    """The process that an earlier kubelet started, if exactly that process still runs."""
    try:
        process = psutil.Process(pid)
        same = process.create_time() == started_at and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return None
    return ContainerProcess(process, None) if same else None


def base_environment(host_name: str, home: Path) -> dict[str, str]:
    """What an image would provide, including this product's programs, and the mark of the kubelet's cluster."""
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
    return {"LANG": "C.UTF-8", "HOME": str(home), "HOSTNAME": host_name} | inherited | {"PATH": path}
