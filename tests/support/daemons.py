"""Processes of the product that cost a fork instead of a start: what they import is imported once (see `fork_server`).

They are children of this process, and each has its own signals and exit status. A test about a start spawns instead.
"""

import atexit
import contextlib
import ctypes
import functools
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TypeAlias

import msgspec

from tests.support import eventually
from tests.support.fork_server import Order

ROOT = Path(__file__).resolve().parents[2]
PR_SET_CHILD_SUBREAPER = 36
RUN_SECONDS = 120.0

Output: TypeAlias = IO[bytes] | IO[str] | int

_lock = threading.Lock()


class Daemon:
    """`python -m TARGET ARGUMENTS`, as far as tests need a Popen."""

    def __init__(self, target: str, *arguments: str, stdout: Output = 1, stderr: Output = 2) -> None:
        self.returncode: int | None = None
        order = Order(target, list(arguments), dict(os.environ))
        files = [file if isinstance(file, int) else file.fileno() for file in (stdout, stderr)]
        with _lock, _adopting():
            socket.send_fds(_server(), [msgspec.json.encode(order)], files)
            try:
                told = _server().recv(64)
            except TimeoutError:
                _server.cache_clear()  # what it answers later would be taken for the answer to the next order
                raise
        if not told:
            raise ChildProcessError(f"no process for {target}: the machine has none to spare, or the fork server ended")
        self.pid = int(told)

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout_seconds: float) -> int:
        eventually(lambda: self.poll() is not None, timeout_seconds, 0.005)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, how: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, how)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run(target: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """As subprocess.run, with what it prints."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        code = Daemon(target, *arguments, stdout=out, stderr=errors).wait(RUN_SECONDS)
        for file in (out, errors):
            file.seek(0)
        return subprocess.CompletedProcess([target, *arguments], code, out.read(), errors.read())


@contextlib.contextmanager
def _adopting() -> Iterator[None]:
    """A process whose parent ends meanwhile becomes a child of this one."""
    adopt = ctypes.CDLL(None, use_errno=True).prctl
    adopt(PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        adopt(PR_SET_CHILD_SUBREAPER, 0)


@functools.cache
def _server() -> socket.socket:
    """What orders are sent to. The server ends with this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-m", "tests.support.fork_server", str(theirs.fileno()), str(os.getpid())]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
    theirs.close()
    ours.settimeout(RUN_SECONDS)

    def end() -> None:
        ours.close()
        process.kill()  # whatever it is at; the daemons are not its children
        process.wait()

    atexit.register(end)
    return ours
