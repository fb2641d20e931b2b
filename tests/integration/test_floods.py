"""Manager, agent and embedded API server as processes answer for their health whatever clients do, and stay small."""

import contextlib
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from shared import descriptors, names
from shared.web.limits import Limits
from tests.support import eventually, flood
from tests.support.apiserver import ROOT, ApiServer, write_kubeconfig

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.own_decision("clients flood agents, the manager and the embedded API server, and no other one"),
]

MIB = 1 << 20
START_SECONDS = 120.0
SETTLING_SECONDS = 60.0
BODY_BYTES = 60 * MIB
GROWTH_BYTES = 3 * Limits().held_bytes  # what may be held, once more while it is passed on, and once for the rest
SETTLED_BYTES = 24 * MIB  # of caches and learned sizes that stay after a flood
TLS_BYTES = Limits().connections * 128 * 1024 + SETTLED_BYTES


@dataclass(frozen=True)
class Target:
    """One process, its address, its log."""

    process: psutil.Process
    url: str
    log: Path
    descriptors: int  # without clients

    @property
    def address(self) -> flood.Address:
        host, port = self.url.partition("://")[2].rsplit(":", 1)
        return host, int(port)

    def resident_bytes(self) -> int:
        return int(self.process.memory_info().rss)


class Watch:
    """The most memory that was seen while it lasted, and how long health took at most."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._before = self._most = target.resident_bytes()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.answers = 0
        self.failures: list[str] = []

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        eventually(lambda: self.answers + len(self.failures) >= 3)
        self._ended.set()
        self._thread.join()

    @property
    def growth_bytes(self) -> int:
        return self._most - self._before

    def left_bytes(self) -> int:
        """What the process holds now beyond what it held before."""
        return self._target.resident_bytes() - self._before

    def _look(self) -> None:
        while not self._ended.wait(0.02):
            self._most = max(self._most, self._target.resident_bytes())
            try:
                flood.health_seconds(self._target.url)
                self.answers += 1
            except Exception as error:
                self.failures.append(repr(error))


@pytest.fixture(scope="module", params=["manager", "agent", "apiserver"])
def target(
    request: pytest.FixtureRequest, process: ApiServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    with started(request.param, process, tmp_path_factory.mktemp(request.param)) as target:
        yield target


@pytest.fixture(scope="module", params=["manager", "agent"])
def encrypted(
    request: pytest.FixtureRequest, process: ApiServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    tls = {"manager": "true", "agent": "self"}[request.param]
    with started(request.param, process, tmp_path_factory.mktemp(request.param), "--tls", tls) as target:
        yield target


@contextlib.contextmanager
def started(program: str, process: ApiServer, directory: Path, *more: str) -> Iterator[Target]:
    log = directory / "log"
    kubeconfig = write_kubeconfig(directory / "kubeconfig", process.manager_connection())
    product = ["--kubeconfig", str(kubeconfig), "--listen", "127.0.0.1:0", "--log-format", "json", *more]
    (directory / "token").write_text("secret")
    server = [
        *("--listen", "127.0.0.1:0", "--token-file", str(directory / "token")),
        *("--data-dir", str(directory / "data")),
    ]
    command = {
        "manager": ["manager", *product, "--namespace", names.INSTALL_NAMESPACE, "--dry-run", "true"],
        "agent": [
            *("agent", *product, "--node-name", "flooded"),
            *("--state-dir", str(directory / "state"), "--cgroup-root", str(directory)),
        ],
        "apiserver": ["deploy.local.apiserver", *server],
    }[program]
    with log.open("wb") as output:
        child = subprocess.Popen([sys.executable, "-m", *command], cwd=ROOT, stdout=output, stderr=output)

    def url() -> str:
        assert child.poll() is None, log.read_text()
        if program == "apiserver":
            return log.read_text().partition("\n")[0]
        for line in map(json.loads, log.read_text().splitlines()):
            if line["msg"] == "manager started":
                return str(line["url"])
            if line["msg"] == "listening":
                return "{scheme}://{host}:{port}".format(scheme="https" if more else "http", **line)
        return ""

    try:
        where = eventually(url, START_SECONDS)
        flood.health_seconds(where, START_SECONDS)
        running = psutil.Process(child.pid)
        yield Target(running, where, log, running.num_fds())
    finally:
        child.kill()
        child.wait(10)


@pytest.fixture(autouse=True)
def many_descriptors() -> None:
    assert descriptors.raise_limit() > 2000


def test_bodies_that_are_never_finished_stay_bounded_in_memory(target: Target) -> None:
    with (
        Watch(target) as watch,
        flood.stalled_bodies(target.address, "/scheduler/filter", 40, BODY_BYTES),
    ):
        pass
    assert watch.failures == []
    assert watch.growth_bytes < GROWTH_BYTES
    eventually(lambda: watch.left_bytes() < SETTLED_BYTES, SETTLING_SECONDS)


@pytest.mark.parametrize("progress", ["silent", "hello", "idle"])
def test_encrypted_connections_that_say_nothing_cost_little_and_leave_nothing(encrypted: Target, progress: str) -> None:
    watch = Watch(encrypted)
    with flood.encrypted(encrypted.address, 510, progress), watch:
        pass
    assert watch.failures == []
    assert watch.growth_bytes < TLS_BYTES
    eventually(lambda: watch.left_bytes() < SETTLED_BYTES, SETTLING_SECONDS)


@pytest.mark.parametrize(
    "text",
    [b"", b"GET / HT", b"POST /api/v1/plan HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n{"],
    ids=["silent", "headers", "body"],
)
def test_half_sent_requests_keep_no_probe_waiting(target: Target, text: bytes) -> None:
    with flood.half_sent(target.address, text, 1100), Watch(target) as watch:
        eventually(lambda: target.process.num_fds() < 1000)
    assert watch.failures == []
    assert watch.growth_bytes < 100 * MIB


def test_health_is_answered_when_descriptors_run_out(target: Target) -> None:
    soft, hard = target.process.rlimit(psutil.RLIMIT_NOFILE)
    eventually(lambda: target.process.num_fds() < target.descriptors + 10)  # those of others are closed
    target.process.rlimit(psutil.RLIMIT_NOFILE, (target.process.num_fds() + 20, hard))
    try:
        with flood.half_sent(target.address, b"GET / HT", 200), Watch(target) as watch:
            pass
    finally:
        target.process.rlimit(psutil.RLIMIT_NOFILE, (soft, hard))
    assert watch.failures == []
    assert "no connection can be accepted" in target.log.read_text()


def test_a_log_tells_of_each_kind_of_trouble_once(target: Target) -> None:
    before = target.log.stat().st_size
    for _ in range(300):
        with socket.create_connection(target.address, timeout=5) as client:
            client.sendall(b"\x00 nonsense\r\n\r\n")
            assert flood.is_cut(client, lambda answer: answer.startswith(b"HTTP/1.1 400 "))
    assert target.log.stat().st_size - before < 4000
