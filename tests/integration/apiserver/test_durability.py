"""What is acknowledged survives kill -9; what cannot be trusted is left alone."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from tests.integration.apiserver.conftest import Connect, config_map, node_metric
from tests.support import eventually
from tests.support.apiserver import ROOT, ApiServer, EmbeddedApiServer

CM = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def maps(namespace: str) -> str:
    """The path of the ConfigMaps of a namespace of the test's own."""
    return f"{namespace}/configmaps"


@pytest.fixture
def own(tmp_path: Path) -> Iterator[ApiServer]:
    """A server of the test's own, whose files and process it may harm."""
    server = EmbeddedApiServer(tmp_path)
    yield server
    server.close()


def test_kill_loses_nothing_acknowledged_and_versions_never_go_back(
    server: ApiServer, maps: str, connect: Connect
) -> None:
    acknowledged: dict[str, int] = {}

    def write(worker: int) -> None:
        api = connect(server)
        for index in range(10_000):
            name = f"w{worker}-{index}"
            try:
                made = api.ok("POST", maps, config_map(name))
                if index % 3 == 0:
                    api.ok("DELETE", f"{maps}/{name}")
                    continue
                if index % 3 == 1:
                    made = api.patch(f"{maps}/{name}", {"data": {"x": str(index)}})
            except httpx.HTTPError:
                return
            acknowledged[name] = int(made["metadata"]["resourceVersion"])

    threads = [threading.Thread(target=write, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    eventually(lambda: len(acknowledged) > 150)
    server.kill(signal.SIGKILL)
    for thread in threads:
        thread.join()
    server.start()
    api = connect(server)
    listed = api.ok("GET", maps)
    found = {item["metadata"]["name"]: int(item["metadata"]["resourceVersion"]) for item in listed["items"]}
    assert {name: version for name, version in acknowledged.items() if found.get(name, 0) < version} == {}
    next_version = int(api.ok("POST", maps, config_map("after"))["metadata"]["resourceVersion"])
    assert next_version > int(listed["metadata"]["resourceVersion"]) >= max(acknowledged.values())


def test_a_version_spent_on_a_deletion_is_not_used_again(server: ApiServer, maps: str, connect: Connect) -> None:
    api = connect(server)
    api.ok("POST", maps, config_map("a"))
    api.ok("DELETE", f"{maps}/a")
    before = int(api.ok("GET", maps)["metadata"]["resourceVersion"])
    server.kill()
    server.start()
    assert int(connect(server).ok("GET", maps)["metadata"]["resourceVersion"]) >= before


def test_custom_kinds_and_their_objects_are_there_after_a_restart(
    server: ApiServer, unique: str, connect: Connect
) -> None:
    metrics = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
    made = connect(server).ok("POST", metrics, node_metric(unique))
    server.kill()
    server.start()
    assert connect(server).ok("GET", f"{metrics}/{unique}") == made


def test_a_watch_from_before_a_restart_is_told_to_list_again(server: ApiServer, maps: str, connect: Connect) -> None:
    api = connect(server)
    old = api.ok("POST", maps, config_map("a"))["metadata"]["resourceVersion"]
    api.ok("POST", maps, config_map("b"))
    server.kill()
    server.start()
    with connect(server).watch(maps, resourceVersion=old) as events:
        assert next(events)["object"]["code"] == 410


@pytest.mark.embedded_only("it lets the disk of this one process fail; etcd's is etcd's business")
def test_a_write_that_the_disk_refuses_fails_and_leaves_nothing_behind(own: ApiServer, connect: Connect) -> None:
    api, port = connect(own), int(own.url.rpartition(":")[2])
    server = next(
        child
        for child in psutil.Process().children()
        if port in [connection.laddr.port for connection in child.net_connections("tcp")]
    )
    old = api.ok("POST", CM, config_map("a", x="1"))
    soft, hard = server.rlimit(psutil.RLIMIT_FSIZE)
    server.rlimit(psutil.RLIMIT_FSIZE, (1, hard))
    refused = api.fails(500, "PATCH", f"{CM}/a", {"data": {"x": "2"}}, "application/merge-patch+json")
    assert "the store refused the write" in refused["message"]
    assert api.ok("GET", f"{CM}/a") == old
    server.rlimit(psutil.RLIMIT_FSIZE, (soft, hard))
    assert api.patch(f"{CM}/a", {"data": {"y": "3"}})["data"] == {"x": "1", "y": "3"}


@pytest.mark.embedded_only("kube-apiserver lets its watches go on while it shuts down")
def test_sigterm_ends_open_watches_at_once(own: ApiServer, connect: Connect) -> None:
    with connect(own).watch("/api/v1/secrets", resourceVersion="0", allowWatchBookmarks="true") as events:
        own.kill(signal.SIGTERM)
        assert list(events) == []


@pytest.mark.embedded_only("etcd words it in another way")
@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: b"not a database at all" * 1000, id="foreign"),
        pytest.param(lambda data: data[: len(data) // 2], id="torn"),
        pytest.param(lambda data: data.replace(b'"kind":"ConfigMap"', b'"kind:\x00"ConfigMap"'), id="not JSON"),
    ],
)
def test_a_damaged_file_is_neither_used_nor_changed(
    own: ApiServer, connect: Connect, damage: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    connect(own).ok("POST", CM, config_map("a", x="y" * 50_000))
    own.kill(signal.SIGTERM)
    path = tmp_path / "data" / "store.db"
    damaged = damage(path.read_bytes())
    path.write_bytes(damaged)
    arguments = ("--listen", "127.0.0.1:0", "--data-dir", str(path.parent), "--token-file", str(tmp_path / "token"))
    done = serve(*arguments)
    assert (done.returncode, str(path) in done.stderr, done.stderr.count("\n")) == (2, True, 1)
    assert path.read_bytes() == damaged


def serve(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "deploy.local.apiserver", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=20)


@pytest.mark.embedded_only("it is about the embedded server's command line")
def test_what_cannot_be_served_is_said_in_one_line(own: ApiServer, tmp_path: Path) -> None:
    token, nowhere = str(tmp_path / "token"), str(tmp_path / "nowhere")
    port = own.url.rpartition(":")[2]
    cases = [
        (["--listen", "0.0.0.0:0", "--data-dir", "d", "--token-file", token], "only loopback addresses are served"),
        (
            ["--listen", f"127.0.0.1:{port}", "--data-dir", str(tmp_path / "d"), "--token-file", token],
            "Address already in use",
        ),
        (
            ["--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"), "--token-file", token],
            "another API server",
        ),
        (["--listen", "127.0.0.1:0", "--data-dir", "d", "--token-file", nowhere], "No such file"),
        (
            ["--listen", "127.0.0.1:0", "--data-dir", "d", "--token-file", token, "--crd-dir", nowhere],
            "no such directory",
        ),
    ]
    for arguments, message in cases:
        done = serve(*arguments)
        assert (done.returncode, done.stdout, message in done.stderr) == (2, "", True), done.stderr
        assert done.stderr.count("\n") == 1
