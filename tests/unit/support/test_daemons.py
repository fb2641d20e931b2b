"""A daemon that was forked is as good as one that was spawned."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from tests.support import daemons, eventually
from tests.support.daemons import ROOT, Daemon
from tests.support.fork_server import Order

OWNER = """
import sys
from tests.support.daemons import Daemon

print(Daemon("deploy.local.apiserver", *sys.argv[1:], stdout=sys.stderr).pid, flush=True)
sys.stdin.read()
"""

# Its first process may fork, and no other.
CROWDED = """
import os, socket, sys
from tests.support import fork_server

fork, first = os.fork, os.getpid()

def fork_or_fail():
    if os.getpid() != first:
        raise BlockingIOError("Resource temporarily unavailable")
    return fork()

os.fork = fork_or_fail
fork_server.serve(socket.socket(fileno=int(sys.argv[1])), os.getppid())
"""


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    """Of an API server."""
    (tmp_path / "token").write_text("t")
    flags = {"listen": "127.0.0.1:0", "data-dir": tmp_path / "data", "token-file": tmp_path / "token"}
    return [f"--{name}={value}" for name, value in flags.items()]


@pytest.fixture
def daemon(arguments: list[str], tmp_path: Path) -> Iterator[Daemon]:
    """One that serves."""
    with (tmp_path / "out").open("wb") as out:
        serving = Daemon("deploy.local.apiserver", *arguments, stdout=out)
    eventually(lambda: serving.poll() is not None or "http" in (tmp_path / "out").read_text())
    yield serving
    serving.kill()
    serving.wait(20)


def test_it_is_a_child_without_the_files_and_the_threads_of_others(daemon: Daemon) -> None:
    process = psutil.Process(daemon.pid)
    assert process.ppid() == os.getpid()
    assert os.getsid(daemon.pid) == daemon.pid
    assert psutil.Process(process.ppid()).create_time() < process.create_time()
    assert process.cwd() == str(ROOT)
    sockets = [
        link for fd in Path(f"/proc/{daemon.pid}/fd").iterdir() if (link := os.readlink(fd)).startswith("socket")
    ]
    listening = [each for each in process.net_connections() if each.status == psutil.CONN_LISTEN]
    assert len(listening) == 1
    assert len(sockets) <= 3, "its listener, and what its event loop wakes itself with"


@pytest.mark.parametrize(("how", "status"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 0)])
def test_signals_reach_it_and_its_status_comes_back(daemon: Daemon, how: signal.Signals, status: int) -> None:
    assert daemon.poll() is None
    daemon.send_signal(how)
    assert daemon.wait(60) == status
    assert not psutil.pid_exists(daemon.pid)


def test_status_and_output_are_its_own(tmp_path: Path) -> None:
    refused = daemons.run("deploy.local.apiserver", "--listen=127.0.0.1:0", f"--data-dir={tmp_path}", "--token-file=no")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("apiserver: --token-file no: ")
    told = daemons.run("deploy.local.apiserver", "--help")
    assert (told.returncode, told.stderr) == (0, "")
    assert "--token-file" in told.stdout


def test_its_environment_is_what_this_process_has_by_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADROOM_WRITES_PER_SECOND", "0")
    assert "HEADROOM_WRITES_PER_SECOND" in daemons.run("manager", "--namespace=n").stderr
    monkeypatch.delenv("HEADROOM_WRITES_PER_SECOND")
    assert "HEADROOM_WRITES_PER_SECOND" not in daemons.run("manager", "--namespace=n", "--writes-per-second=0").stderr


def test_it_ends_with_the_process_that_wanted_it(arguments: list[str]) -> None:
    command = [sys.executable, "-c", OWNER, *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert psutil.Process(pid).ppid() == owner.pid
        owner.kill()
    eventually(lambda: not psutil.pid_exists(pid))


def test_an_order_that_the_machine_has_no_process_for_is_answered_at_once_and_so_is_the_next_one() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-c", CROWDED, str(theirs.fileno())]
    with ours, subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()]) as server:
        theirs.close()
        ours.settimeout(60)
        try:
            for _ in range(2):
                socket.send_fds(ours, [msgspec.json.encode(Order("json", [], {}))], [1, 2])
                assert ours.recv(64) == b""
                assert server.poll() is None
            ours.close()
            assert server.wait(60) == 0
        finally:
            server.kill()
