"""What keeps pods within their bounds beyond the kubelet's own means: the enforcer, and evictions under pressure."""

import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from deploy.local.apiserver import patching
from shared import names
from tests.node.cluster import Failed
from tests.node.conftest import LENDING_SECONDS
from tests.node.pods import Pod, Pods
from tests.node.release import ENFORCER, NAMESPACE, Release, quick_values
from tests.support import eventually

pytestmark = pytest.mark.node_only("bounds are those of a kernel, and pods are a kubelet's")

THRESHOLDS = "resource-threshold-config"
NO_QUOTA = -1
MILLI, MIB = 200, 64
BOUNDS = {names.MID_CPU: str(MILLI), names.MID_MEMORY: f"{MIB}Mi"}

# Of the node's memory, in percent: what each of four pods takes, and how far below what is used then the bounds are
# from which on pods go, and to which, so that two have to go. All of the machine's memory counts, so it is looked at as
# late as can be.
HELD, REACHED, LEFT = 6, 8, 11
APART_SECONDS = 5
EVICTED = "PressureEviction"


@pytest.fixture(scope="module")
def enforced(lending: Release) -> Iterator[Release]:
    """With the enforcer in the agent's pod, and evictions that can be told apart by their times.

    Best-effort pods are not held down until a test says so.
    """
    values = ENFORCER | {"manager": {"settings": {"evictionsPerMinute": 60 / APART_SECONDS}}}
    release = Release(lending.cluster, patching.merge(quick_values(), values))
    release.install()
    release.configure(THRESHOLDS, {})
    eventually(lambda: release.mid_cpu() > MILLI, LENDING_SECONDS, 1.0)
    yield release
    lending.install()


@pytest.fixture
def thresholds(enforced: Release) -> Iterator[Release]:
    """For a test that sets thresholds."""
    yield enforced
    enforced.configure(THRESHOLDS, {})


@pytest.fixture
def bare(enforced: Release) -> Iterator[Pods]:
    """In the release's namespace, whose pods the webhook leaves as they are."""
    made = Pods(enforced.cluster, NAMESPACE)
    yield made
    made.delete()


def _read(folder: Path, file: str) -> int:
    return int((folder / file).read_text())


def _wait_for(file: Path, value: int) -> None:
    eventually(lambda: int(file.read_text()) == value)


def _cores(release: Release, pod: Pod, seconds: float) -> float:
    """What it uses from now on, by the kernel's counter."""
    folder = release.cluster.pod_cgroup("cpuacct", pod)
    first, begun = _read(folder, "cpuacct.usage"), time.monotonic()
    time.sleep(seconds)
    return (_read(folder, "cpuacct.usage") - first) / 1e9 / (time.monotonic() - begun)


def test_a_pod_in_koordinators_form_gets_the_bounds_that_no_kubelet_gives_it(enforced: Release, bare: Pods) -> None:
    hog = bare.run("hog", "burn", "2", requests=BOUNDS, limits=BOUNDS)
    assert hog["status"]["qosClass"] == "BestEffort"
    cpu, memory = (enforced.cluster.pod_cgroup(controller, hog) for controller in ("cpu", "memory"))
    container = hog["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
    for folder in (cpu, cpu / container):
        _wait_for(folder / "cpu.cfs_quota_us", MILLI * 100)
        _wait_for(folder / "cpu.shares", MILLI * 1024 // 1000)
    for folder in (memory, memory / container):
        _wait_for(folder / "memory.limit_in_bytes", MIB << 20)
    assert _cores(enforced, hog, 5) <= MILLI / 1000 * 1.1
    with pytest.raises(Failed, match="exit code 137"):
        bare.execute("hog", "/probe", "hold", str(4 * MIB))


def test_best_effort_pods_are_held_down_no_longer_than_an_agent_speaks_even_if_the_enforcer_is_killed(
    thresholds: Release,
) -> None:
    folder = thresholds.cluster.cgroup("cpu", "kubepods", "besteffort")
    assert _read(folder, "cpu.cfs_quota_us") == NO_QUOTA
    thresholds.configure(THRESHOLDS, {"clusterStrategy": {"enable": True}})
    eventually(lambda: _read(folder, "cpu.cfs_quota_us") > 0)
    (pod,) = thresholds.pods("agent")
    agent, enforcer = (int(thresholds.process(pod, name).name) for name in ("agent", "enforcer"))
    os.kill(agent, signal.SIGSTOP)
    try:
        os.kill(enforcer, signal.SIGKILL)
        assert _read(folder, "cpu.cfs_quota_us") > 0
        eventually(lambda: _read(folder, "cpu.cfs_quota_us") == NO_QUOTA, 90, 0.2)
    finally:
        if psutil.pid_exists(agent):
            os.kill(agent, signal.SIGCONT)
    eventually(lambda: _read(folder, "cpu.cfs_quota_us") > 0, 120, 0.2)
    thresholds.configure(THRESHOLDS, {})
    eventually(lambda: _read(folder, "cpu.cfs_quota_us") == NO_QUOTA)


def test_under_pressure_what_is_over_goes_first_then_batch_within_budgets_and_mid_that_keeps_to_what_it_holds_stays(
    thresholds: Release, pods: Pods
) -> None:
    held = psutil.virtual_memory().total * HELD // 100 >> 20
    within, over = {"cpu": "10m", "memory": f"{held + MIB}Mi"}, {"cpu": "10m", "memory": f"{MIB}Mi"}
    limits = within | {"cpu": "1"}
    pods.create("within", "hold", str(held), tier="koord-mid", requests=within, limits=limits)
    pods.create("over", "hold", str(held), tier="koord-mid", requests=over, limits=limits)
    for name in ("batch", "guarded"):
        pods.create(name, "hold", str(held), tier="koord-batch", requests=within, limits=limits)
    thresholds.cluster.kubectl("label", "pod", "guarded", "app=guarded")
    thresholds.cluster.kubectl("annotate", "pod", "guarded", f"{names.ANNOTATION_EVICTION_PRIORITY}=-1")
    thresholds.cluster.kubectl(
        "create", "poddisruptionbudget", "guarded", "--selector=app=guarded", "--min-available=1"
    )
    everyone = {"within", "over", "batch", "guarded"}
    try:
        eventually(lambda: all(_holds(thresholds, pods.get(name), held) for name in everyone), 180, 0.5)
        eventually(lambda: thresholds.allows_disruption("guarded") == 0)
        _evict_from(thresholds, int(psutil.virtual_memory().percent) - REACHED)
        eventually(lambda: not pods.is_there("over") and not pods.is_there("batch"), 180, 0.5)
        _nothing_more_goes(thresholds, pods, {"within", "guarded"})
    finally:
        thresholds.cluster.kubectl("delete", "poddisruptionbudget", "guarded")
    first, second = thresholds.told(EVICTED)
    assert (first.name, second.name) == ("over", "batch")
    assert second.seconds - first.seconds >= APART_SECONDS
    assert "memoryEvictThresholdPercent is" in first.message
    assert "this mid pod uses" in first.message
    assert "this batch pod uses" in second.message
    log = thresholds.manager_log()
    assert all(each.message.split(";")[0] in log for each in (first, second))
    counted = 'pressure_evictions_total{outcome="%s",resource="memory",tier="%s"}'
    assert thresholds.manager_metric(counted % ("evicted", "mid")) == 1
    assert thresholds.manager_metric(counted % ("evicted", "batch")) == 1
    assert thresholds.manager_metric(counted % ("refused", "batch")) >= 1


def test_a_node_that_prod_fills_loses_no_pod(thresholds: Release, pods: Pods) -> None:
    told = len(thresholds.told(EVICTED))
    held = psutil.virtual_memory().total * HELD // 100 >> 20
    asked = {"cpu": "10m", "memory": f"{held + MIB}Mi"}
    pods.create("prod", "hold", str(held), requests={"cpu": "10m", "memory": "16Mi"})
    pods.create("mid", "hold", str(held), tier="koord-mid", requests=asked, limits=asked | {"cpu": "1"})
    eventually(lambda: all(_holds(thresholds, pods.get(name), held) for name in ("prod", "mid")), 180, 0.5)
    _evict_from(thresholds, int(psutil.virtual_memory().percent) - REACHED)
    _nothing_more_goes(thresholds, pods, {"prod", "mid"})
    assert len(thresholds.told(EVICTED)) == told
    assert "pressure" not in thresholds.node_metric()["status"]["prediction"]


def _has_reported(release: Release, before: str) -> bool:
    return release.reported_at() > before


def _evict_from(release: Release, percent: int) -> None:
    """Of memory, down to less."""
    bounds = {"memoryEvictThresholdPercent": percent, "memoryEvictLowerPercent": percent - (LEFT - REACHED)}
    release.configure(THRESHOLDS, {"clusterStrategy": {"enable": True, "evictEnabled": True, **bounds}})
    handed = "resourceUsedThresholdWithBE"
    expected = bounds["memoryEvictThresholdPercent"]
    eventually(
        lambda: release.node_metric()["spec"].get(handed, {}).get("memoryEvictThresholdPercent") == expected, 60, 0.5
    )


def _nothing_more_goes(release: Release, pods: Pods, staying: set[str]) -> None:
    """For longer than the cool-down of 4 s, and for two reports."""
    for _ in range(2):
        eventually(partial(_has_reported, release, release.reported_at()), 60, 0.5)
    time.sleep(2 * APART_SECONDS)
    assert {name for name in staying if pods.get(name)["status"]["phase"] == "Running"} == staying


def _holds(release: Release, pod: Pod, mib: int) -> bool:
    if "qosClass" not in pod["status"] or pod["status"]["phase"] != "Running":
        return False
    return _read(release.cluster.pod_cgroup("memory", pod), "memory.usage_in_bytes") >> 20 >= mib
