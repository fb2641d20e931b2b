"""One container's process on this machine: started inside its cgroups, recognised again, ended."""

import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from deploy.local.kubelet import enter
from deploy.local.kubelet.enter import Plan
from shared.errors import HeadroomError

# Every process of a container carries it, however often it forks, as it does the agent's variable for its pod.
VARIABLE_CONTAINER_ID = "HEADROOM_CONTAINER_ID"

_INHERITED = ("LANG", "HEADROOM_CLUSTER")
_MAX_OUTPUT = 10_240  # as much of a probe's output as is looked at

# The launcher makes mounts, enters the cgroups and then becomes the command. A preexec_fn could do the same, but may
# deadlock in a process with threads.
_LAUNCHER = (sys.executable, "-I", "-S", enter.__file__)

_START_SECONDS = 20.0  # far more than any mount takes

PAUSE_COMMAND = ("sleep", "2147483647")


class StartError(HeadroomError):
    """The command cannot be executed here."""


@dataclass(frozen=True)
class Launch:
    """Everything a process needs to start."""

    command: Sequence[str]
    environment: Mapping[str, str]
    log_file: Path
    plan: Plan


class ContainerProcess:
    """The main process of a container, ours or one that an earlier kubelet started."""

    def __init__(self, process: psutil.Process, child: subprocess.Popen[bytes] | None) -> None:
        self._process = process
        self._child = child

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def started_at(self) -> float:
        """psutil's create time, which tells two processes of the same pid apart."""
        return self._process.create_time()

    def environment(self) -> dict[str, str]:
        """What it was started with. Raises OSError when it has ended."""
        try:
            return self._process.environ()
        except psutil.Error as error:
            raise OSError(f"process {self.pid}: {error}") from error

    def returncode(self) -> int | None:
        """As Popen's once the process has ended, else None. Raises Orphaned if nobody could have seen the code."""
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
    """An adopted process ended; its exit code went to whoever adopted it from the kernel."""


def new_container_id() -> str:
    return secrets.token_hex(32)


def start(launch: Launch) -> ContainerProcess:
    """Runs the command in a session of its own. Raises StartError, OSError."""
    with launch.log_file.open("ab") as log:
        child = _launched(launch.command, launch.plan, launch.environment, log)
    return ContainerProcess(psutil.Process(child.pid), child)


def attempt(plan: Plan, directory: Path) -> None:
    """Whether this machine can carry out `plan`. Raises StartError, OSError."""
    with (directory / "attempt.log").open("ab") as log:
        _launched(["true"], plan, os.environ, log).wait()


def run(
    command: Sequence[str], plan: Plan, environment: Mapping[str, str], timeout_seconds: float
) -> tuple[int, bytes]:
    """The exit code and output of a command that is to end soon. Raises StartError, OSError, TimeoutExpired."""
    with tempfile.TemporaryFile() as output:  # no pipe: what the command leaves running could hold it open
        child = _launched(command, plan, environment, output)
        try:
            code = child.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            raise
        output.seek(0)
        return code, output.read(_MAX_OUTPUT)


def _launched(
    command: Sequence[str], plan: Plan, environment: Mapping[str, str], output: IO[bytes]
) -> "subprocess.Popen[bytes]":
    """The process once it has become the command. Raises StartError when it could not, OSError."""
    told, tell = os.pipe()
    try:
        child = subprocess.Popen(
            [*_LAUNCHER, plan._replace(told=tell).encoded(), *command],
            cwd="/",
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=[tell],
            start_new_session=True,
        )
        os.close(tell)
        tell = -1
        problem = _told(told)
    finally:
        for fd in (told, tell):
            if fd >= 0:
                os.close(fd)
    if problem:
        child.kill()
        child.wait()
        raise StartError(problem)
    return child


def _told(fd: int) -> str:
    """What the launcher says went wrong; nothing once it has become the command."""
    text = b""
    deadline = time.monotonic() + _START_SECONDS
    while select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
        chunk = os.read(fd, 4096)
        if not chunk:
            return text.decode(errors="replace")
        text += chunk
    return f"not started within {_START_SECONDS:.0f} s"


def adopt(pid: int, started_at: float) -> ContainerProcess | None:
    """The process an earlier kubelet started, if that very one still runs."""
    try:
        process = psutil.Process(pid)
        same = process.create_time() == started_at and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return None
    return ContainerProcess(process, None) if same else None


def base_environment(host_name: str, home: Path) -> dict[str, str]:
    """What an image would bring along, this product's programs among it, and the mark of the kubelet's cluster."""
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
    return {"LANG": "C.UTF-8", "HOME": str(home), "HOSTNAME": host_name} | inherited | {"PATH": path}
