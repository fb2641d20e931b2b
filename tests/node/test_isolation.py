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

# Of the node's memory, in percent: what each of two pods takes, and how far below what is used then the bounds are from
# which on pods go, and to which. All of the machine's memory counts, so it is looked at as late as can be.
HELD, REACHED, LEFT = 8, 3, 4


@pytest.fixture(scope="module")
def enforced(lending: Release) -> Iterator[Release]:
    """With the enforcer in the agent's pod, and a manager that may evict."""
    release = Release(lending.cluster, patching.merge(quick_values(), ENFORCER | {"rbac": {"eviction": True}}))
    release.install()
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


def test_under_pressure_batch_goes_before_mid_and_as_few_as_it_takes(thresholds: Release, pods: Pods) -> None:
    held = psutil.virtual_memory().total * HELD // 100 >> 20
    asked = {"cpu": "10m", "memory": f"{held + MIB}Mi"}
    limits = asked | {"cpu": "1"}
    for tier in ("mid", "batch"):
        pod = pods.run(tier, "hold", str(held), tier=f"koord-{tier}", requests=asked, limits=limits)
        eventually(partial(_holds, thresholds, pod, held), 120, 0.5)
    percent = int(psutil.virtual_memory().percent)
    strategy = {
        "enable": True,
        "evictEnabled": True,
        "memoryEvictThresholdPercent": percent - REACHED,
        "memoryEvictLowerPercent": percent - LEFT,
    }
    thresholds.configure(THRESHOLDS, {"clusterStrategy": strategy})
    eventually(lambda: not pods.is_there("batch"), 120, 0.5)
    (said,) = eventually(lambda: thresholds.events("PressureEviction"))
    assert "memory" in said, said
    time.sleep(10)  # more than the cool-down of 4 s, and another report
    assert pods.get("mid")["status"]["phase"] == "Running"
    assert len(thresholds.events("PressureEviction")) == 1


def _holds(release: Release, pod: Pod, mib: int) -> bool:
    return _read(release.cluster.pod_cgroup("memory", pod), "memory.usage_in_bytes") >> 20 >= mib
