"""Mid and Batch on a Node whose status kubelet writes, and what kubelet makes of the pods that ask for them."""

import time
from functools import partial
from pathlib import Path

import pytest

from shared import names
from tests.node.cluster import Failed
from tests.node.conftest import LENDING_SECONDS
from tests.node.layout import NODE
from tests.node.pods import Pod, Pods
from tests.node.release import Release
from tests.support import eventually

pytestmark = pytest.mark.node_only("kubelet writes the Node's status and bounds pods")

LIMIT_MIB, QUOTA_US, PERIOD_US = 64, 20_000, 100_000
LIMITS = {"cpu": "200m", "memory": f"{LIMIT_MIB}Mi"}


def _offers(release: Release) -> set[str]:
    return {
        name for name, amount in release.allocatable().items() if name.startswith("kubernetes.io/") and amount != "0"
    }


ALL_OFFERS = {f"kubernetes.io/{tier}-{resource}" for tier in ("mid", "batch") for resource in ("cpu", "memory")}


def test_mid_and_batch_stay_on_the_node_while_kubelet_writes_its_status(lending: Release) -> None:
    eventually(lambda: _offers(lending) == ALL_OFFERS, LENDING_SECONDS, 1.0)
    lending.wait_for_heartbeats(3)
    assert _offers(lending) == ALL_OFFERS


def test_mid_and_batch_and_a_running_mid_pod_outlive_a_kubelet_that_is_killed(lending: Release, pods: Pods) -> None:
    pod = pods.run("survivor", tier="koord-mid", requests={"cpu": "50m", "memory": "16Mi"})
    eventually(lambda: _offers(lending) == ALL_OFFERS, LENDING_SECONDS, 1.0)
    lending.cluster.kill("kubelet")
    lending.wait_for_heartbeats(2)
    assert _offers(lending) == ALL_OFFERS
    after = pods.get("survivor")
    assert after["status"]["phase"] == "Running"
    assert (
        after["status"]["containerStatuses"][0]["containerID"] == pod["status"]["containerStatuses"][0]["containerID"]
    )


def test_a_mid_pod_asks_for_mid_and_the_default_scheduler_places_it(lending: Release, pods: Pods) -> None:
    pod = pods.run("asks", tier="koord-mid", requests={"cpu": "200m", "memory": "64Mi"})
    requests = pod["spec"]["containers"][0]["resources"]["requests"]
    assert int(requests["kubernetes.io/mid-cpu"]) == 200
    assert requests["kubernetes.io/mid-memory"] == "64Mi"
    assert pod["spec"]["schedulerName"] == "default-scheduler"
    assert pod["spec"]["nodeName"] == NODE


def test_a_mid_pod_for_which_nothing_is_left_waits(lending: Release, pods: Pods) -> None:
    pods.create("too-big", tier="koord-mid", requests={"cpu": "100", "memory": "64Mi"})

    def reason() -> str:
        conditions = pods.get("too-big")["status"].get("conditions", [])
        return next((item.get("message", "") for item in conditions if item["type"] == "PodScheduled"), "")

    eventually(lambda: "Insufficient kubernetes.io/mid-cpu" in reason(), 60, 0.5)


def _bounded(release: Release, pod: Pod) -> None:
    """The pod's own cgroup has what its limits say, and little weight."""
    assert pod["status"]["qosClass"] == "Burstable"
    cpu, memory = (release.cluster.pod_cgroup(controller, pod) for controller in ("cpu", "memory"))
    assert int((cpu / "cpu.cfs_quota_us").read_text()) == QUOTA_US
    assert int((cpu / "cpu.cfs_period_us").read_text()) == PERIOD_US
    assert int((cpu / "cpu.shares").read_text()) == 2
    assert int((memory / "memory.limit_in_bytes").read_text()) == LIMIT_MIB << 20


def _throttled(release: Release, pod: Pod) -> None:
    """It wants two cores, and gets its limit."""
    folder = release.cluster.pod_cgroup("cpu", pod)

    def usage() -> tuple[int, int]:
        lines = dict(line.split() for line in (folder / "cpu.stat").read_text().splitlines())
        nanoseconds = (release.cluster.pod_cgroup("cpuacct", pod) / "cpuacct.usage").read_text()
        return int(nanoseconds), int(lines["nr_throttled"])

    first, begun = usage(), time.monotonic()
    time.sleep(10)
    last, elapsed = usage(), time.monotonic() - begun
    assert last[1] - first[1] > 20
    assert (last[0] - first[0]) / 1e9 / elapsed <= QUOTA_US / PERIOD_US * 1.1


def test_a_mid_pod_that_the_webhook_has_translated_is_throttled_and_killed_at_its_limits(
    lending: Release, pods: Pods
) -> None:
    hog = pods.run("hog", "burn", "2", tier="koord-mid", requests=LIMITS, limits=LIMITS)
    resources = hog["spec"]["containers"][0]["resources"]
    assert {name: resources["requests"][name] for name in ("cpu", "memory")} == {"cpu": "0", "memory": "0"}
    assert {name: resources["limits"][name] for name in LIMITS} == LIMITS
    _bounded(lending, hog)
    _throttled(lending, hog)
    pods.create("glutton", "hold", "256", tier="koord-mid", requests=LIMITS, limits=LIMITS)
    eventually(lambda: pods.was_killed_for_memory("glutton"), 60, 0.5)
    assert pods.get("hog")["status"]["phase"] == "Running"


def _says(file: Path, value: int) -> bool:
    return int(file.read_text()) == value


def test_the_limits_of_a_mid_pod_that_is_resized_bound_it_and_what_it_holds_stays(lending: Release, pods: Pods) -> None:
    worker = pods.run("worker", "burn", "2", tier="koord-mid", requests=LIMITS, limits=LIMITS)
    before = worker["spec"]["containers"][0]["resources"]["requests"]
    cpu, memory = (lending.cluster.pod_cgroup(controller, worker) for controller in ("cpu", "memory"))
    container = worker["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
    pods.resize("worker", limits={"cpu": "300m", "memory": "96Mi"})
    for folder in (cpu, cpu / container):
        eventually(partial(_says, folder / "cpu.cfs_quota_us", 30_000), 90, 0.5)
    for folder in (memory, memory / container):
        eventually(partial(_says, folder / "memory.limit_in_bytes", 96 << 20), 90, 0.5)
    assert int((cpu / "cpu.shares").read_text()) == 2
    resized = pods.get("worker")
    assert resized["spec"]["containers"][0]["resources"]["requests"] == before
    assert resized["status"]["qosClass"] == "Burstable"
    assert resized["status"]["containerStatuses"][0]["restartCount"] == 0
    for limits, problem in (({"cpu": None}, "removed"), ({names.MID_CPU: "500"}, "mutable")):
        with pytest.raises(Failed, match=problem):
            pods.resize("worker", limits=limits)


@pytest.mark.parametrize(
    ("requests", "limits", "problem"),
    [
        ({"cpu": "500m", "memory": "64Mi"}, {"cpu": "100m", "memory": "64Mi"}, "must be less than or equal to"),
        ({"cpu": "10m", "memory": "64Mi"}, {"cpu": "10m", "memory": "32Mi"}, "must be less than or equal to"),
        ({"cpu": "-1", "memory": "64Mi"}, {}, "must be greater than or equal to 0"),
        ({"cpu": "1e30", "memory": "many"}, {}, "quantities must match"),
    ],
)
def test_amounts_that_mean_nothing_are_refused_by_name(
    lending: Release, pods: Pods, requests: dict[str, str], limits: dict[str, str], problem: str
) -> None:
    with pytest.raises(Failed, match=problem):
        pods.create("odd", tier="koord-mid", requests=requests, limits=limits)


def test_a_mid_pod_that_asks_for_nothing_is_bounded_and_one_that_asks_for_the_world_waits(
    lending: Release, pods: Pods
) -> None:
    restarts = lending.restarts()
    pods.create("world", tier="koord-mid", requests={"cpu": "9E", "memory": "7E"})
    nothing = pods.run("nothing", tier="koord-mid", requests={"cpu": "0", "memory": "0"}, limits={"cpu": "0"})
    cpu, memory = (lending.cluster.pod_cgroup(controller, nothing) for controller in ("cpu", "memory"))
    assert int((cpu / "cpu.cfs_quota_us").read_text()) == 250 * 100
    assert int((memory / "memory.limit_in_bytes").read_text()) == 200 << 20
    assert pods.get("world")["status"]["phase"] == "Pending"
    before = lending.reported_at()
    eventually(lambda: lending.reported_at() > before, 60, 0.5)
    assert lending.restarts() == restarts
