"""This machine as a node, as a process of its own, which joins whatever API server the suite is on."""

import contextlib
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from shared.api.meta import ObjectMeta
from shared.kube.client import Client
from shared.kube.errors import NotFound
from shared.kube.node_heartbeat import LEASE_NAMESPACE
from shared.kube.resources import LEASES, NODES, PODS
from tests.support import eventually
from tests.support.apiserver import ApiServer
from tests.support.daemons import Daemon

SETTLE_SECONDS = 120.0  # for what several controllers have to agree upon


class NodeProcess:
    """`python -m deploy.local.node`, which is killed and started again on the same state."""

    def __init__(self, server: ApiServer, directory: Path) -> None:
        self.name = f"node-{secrets.token_hex(4)}"
        self._arguments = [
            *("--kubeconfig", str(server.kubeconfig), "--node-name", self.name, "--schedule", "false"),
            *("--state-dir", str(directory / "state"), "--cgroup-parent", f"headroom-test-{self.name}"),
            *(_certificate(directory) if server.ca_file else ()),
        ]
        self._log = directory / "node.log"
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = Daemon("deploy.local.node", *self._arguments, stdout=log, stderr=log)

    def end(self, how: signal.Signals) -> None:
        self._process.send_signal(how)
        self._process.wait(20)


def _certificate(directory: Path) -> tuple[str, ...]:
    """A server that speaks TLS itself speaks it to kubelets, and takes any certificate they have."""
    openssl = shutil.which("openssl")
    if openssl is None:
        return ()
    key, certificate = directory / "kubelet.key", directory / "kubelet.crt"
    request = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=kubelet")
    subprocess.run([openssl, *request, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return ("--tls-cert-file", str(certificate), "--tls-private-key-file", str(key))


@pytest.fixture
def client(server: ApiServer) -> Client:
    return server.client()


@pytest.fixture
def node(server: ApiServer, client: Client, tmp_path: Path) -> Iterator[NodeProcess]:
    joined = NodeProcess(server, tmp_path)
    eventually(lambda: is_ready(client, joined.name), SETTLE_SECONDS)
    yield joined
    joined.end(signal.SIGTERM)
    with contextlib.suppress(NotFound):
        client.delete(NODES, joined.name)


@pytest.fixture
def namespace(server: ApiServer) -> str:
    return server.add_namespace()


def is_ready(client: Client, name: str) -> bool:
    """Whether the node is, and whoever taints nodes that are not agrees."""
    try:
        node = client.get(NODES, name)
    except NotFound:
        return False
    ready = any((each["type"], each["status"]) == ("Ready", "True") for each in node["status"].get("conditions", ()))
    return ready and not node["spec"].get("taints")


def create(client: Client, node: NodeProcess, namespace: str, script: str, **spec: Any) -> ObjectMeta:
    container = {"name": "main", "image": "none", "command": ["/bin/sh", "-c", script]}
    spec = {"nodeName": node.name, "containers": [container]} | spec
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    return client.create(PODS, body, namespace)


def phase(client: Client, namespace: str) -> str:
    return str(client.get(PODS, "p", namespace)["status"]["phase"])


def is_gone(client: Client, namespace: str) -> bool:
    try:
        client.get(PODS, "p", namespace)
    except NotFound:
        return True
    return False


def pids(uid: str) -> list[int]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("HEADROOM_POD_UID") == uid:
                found.append(process.pid)
    return found


def test_the_node_registers_and_renews_its_lease(node: NodeProcess, client: Client) -> None:
    def holder() -> str:
        with contextlib.suppress(NotFound):
            return str(client.get(LEASES, node.name, LEASE_NAMESPACE)["spec"]["holderIdentity"])
        return ""

    assert eventually(holder) == node.name


def test_a_pod_runs_to_its_end_and_what_it_said_can_be_read(
    node: NodeProcess, client: Client, server: ApiServer, namespace: str
) -> None:
    create(client, node, namespace, "echo $(( 6 * 7 ))", restartPolicy="Never")
    eventually(lambda: phase(client, namespace) == "Succeeded", SETTLE_SECONDS)
    with server.http() as http:
        answer = http.get(f"/api/v1/namespaces/{namespace}/pods/p/log")
    assert (answer.status_code, answer.text) == (200, "42\n")


def test_a_pod_that_is_deleted_is_given_its_time_and_then_goes(
    node: NodeProcess, client: Client, namespace: str
) -> None:
    uid = create(client, node, namespace, "exec sleep 1000").uid
    eventually(lambda: phase(client, namespace) == "Running", SETTLE_SECONDS)
    client.delete(PODS, "p", namespace)
    eventually(lambda: is_gone(client, namespace), SETTLE_SECONDS)
    assert pids(uid) == []


def test_a_pod_that_is_evicted_goes(node: NodeProcess, client: Client, namespace: str) -> None:
    uid = create(client, node, namespace, "exec sleep 1000").uid
    eventually(lambda: phase(client, namespace) == "Running", SETTLE_SECONDS)
    client.evict(namespace, "p")
    eventually(lambda: is_gone(client, namespace), SETTLE_SECONDS)
    assert pids(uid) == []


def test_a_kubelet_that_was_killed_ends_what_is_left_and_starts_its_pods_anew(
    node: NodeProcess, client: Client, namespace: str
) -> None:
    uid = create(client, node, namespace, "exec sleep 1000").uid
    eventually(lambda: phase(client, namespace) == "Running", SETTLE_SECONDS)
    left = set(eventually(lambda: pids(uid)))  # while a process replaces itself, it shows no environment
    node.end(signal.SIGKILL)
    assert left <= set(pids(uid))
    node.start()
    eventually(lambda: (found := set(pids(uid))) and not found & left, SETTLE_SECONDS)
    client.delete(PODS, "p", namespace)
    eventually(lambda: is_gone(client, namespace), SETTLE_SECONDS)
    assert pids(uid) == []
