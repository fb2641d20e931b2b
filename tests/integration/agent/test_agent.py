"""The whole agent against a real API server: reports appear, survive outages, and claim nothing unknown."""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from prometheus_client import CollectorRegistry

from agent.main import Agent
from agent.metrics_advisor.source import Sample, Usage
from agent.settings import AgentSettings
from shared import durations
from shared.api.core import Pod
from shared.api.nodemetric import NodeMetric, NodeMetricStatus
from shared.clock import SystemClock
from shared.kube.client import Client
from shared.kube.errors import AlreadyExists
from shared.kube.resources import NODEMETRICS, NODES, PODS, Resource
from tests.support import eventually
from tests.support.apiserver import ApiServer, rule, write_kubeconfig

GIB = 2**30
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", namespaced=False)


class Steady:
    """Every pod uses half a core and 1 GiB, the system a quarter of a core and 2 GiB."""

    description = "steady"

    def sample(self, pods: Sequence[Pod]) -> Sample | None:
        used = {pod.metadata.uid: Usage(0.5, GIB) for pod in pods}
        return Sample(Usage(0.25 + 0.5 * len(used), 2 * GIB + len(used) * GIB), used)


class Node:
    """One node of the cluster, and what an agent of it does."""

    def __init__(self, client: Client, state_dir: Path, start: Callable[..., Agent]) -> None:
        self.name = f"node-{uuid.uuid4().hex[:8]}"
        self.client = client
        self.state_dir = state_dir
        self._start = start
        client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name}})
        amounts = {"cpu": "4", "memory": "16Gi"}
        client.patch(NODES, self.name, {"status": {"allocatable": amounts, "capacity": amounts}}, subresource="status")

    def agent(self, **changes: Any) -> Agent:
        return self._start(self, **changes)

    def add_node_metric(self, **predict_policy: object) -> None:
        body = {
            "apiVersion": NODEMETRICS.api_version,
            "kind": "NodeMetric",
            "metadata": {"name": self.name},
            "spec": {
                "metricCollectPolicy": {"reportIntervalSeconds": 1, "aggregateDurationSeconds": 5},
                "predictPolicy": predict_policy,
            },
        }
        self.client.create(NODEMETRICS, body)

    def set_policy(self, **predict_policy: object) -> None:
        self.client.patch(NODEMETRICS, self.name, {"spec": {"predictPolicy": predict_policy}})

    def add_pod(self, name: str, cpu: str = "2", **metadata: object) -> None:
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": "4Gi"}}}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{self.name}-{name}", "namespace": "default", **metadata},
            "spec": {"nodeName": self.name, "priorityClassName": "koord-prod", "containers": [container]},
        }
        prod = {"apiVersion": PRIORITY_CLASSES.api_version, "kind": "PriorityClass", "value": 9000}
        with contextlib.suppress(AlreadyExists):
            self.client.create(PRIORITY_CLASSES, prod | {"metadata": {"name": "koord-prod"}})
        self.client.create(PODS, body, "default")

    @property
    def status(self) -> NodeMetricStatus:
        return self.client.get(NODEMETRICS, self.name, into=NodeMetric).status

    def reclaimable_cpu_milli(self) -> int | None:
        metric = self.status.prod_reclaimable_metric
        return metric.resource.amount.cpu_milli if metric and metric.resource else None

    def condition(self, kind: str) -> str:
        prediction = self.status.prediction
        found = (prediction.conditions if prediction else None) or ()
        return next((f"{one.status}/{one.reason}" for one in found if one.type == kind), "")


@pytest.fixture
def node(server: ApiServer, tmp_path: Path) -> Iterator[Node]:
    agents: list[Agent] = []

    def start(of: Node, **changes: Any) -> Agent:
        settings = AgentSettings(
            node_name=of.name,
            listen="127.0.0.1:0",
            state_dir=str(of.state_dir),
            cold_start_seconds=0.0,
            histogram_update_interval_seconds=1.0,
            check_prediction_interval_seconds=1.0,
            checkpoint_interval_seconds=1.0,
        )
        settings = msgspec.structs.replace(settings, **changes)
        agent = Agent(
            settings, server.client(server.agent_connection(of.name)), Steady(), SystemClock(), CollectorRegistry()
        )
        agent.start()
        agents.append(agent)
        return agent

    yield Node(server.client(), tmp_path, start)
    for agent in agents:
        agent.close()


def get(agent: Agent, path: str) -> httpx.Response:
    host, port = agent.address
    return httpx.get(f"http://{host}:{port}/{path}")


def test_a_report_says_what_is_used_and_what_can_be_lent(node: Node) -> None:
    node.add_pod("web")
    node.add_node_metric()
    agent = node.agent()
    eventually(lambda: node.reclaimable_cpu_milli() == 1250, 15, 0.1)
    status = node.status
    assert status.node_metric is not None
    assert status.node_metric.system_usage is not None
    assert status.node_metric.system_usage.amount.cpu_milli == 250
    assert status.pods_metric is not None
    assert [(one.name, one.priority, one.qos) for one in status.pods_metric] == [
        (f"{node.name}-web", "koord-prod", "LS")
    ]
    assert node.condition("ModelReady") == "True/Trained"
    answer = get(agent, "api/v1/prediction").json()
    assert answer["reclaimable"]["cpu_milli"] == 1250
    assert answer["resources"]["cpu"]["bound"] == "requested"
    assert get(agent, "api/v1/report").json()["status"]["prodPeakMetric"]["resource"]["resources"]["cpu"] == "750m"


def test_the_endpoints_answer_in_the_units_their_names_say(node: Node) -> None:
    node.add_pod("web")
    agent = node.agent()
    eventually(lambda: get(agent, "readyz").status_code == 200)
    eventually(lambda: get(agent, "api/v1/pods").json()["pods"])
    usage = eventually(lambda: (found := get(agent, "api/v1/node").json())["system"] and found)
    assert usage["cpu_milli"] == 750
    assert usage["memory_bytes"] == 3 * GIB
    assert usage["system"] == {"cpu_milli": 250, "memory_bytes": 2 * GIB}
    assert usage["allocatable"] == {"cpu_milli": 4000, "memory_bytes": 16 * GIB}
    (pod,) = get(agent, "api/v1/pods").json()["pods"]
    assert (pod["cpu_milli"], pod["memory_bytes"], pod["request"]["cpu_milli"]) == (500, GIB, 2000)
    assert get(agent, "healthz").json() == {"silent_loops": {}}
    assert 'headroom_agent_node_usage{resource="cpu"} 0.75' in get(agent, "metrics").text
    page = get(agent, "docs").text
    assert "http://" not in page
    assert "https://" not in page
    assert "/api/v1/node" in get(agent, "openapi.json").json()["paths"]
    eventually(lambda: get(agent, f"api/v1/histograms/{pod['uid']}").status_code == 200)
    assert get(agent, "api/v1/histograms/nobody").status_code == 404
    assert get(agent, "api/v1/report").status_code == 404


def test_reports_wait_for_a_node_metric_and_say_so_once(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.agent(reporting_interval_seconds=1.0)
    eventually(lambda: "NodeMetric does not exist yet" in caplog.text, 15)
    time.sleep(2.5)  # two more chances to say it again
    waited = [record for record in caplog.records if "does not exist yet" in record.message]
    assert len([record for record in waited if getattr(record, "node", "") == node.name]) == 1
    node.add_node_metric()
    eventually(lambda: node.status.update_time, 15, 0.1)


def test_a_cold_pod_lends_nothing_until_its_history_is_long_enough(node: Node) -> None:
    node.add_pod("web")
    node.add_node_metric(coldStartPeriodSeconds=3600)
    node.agent()
    eventually(lambda: node.condition("ModelReady").startswith("True"), 15, 0.1)
    assert node.reclaimable_cpu_milli() == 0
    peak = node.status.prod_peak_metric
    assert peak is not None
    assert peak.resource is not None
    assert peak.resource.amount.cpu_milli == 2750  # what is used, and the whole request beside it
    node.set_policy(coldStartPeriodSeconds=0)
    eventually(lambda: node.reclaimable_cpu_milli() == 1250, 10, 0.1)


def test_a_bad_policy_is_shown_and_the_last_good_one_stays(node: Node) -> None:
    node.add_pod("web")
    node.add_node_metric(reclaimRatioPercent=50)
    node.agent()
    eventually(lambda: node.reclaimable_cpu_milli() == 250, 15, 0.1)
    node.set_policy(predictor="crystal-ball", reclaimRatioPercent=100)
    eventually(lambda: node.condition("PolicyAccepted") == "False/InvalidPolicy", 10, 0.1)
    assert node.reclaimable_cpu_milli() == 250
    node.set_policy(predictor=None)
    eventually(lambda: node.reclaimable_cpu_milli() == 1250, 10, 0.1)
    assert node.condition("PolicyAccepted") == "True/Applied"


def test_a_bad_report_policy_is_shown_too(node: Node) -> None:
    node.add_node_metric()
    node.agent()
    eventually(lambda: node.condition("PolicyAccepted") == "True/Applied", 15, 0.1)
    interval = {"spec": {"metricCollectPolicy": {"reportIntervalSeconds": 2**31}}}
    node.client.patch(NODEMETRICS, node.name, interval)
    eventually(lambda: node.condition("PolicyAccepted") == "False/InvalidPolicy", 10, 0.1)


def test_a_report_turned_away_comes_back_when_the_server_asked_for_it(node: Node, server: ApiServer) -> None:
    node.add_node_metric()
    agent = node.agent()
    eventually(lambda: node.status.update_time, 15, 0.1)
    path = f"nodemetrics/{node.name}/status"
    busy = rule("status", path, method="PATCH", status=429, reason="TooManyRequests", retryAfter=4, times=1)
    server.fault(busy)
    eventually(lambda: "report_failures_total 1.0" in get(agent, "metrics").text, 5, 0.05)
    turned_away, sent = time.monotonic(), get(agent, "api/v1/report").json()["time"]
    eventually(lambda: get(agent, "api/v1/report").json()["time"] != sent, 15, 0.05)
    assert time.monotonic() - turned_away > 3.5


def test_while_the_api_server_is_away_sampling_goes_on_and_the_newest_report_comes_first(
    node: Node, server: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, logger="shared.kube")
    node.add_pod("web")
    node.add_node_metric()
    agent = node.agent()
    eventually(lambda: node.status.update_time, 15, 0.1)
    server.kill(signal.SIGKILL)
    samples = get(agent, "api/v1/prediction").json()["samples"]
    eventually(lambda: get(agent, "api/v1/prediction").json()["samples"] >= samples + 2)
    assert get(agent, "healthz").status_code == 200
    server.start()
    back = time.time()
    eventually(lambda: durations.instant(node.status.update_time or "") >= int(back), 30, 0.1)


def test_a_restarted_agent_goes_on_with_what_it_knew(node: Node) -> None:
    node.add_pod("web")
    node.add_node_metric()
    agent = node.agent()
    eventually(lambda: node.reclaimable_cpu_milli() == 1250, 15, 0.1)
    samples = get(agent, "api/v1/prediction").json()["samples"]
    agent.close()
    # The second life trains nothing within this test: only the restored history can outlast a cold start.
    agent = node.agent(cold_start_seconds=1.0, histogram_update_interval_seconds=3600.0)
    eventually(lambda: get(agent, "readyz").status_code == 200)
    answer = eventually(lambda: (found := get(agent, "api/v1/prediction").json())["reclaimable"]["cpu_milli"] and found)
    assert answer["samples"] >= samples
    assert answer["cold_requested"]["cpu_milli"] == 0
    assert answer["reclaimable"]["cpu_milli"] == 1250


def test_a_deleted_pod_leaves_report_and_request(node: Node) -> None:
    node.add_pod("web")
    node.add_pod("api")
    node.add_node_metric()
    node.agent()
    eventually(lambda: len(node.status.pods_metric or ()) == 2, 15, 0.1)
    node.client.delete(PODS, f"{node.name}-api", "default", grace_period_seconds=0)
    eventually(lambda: len(node.status.pods_metric or ()) == 1, 10, 0.1)


def test_the_daemon_ends_cleanly_on_sigterm_and_refuses_bad_settings(node: Node, server: ApiServer) -> None:
    kubeconfig = write_kubeconfig(node.state_dir / "kubeconfig", server.agent_connection(node.name))
    command = [sys.executable, "-m", "agent", "--kubeconfig", str(kubeconfig), "--node-name", node.name]
    command += ["--listen", "127.0.0.1:0", "--state-dir", str(node.state_dir)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        any("listening" in line for line in process.stderr)
        os.kill(process.pid, signal.SIGTERM)
        process.communicate(timeout=10)
    assert process.returncode == 0
    assert (node.state_dir / "prediction.checkpoint").exists()
    refused = subprocess.run([*command, "--sigma-cpu", "-1"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "sigma-cpu" in refused.stderr
