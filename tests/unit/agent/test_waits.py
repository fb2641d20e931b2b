"""What Prod pods waited for comes from their pressure files, and never from a pod that its own limits held up."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.metric_cache.series import Kind, Metric, SeriesKey
from agent.metrics_advisor import cgroups
from agent.metrics_advisor.cgroup import Readings, WaitCounters
from agent.metrics_advisor.cgroups import Driver, Version
from agent.metrics_advisor.files import Descriptors
from agent.metrics_advisor.pod_cgroups import PodCgroups
from agent.metrics_advisor.waits import MOST_A_TICK, WaitWindow, add_shares, window
from shared.api.core import Pod, PodStatus
from shared.api.meta import ObjectMeta
from shared.names import LABEL_PRIORITY_CLASS, KubeQoS, PriorityClass
from tests.support import certain
from tests.unit.agent.trees import Counters, Tree

CPUS = 4
CPU_WAIT = SeriesKey(Kind.NODE, "", Metric.PROD_CPU_WAIT)
MEMORY_WAIT = SeriesKey(Kind.NODE, "", Metric.PROD_MEMORY_WAIT)
THROTTLED = SeriesKey(Kind.NODE, "", Metric.PROD_THROTTLED_PODS)


def pod(uid: str, priority_class: str = PriorityClass.PROD, qos: KubeQoS = KubeQoS.BURSTABLE) -> Pod:
    meta = ObjectMeta(name=uid, namespace="default", uid=uid, labels={LABEL_PRIORITY_CLASS: priority_class})
    return Pod(metadata=meta, status=PodStatus(phase="Running", qos_class=qos))


class Node:
    """Pods whose counters a test moves."""

    def __init__(self, root: Path, pods: list[Pod], version: Version = Version.V2) -> None:
        self.tree = Tree(root / "cgroup", version, Driver.CGROUPFS)
        self.pods = pods
        self.counters = {one.metadata.uid: Counters() for one in pods}
        self.write()
        self.seconds = 100.0
        layout = certain(cgroups.detect(self.tree.root))
        self.reader = PodCgroups(layout, Descriptors(), lambda: self.seconds, only_numa_node=0)

    def write(self) -> None:
        for uid, counters in self.counters.items():
            self.tree.write(self.tree.pod_path(uid), counters)

    def move(self, uid: str, **more: float) -> None:
        """Adds to counters."""
        before = self.counters[uid]
        changed = {name: getattr(before, name) + amount for name, amount in more.items()}
        self.counters[uid] = replace(before, **changed)
        self.tree.write(self.tree.pod_path(uid), self.counters[uid])

    def tick(self) -> Readings:
        self.seconds += 1
        readings: Readings = {}
        self.reader.sample(self.pods, self.seconds, CPUS, readings)
        return readings


@contextmanager
def node(root: Path, *pods: Pod, version: Version = Version.V2) -> Iterator[Node]:
    made = Node(root, list(pods), version)
    yield made
    made.reader.close()


def test_time_that_a_pod_waits_counts_beside_the_time_that_it_runs(tmp_path: Path) -> None:
    with node(tmp_path, pod("a"), pod("idle")) as seen:
        for _ in range(4):
            seen.tick()
            seen.move("a", cpu_seconds=0.3, cpu_waited_seconds=0.1, memory_waited_seconds=0.1)
        readings = seen.tick()
        assert readings[CPU_WAIT] == pytest.approx(0.25)
        assert readings[MEMORY_WAIT] == pytest.approx(0.25)
        assert readings[THROTTLED] == 0


def test_a_pod_at_its_own_quota_says_nothing_about_cpu_and_is_counted(tmp_path: Path) -> None:
    with node(tmp_path, pod("a"), pod("limited")) as seen:
        for _ in range(4):
            seen.tick()
            seen.move("a", cpu_seconds=0.9, cpu_waited_seconds=0.1)
            seen.move("limited", cpu_seconds=0.2, cpu_waited_seconds=0.8, throttled=5, periods=10)
        readings = seen.tick()
        assert readings[CPU_WAIT] == pytest.approx(0.1)
        assert readings[THROTTLED] == 1


def test_a_pod_at_its_own_memory_limit_says_nothing_about_memory(tmp_path: Path) -> None:
    with node(tmp_path, pod("limited")) as seen:
        for _ in range(4):
            seen.tick()
            seen.move("limited", cpu_seconds=0.5, memory_waited_seconds=0.5, memory_limited=3)
        readings = seen.tick()
        assert MEMORY_WAIT not in readings
        assert readings[CPU_WAIT] == 0


@pytest.mark.parametrize(
    ("priority_class", "qos"),
    [
        (PriorityClass.MID, KubeQoS.BURSTABLE),
        (PriorityClass.BATCH, KubeQoS.BURSTABLE),
        (PriorityClass.FREE, KubeQoS.BURSTABLE),
        (PriorityClass.PROD, KubeQoS.BEST_EFFORT),
    ],
)
def test_pods_below_prod_and_pods_that_request_nothing_may_wait(
    tmp_path: Path, priority_class: PriorityClass, qos: KubeQoS
) -> None:
    with node(tmp_path, pod("a"), pod("b", priority_class, qos)) as seen:
        for _ in range(4):
            seen.tick()
            seen.move("a", cpu_seconds=1)
            seen.move("b", cpu_seconds=0.1, cpu_waited_seconds=0.9)
        assert seen.tick()[CPU_WAIT] == 0


@pytest.mark.parametrize("version", [Version.V1, Version.HYBRID])
def test_on_cgroup_v1_nothing_is_read(tmp_path: Path, version: Version) -> None:
    with node(tmp_path, pod("a"), version=version) as seen:
        for _ in range(4):
            seen.tick()
            seen.move("a", cpu_seconds=0.3, cpu_waited_seconds=0.1)
        assert not seen.tick().keys() & {CPU_WAIT, MEMORY_WAIT, THROTTLED}


@pytest.mark.parametrize("content", [None, "", "some\n", "some avg10=0.00 total=x\n", "\x00" * 300])
def test_a_pressure_file_that_is_absent_or_odd_is_no_wait(tmp_path: Path, content: str | None) -> None:
    with node(tmp_path, pod("a"), pod("b")) as seen:
        file = seen.tree.root / seen.tree.pod_path("a") / "cpu.pressure"
        for _ in range(4):
            seen.tick()
            seen.move("b", cpu_seconds=0.9, cpu_waited_seconds=0.1)
            file.unlink(missing_ok=True)
            if content is not None:
                file.write_text(content)
        assert seen.tick()[CPU_WAIT] == pytest.approx(0.1)


def test_counters_that_run_backwards_begin_anew(tmp_path: Path) -> None:
    with node(tmp_path, pod("a")) as seen:
        for _ in range(4):
            seen.tick()
            seen.move("a", cpu_seconds=0.3, cpu_waited_seconds=0.1)
        seen.tick()
        seen.move("a", cpu_seconds=-1, cpu_waited_seconds=-0.2)
        assert CPU_WAIT not in seen.tick()
        seen.move("a", cpu_seconds=0.5, cpu_waited_seconds=0.5)
        assert seen.tick()[CPU_WAIT] == pytest.approx(0.5)


def test_however_many_pods_a_tick_reads_no_more_than_its_share_and_all_get_their_turn(tmp_path: Path) -> None:
    names = [f"p{number}" for number in range(3 * MOST_A_TICK + 7)]
    with node(tmp_path, *map(pod, names)) as seen:
        for _ in range(4):
            seen.tick()
        for name in names:
            seen.move(name, cpu_seconds=0.4, cpu_waited_seconds=0.4)
        shares = [seen.tick().get(CPU_WAIT, 0.0) for _ in range(5)]
        assert shares == sorted(shares)
        assert shares[-1] == pytest.approx(0.5)


COUNTS = st.integers(0, 2**63)


@given(st.builds(WaitCounters, *[COUNTS] * 5), st.builds(WaitCounters, *[COUNTS] * 5), st.floats(-10, 100))
def test_whatever_the_counters_a_share_is_one(before: WaitCounters, after: WaitCounters, seconds: float) -> None:
    readings: Readings = {}
    found = window(100.0, before, 100.0 + seconds, after)
    add_shares(np.array([found, WaitWindow(0.5, 0.1, 0.5, 0.1, 0.0)]), readings)
    assert 0 <= readings[CPU_WAIT] <= 1
    assert 0 <= readings[MEMORY_WAIT] <= 1
    assert readings[THROTTLED] in (0, 1)
