"""Processes that are started again, ended in order, and never outlive their owner."""

import contextlib
import functools
import os
import secrets
import signal
import socket
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from deploy.local import home, kubeconfig, ports
from deploy.local.home import Claim
from deploy.local.kubelet.logs import log_server
from deploy.local.kubelet.process import VARIABLE_CLUSTER
from deploy.local.supervisor import Program, Supervisor, restart_delay_seconds
from shared.errors import InvalidInput
from tests.support import eventually

pytestmark = pytest.mark.embedded_only("no server takes part in the end of processes")

# Notes its start and its end in the file it is given.
PROGRAM = """
import signal, sys, time
name, journal = sys.argv[1:]
def note(what):
    with open(journal, "a") as file: file.write(f"{what} {name}\\n")
def end(*_):
    note("end"); sys.exit(0)
signal.signal(signal.SIGTERM, end)
note("start")
while True: time.sleep(1)
"""


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[tuple[Supervisor, Path, list[str]]]:
    (tmp_path / "program.py").write_text(PROGRAM)
    deaths: list[str] = []
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{Path.cwd()}"}
    supervisor = Supervisor(
        tmp_path / "logs", environment, on_death=lambda program, code, delay: deaths.append(f"{program.name} {code}")
    )
    yield supervisor, tmp_path / "journal", deaths
    supervisor.close()


def noted(journal: Path, line: str) -> bool:
    return journal.exists() and line in journal.read_text().splitlines()


def running(name: str) -> psutil.Process:
    """The child of that name; others may be ending."""
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if name in child.cmdline():
                return child
    raise AssertionError(f"no {name}")


def test_a_killed_program_is_started_again_and_all_end_in_the_opposite_order(
    programs: tuple[Supervisor, Path, list[str]],
) -> None:
    supervisor, journal, deaths = programs
    for name in ("first", "second"):
        supervisor.add(Program(name, "program", (name, str(journal))))
        eventually(functools.partial(noted, journal, f"start {name}"))
    running("first").kill()
    eventually(lambda: journal.read_text().count("start first") == 2)
    assert deaths == ["first -9"]
    supervisor.close()
    assert journal.read_text().splitlines()[-2:] == ["end second", "end first"]


def test_a_program_that_ends_at_once_is_started_again_ever_later() -> None:
    delays = [restart_delay_seconds(deaths) for deaths in range(1, 9)]
    assert delays == sorted(delays)
    assert delays[0] < 1
    assert delays[-1] == 5


def test_a_leashed_process_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    journal = tmp_path / "journal"
    parent = (
        "import subprocess, sys, os, time\n"
        "leash = [sys.executable, '-m', 'deploy.local.leash', str(os.getpid())]\n"
        "subprocess.Popen([*leash, 'program', 'it', sys.argv[1]])\n"
        "time.sleep(100)\n"
    )
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{Path.cwd()}"}
    process = subprocess.Popen([sys.executable, "-c", parent, str(journal)], env=environment)
    eventually(lambda: journal.exists() and "start it" in journal.read_text())
    process.kill()
    process.wait()
    eventually(lambda: "end it" in journal.read_text())


def test_what_a_dead_cluster_left_behind_is_cleared_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    directory = tmp_path / "left"
    directory.mkdir()
    cluster_id = secrets.token_hex(4)
    orphan = subprocess.Popen(["sleep", "1000"], env=os.environ | {VARIABLE_CLUSTER: cluster_id})
    dead = Claim(cluster_id, str(directory), temporary=True, owner_pid=os.getpid(), owner_started=1.0)
    (home.claims_dir() / f"{cluster_id}.json").write_bytes(msgspec.json.encode(dead))
    (home.claims_dir() / "torn.json").write_text("{")
    assert home.clear_dead() == [cluster_id]
    assert orphan.wait(60) == -signal.SIGKILL
    assert not directory.exists()
    assert home.clear_dead() == []


def test_claims_that_others_could_have_written_are_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    home.claims_dir().chmod(0o777)
    with pytest.raises(InvalidInput, match="only you can use"):
        home.clear_dead()


def test_a_directory_belongs_to_one_cluster_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    first = home.claim(tmp_path / "kept")
    with pytest.raises(InvalidInput, match=f"in use by the headroom up with pid {os.getpid()}"):
        home.claim(tmp_path / "kept")
    home.clear(first.claim)
    second = home.claim(tmp_path / "kept")
    assert second.cluster_id == first.cluster_id
    assert second.token_file.read_text() == first.token_file.read_text()
    assert second.token_file.stat().st_mode & 0o077 == 0
    home.clear(second.claim)


def test_keep_dir_is_private_from_creation_or_made_so_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    mask = os.umask(0)
    try:
        kept, empty, foreign, open_to_writes = (tmp_path / name for name in ("kept", "empty", "foreign", "writable"))
        for directory, mode in ((empty, 0o755), (foreign, 0o755), (open_to_writes, 0o777)):
            directory.mkdir(mode)
        (foreign / "notes").touch()
        for keep in (kept, empty):
            home.clear(home.claim(keep).claim)
            assert stat.S_IMODE(keep.stat().st_mode) == 0o700
            assert not [path for path in keep.iterdir() if path.stat().st_mode & 0o077 and path.name != "cluster-id"]
        kept.chmod(0o755)  # as an earlier version left it
        home.clear(home.claim(kept).claim)
        assert stat.S_IMODE(kept.stat().st_mode) == 0o700
        for keep, problem in ((foreign, f"chmod 700 {foreign}"), (open_to_writes, "other users can write to it")):
            before = keep.stat().st_mode
            with pytest.raises(InvalidInput, match=f"--keep.*{problem}"):
                home.claim(keep)
            assert keep.stat().st_mode == before
    finally:
        os.umask(mask)


def test_a_kubeconfig_that_others_could_read_is_replaced_by_one_that_they_cannot(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.touch(0o644)
    with path.open() as held_open:
        kubeconfig.write(path, "http://127.0.0.1:1", "secret-token")
        assert held_open.read() == ""
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_temporary_directory_goes_with_its_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    claimed = home.claim(None)
    assert claimed.directory.exists()
    home.clear(claimed.claim)
    assert not claimed.directory.exists()


def test_a_port_in_use_is_replaced_by_a_free_one() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert ports.free(port) not in (0, port)
    assert ports.free(0) in ports.OURS
    assert len({ports.free() for _ in range(50)}) == 50


def test_logs_are_served_by_pod_and_container(tmp_path: Path) -> None:
    log = tmp_path / "main.log"
    log.write_text("one\ntwo\n")
    server = log_server(
        lambda namespace, pod, container: log if (namespace, pod, container) == ("d", "p", "c") else None
    )
    server.start()
    base = f"{server.url}/containerLogs"
    try:
        assert urllib.request.urlopen(f"{base}/d/p/c?tailLines=1", timeout=60).read() == b"two\n"
        for path, status in (("d/p/other", 404), ("nothing", 404), ("d/p/c?tailLines=x", 400)):
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(f"{base}/{path}", timeout=60)
            caught.value.close()
            assert caught.value.code == status
        with urllib.request.urlopen(f"{base}/d/p/c?follow=true&tailLines=1", timeout=60) as followed:
            assert followed.readline() == b"two\n"
            with log.open("a") as file:
                file.write("three\n")
            assert followed.readline() == b"three\n"
            log.unlink()
    finally:
        server.close()


def test_the_owner_of_a_claim_is_told_from_another_process_of_its_pid() -> None:
    own = psutil.Process()
    assert Claim("id", "", False, own.pid, own.create_time()).is_alive
    assert not Claim("id", "", False, own.pid, own.create_time() - 1).is_alive
    assert time.time() > own.create_time()
