"""The whole agent against a real API server: reports appear, survive outages, and claim nothing unknown."""

import logging
import os
import re
import signal
import subprocess
import sys
import time

import httpx
import msgspec
import pytest

from shared import durations
from shared.api.nodemetric import NodeMetricReport, ResourceMap
from shared.kube.resources import NODEMETRICS, PODS
from tests.integration.agent.node import Node, get
from tests.support import eventually
from tests.support.apiserver import ApiServer, rule, write_kubeconfig
from tests.support.local_http import LOCAL_HTTP

ours = pytest.mark.own_decision("the agent decides by what it has read, whichever API server it came from")

HANGS_SECONDS = 60.0  # longer than any request waits
STEPS = "headroom_agent_training_steps_total"
STORED = 'headroom_agent_ticks_total{outcome="stored"}'
ENDS_SECONDS = 20.0  # less than the pod's grace of 30 s, and than a list waits for its answer


def test_a_report_says_what_is_used_and_what_can_be_lent(node: Node) -> None:
    node.add_pod("web")
    node.add_node_metric()
    agent = node.agent()
    eventually(lambda: node.reclaimable_cpu_milli() == 1250)
    status = node.status
    assert status.node_metric is not None
    assert status.node_metric.system_usage is not None
    assert status.node_metric.system_usage.amount.cpu_milli == 250
    assert status.pods_metric is not None
    assert [(one.name, one.priority) for one in status.pods_metric] == [(f"{node.name}-web", "koord-prod")]
    assert node.condition("ModelReady") == "True/Trained"
    answer = get(agent, "api/v1/prediction").json()
    assert answer["reclaimable"]["cpu_milli"] == 1250
    assert answer["resources"]["cpu"]["bound"] == "requested"

    def told_peak() -> str | None:
        """The agent speaks of a report once it knows that it has arrived."""
        peak = get(agent, "api/v1/report").json().get("status", {}).get("prodPeakMetric")
        return str(peak["resource"]["resources"]["cpu"]) if peak else None

    eventually(lambda: told_peak() == "750m")


def test_reports_wait_for_a_node_metric_and_say_so_once(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.agent(reporting_interval_seconds=1.0)
    eventually(lambda: "NodeMetric does not exist yet" in caplog.text)
    time.sleep(0.5)  # several more looks, each a chance to say it again
    waited = [record for record in caplog.records if "does not exist yet" in record.message]
    assert len([record for record in waited if getattr(record, "node", "") == node.name]) == 1
    node.add_node_metric()
    eventually(lambda: node.status.update_time)


@ours
def test_a_bad_policy_is_shown_and_the_last_good_one_stays(node: Node) -> None:
    node.add_pod("web")
    node.add_node_metric(reclaimRatioPercent=50)
    node.agent()
    eventually(lambda: node.reclaimable_cpu_milli() == 250)
    node.set_policy(predictor="crystal-ball", reclaimRatioPercent=100)
    eventually(lambda: node.condition("PolicyAccepted") == "False/InvalidPolicy")
    assert node.reclaimable_cpu_milli() == 250
    node.set_policy(predictor=None)
    eventually(lambda: node.reclaimable_cpu_milli() == 1250)
    assert node.condition("PolicyAccepted") == "True/Applied"


@ours
def test_a_bad_report_policy_is_shown_too(node: Node) -> None:
    node.add_node_metric()
    node.agent()
    eventually(lambda: node.condition("PolicyAccepted") == "True/Applied")
    windows = {"spec": {"metricCollectPolicy": {"nodeAggregatePolicy": {"durations": ["169h"]}}}}
    node.client.patch(NODEMETRICS, node.name, windows)
    eventually(lambda: node.condition("PolicyAccepted") == "False/InvalidPolicy")


def test_the_api_server_keeps_every_field_of_a_report(node: Node) -> None:
    node.add_pod("web")
    node.add_node_metric()
    policy = {"nodeAggregatePolicy": {"durations": ["4s", "1h"]}}
    node.client.patch(NODEMETRICS, node.name, {"spec": {"metricCollectPolicy": policy}})
    agent = node.agent()

    def stored() -> NodeMetricReport:
        return msgspec.convert(node.client.get(NODEMETRICS, node.name).get("status", {}), NodeMetricReport)

    def windows_of(report: NodeMetricReport) -> dict[str, dict[str, ResourceMap]]:
        found = report.node_metric and report.node_metric.aggregated_node_usages
        return {one.duration: one.usage or {} for one in found or ()}

    def short_window_is_full() -> bool:
        """Of seconds in which the pod was known: until then the node uses less."""
        window = windows_of(stored()).get("4s", {})
        return "p95" in window and window["p95"].amount.cpu_milli == 750

    eventually(short_window_is_full)
    windows = windows_of(stored())
    assert not any(one.resources for one in windows["1h0m0s"].values())
    eventually(lambda: msgspec.convert(get(agent, "api/v1/report").json()["status"], NodeMetricReport) == stored())
    assert node.condition("PodsComplete") == "True/WithinSize"
    assert node.condition("CgroupsRead") == "True/Cgroups"


def test_a_report_leaves_nothing_of_whoever_reported_before(node: Node) -> None:
    node.add_node_metric()
    foreign = {"nodeMetric": {"nodeUsage": {"resources": {"cpu": "9", "example.com/fpga": "1"}}}}
    node.client.patch(NODEMETRICS, node.name, {"status": foreign}, subresource="status")
    node.agent()
    eventually(lambda: node.status.update_time)
    stored = node.client.get(NODEMETRICS, node.name)["status"]["nodeMetric"]["nodeUsage"]
    assert stored["resources"].keys() == {"cpu", "memory"}


def test_while_the_api_server_is_away_sampling_goes_on_and_the_newest_report_comes_first(
    node: Node, server: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, logger="shared.kube")
    node.add_pod("web")
    node.add_node_metric()
    agent = node.agent()
    eventually(lambda: node.status.update_time)
    server.kill(signal.SIGKILL)
    samples = get(agent, "api/v1/prediction").json()["samples"]
    eventually(lambda: get(agent, "api/v1/prediction").json()["samples"] >= samples + 2)
    assert get(agent, "healthz").status_code == 200
    server.start()
    back = time.time()
    eventually(lambda: durations.instant(node.status.update_time or "") >= int(back))


@ours
def test_a_restarted_agent_goes_on_with_what_it_knew(node: Node) -> None:
    node.add_pod("web")
    node.add_node_metric()
    agent = node.agent()
    eventually(lambda: node.reclaimable_cpu_milli() == 1250)
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
    eventually(lambda: len(node.status.pods_metric or ()) == 2)
    node.client.delete(PODS, f"{node.name}-api", "default", grace_period_seconds=0)
    eventually(lambda: len(node.status.pods_metric or ()) == 1)


def daemon(node: Node, server: ApiServer) -> list[str]:
    """Its command. The first checkpoint is written with the first step, all others wait for the end."""
    kubeconfig = write_kubeconfig(node.state_dir / "kubeconfig", server.agent_connection(node.name))
    command = [sys.executable, "-m", "agent", "--kubeconfig", str(kubeconfig), "--node-name", node.name]
    command += ["--listen", "127.0.0.1:0", "--state-dir", str(node.state_dir)]
    return [*command, "--histogram-update-interval", "1s", "--checkpoint-interval", "1h"]


def checkpoints(node: Node) -> set[tuple[str, int]]:
    """By name and time."""
    return {(one.name, one.stat().st_mtime_ns) for one in node.state_dir.glob("prediction-*.checkpoint")}


def test_the_daemon_ends_cleanly_on_sigterm_and_refuses_bad_settings(node: Node, server: ApiServer) -> None:
    command = daemon(node, server)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        any("listening" in line for line in process.stderr)
        try:
            eventually(lambda: checkpoints(node))
        finally:
            os.kill(process.pid, signal.SIGTERM)
        process.communicate(timeout=ENDS_SECONDS)
    assert process.returncode == 0
    assert not list(node.state_dir.glob("*.tmp"))
    refused = subprocess.run(
        [*command, "--target-violation-percent", "-1"], capture_output=True, text=True, check=False
    )
    assert refused.returncode == 2
    assert "target-violation-percent" in refused.stderr


@ours
@pytest.mark.parametrize(
    ("method", "path", "sent"),
    [
        ("PATCH", "nodemetrics/[^/]+/status", "headroom_agent_report_bytes"),
        ("GET", "/pods", STORED),  # it lists before it samples
    ],
    ids=["a report", "a list"],
)
def test_the_daemon_ends_in_time_with_its_checkpoint_while_the_api_server_hangs_in_a_request(
    node: Node, server: ApiServer, method: str, path: str, sent: str
) -> None:
    node.add_node_metric()
    server.fault(rule("delay", path, method=method, times=0, seconds=HANGS_SECONDS))
    with subprocess.Popen(daemon(node, server), stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            listening = msgspec.json.decode(next(line for line in process.stderr if "listening" in line))
            url = f"http://{listening['host']}:{listening['port']}"

            def asked(path: str) -> httpx.Response:
                return LOCAL_HTTP.get(f"{url}/{path}")

            def shown(metric: str) -> float:
                found = re.search(rf"^{re.escape(metric)} (.+)$", asked("metrics").text, re.MULTILINE)
                return float(found[1]) if found else 0.0

            eventually(lambda: shown(sent))
            before = eventually(lambda: checkpoints(node))
            stored = shown(STORED)
            eventually(lambda: shown(STORED) > stored)
            steps = shown(STEPS)
            eventually(lambda: shown(STEPS) > steps + 1)  # the last of which saw that sample: worth another checkpoint
            assert asked("readyz").json()["informers"] is (method == "PATCH")
        finally:
            os.kill(process.pid, signal.SIGTERM)
        process.communicate(timeout=ENDS_SECONDS)
    assert process.returncode == 0
    assert checkpoints(node) - before
    assert not list(node.state_dir.glob("*.tmp"))
