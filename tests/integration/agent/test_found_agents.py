"""`headroom recommend` finds the agents of a live cluster, and asks them through its API server."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from deploy import cli
from deploy.local import kubeconfig
from deploy.savings import agent_pods
from shared.kube.resources import CONFIGMAPS, PODS
from tests.integration.agent.node import Node
from tests.support import eventually
from tests.support.apiserver import ApiServer

pytestmark = pytest.mark.real_only("the embedded API server passes no request on to a pod")

AGENTS = ("--agents-namespace", "default")


def own_address() -> str:
    """Of this machine, as an API server passes nothing on to loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as chosen:
        chosen.connect(("198.51.100.1", 9))  # nothing is sent
        return str(chosen.getsockname()[0])


def add_agent_pod(node: Node, address: tuple[str, int]) -> None:
    """The pod that the chart's DaemonSet would have made."""
    ports = [{"name": "http", "containerPort": address[1]}]
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{node.name}-agent", "labels": agent_pods.LABELS},
        "spec": {"nodeName": node.name, "containers": [{"name": "agent", "image": "i", "ports": ports}]},
    }
    node.client.create(PODS, body, "default")
    status = {"phase": "Running", "podIP": address[0], "podIPs": [{"ip": address[0]}]}
    node.client.patch(PODS, f"{node.name}-agent", {"status": status}, "default", subresource="status")


def test_agents_are_found_and_answer_to_the_token_of_a_file(
    server: ApiServer, node: Node, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{node.name}-owner"}}
    made = node.client.create(CONFIGMAPS, body, "default")
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": made.name, "uid": made.uid, "controller": True}
    node.add_pod("web", ownerReferences=[owner])
    agent = node.agent(tls="self", authorization="delegated", listen=f"{own_address()}:0")
    add_agent_pod(node, agent.address)
    config, token = tmp_path / "kubeconfig", tmp_path / "token"
    kubeconfig.write(config, server.url, server.token, server.ca_file)
    token.write_text(server.token)

    def recommended(*more: str) -> Any:
        given = ["recommend", "--kubeconfig", str(config), "--workload", made.name, *AGENTS, *more, "-o", "json"]
        assert (cli.app(given, standalone_mode=False) or 0) == 0
        return json.loads(capsys.readouterr().out)

    notes = recommended()["notes"]
    (note,) = (note for note in notes if note.startswith("of the agents (1) none was asked: 401"))
    assert "--token-file" in note

    def known() -> Any:
        (row,) = recommended("--token-file", str(token))["containers"]
        return row["source"] == "agents" and row

    row = eventually(known)
    assert row["cpu"]["used_most"] == 500
    assert all("of the agents" not in note for note in recommended("--agents-namespace", "")["notes"])
