"""Simulated nodes and their agents on an API server that has its faults."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.simulated import workloads
from shared import names
from shared.kube.client import Client
from shared.kube.errors import NotFound
from shared.kube.resources import NODES, PODS
from tests.support import eventually
from tests.support.apiserver import ApiServer

pytestmark = pytest.mark.own_decision("the fault is scripted, whichever API server is behind it")

NODE = "sim-0"


@pytest.fixture
def client(server: ApiServer) -> Iterator[Client]:
    made = server.client()
    yield made
    server.heal()
    made.delete(NODES, NODE)
    for pod in made.list(PODS, workloads.NAMESPACE).items:
        made.delete(PODS, pod["metadata"]["name"], workloads.NAMESPACE, grace_period_seconds=0)


def agent_address(client: Client) -> str:
    try:
        found = client.get(NODES, NODE)["metadata"].get("annotations") or {}
    except NotFound:
        return ""
    return str(found.get(names.ANNOTATION_AGENT_ADDRESS, ""))


def test_the_simulated_agents_survive_a_500_and_a_cut_connection_at_their_start(
    server: ApiServer, client: Client, tmp_path: Path
) -> None:
    server.fault(
        {"action": "status", "status": 500, "match": {"method": "POST", "path": "^/api/v1/nodes"}, "times": 1},
        {"action": "close", "match": {"method": "POST", "path": "^/api/v1/namespaces"}, "times": 2},
        {"action": "status", "status": 500, "match": {"method": "POST", "path": "/pods"}, "times": 1},
        {"action": "status", "status": 500, "match": {"method": "PATCH", "path": f"/nodes/{NODE}[?]"}, "times": 1},
    )
    command = [sys.executable, "-m", "deploy.local.simulated", "--kubeconfig", str(server.kubeconfig)]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--nodes", "1", "--state-dir", str(tmp_path / "state")], stdout=log, stderr=log
        )
    try:
        eventually(lambda: process.poll() is not None or agent_address(client))
        assert process.poll() is None, (tmp_path / "log").read_text()
        assert server.faults_left() == 0
        process.terminate()
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
