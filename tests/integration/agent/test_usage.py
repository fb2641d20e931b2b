"""What the readers say of real processes agrees with what the kernel says of those processes."""

import contextlib
import errno
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from agent.metric_cache.series import Usage
from agent.metrics_advisor import local
from agent.metrics_advisor.files import Descriptors
from agent.metrics_advisor.host import Host
from agent.metrics_advisor.local import LocalSource
from agent.metrics_advisor.pod_cgroups import PodCgroups
from agent.metrics_advisor.processes import PodProcesses
from shared.api.core import ContainerStatus, Pod
from tests.integration.agent.conftest import BURN, CGROUP_ROOT, Machine, PodGroup
from tests.support import certain, eventually
from tests.unit.agent.pods import pod

pytestmark = pytest.mark.embedded_only("nothing here asks a server")

UID = "0f1e2d3c-aaaa-bbbb-cccc-0123456789ab"
CONTAINER_ID = "0123456789abcdef" * 4
REPOSITORY = Path(__file__).parents[3]
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


def read(reader: PodCgroups, watched: Sequence[Pod]) -> Mapping[str, Usage]:
    return reader.sample(watched, time.monotonic(), CPU_COUNT, {}).pods


class Bracket(NamedTuple):
    """A sample, and its process's CPU time and the time, both in seconds, just before and just after it."""

    usages: Mapping[str, Usage]
    cpu_before: float
    cpu_after: float
    before: float
    after: float


def bracketed(sample: Callable[[], Mapping[str, Usage]], pid: int) -> Bracket:
    before, cpu_before = time.monotonic(), cpu_seconds(pid)
    usages = sample()
    return Bracket(usages, cpu_before, cpu_seconds(pid), before, time.monotonic())


def agrees_with_the_process(sample: Callable[[], Mapping[str, Usage]], pid: int) -> None:
    """Over a second of CPU time; the clock tick of procfs is a hundredth of one, so 10 % is far above what it hides.

    Each sample was taken at some instant of its bracket, however long a busy machine made that.
    """
    eventually(lambda: UID in sample() or None)
    first = bracketed(sample, pid)
    eventually(lambda: cpu_seconds(pid) > first.cpu_after + 1)
    last = bracketed(sample, pid)
    least = (last.cpu_before - first.cpu_after) / (last.after - first.before)
    most = (last.cpu_after - first.cpu_before) / (last.before - first.after)
    assert 0.9 * least <= last.usages[UID].cpu_cores <= 1.1 * most


def test_a_burning_pod_uses_what_its_process_says(machine: Machine) -> None:
    process = machine.pod(UID).run(BURN)
    reader = PodCgroups(machine.layout, Descriptors())
    agrees_with_the_process(lambda: read(reader, [pod(UID).pod]), process.pid)
    reader.close()


def test_a_burning_process_tree_uses_what_its_process_says(environment_group: PodGroup) -> None:
    process = environment_group.run(BURN)
    reader = PodProcesses()
    agrees_with_the_process(lambda: reader.sample([pod(UID).pod], CPU_COUNT).pods, process.pid)


def test_memory_held_is_memory_used(machine: Machine) -> None:
    machine.pod(UID).run(HOLD)
    reader = PodCgroups(machine.layout, Descriptors())

    def settled() -> bool:
        usage = read(reader, [pod(UID).pod]).get(UID)
        return usage is not None and 64 * MEBIBYTE < usage.memory_bytes < 96 * MEBIBYTE

    eventually(settled, interval_seconds=0.1)
    reader.close()


def test_memory_held_by_a_process_tree_is_memory_used(environment_group: PodGroup) -> None:
    environment_group.run(HOLD)
    reader = PodProcesses()

    def settled() -> bool:
        usage = reader.sample([pod(UID).pod], CPU_COUNT).pods.get(UID)
        return usage is not None and 64 * MEBIBYTE < usage.memory_bytes < 96 * MEBIBYTE

    eventually(settled, interval_seconds=0.1)


@pytest.mark.parametrize("descriptors", [None, 0], ids=["files kept open", "no descriptors to spare"])
def test_a_pod_removed_between_two_reads_is_dropped_and_its_successor_found(
    machine: Machine, descriptors: int | None
) -> None:
    group, other = machine.pod(UID), machine.pod("other")
    reader = PodCgroups(machine.layout, Descriptors(descriptors))
    watched = [pod(UID).pod, pod("other").pod]
    eventually(lambda: len(read(reader, watched)) == 2, interval_seconds=0.05)
    group.remove()
    time.sleep(0.05)
    assert read(reader, watched).keys() == {"other"}
    machine.pod(UID).run(BURN)
    first = read(reader, watched)
    assert UID not in first, "the first reading has nothing to compare with"
    eventually(lambda: UID in read(reader, watched), interval_seconds=0.05)
    other.remove()
    reader.close()


def open_below(machine: Machine) -> int:
    """How many files of its cgroups this process has open; others come and go with whatever else it runs."""
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += machine.layout.parent in os.readlink(link)
    return found


def test_files_of_pods_no_longer_wanted_are_closed(machine: Machine) -> None:
    reader = PodCgroups(machine.layout, Descriptors())
    for number in range(5):
        machine.pod(f"pod-{number}")
    watched = [pod(f"pod-{number}").pod for number in range(5)]
    read(reader, watched)
    opened = open_below(machine)
    read(reader, watched[:1])
    assert open_below(machine) == opened - 12
    reader.close()


def test_the_node_uses_at_least_what_its_busiest_process_does(environment_group: PodGroup) -> None:
    environment_group.run("while True: pass")
    host = Host(Path("/proc"), Descriptors())
    host.sample(time.monotonic(), {})

    def busy() -> Usage | None:
        usage = host.sample(time.monotonic(), {})
        assert usage is None or usage.cpu_cores <= CPU_COUNT
        return usage if usage and usage.cpu_cores > 0.5 else None

    usage = certain(eventually(busy, interval_seconds=1.0))
    assert usage.memory_bytes > 10 * MEBIBYTE
    host.close()


def container(name: str, container_id: str) -> Pod:
    """The pod with one container, as its status tells."""
    one = pod(UID).pod
    statuses = (ContainerStatus(name, f"containerd://{container_id}"),)
    return msgspec.structs.replace(one, status=msgspec.structs.replace(one.status, container_statuses=statuses))


def test_a_container_is_measured_below_its_pod(machine: Machine) -> None:
    machine.pod(UID)
    process = machine.container(UID, CONTAINER_ID).run(HOLD)
    source = LocalSource(cgroup_root=CGROUP_ROOT, cgroup_parent=machine.layout.parent)
    watched = [container("web", CONTAINER_ID)]

    def settled() -> bool:
        sample = source.sample(watched)
        usage = sample and sample.containers.get(f"{UID}/web")
        if not sample or not usage:
            return False
        return 64 * MEBIBYTE < usage.memory_bytes <= sample.pods[UID].memory_bytes + MEBIBYTE

    eventually(settled, interval_seconds=0.1)
    assert process.poll() is None
    source.close()


UNPRIVILEGED = """
import json, os, sys, time
from pathlib import Path
import psutil
from agent.metrics_advisor import cgroup
from agent.metrics_advisor.local import LocalSource
from tests.integration.agent.test_usage import CONTAINER_ID, container

parent, tree, uid, wanted = sys.argv[1], sys.argv[2], sys.argv[3], set(sys.argv[4:])
os.setgroups([])
os.setresgid(65532, 65532, 65532)
os.setresuid(65532, 65532, 65532)
capabilities = [line for line in open("/proc/self/status") if line.startswith("CapEff")]
try:
    os.mkdir(f"{tree}/forbidden")
except OSError as error:
    refused = error.errno
cgroup.MEMORY_SECONDS = 2.0
source = LocalSource(cgroup_root=Path("/sys/fs/cgroup"), cgroup_parent=parent, state_dir=Path("/"))
readings, pod = {}, container("web", CONTAINER_ID)
deadline = time.monotonic() + 60
while time.monotonic() < deadline:
    sample = source.sample([pod])
    if sample is not None:
        readings |= sample.readings
        burns = [usages.get(name) for usages, name in ((sample.pods, uid), (sample.containers, f"{uid}/web"))]
        if all(usage and usage.cpu_cores > 0.01 for usage in burns) and wanted <= {
            f"{key.kind}/{key.metric}" for key in readings
        }:
            break
    time.sleep(0.5)
print(json.dumps({
    "uid": os.getuid(), "capabilities": int(capabilities[0].split()[1], 16), "refused": refused,
    "pods": dict(sample.pods), "containers": dict(sample.containers), "description": source.description,
    "readings": sorted({f"{key.kind}/{key.metric}" for key in readings}),
}))
"""
READ_ONLY = """
while read -r _ top _; do case "$top" in /sys/fs/cgroup*) mount -o remount,bind,ro "$top" ;; esac; done < /proc/mounts
exec "$@"
"""


def test_nothing_is_needed_but_a_read_only_mount_of_the_cgroups(machine: Machine) -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("only root can make a namespace in which the cgroups are read-only, and give up its rights")
    machine.pod(UID)
    machine.container(UID, CONTAINER_ID).run(BURN)
    wanted = {"node/load_1m", "node/disk_size", "numa/memory", "pod/memory_with_page_cache"}
    command = ["unshare", "--mount", "sh", "-ec", READ_ONLY, "sh", sys.executable, "-c", UNPRIVILEGED]
    command += [
        machine.layout.parent,
        str(machine.layout.hierarchy.roots["memory"] / machine.layout.parent),
        UID,
        *wanted,
    ]
    result = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, timeout=120)
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    assert (answer["uid"], answer["capabilities"], answer["refused"]) == (65532, 0, errno.EROFS)
    assert answer["pods"][UID][0] > 0.01  # what a busy machine leaves it of half a core
    assert answer["containers"][f"{UID}/web"][0] > 0.01
    assert answer["description"] == machine.layout.description
    assert wanted <= set(answer["readings"])


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
