"""What the agent says pods use, beside the kernel's own counters and kubelet's."""

import re
import time
from collections.abc import Iterator

import pytest

from shared import quantity
from tests.node.layout import NODE, Kind
from tests.node.pods import Pod, Pods
from tests.node.release import Release
from tests.support import eventually

pytestmark = pytest.mark.node_only("usage is compared with kubelet's")

NEAR = 0.1
NEAR_IN_STEPS = 0.2  # of a kernel in user mode, which counts in steps of 10 ms
WINDOW_SECONDS = 30
MIB = 1 << 20
HELD_MIB = 200


@pytest.fixture(scope="module")
def busy(installed: Release) -> Iterator[Pod]:
    """Held at 0.3 of a core by its limit, whatever else the machine does."""
    pods = Pods(installed.cluster)
    yield pods.run("busy", "burn", "2", requests={"cpu": "100m", "memory": "64Mi"}, limits={"cpu": "300m"})
    pods.delete()


@pytest.fixture(scope="module")
def holder(installed: Release) -> Iterator[Pod]:
    pods = Pods(installed.cluster)
    pod = pods.run("holder", "hold", str(HELD_MIB), requests={"cpu": "10m", "memory": "300Mi"})
    eventually(lambda: _resident_bytes(installed, pod) > HELD_MIB * MIB)
    yield pod
    pods.delete()


def _resident_bytes(release: Release, pod: Pod) -> int:
    return release.cluster.pod_cgroup(pod).memory_resident


def _cpu_seconds(release: Release, pod: Pod) -> float:
    return release.cluster.pod_cgroup(pod).cpu_seconds


def _by_kubelet(release: Release, metric: str, pod: Pod) -> tuple[float, float]:
    """The metric's value, and the time in seconds it is of; zeros while there is none."""
    text = release.cluster.kubectl("get", "--raw", f"/api/v1/nodes/{NODE}/proxy/metrics/resource")
    found = re.search(rf'^{metric}{{[^}}]*pod="{pod["metadata"]["name"]}"}} (\S+) (\d+)$', text, re.MULTILINE)
    return (float(found[1]), int(found[2]) / 1000) if found else (0.0, 0.0)


def _by_agent(release: Release, metric: str, pod: Pod) -> float:
    """The mean over the window that has just ended, in cores or bytes."""
    uid = pod["metadata"]["uid"]
    answer = release.agent(f"/api/v1/aggregate?kind=pod&metric={metric}&entity={uid}&window={WINDOW_SECONDS}s&agg=avg")
    (found,) = answer["values"]
    return float(found["value"])


def test_cpu_of_a_pod_is_what_kernel_and_kubelet_count(kind: Kind, installed: Release, busy: Pod) -> None:
    counted, begun = _cpu_seconds(installed, busy), time.monotonic()
    eventually(lambda: _by_kubelet(installed, "pod_cpu_usage_seconds_total", busy)[1], 60, 1.0)
    first = _by_kubelet(installed, "pod_cpu_usage_seconds_total", busy)
    time.sleep(max(0.0, begun + WINDOW_SECONDS - time.monotonic()))
    kernel = (_cpu_seconds(installed, busy) - counted) / (time.monotonic() - begun)
    agent = _by_agent(installed, "cpu", busy)
    last = eventually(lambda: _later(installed, busy, first), 60, 1.0) or first
    kubelet = (last[0] - first[0]) / (last[1] - first[1])
    near = NEAR if kind is Kind.V1 else NEAR_IN_STEPS
    assert agent == pytest.approx(kernel, rel=near)
    assert agent == pytest.approx(kubelet, rel=near)


def _later(release: Release, pod: Pod, first: tuple[float, float]) -> tuple[float, float] | None:
    """Kubelet's next figure that is young enough to compare."""
    found = _by_kubelet(release, "pod_cpu_usage_seconds_total", pod)
    return found if found[1] >= first[1] + WINDOW_SECONDS / 2 else None


def test_memory_of_a_pod_is_what_kernel_and_kubelet_count(installed: Release, holder: Pod) -> None:
    def known() -> bool:
        return _by_agent(installed, "memory", holder) > HELD_MIB * MIB * 0.95

    eventually(known, 120, 1.0)
    agent = _by_agent(installed, "memory", holder)
    assert agent == pytest.approx(_resident_bytes(installed, holder), rel=NEAR)
    eventually(lambda: _by_kubelet(installed, "pod_memory_working_set_bytes", holder)[0] > HELD_MIB * MIB, 60, 1.0)
    assert agent == pytest.approx(_by_kubelet(installed, "pod_memory_working_set_bytes", holder)[0], rel=NEAR)


def test_the_report_says_the_same(installed: Release, busy: Pod, holder: Pod) -> None:
    def reported(name: str, resource: str) -> float:
        for pod in installed.node_metric()["status"]["podsMetric"]:
            if pod["name"] == name:
                text = pod["podUsage"]["resources"][resource]
                return quantity.milli(text) / 1000
        return 0.0

    eventually(lambda: reported("busy", "cpu") == pytest.approx(0.3, rel=NEAR), 90, 1.0)
    expected = _resident_bytes(installed, holder)
    eventually(lambda: reported("holder", "memory") == pytest.approx(expected, rel=NEAR), 90, 1.0)
