"""One cluster for the whole suite, started as a user starts it."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import httpx
import msgspec
import psutil
import pytest

from agent.metrics_advisor import cgroups
from deploy.local.control_plane import APISERVER
from deploy.local.kubelet.node import host_name
from shared import names
from shared.errors import InvalidInput
from shared.kube.client import Client
from shared.kube.config import Connection, from_kubeconfig
from shared.kube.errors import Forbidden, NotFound, ServerError, Unreachable
from shared.kube.resources import CONFIGMAPS, NODES, PODS
from tests.support import eventually
from tests.support.apiserver import REAL
from tests.support.local_http import LOCAL_HTTP

UP = (sys.executable, "-m", "deploy.cli", "up")
START_SECONDS = 120.0
STOP_SECONDS = 120.0  # each of its processes may take its time


class RunningCluster:
    """`headroom up` and what can be asked of it."""

    def __init__(self, kind: str, directory: Path, *arguments: str, variables: Mapping[str, str] | None = None) -> None:
        self.kind = kind
        self.directory = directory
        self.errors = directory / "up.stderr"
        directory.mkdir(exist_ok=True)
        self.kubeconfig = directory / "state" / "kubeconfig"
        self.kubeconfig.unlink(missing_ok=True)  # that of the last time leads to where nobody listens any more
        ports = ("--port", "0", "--manager-port", "0", "--agent-port", "0")
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [*UP, "--cluster", kind, "--keep", str(directory / "state"), *ports, *arguments],
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=os.environ | {"XDG_RUNTIME_DIR": str(directory)} | dict(variables or {}),
            )
        self.node = host_name()
        self.agent_url = self._announced("agent").removesuffix("/docs")
        self.manager_url = self._announced("manager").rstrip("/")
        connection = eventually(self._connection, START_SECONDS)
        assert connection is not None
        self.client = Client(connection, "headroom-tests")

    def wait_until_decided(self, count: int) -> None:
        """Returns once the manager has decided about `count` nodes from what their agents reported."""

        def decided() -> bool:
            nodes = self.nodes()
            return len(nodes) == count and all(node["used"] for node in nodes.values())

        eventually(decided, START_SECONDS, 0.2)

    def write_small_changes(self) -> None:
        """Mid is written when it has changed by 1 %: on a busy machine a burning pod gets a fraction of a core."""
        found = self.client.get(CONFIGMAPS, names.CONFIG_MAP, names.INSTALL_NAMESPACE)
        config = msgspec.json.decode(found["data"][names.CONFIG_KEY_COLOCATION])
        config["resourceDiffThreshold"] = 0.01
        data = {names.CONFIG_KEY_COLOCATION: msgspec.json.encode(config).decode()}
        self.client.patch(CONFIGMAPS, names.CONFIG_MAP, {"data": data}, names.INSTALL_NAMESPACE)

    def nodes(self) -> dict[str, dict[str, Any]]:
        """The manager's table by name; empty while it does not answer."""
        try:
            answer = LOCAL_HTTP.get(f"{self.manager_url}/api/v1/nodes", timeout=5)
        except httpx.HTTPError:
            return {}
        return {node["name"]: node for node in answer.json()["nodes"]} if answer.status_code == 200 else {}

    def mid_cpu(self, node: str | None = None) -> int:
        """Milli-cores offered to Mid on the Node object itself; 0 where there are none."""
        allocatable = self.client.get(NODES, node or self.node)["status"]["allocatable"]
        return int(allocatable.get("kubernetes.io/mid-cpu", 0))

    def agent(self, path: str) -> dict[str, Any]:
        """One of the agent's answers; empty while it gives none."""
        try:
            answer = LOCAL_HTTP.get(f"{self.agent_url}/api/v1/{path}", timeout=5)
        except httpx.HTTPError:
            return {}
        return cast(dict[str, Any], answer.json()) if answer.status_code == 200 else {}

    def pod(self, name: str, namespace: str = "default") -> dict[str, Any] | None:
        try:
            return self.client.get(PODS, name, namespace)
        except NotFound:
            return None

    def child(self, target: str) -> psutil.Process | None:
        """The process of the cluster that runs `target`, a module or an executable."""
        for process in psutil.Process(self.process.pid).children():
            try:
                if target in (Path(word).name for word in process.cmdline()):
                    return process
            except psutil.Error:
                continue
        return None

    @property
    def api_server(self) -> str:
        """What runs the API server."""
        return APISERVER if self.kind == REAL else "deploy.local.apiserver"

    def kill(self, target: str) -> None:
        """kill -9, and back again: returns once another process runs `target`."""
        killed = self.child(target)
        assert killed is not None, f"{target} does not run"
        killed.kill()
        eventually(lambda: (found := self.child(target)) is not None and found.pid != killed.pid)

    def serves(self) -> bool:
        """Whether the API server answers."""
        try:
            self.client.single_attempt().list(NODES)
        except (Unreachable, ServerError, Forbidden):  # a real one refuses until it has read its roles
            return False
        return True

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(STOP_SECONDS)

    def _connection(self) -> Connection | None:
        """None until a real API server has made its certificate."""
        try:
            return from_kubeconfig(str(self.kubeconfig))
        except InvalidInput:
            return None

    def _announced(self, what: str) -> str:
        def found() -> re.Match[str] | None:
            assert self.process.poll() is None, self.errors.read_text()
            return re.search(rf"^{what}: +(http\S+)", self.errors.read_text(), re.MULTILINE)

        match = eventually(found, START_SECONDS)
        assert match is not None
        return match[1]


def processes_of(directory: Path) -> list[psutil.Process]:
    """Every process that belongs to the cluster in `directory`, wherever it hangs in the process tree."""
    cluster_id = (directory / "state" / "cluster-id").read_text().strip()
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("HEADROOM_CLUSTER") == cluster_id:
                found.append(process)
        except psutil.Error:
            continue
    return found


def pods_run(cluster: RunningCluster) -> dict[str, str]:
    """uid by name of the sample pods, once all of them run."""

    def look() -> dict[str, str]:
        found = [cluster.pod(name) for name in ("idle", "steady", "bursty")] if cluster.serves() else []
        running = [pod for pod in found if pod and pod.get("status", {}).get("phase") == "Running"]
        return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in running} if len(running) == 3 else {}

    return eventually(look)


def run_up(*arguments: str, runtime_dir: Path) -> "subprocess.CompletedProcess[str]":
    """`headroom up` to its end, and what it printed."""
    return subprocess.run(
        [*UP, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"XDG_RUNTIME_DIR": str(runtime_dir)},
    )


@pytest.fixture
def start(cluster_kind: str) -> Iterator[Callable[..., RunningCluster]]:
    """Starts further clusters and sees to their end."""
    started: list[RunningCluster] = []

    def begin(directory: Path, *arguments: str) -> RunningCluster:
        started.append(RunningCluster(cluster_kind, directory, *arguments))
        return started[-1]

    yield begin
    for running in started:
        running.stop()
        print(running.errors.read_text()[-20_000:])  # what a failed test is explained by


@pytest.fixture(scope="package")  # not beyond: its pods burn CPU
def cluster(cluster_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    directory = tmp_path_factory.mktemp("e2e")
    options = ("--nodes", "2", "--cloud", "none", "-o", "json")
    running = RunningCluster(cluster_kind, directory, *options, variables=quiet_machine(directory / "proc"))
    try:
        running.wait_until_decided(3)
        running.write_small_changes()
        yield running
    finally:
        running.stop()


def quiet_machine(proc_root: Path) -> dict[str, str]:
    """What keeps from this machine's agent that anything but its pods runs here, as the rest of a suite does.

    Pods are read from their cgroups all the same; where there are none, everything is read from the real procfs.
    """
    hierarchy = cgroups.hierarchy(Path("/sys/fs/cgroup"))
    if hierarchy is None or not all(os.access(root, os.W_OK) for root in hierarchy.roots.values()):
        return {}
    proc_root.mkdir()
    for name in ("stat", "meminfo", "loadavg"):
        (proc_root / name).write_bytes(Path("/proc", name).read_bytes())
    return {"HEADROOM_PROC_ROOT": str(proc_root)}


def cpu_seconds(pids: list[int]) -> float:
    """CPU time the kernel has counted for those processes."""
    return sum(times.user + times.system for pid in pids for times in [psutil.Process(pid).cpu_times()])
