"""What the readers say of real processes agrees with what the kernel says of those processes."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.metric_cache.series import Usage
from agent.metrics_advisor import local
from agent.metrics_advisor.files import Descriptors
from agent.metrics_advisor.host import Host
from agent.metrics_advisor.local import LocalSource
from agent.metrics_advisor.pod_cgroups import PodCgroups
from agent.metrics_advisor.processes import PodProcesses
from tests.integration.agent.conftest import BURN, CGROUP_ROOT, Machine, PodGroup
from tests.support import eventually
from tests.unit.agent.pods import pod

pytestmark = pytest.mark.embedded_only("nothing here asks a server")

UID = "0f1e2d3c-aaaa-bbbb-cccc-0123456789ab"
MEBIBYTE = 2**20
CPU_COUNT = os.cpu_count() or 1
HOLD = (
    f"data = bytearray({64 * MEBIBYTE})\nfor i in range(0, len(data), 4096): data[i] = 1\nimport time\ntime.sleep(60)"
)


def cpu_seconds(pid: int) -> float:
    """The process's own CPU time."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def environment_group() -> Iterator[PodGroup]:
    group = PodGroup(UID, [])
    try:
        yield group
    finally:
        group.remove()


def agrees_with_the_process(sample: Callable[[], dict[str, Usage]], pid: int) -> None:
    """Over two seconds; the clock tick of procfs is a hundredth of one, so 10 % is far above what it hides."""
    eventually(lambda: UID in sample() or None, 10)
    began, before = time.monotonic(), cpu_seconds(pid)
    sample()
    time.sleep(2.0)
    got = sample()[UID].cpu_cores
    truth = (cpu_seconds(pid) - before) / (time.monotonic() - began)
    assert truth > 0.1, "the process burned nothing, so there is nothing to compare"
    assert got == pytest.approx(truth, rel=0.1)


def test_a_burning_pod_uses_what_its_process_says(machine: Machine) -> None:
    process = machine.pod(UID).run(BURN)
    reader = PodCgroups(machine.layout, Descriptors())
    agrees_with_the_process(lambda: reader.sample([pod(UID).pod], CPU_COUNT), process.pid)
    reader.close()


def test_a_burning_process_tree_uses_what_its_process_says(environment_group: PodGroup) -> None:
    process = environment_group.run(BURN)
    reader = PodProcesses()
    agrees_with_the_process(lambda: reader.sample([pod(UID).pod], CPU_COUNT), process.pid)


def test_memory_held_is_memory_used(machine: Machine) -> None:
    machine.pod(UID).run(HOLD)
    reader = PodCgroups(machine.layout, Descriptors())

    def settled() -> bool:
        usage = reader.sample([pod(UID).pod], CPU_COUNT).get(UID)
        return usage is not None and 64 * MEBIBYTE < usage.memory_bytes < 96 * MEBIBYTE

    eventually(settled, 10, interval_seconds=0.1)
    reader.close()


def test_memory_held_by_a_process_tree_is_memory_used(environment_group: PodGroup) -> None:
    environment_group.run(HOLD)
    reader = PodProcesses()

    def settled() -> bool:
        usage = reader.sample([pod(UID).pod], CPU_COUNT).get(UID)
        return usage is not None and 64 * MEBIBYTE < usage.memory_bytes < 96 * MEBIBYTE

    eventually(settled, 10, interval_seconds=0.1)


@pytest.mark.parametrize("descriptors", [None, 0], ids=["files kept open", "no descriptors to spare"])
def test_a_pod_removed_between_two_reads_is_dropped_and_its_successor_found(
    machine: Machine, descriptors: int | None
) -> None:
    group, other = machine.pod(UID), machine.pod("other")
    reader = PodCgroups(machine.layout, Descriptors(descriptors))
    watched = [pod(UID).pod, pod("other").pod]
    eventually(lambda: len(reader.sample(watched, CPU_COUNT)) == 2, interval_seconds=0.05)
    group.remove()
    time.sleep(0.05)
    assert reader.sample(watched, CPU_COUNT).keys() == {"other"}
    machine.pod(UID).run(BURN)
    first = reader.sample(watched, CPU_COUNT)
    assert UID not in first, "the first reading has nothing to compare with"
    eventually(lambda: UID in reader.sample(watched, CPU_COUNT), interval_seconds=0.05)
    other.remove()
    reader.close()


def test_files_of_pods_no_longer_wanted_are_closed(machine: Machine) -> None:
    reader = PodCgroups(machine.layout, Descriptors())
    for number in range(5):
        machine.pod(f"pod-{number}")
    watched = [pod(f"pod-{number}").pod for number in range(5)]
    reader.sample(watched, CPU_COUNT)
    opened = len(os.listdir("/proc/self/fd"))
    reader.sample(watched[:1], CPU_COUNT)
    assert len(os.listdir("/proc/self/fd")) == opened - 8
    reader.close()


def test_the_node_uses_at_least_what_its_busiest_process_does(environment_group: PodGroup) -> None:
    environment_group.run("while True: pass")
    host = Host(Path("/proc"), Descriptors())
    host.sample()
    time.sleep(1.0)
    usage = host.sample()
    assert usage is not None
    assert 0.5 < usage.cpu_cores <= CPU_COUNT * 1.25
    assert usage.memory_bytes > 10 * MEBIBYTE
    host.close()


def test_cgroups_are_used_as_soon_as_a_kubelet_makes_them(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "DETECT_SECONDS", 0.0)
    source = LocalSource(cgroup_root=CGROUP_ROOT, cgroup_parent=machine.layout.parent)
    watched = [pod(UID).pod]
    source.sample(watched)
    assert source.description == local.PROCESS_TREES
    machine.pod(UID)
    eventually(lambda: (sample := source.sample(watched)) and UID in sample.pods, interval_seconds=0.05)
    assert source.description == f"cgroup {machine.layout.hierarchy.version} {machine.layout.driver}"
    source.close()
