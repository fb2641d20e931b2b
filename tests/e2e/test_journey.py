"""The main job as a user sees it, on real processes: usage is seen, the peak follows, Mid rises and falls."""

import shutil
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from shared.kube.resources import NODEMETRICS
from tests.e2e.conftest import RunningCluster, cpu_seconds
from tests.e2e.kubectl import Kubectl
from tests.support import eventually

# Sleeps until the file is there, then uses all the CPU it gets.
SWITCH = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.05)\nwhile True: pass"

ours = pytest.mark.own_decision("agent and manager work it out, whichever API server stands between them")

SETTLED_SECONDS = 180.0
DAY_SECONDS = 48  # of the prediction, in the demo
REQUESTED_MILLI = 1000
REQUESTS = {"cpu": "1", "memory": "64Mi"}


def a_pod(name: str, *command: str, requests: dict[str, str] | None = None) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "main", "image": "example.com/image:1"}
    if command:
        container["command"] = list(command)
    if requests:
        container["resources"] = {"requests": requests}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
    }


@pytest.fixture(scope="package")
def kubectl(cluster: RunningCluster) -> Kubectl:
    return Kubectl(cluster.kubeconfig, cluster.client)


def running(cluster: RunningCluster, name: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        pod = cluster.pod(name)
        return pod if pod and pod.get("status", {}).get("phase") == "Running" else None

    found = eventually(look)
    assert found is not None
    return found


def pids_of(uid: str) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("HEADROOM_POD_UID") == uid:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def usage_of(cluster: RunningCluster, uid: str) -> int | None:
    """What the agent's endpoint says the pod uses, in milli-cores."""
    return next((pod["cpu_milli"] for pod in cluster.agent("pods").get("pods", ()) if pod["uid"] == uid), None)


def peak_cpu(cluster: RunningCluster) -> int:
    peak = cluster.agent("prediction").get("peak") or {}
    return int(peak.get("cpu_milli", 0))


def agrees(cluster: RunningCluster, uid: str, pids: list[int], seconds: float) -> bool:
    """Whether endpoint and kernel agree within 10 % on the CPU the pod used in the next `seconds`."""
    readings: list[int] = []
    began, before = time.monotonic(), cpu_seconds(pids)
    while time.monotonic() < began + seconds:
        readings.append(usage_of(cluster, uid) or 0)
        time.sleep(0.1)
    truth = 1000 * (cpu_seconds(pids) - before) / (time.monotonic() - began)
    seen = sum(readings) / len(readings)
    return truth > 100 and abs(seen - truth) <= 0.1 * truth


def test_simulated_nodes_offer_mid_and_never_more_than_they_have(cluster: RunningCluster) -> None:
    eventually(lambda: cluster.mid_cpu("sim-0") > 0 and cluster.mid_cpu("sim-1") > 0, SETTLED_SECONDS, 0.5)
    for node in cluster.nodes().values():
        assert node["simulated"] is node["name"].startswith("sim-")
        for resource in ("cpu_milli", "memory_bytes"):
            assert 0 <= node["mid"][resource] <= node["allocatable"][resource]


@ours
def test_mid_rises_with_an_idle_pod_falls_as_it_burns_cpu_and_rises_with_one_that_does_not(
    cluster: RunningCluster, kubectl: Kubectl, tmp_path: Path
) -> None:
    switch = tmp_path / "burn"
    command = (sys.executable, "-I", "-S", "-c", SWITCH, str(switch))
    mid_before = cluster.mid_cpu()
    kubectl.apply(a_pod("burner", *command, requests=REQUESTS))
    uid = running(cluster, "burner")["metadata"]["uid"]

    def risen() -> int:
        """While it is young, a good part of its request is kept for it."""
        mid = cluster.mid_cpu()
        return mid if mid > mid_before + 0.75 * REQUESTED_MILLI else 0

    highest_mid = eventually(risen, SETTLED_SECONDS, 0.5)
    # Until a day is over, what a pod used at its start counts, and that can be more than a busy machine lets it burn.
    eventually(lambda: peak_cpu(cluster) < 0.45 * REQUESTED_MILLI, SETTLED_SECONDS, 0.5)
    idle_peak = peak_cpu(cluster)

    pids = eventually(lambda: pids_of(uid))
    burning_since, before = time.monotonic(), cpu_seconds(pids)
    switch.touch()
    eventually(lambda: agrees(cluster, uid, pids, 1.0))

    def burnt_milli() -> float:
        """What the kernel lets it have on average, which on a busy machine is a fraction of a core."""
        return 1000 * (cpu_seconds(pids) - before) / (time.monotonic() - burning_since)

    eventually(lambda: peak_cpu(cluster) > idle_peak + burnt_milli() / 2, SETTLED_SECONDS, 0.5)

    def fallen() -> int:
        """It may go on rising for a while, as what grows is written when it has lasted."""
        nonlocal highest_mid
        mid = cluster.mid_cpu()
        highest_mid = max(highest_mid, mid)
        return mid if mid < highest_mid - burnt_milli() / 2 else 0

    lowest_mid = eventually(fallen, SETTLED_SECONDS, 0.5)
    burnt = burnt_milli()
    metric = cluster.client.get(NODEMETRICS, cluster.node)["status"]
    reported = next(pod for pod in metric["podsMetric"] if pod["name"] == "burner")
    assert reported["podUsage"]["resources"]["cpu"] != "0"

    kubectl.delete_pod("burner")
    eventually(lambda: cluster.pod("burner") is None)
    assert pids_of(uid) == []

    gone_at = time.time()
    eventually(lambda: _reported_after(cluster, gone_at), SETTLED_SECONDS, 0.5)
    kubectl.apply(a_pod("successor", "sleep", "600", requests=REQUESTS))

    def risen_again() -> bool:
        """Above the least since the burn, which is when nothing was requested that could be lent."""
        nonlocal lowest_mid
        mid = cluster.mid_cpu()
        lowest_mid = min(lowest_mid, mid)
        return mid > lowest_mid + burnt / 4

    eventually(risen_again, SETTLED_SECONDS, 0.5)
    kubectl.delete_pod("successor")


@ours
@pytest.mark.thorough
def test_every_node_says_what_it_promised_for_which_target_and_how_it_kept_it(cluster: RunningCluster) -> None:
    def judged(name: str) -> bool:
        prediction = cluster.client.get(NODEMETRICS, name).get("status", {}).get("prediction", {})
        promises = prediction.get("promises", ())
        if not promises:
            return False
        assert prediction["model"] == "peak-mix"
        assert [one["horizonSeconds"] for one in promises] == [DAY_SECONDS, DAY_SECONDS // 24]
        assert {one["targetViolationPercent"] for one in promises} == {"1"}
        return all(one.get("outcomes") and float(one["cpuViolationPercent"]) <= 100 for one in promises)

    for name in cluster.nodes():
        eventually(partial(judged, name), SETTLED_SECONDS, 0.5)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl_shows_and_steers_the_cluster(cluster: RunningCluster, kubectl: Kubectl) -> None:
    kubectl.apply(a_pod("talker", "/bin/sh", "-c", "echo one; echo two; exec sleep 1000"))
    kubectl.run("wait", "--for=condition=Ready", "pod/talker", "--timeout=50s")
    eventually(lambda: kubectl.run("logs", "talker", "--tail=1") == "two\n")
    assert cluster.node in kubectl.run("get", "nodes", "-o", "name")
    assert "RECLAIMABLE" in kubectl.run("get", "nm", cluster.node)
    eventually(lambda: "Started container main" in kubectl.run("describe", "pod", "talker"))
    assert kubectl.run("get", "pod", "talker", "-o", "jsonpath={.spec.nodeName}") == cluster.node
    kubectl.run("cordon", cluster.node)
    kubectl.run("uncordon", cluster.node)
    kubectl.run("delete", "pod", "talker", "--timeout=50s")


ours = pytest.mark.own_decision("what is killed comes back by itself, whichever API server is there")
KILLED = [
    "agent",
    pytest.param("API server", marks=pytest.mark.thorough),
    pytest.param("manager", marks=[pytest.mark.thorough, ours]),
    pytest.param("deploy.local.node", marks=[pytest.mark.thorough, ours]),
]


@pytest.mark.parametrize("part", KILLED)
def test_a_process_killed_comes_back_and_nothing_is_wrong_on_the_node(cluster: RunningCluster, part: str) -> None:

    def row() -> dict[str, Any]:
        """The manager's of the node, once it says so from what the agent reported."""
        found = cluster.nodes().get(cluster.node, {})
        return found if found.get("used") else {}

    before = running(cluster, "steady")
    eventually(lambda: row().get("mid", {}).get("memory_bytes"), SETTLED_SECONDS)  # there is something to lose
    pids = pids_of(before["metadata"]["uid"])
    cluster.kill(cluster.api_server if part == "API server" else part)

    killed_at = time.time()
    eventually(cluster.serves)
    eventually(lambda: cluster.nodes() and cluster.agent("node").get("cpu_milli") is not None)
    eventually(lambda: _reported_after(cluster, killed_at))
    after = cluster.pod("steady")
    assert after is not None
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0
    uid = before["metadata"]["uid"]
    if part == "deploy.local.node":  # the next kubelet starts its pods anew
        eventually(lambda: (found := pids_of(uid)) and not set(found) & set(pids))
        assert len(pids_of(uid)) == len(pids), "the pod was doubled"
    else:
        assert pids_of(uid) == pids, "the pod was neither lost nor doubled"
    node = eventually(row)
    assert 0 <= node["mid"]["cpu_milli"] <= node["allocatable"]["cpu_milli"]
    assert "degrade" not in node["reason"]
    assert node["mid"]["memory_bytes"] > 0


def _reported_after(cluster: RunningCluster, instant: float) -> bool:
    """Whether the node's agent has reported since; RFC 3339 in UTC sorts as text."""
    status = cluster.client.get(NODEMETRICS, cluster.node).get("status", {})
    return str(status.get("updateTime", "")) > time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(instant))
