"""The kubelet's list of pods is taken whole or not at all, and the last good one stands."""

import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from agent.settings import AgentSettings
from agent.states_informer import kubelet
from agent.states_informer.informer import StatesInformer
from agent.states_informer.kubelet import EMPTY_ANSWERS, LOST_SECONDS, KubeletAccess, KubeletPods
from agent.states_informer.refusals import Refusals
from shared.certificates import issued
from shared.clock import ManualClock
from shared.errors import InvalidInput
from shared.kube.client import Client
from shared.kube.config import Connection, StaticToken
from shared.telemetry import Loops
from tests.support import certain, eventually
from tests.unit.agent.cluster import NodeServer, named
from tests.unit.kube.scripted import Answer, Request, ScriptedServer, answer, reset, status


class Kubelet(ScriptedServer):
    """Answers every request alike."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls)
        self.says: Answer = listed()

    def next_answer(self, request: Request) -> Answer:
        self.requests.append(request)
        return self.says


def listed(*pods: object) -> Answer:
    """As a kubelet writes it: metadata without a version, null for no pods."""
    return answer({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": list(pods) or None})


def pod(name: str, cpu: object = "1", node: str = "n", version: int = 1, **metadata: object) -> dict[str, Any]:
    made = named(name, version, spec={"nodeName": node, "containers": [{"resources": {"requests": {"cpu": cpu}}}]})
    made["metadata"] |= metadata
    return made


@pytest.fixture
def server() -> Iterator[Kubelet]:
    serving = Kubelet()
    yield serving
    serving.close()


class Asking:
    """Pods as the kubelet at `connection` tells them, asked when the test says."""

    def __init__(self, connection: Connection) -> None:
        self.registry = CollectorRegistry()
        self.clock = ManualClock()
        self.pods = KubeletPods(
            KubeletAccess(connection),
            "n",
            Refusals(self.registry),
            registry=self.registry,
            monotonic=self.clock.monotonic,
        )

    def ask(self, times: int = 1) -> list[tuple[str, int]]:
        for _ in range(times):
            self.pods.poll()
        return [(one.uid, one.request.cpu_milli) for one in self.pods.pods()]

    def polls(self, outcome: str) -> float:
        return self.registry.get_sample_value("headroom_agent_kubelet_polls_total", {"outcome": outcome}) or 0

    @property
    def refused(self) -> float:
        return self.registry.get_sample_value("headroom_agent_refused_objects_total", {"kind": "Pod"}) or 0


@pytest.fixture
def asking(server: Kubelet) -> Asking:
    return Asking(Connection(server.url, StaticToken("secret")))


def test_pods_are_asked_for_with_the_token(server: Kubelet, asking: Asking) -> None:
    server.says = listed(pod("web"), pod("static", node="n"))
    assert not asking.pods.synced
    assert asking.ask() == [("uid-web", 1000), ("uid-static", 1000)]
    assert asking.pods.synced
    (request,) = server.requests
    assert (request.method, request.path) == ("GET", "/pods")
    assert request.headers["Authorization"] == "Bearer secret"


@pytest.mark.parametrize(
    "bad",
    [
        status(401, "Unauthorized"),
        status(500, "InternalError"),
        answer(b"<html>"),
        answer({"kind": "Status", "metadata": {}}),
        answer({"metadata": {}, "items": "a text"}),
        reset(),
        listed(pod("web"), pod("stranger", node="another")),
    ],
    ids=["401", "500", "html", "no items", "wrong type", "reset", "another node's"],
)
def test_while_no_good_list_comes_the_last_good_one_stands(
    server: Kubelet, asking: Asking, bad: Answer, caplog: pytest.LogCaptureFixture
) -> None:
    server.says = bad
    asking.ask()
    assert not asking.pods.synced
    server.says = listed(pod("web"))
    good = asking.ask()
    server.says = bad
    assert asking.ask(3) == good == [("uid-web", 1000)]
    assert asking.polls("failed") == 4
    said = [record for record in caplog.records if record.levelname == "ERROR"]
    assert len(said) == 2  # once for each time it began
    server.says = listed(pod("web", version=2), pod("late"))
    assert len(asking.ask()) == 2


def test_without_a_good_list_for_minutes_the_last_one_is_believed_no_more(server: Kubelet, asking: Asking) -> None:
    server.says = listed(pod("web"))
    asking.ask()
    server.says = status(500, "InternalError")
    asking.clock.advance(LOST_SECONDS)
    asking.ask()
    assert asking.pods.synced
    asking.clock.advance(1)
    assert not asking.pods.synced
    server.says = listed(pod("web"))
    asking.ask()
    assert asking.pods.synced


def test_a_pod_that_means_nothing_is_left_out_alone_and_the_version_before_stays(
    server: Kubelet, asking: Asking
) -> None:
    broken = named("broken", 7, spec="a text")
    server.says = listed(pod("web"), broken, pod("lots", cpu="lots"))
    assert asking.ask() == [("uid-web", 1000)]
    assert asking.refused == 2
    server.says = listed(pod("web", cpu="lots", version=2), broken, pod("lots", cpu="lots"), pod("late"))
    assert asking.ask(2) == [("uid-web", 1000), ("uid-late", 1000)]
    assert asking.refused == 3  # each version once
    server.says = listed(pod("web", cpu="lots", version=3, uid="another"), pod("late"))
    assert asking.ask() == [("uid-late", 1000)]  # a pod that was replaced is gone, whatever the new one says
    server.says = listed(named("late", 2, spec="a text"))
    assert asking.ask() == [("uid-late", 1000)]


def test_an_unchanged_pod_stays_the_same_object(server: Kubelet, asking: Asking) -> None:
    server.says = listed(pod("web"), pod("job"))
    asking.ask()
    web, job = asking.pods.pods()
    server.says = listed(pod("web"), pod("job", cpu="2"))
    asking.ask()
    assert asking.pods.pods()[0] is web
    assert asking.pods.pods()[1] is not job


def test_a_kubelet_that_knows_of_no_pods_is_believed_when_it_insists(server: Kubelet, asking: Asking) -> None:
    server.says = listed(pod("web"))
    asking.ask()
    server.says = listed()
    assert asking.ask(EMPTY_ANSWERS - 1) == [("uid-web", 1000)]
    assert asking.polls("empty") == EMPTY_ANSWERS - 1
    assert asking.ask() == []
    for _ in range(EMPTY_ANSWERS):  # now and then is not to insist
        server.says = listed(pod("web"))
        asking.ask()
        server.says = listed()
        assert asking.ask() == [("uid-web", 1000)]


def test_a_kubelet_that_has_just_started_does_not_make_the_node_look_empty(server: Kubelet, asking: Asking) -> None:
    asking.ask()
    assert not asking.pods.synced
    asking.ask(EMPTY_ANSWERS)
    assert asking.pods.synced


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("certificate")
    cert, key = folder / "tls.crt", folder / "tls.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(key), "-out", str(cert), "-days", "2", "-subj", "/CN=kubelet"]
    subprocess.run([*command, "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    return cert, key


def test_the_kubelets_certificate_is_verified_unless_told_otherwise(
    certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    cert, key = certificate
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    token = tmp_path / "token"
    token.write_text("secret")
    serving = Kubelet(context)
    serving.says = listed(pod("web"))
    try:
        common: dict[str, Any] = {
            "pods_source": "kubelet",
            "kubelet_url": serving.url,
            "kubelet_token_file": str(token),
        }
        none, nothing = tmp_path / "none", tmp_path / "other.crt"
        nothing.write_text(issued(["other"], time.time(), 3600).authority)
        for changes, of_cluster, works in (
            ({}, none, False),
            ({}, cert, True),  # the cluster's, where nothing else is said
            ({}, nothing, False),
            ({"kubelet_ca_file": str(cert)}, nothing, True),
        ):
            found = certain(kubelet.access(AgentSettings(**common | changes), of_cluster))
            asking = Asking(found.connection)
            assert bool(asking.ask()) is works
        assert serving.requests[-1].headers["Authorization"] == "Bearer secret"
    finally:
        serving.close()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"kubelet_url": "kubelet:10250"}, "kubeletUrl"),
        ({"kubelet_ca_file": "/nowhere/ca.crt"}, "kubeletCaFile"),
        ({"kubelet_token_file": "/nowhere/token"}, "token"),
    ],
)
def test_access_that_cannot_work_is_refused_by_its_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        kubelet.access(AgentSettings(pods_source="kubelet", **changes))
    assert refused.value.field == field


def test_pods_come_from_the_api_server_unless_told_otherwise() -> None:
    assert kubelet.access(AgentSettings(kubelet_url="nonsense")) is None


def test_the_states_informer_takes_its_pods_from_the_kubelet_when_told_to(server: Kubelet) -> None:
    server.says = listed(pod("web"))
    cluster = NodeServer({"nodes": [named("n", 1, status={"allocatable": {"cpu": "4"}})], "pods": [pod("other")]})
    states = StatesInformer(
        Client(Connection(cluster.url), "test"),
        "n",
        registry=CollectorRegistry(),
        on_spec=lambda _: None,
        kubelet=KubeletAccess(Connection(server.url), interval_seconds=0.05),
    )
    loops = Loops()
    states.start(loops)
    try:
        eventually(lambda: states.synced)
        assert [one.uid for one in states.pods()] == ["uid-web"]
        server.says = listed(pod("web"), pod("late"))
        eventually(lambda: len(states.pods()) == 2)
        assert not any(request.path.endswith("/pods") for request in cluster.requests)
    finally:
        loops.close()
        cluster.close()
