"""Agents of a live cluster are found by their labels and asked through its API server, with no credentials of it."""

import json
import urllib.parse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.backtest.server import Access
from deploy.local import kubeconfig
from deploy.savings import agent_pods
from shared import names
from shared.api.core import Container, ContainerPort, Pod, PodSpec, PodStatus
from shared.api.meta import ObjectMeta
from shared.kube.client import Client
from shared.kube.config import Connection
from tests.unit.kube.scripted import Answer, Request, ScriptedServer, answer, page, status
from tests.unit.savings import clusters
from tests.unit.savings.conftest import Command

WEEK = 7 * 86400.0
INSTALLED = "headroom-system"


def agent(
    name: str,
    *,
    phase: str = "Running",
    port: int = 9316,
    component: str = "agent",
    namespace: str = INSTALLED,
    node: str = "",
) -> Pod:
    enforcer = Container(name="enforcer", ports=(ContainerPort(1),))
    return Pod(
        metadata=ObjectMeta(
            name=name, namespace=namespace, labels=agent_pods.LABELS | {names.LABEL_COMPONENT: component}
        ),
        spec=PodSpec(
            node_name=node or f"node-of-{name}",
            containers=(enforcer, Container(name="agent", ports=(ContainerPort(port),))),
        ),
        status=PodStatus(phase=phase),
    )


class ApiServer(ScriptedServer):
    """Passes requests on to agents by the path of pods/proxy. `refusals` are by pod, `scheme` is what agents speak."""

    def __init__(self) -> None:
        super().__init__()
        self.scheme = "https"
        self.refusals: dict[str, Answer] = {}

    def next_answer(self, request: Request) -> Answer:
        self.requests.append(request)
        start, _, rest = request.path.partition("/proxy/")
        scheme, pod, port = urllib.parse.unquote(start.rpartition("/")[2]).split(":")
        if not start.startswith("/api/v1/namespaces/headroom-system/pods/") or port != "9316":
            return status(404, "NotFound")
        if pod in self.refusals:
            return self.refusals[pod]
        if scheme != self.scheme:
            return status(503, "ServiceUnavailable")
        if rest == "api/v1/node":
            return answer({"name": f"node-of-{pod}"})
        asked = request.query
        unit = "samples" if asked["agg"] == "count" else {"cpu": "cores", "memory": "bytes"}[asked["metric"]]
        labels = {"namespace": "shop", asked["kind"]: "shop/Deployment/web" if asked["kind"] == "workload" else "web-1"}
        value = WEEK if asked["agg"] == "count" else 0.5
        return answer({"tier": "5m-mean", "unit": unit, "values": [{"labels": labels, "value": value}]})


@pytest.fixture
def server() -> Iterator[ApiServer]:
    scripted = ApiServer()
    yield scripted
    scripted.close()


@pytest.fixture
def client(server: ApiServer) -> Iterator[Client]:
    made = Client(Connection(server.url), "test")
    yield made
    made.close()


def test_running_agents_are_asked_for_a_week_and_other_pods_are_not(server: ApiServer, client: Client) -> None:
    other = agent("other", component="manager")
    found = agent_pods.read(client, [agent("b"), agent("a"), other, agent("gone", phase="Failed")], INSTALLED, Access())
    assert [weeks.node for weeks in found.weeks] == ["node-of-a", "node-of-b"]
    assert found.notes == ()
    week = found.weeks[0].pods["cpu"]["shop/web-1"]
    assert (week.most, week.points) == (0.5, WEEK)
    assert found.weeks[0].workloads["memory"]["shop/Deployment/web"].median == 0.5
    assert all("x-headroom-authorization" not in map(str.lower, each.headers) for each in server.requests)


def test_an_agent_without_tls_is_asked_as_it_speaks(server: ApiServer, client: Client) -> None:
    server.scheme = "http"
    assert len(agent_pods.read(client, [agent("a"), agent("b")], INSTALLED, Access()).weeks) == 2


def test_an_agent_that_does_not_answer_costs_its_node_alone_and_is_named(server: ApiServer, client: Client) -> None:
    server.refusals["b"] = status(503, "ServiceUnavailable")
    found = agent_pods.read(client, [agent("a"), agent("b"), agent("c", port=1)], INSTALLED, Access())
    assert [weeks.node for weeks in found.weeks] == ["node-of-a"]
    (note,) = found.notes
    assert note.startswith("2 of 3 agents did not answer: 503 ")


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        (status(401, "Unauthorized"), "401 scripted; they want a token of their own (--token-file)"),
        (status(403, "Forbidden"), "403 scripted; it takes the right to get pods/proxy"),
        (answer({"detail": "no valid token"}, 401), "they want a token of their own (--token-file)"),
    ],
)
def test_where_the_first_one_refuses_the_others_are_not_asked(
    server: ApiServer, client: Client, refusal: Answer, words: str
) -> None:
    server.refusals["a"] = refusal
    found = agent_pods.read(client, [agent("a"), agent("b")], INSTALLED, Access())
    assert not found.weeks
    (note,) = found.notes
    assert note.startswith("of the agents (2) none was asked: ")
    assert words in note
    assert {":a:" in urllib.parse.unquote(request.path) for request in server.requests} == {True}


def test_agents_get_the_token_of_the_file_and_nothing_of_the_user(
    server: ApiServer, client: Client, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("of-a-reader\n")
    agent_pods.read(client, [agent("a")], INSTALLED, replace(Access(), token_file=tmp_path / "token"))
    given = {name.lower(): value for name, value in server.requests[0].headers.items()}
    assert given["x-headroom-authorization"] == "Bearer of-a-reader"
    assert "of-a-reader" not in json.dumps([each.path for each in server.requests])


def test_a_cluster_without_agents_is_asked_nothing(server: ApiServer, client: Client) -> None:
    assert agent_pods.read(client, [], INSTALLED, Access()) == ((), ())
    assert server.requests == []


def test_pods_of_other_namespaces_that_look_like_agents_get_no_token(
    server: ApiServer, client: Client, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("of-a-reader")
    given = replace(Access(), token_file=tmp_path / "token")
    assert agent_pods.read(client, [agent("a", namespace="shop")], INSTALLED, given) == ((), ())
    assert server.requests == []


def test_an_agent_is_believed_about_its_own_node_alone(server: ApiServer, client: Client) -> None:
    elsewhere = Pod(metadata=ObjectMeta(name="web-1", namespace="shop"), spec=PodSpec(node_name="node-of-b"))
    found = agent_pods.read(client, [agent("a"), agent("b"), elsewhere], INSTALLED, Access())
    assert [list(weeks.pods["cpu"]) for weeks in found.weeks] == [[], ["shop/web-1"]]
    found = agent_pods.read(client, [agent("a", node="c")], INSTALLED, Access())
    assert not found.weeks
    (note,) = found.notes
    assert "runs on c and says that it is of 'node-of-a'" in note


class ClusterWithAgents(ApiServer):
    """A shop on three nodes with an agent each: `a` answers, `b` is silent, and `c` says that it is of node `a`."""

    def __init__(self) -> None:
        super().__init__()
        self.refusals["b"] = status(503, "ServiceUnavailable")
        self.refusals["c"] = answer({"name": "node-of-a"})
        agents = [
            {
                "metadata": {"name": name, "namespace": INSTALLED, "labels": agent_pods.LABELS},
                "spec": {"nodeName": f"node-of-{name}", "containers": [{"name": "agent"}]},
                "status": {"phase": "Running"},
            }
            for name in "abc"
        ]
        web = [
            clusters.pod(f"web-{n}", "web", f"node-of-{place}", clusters.container("main", "3", "10Gi"))
            for n, place in ((1, "a"), (2, "b"), (3, "c"))
        ]
        self.objects = {"nodes": [clusters.node(f"node-of-{name}") for name in "abc"], "pods": [*agents, *web]}

    def next_answer(self, request: Request) -> Answer:
        *_, plural = request.path.split("/")
        if "/proxy/" in request.path:
            return super().next_answer(request)
        if "/namespaces/" in request.path or "k8s.io/" in request.path:
            return status(404, "NotFound")
        return page(*self.objects.get(plural, ()), version=1)


def test_savings_of_a_cluster_count_the_agents_that_can_be_believed_and_say_which_nodes_are_not_known(
    tmp_path: Path, savings: Command
) -> None:
    server, config = ClusterWithAgents(), tmp_path / "kubeconfig"
    kubeconfig.write(config, server.url, "an-administrator")
    try:
        told = savings.answer("--kubeconfig", config)
    finally:
        server.close()
    assert told["knowledge"]["known"] == {"agents": 1}
    (silent,) = (note for note in told["notes"] if "did not answer" in note)
    assert silent == "2 of 3 agents did not answer: 503 scripted"
    (unknown,) = (note for note in told["notes"] if note.startswith("no agent of "))
    assert unknown.startswith("no agent of 2 of 3 nodes was asked")
    assert unknown.endswith("(node-of-b, node-of-c)")
    asked = {urllib.parse.unquote(each.path).partition(":")[2].partition(":")[0] for each in server.requests}
    assert {"a", "b", "c"} <= asked
    assert all("an-administrator" not in str(each.headers.get("X-Headroom-Authorization")) for each in server.requests)
