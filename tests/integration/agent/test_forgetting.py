"""`headroom forget` reaches the agent through its Node, and what it forgot is told in the report."""

from pathlib import Path

import pytest

from shared import names
from shared.kube.resources import NODES
from tests.integration.agent.node import Node, get
from tests.support import daemons, eventually
from tests.support.apiserver import ApiServer, write_kubeconfig

ours = pytest.mark.own_decision("the agent and the command decide, whichever API server has the node")


@pytest.fixture
def kubeconfig(server: ApiServer, tmp_path: Path) -> Path:
    return write_kubeconfig(tmp_path / "kubeconfig", server.connection)


def forget(kubeconfig: Path, *arguments: str) -> tuple[int, str]:
    """The command's exit status and what it says."""
    done = daemons.run("deploy.cli", "forget", *arguments, "--kubeconfig", str(kubeconfig))
    return done.returncode, done.stdout + done.stderr


def last_forgotten(node: Node) -> tuple[str, str] | None:
    prediction = node.status.prediction
    last = prediction.last_forgotten if prediction else None
    return (last.of, last.until) if last else None


def annotations(node: Node) -> dict[str, str]:
    found: dict[str, str] = node.client.get(NODES, node.name)["metadata"].get("annotations") or {}
    return found


def test_a_node_forgets_when_the_command_asks_and_not_again_after_a_restart(node: Node, kubeconfig: Path) -> None:
    node.add_pod("web")
    node.add_node_metric()
    agent = node.agent()
    eventually(lambda: node.reclaimable_cpu_milli() == 1250)
    samples = get(agent, "api/v1/prediction").json()["samples"]
    assert forget(kubeconfig, "node", node.name, "--dry-run")[0] == 0
    assert names.ANNOTATION_FORGET not in annotations(node)
    status, said = forget(kubeconfig, "node", node.name)
    until = annotations(node)[names.ANNOTATION_FORGET]
    assert (status, said) == (0, f"Node {node.name}: is asked to forget everything until {until}\n")
    eventually(lambda: last_forgotten(node) == ("node", until))
    agent.close()
    eventually(lambda: node.reclaimable_cpu_milli() is not None)
    again = node.agent()
    eventually(lambda: get(again, "api/v1/prediction").json()["samples"] > samples)
    assert last_forgotten(node) == ("node", until)


@ours
def test_a_workload_is_forgotten_beside_those_before_and_a_list_that_is_none_is_refused(
    node: Node, kubeconfig: Path
) -> None:
    node.add_pod("web")
    node.add_node_metric()
    broken = {"metadata": {"annotations": {names.ANNOTATION_FORGET_WORKLOADS: "[]"}}}
    node.client.patch(NODES, node.name, broken)
    node.agent()
    eventually(lambda: node.condition("PolicyAccepted") == "False/InvalidPolicy")
    status, said = forget(kubeconfig, "workload", "default/Deployment/web", "--nodes", node.name)
    assert status == 0
    assert "replaced: Node annotation" in said
    eventually(lambda: (last_forgotten(node) or ("", ""))[0] == "default/Deployment/web")
    eventually(lambda: node.condition("PolicyAccepted") == "True/Applied")
    assert forget(kubeconfig, "workload", "default/Deployment/api")[0] == 0  # on all Nodes
    text = annotations(node)[names.ANNOTATION_FORGET_WORKLOADS]
    assert "default/Deployment/web" in text
    assert "default/Deployment/api" in text


@ours
@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("node", "nowhere"), "Node: 'nowhere': there is no such node"),
        (("workload", "web"), "'web': expected NAMESPACE/KIND/NAME"),
        (("node",), "Missing argument 'NAME...'"),
    ],
)
def test_bad_input_is_named_with_exit_status_2(kubeconfig: Path, arguments: tuple[str, ...], problem: str) -> None:
    status, said = forget(kubeconfig, *arguments)
    assert status == 2
    assert problem in said
