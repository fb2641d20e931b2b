"""Mid and Batch on a Node whose status kubelet writes, and what kubelet makes of the pods that ask for them."""

import time
from functools import partial

import pytest

from shared import names
from tests.node.cluster import Failed
from tests.node.conftest import LENDING_SECONDS
from tests.node.layout import NODE
from tests.node.pod_cgroups import Cgroup
from tests.node.pods import START_SECONDS, Pod, Pods
from tests.node.release import Release
from tests.support import eventually

pytestmark = pytest.mark.node_only("kubelet writes the Node's status and bounds pods")

LIMIT_MIB, QUOTA_US, PERIOD_US = 64, 20_000, 100_000
LIMITS = {"cpu": "200m", "memory": f"{LIMIT_MIB}Mi"}
ASKED = {"cpu": "50m", "memory": "16Mi"}  # little: two at once fit into what is lent, also while the machine is busy


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
    pod = pods.run("survivor", tier="koord-mid", requests=ASKED)
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
    pod = pods.run("asks", tier="koord-mid", requests=ASKED)
    requests = pod["spec"]["containers"][0]["resources"]["requests"]
    assert int(requests["kubernetes.io/mid-cpu"]) == 50
    assert requests["kubernetes.io/mid-memory"] == "16Mi"
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
    cgroup = release.cluster.pod_cgroup(pod)
    assert cgroup.cpu_quota == (QUOTA_US, PERIOD_US)
    assert cgroup.cpu_weight == cgroup.weight_of(0)
    assert cgroup.memory_limit == LIMIT_MIB << 20


def _throttled(release: Release, pod: Pod) -> None:
    """It wants two cores, and gets its limit."""
    begun, cgroup = time.monotonic(), release.cluster.pod_cgroup(pod)  # first: reading takes a while, too
    used, throttled = cgroup.cpu_seconds, cgroup.throttled_periods
    time.sleep(10)
    used, elapsed = cgroup.cpu_seconds - used, time.monotonic() - begun
    assert cgroup.throttled_periods - throttled > 20
    assert used / elapsed <= QUOTA_US / PERIOD_US * 1.1


def test_a_mid_pod_that_the_webhook_has_translated_is_throttled_and_killed_at_its_limits(
    lending: Release, pods: Pods
) -> None:
    hog = pods.run("hog", "burn", "2", tier="koord-mid", requests=ASKED, limits=LIMITS)
    resources = hog["spec"]["containers"][0]["resources"]
    assert {name: resources["requests"][name] for name in ("cpu", "memory")} == {"cpu": "0", "memory": "0"}
    assert {name: resources["limits"][name] for name in LIMITS} == LIMITS
    _bounded(lending, hog)
    _throttled(lending, hog)
    pods.create("glutton", "hold", "256", tier="koord-mid", requests=ASKED, limits=LIMITS)
    eventually(lambda: pods.was_killed_for_memory("glutton"), START_SECONDS, 0.5)
    assert pods.get("hog")["status"]["phase"] == "Running"


def _bounds_are(cgroup: Cgroup, quota: tuple[int, int], memory: int) -> bool:
    return (cgroup.cpu_quota, cgroup.memory_limit) == (quota, memory)


def test_the_limits_of_a_mid_pod_that_is_resized_bound_it_and_what_it_holds_stays(lending: Release, pods: Pods) -> None:
    worker = pods.run("worker", "burn", "2", tier="koord-mid", requests=ASKED, limits=LIMITS)
    before = worker["spec"]["containers"][0]["resources"]["requests"]
    pod = lending.cluster.pod_cgroup(worker)
    container = pod.container(worker["status"]["containerStatuses"][0]["containerID"])
    pods.resize("worker", limits={"cpu": "300m", "memory": "96Mi"})
    for cgroup in (pod, container):
        eventually(partial(_bounds_are, cgroup, (30_000, PERIOD_US), 96 << 20), 90, 0.5)
    assert pod.cpu_weight == pod.weight_of(0)
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
    cgroup = lending.cluster.pod_cgroup(nothing)
    assert cgroup.cpu_quota == (250 * 100, PERIOD_US)
    assert cgroup.memory_limit == 200 << 20
    assert pods.get("world")["status"]["phase"] == "Pending"
    lending.wait_for_report()
    assert lending.restarts() == restarts
