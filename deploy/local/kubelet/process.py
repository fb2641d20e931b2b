"""Starts a container's process on this machine, in its cgroups."""

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shared.errors import HeadroomError

# All processes of a container inherit it, however often they fork, as they inherit the agent's variable for the pod.
VARIABLE_CONTAINER_ID = "HEADROOM_CONTAINER_ID"

# All processes of a cluster have it, and so have those of its pods.
VARIABLE_CLUSTER = "HEADROOM_CLUSTER"
_INHERITED = ("LANG", VARIABLE_CLUSTER)

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
class ProcessLaunch:
    """The start parameters of a process. `procs`: files through which it enters its cgroups."""

    command: Sequence[str]
    environment: Mapping[str, str]
    log_file: Path
    working_dir: Path
    procs: Sequence[Path]


def new_container_id() -> str:
    return secrets.token_hex(32)


def start(launch: ProcessLaunch) -> subprocess.Popen[bytes]:
    """Runs the command in its own session. Raises StartError, OSError."""
    name = launch.command[0]
    if shutil.which(name, path=launch.environment.get("PATH")) is None:
        raise StartError(f"exec: {name!r}: executable file not found on this machine")
    with launch.log_file.open("ab") as log:
        return subprocess.Popen(
            [*_LAUNCHER, str(len(launch.procs)), *map(str, launch.procs), *launch.command],
            cwd=launch.working_dir,
            env=dict(launch.environment),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def base_environment(host_name: str, home: Path) -> dict[str, str]:
    """An image's environment, with this product's programs, and the mark of the kubelet's cluster."""
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
    return {"LANG": "C.UTF-8", "HOME": str(home), "HOSTNAME": host_name} | inherited | {"PATH": path}
