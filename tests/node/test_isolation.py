"""What keeps pods within their bounds beyond the kubelet's own means: the enforcer, and evictions under pressure."""

import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import pytest

from deploy.local.apiserver import patching
from shared import names
from tests.node.cluster import Failed
from tests.node.conftest import LENDING_SECONDS
from tests.node.pod_cgroups import Cgroup
from tests.node.pods import Pod, Pods
from tests.node.release import ENFORCER, NAMESPACE, NEVER_PERCENT, Release, quick_values
from tests.support import eventually

pytestmark = pytest.mark.node_only("bounds are those of a kernel, and pods are a kubelet's")

THRESHOLDS = "resource-threshold-config"
QUIET = {"clusterStrategy": {"prodWaitThresholdPercent": NEVER_PERCENT}}
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
    release.configure(THRESHOLDS, QUIET)
    eventually(lambda: release.mid_cpu() > MILLI, LENDING_SECONDS, 1.0)
    yield release
    lending.install()


@pytest.fixture
def thresholds(enforced: Release) -> Iterator[Release]:
    """For a test that sets thresholds."""
    yield enforced
    enforced.configure(THRESHOLDS, QUIET)


@pytest.fixture
def bare(enforced: Release) -> Iterator[Pods]:
    """In the release's namespace, whose pods the webhook leaves as they are."""
    made = Pods(enforced.cluster, NAMESPACE)
    yield made
    made.delete()


def _cores(release: Release, pod: Pod, seconds: float) -> float:
    """What it uses from now on, by the kernel's counter."""
    begun, cgroup = time.monotonic(), release.cluster.pod_cgroup(pod)  # first: reading takes a while, too
    first = cgroup.cpu_seconds
    time.sleep(seconds)
    return (cgroup.cpu_seconds - first) / (time.monotonic() - begun)


def _has_bounds(cgroup: Cgroup, expected: tuple[int, int, int]) -> bool:
    return (cgroup.cpu_quota[0], cgroup.cpu_weight, cgroup.memory_limit) == expected


def test_a_pod_in_koordinators_form_gets_the_bounds_that_no_kubelet_gives_it(enforced: Release, bare: Pods) -> None:
    hog = bare.run("hog", "burn", "2", requests=BOUNDS, limits=BOUNDS)
    assert hog["status"]["qosClass"] == "BestEffort"
    pod = enforced.cluster.pod_cgroup(hog)
    container = pod.container(hog["status"]["containerStatuses"][0]["containerID"])
    expected = MILLI * 100, pod.weight_of(MILLI), MIB << 20
    for cgroup in (pod, container):
        eventually(partial(_has_bounds, cgroup, expected))
    assert _cores(enforced, hog, 5) <= MILLI / 1000 * 1.1
    with pytest.raises(Failed, match="exit code 137"):
        bare.execute("hog", "/probe", "hold", str(4 * MIB))


def test_best_effort_pods_are_held_down_no_longer_than_an_agent_speaks_even_if_the_enforcer_is_killed(
    thresholds: Release,
) -> None:
    all_of_them = thresholds.cluster.cgroup("besteffort")

    def is_held() -> bool:
        return all_of_them.cpu_quota[0] > 0

    assert not is_held()
    thresholds.configure(THRESHOLDS, {"clusterStrategy": {"enable": True, "prodWaitThresholdPercent": NEVER_PERCENT}})
    eventually(is_held)
    (pod,) = thresholds.pods("agent")
    agent, enforcer = (thresholds.process(pod, name) for name in ("agent", "enforcer"))
    thresholds.cluster.signal(agent, signal.SIGSTOP)
    try:
        thresholds.cluster.signal(enforcer, signal.SIGKILL)
        assert is_held()
        eventually(lambda: not is_held(), 90, 0.2)
    finally:
        with suppress(Failed):  # the kubelet may have ended it
            thresholds.cluster.signal(agent, signal.SIGCONT)
    eventually(is_held, 120, 0.2)
    thresholds.configure(THRESHOLDS, QUIET)
    eventually(lambda: not is_held())


def test_under_pressure_what_is_over_goes_first_then_batch_within_budgets_and_mid_that_keeps_to_what_it_holds_stays(
    thresholds: Release, pods: Pods
) -> None:
    held = _percent(thresholds, HELD)
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
        _evict_from(thresholds, _used_percent(thresholds) - REACHED)
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
    held = _percent(thresholds, HELD)
    asked = {"cpu": "10m", "memory": f"{held + MIB}Mi"}
    pods.create("prod", "hold", str(held), requests={"cpu": "10m", "memory": "16Mi"})
    pods.create("mid", "hold", str(held), tier="koord-mid", requests=asked, limits=asked | {"cpu": "1"})
    eventually(lambda: all(_holds(thresholds, pods.get(name), held) for name in ("prod", "mid")), 180, 0.5)
    _evict_from(thresholds, _used_percent(thresholds) - REACHED)
    _nothing_more_goes(thresholds, pods, {"prod", "mid"})
    assert len(thresholds.told(EVICTED)) == told
    prediction = thresholds.node_metric()["status"]["prediction"]
    assert "pressure" not in prediction, prediction["pressure"]


def _memory(release: Release) -> dict[str, int]:
    """The node's, in KiB: it is this machine's where the node has its kernel."""
    lines = release.cluster.inside("cat", "/proc/meminfo").splitlines()
    return {line.split(":")[0]: int(line.split()[1]) for line in lines}


def _percent(release: Release, share: int) -> int:
    """Of the node's memory, in MiB."""
    return _memory(release)["MemTotal"] * share // 100 >> 10


def _used_percent(release: Release) -> int:
    memory = _memory(release)
    return 100 - 100 * memory["MemAvailable"] // memory["MemTotal"]


def _evict_from(release: Release, percent: int) -> None:
    """Of memory, down to less."""
    bounds = {"memoryEvictThresholdPercent": percent, "memoryEvictLowerPercent": percent - (LEFT - REACHED)}
    evicting = {"enable": True, "evictEnabled": True, "prodWaitThresholdPercent": NEVER_PERCENT}
    release.configure(THRESHOLDS, {"clusterStrategy": evicting | bounds})
    handed = "resourceUsedThresholdWithBE"
    expected = bounds["memoryEvictThresholdPercent"]
    eventually(
        lambda: release.node_metric()["spec"].get(handed, {}).get("memoryEvictThresholdPercent") == expected, 60, 0.5
    )


def _nothing_more_goes(release: Release, pods: Pods, staying: set[str]) -> None:
    """For longer than the cool-down of 4 s, and for two reports."""
    for _ in range(2):
        release.wait_for_report()
    time.sleep(2 * APART_SECONDS)
    assert {name for name in staying if pods.get(name)["status"]["phase"] == "Running"} == staying


def _holds(release: Release, pod: Pod, mib: int) -> bool:
    if "qosClass" not in pod["status"] or pod["status"]["phase"] != "Running":
        return False
    return release.cluster.pod_cgroup(pod).memory_used >> 20 >= mib
