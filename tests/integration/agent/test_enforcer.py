"""A real enforcer, root without any capability, on real cgroups."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from agent.enforcer import orders
from agent.enforcer.orders import ContainerOrder, Orders, PodOrder, Suppress
from agent.metrics_advisor.cgroups import Driver
from shared.names import KubeQoS, Tier
from tests.integration.agent.conftest import BURN, CGROUP_ROOT, Machine, PodGroup, is_removed
from tests.support import eventually

pytestmark = pytest.mark.embedded_only("nothing here asks a server")

MID, BATCH = "0f1e2d3c-aaaa-bbbb-cccc-00000000000a", "0f1e2d3c-aaaa-bbbb-cccc-00000000000b"
ID = "0123456789abcdef" * 4
MIB = 1 << 20
HELD = Suppress(cpu_milli=500, capacity_milli=2000)
CONTAINER = ContainerOrder(id=f"containerd://{ID}", cpu_milli=200, limit_milli=300, limit_bytes=64 * MIB)
PODS = (
    PodOrder(
        uid=MID,
        qos=KubeQoS.BURSTABLE,
        tier=Tier.MID,
        containers=(CONTAINER,),
        cpu_milli=200,
        limit_milli=300,
        limit_bytes=64 * MIB,
    ),
    PodOrder(uid=BATCH, qos=KubeQoS.BEST_EFFORT, tier=Tier.BATCH, cpu_milli=2000, limit_milli=1500),
)


class Kernel(NamedTuple):
    """The files that the kernel has for bounds, and what it answers, by the version of its cgroups."""

    files: tuple[str, str, str]  # weight and quota of cpu, and memory
    bounds: tuple[str, ...]  # of the pod of Mid and of its container: least weight, 300 milli-cores, 64 MiB
    half_a_core: str
    one_and_a_half: str
    unlimited: str
    while_suppressed: str  # of a pod of Batch whose limit is above what all of them have: v1 refuses that


V1 = Kernel(
    ("cpu.shares", "cpu.cfs_quota_us", "memory.limit_in_bytes"),
    ("2", "30000", str(64 * MIB), "204", "30000", str(64 * MIB)),
    half_a_core="50000",
    one_and_a_half="150000",
    unlimited="-1",
    while_suppressed="-1",
)
V2 = Kernel(
    ("cpu.weight", "cpu.max", "memory.max"),
    ("1", "30000 100000", str(64 * MIB), "8", "30000 100000", str(64 * MIB)),
    half_a_core="50000 100000",
    one_and_a_half="150000 100000",
    unlimited="max 100000",
    while_suppressed="150000 100000",
)


class Place:
    """Where orders come from, and what became of them."""

    def __init__(self, machine: Machine, group: PodGroup, directory: Path) -> None:
        self.layout, self.group, self.directory = machine.layout, group, directory
        self.kernel = V2 if self.layout.hierarchy.v2 else V1
        self.pods: tuple[PodOrder, ...] = PODS
        self.suppress: Suppress | None = HELD
        self.cpu = self.layout.hierarchy.throttling or self.layout.hierarchy.roots["cpu"]
        self._stop = threading.Event()
        self._speaker = threading.Thread(target=self._speak)
        self._speaker.start()

    def _speak(self) -> None:
        while not self._stop.wait(0.2):
            given = Orders(version=orders.VERSION, at=time.monotonic(), pods=self.pods, suppress=self.suppress)
            orders.write(self.directory, given)

    def fall_silent(self) -> None:
        self._stop.set()
        self._speaker.join()

    def read(self, path: str, name: str) -> str:
        top = self.layout.hierarchy.roots["memory"] if name.startswith("memory") else self.cpu
        return (top / path / name).read_text().strip()

    @property
    def bounds(self) -> tuple[str, ...]:
        pod = self.layout.pod_path(KubeQoS.BURSTABLE, MID)
        return tuple(self.read(path, name) for path in (pod, self.container) for name in self.kernel.files)

    @property
    def container(self) -> str:
        inner = self.layout.container_dir("cpu", KubeQoS.BURSTABLE, MID, f"containerd://{ID}")
        return os.path.relpath(inner, self.layout.hierarchy.roots["cpu"])

    @property
    def best_effort(self) -> str:
        return self.read(self.layout.class_path(KubeQoS.BEST_EFFORT), self.kernel.files[1])

    @property
    def batch_quota(self) -> str:
        return self.read(self.layout.pod_path(KubeQoS.BEST_EFFORT, BATCH), self.kernel.files[1])


# Names differ between drivers, the kernel's answers do not.
cgroupfs = pytest.mark.parametrize("machine", [Driver.CGROUPFS], indirect=True)


@pytest.fixture
def place(machine: Machine, tmp_path: Path) -> Iterator[Place]:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("an enforcer is root, and setpriv takes its capabilities away")
    machine.pod(MID)
    group = machine.container(MID, ID)
    machine.pod(BATCH, KubeQoS.BEST_EFFORT)
    top = machine.layout.hierarchy.roots["cpu"]
    cpu = machine.layout.hierarchy.throttling or top
    apart = []
    if not os.path.samefile(cpu, top):
        for found, _, _ in os.walk(top / machine.layout.parent):
            apart.append(cpu / os.path.relpath(found, top))
            apart[-1].mkdir(exist_ok=True)
    made = Place(machine, group, tmp_path)
    try:
        yield made
    finally:
        made.fall_silent()
        for path in reversed(apart):
            eventually(partial(is_removed, path))


@contextmanager
def running(place: Place) -> Iterator[subprocess.Popen[bytes]]:
    """The process as its container runs it: uid 0, no capability, none to be had."""
    command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
    command += [sys.executable, "-m", "agent.enforcer", f"--orders-dir={place.directory}"]
    command += [f"--cgroup-root={CGROUP_ROOT}", f"--cgroup-parent={place.layout.parent}"]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[3])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@cgroupfs
def test_the_kernel_takes_the_bounds_and_a_killed_enforcer_is_made_up_for(place: Place) -> None:
    with running(place) as process:
        eventually(lambda: place.bounds == place.kernel.bounds)
        eventually(lambda: place.best_effort == place.kernel.half_a_core)
        eventually(lambda: place.batch_quota == place.kernel.while_suppressed)
        status = Path(f"/proc/{process.pid}/status").read_text()
        assert "CapEff:\t0000000000000000" in status
        assert "CapBnd:\t0000000000000000" in status
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert place.best_effort == place.kernel.half_a_core
    with running(place) as process:
        place.suppress = None
        eventually(lambda: place.best_effort == place.kernel.unlimited)
        eventually(lambda: place.batch_quota == place.kernel.one_and_a_half)
        place.suppress = HELD
        eventually(lambda: place.best_effort == place.kernel.half_a_core)
        process.terminate()
        assert process.wait(30) == 0
    assert place.best_effort == place.kernel.unlimited
    assert place.bounds == place.kernel.bounds


@pytest.mark.thorough
@cgroupfs
def test_a_container_beyond_its_pods_quota_is_throttled(place: Place) -> None:
    # A fiftieth of a CPU, which a process has more of however many others want the CPUs.
    place.pods = (PodOrder(uid=MID, qos=KubeQoS.BURSTABLE, tier=Tier.MID, cpu_milli=20, limit_milli=20),)
    place.suppress = None
    cpus = {place.cpu, place.layout.hierarchy.roots["cpu"]}
    pod = place.layout.pod_path(KubeQoS.BURSTABLE, MID)

    def throttled() -> bool:
        stat = dict(line.split() for line in place.read(pod, "cpu.stat").splitlines())
        return int(stat["nr_throttled"]) > 5

    with running(place):
        eventually(lambda: place.read(pod, place.kernel.files[1]).split()[0] == "2000")
        process = place.group.run(BURN)
        try:
            for root in cpus:
                (root / place.container / "cgroup.procs").write_text(str(process.pid))
            eventually(throttled)
        finally:
            process.kill()
            process.wait()


@cgroupfs
def test_a_pod_that_has_taken_more_than_its_limit_takes_no_more(place: Place) -> None:
    place.suppress = None
    process = place.group.run(f"data = bytearray({160 * MIB})\nimport time\ntime.sleep(600)")
    used = {"memory.limit_in_bytes": "memory.usage_in_bytes", "memory.max": "memory.current"}[place.kernel.files[2]]
    eventually(lambda: int(place.read(place.container, used)) > 160 * MIB)
    with running(place):
        limit = place.kernel.files[2]
        paths = (place.layout.pod_path(KubeQoS.BURSTABLE, MID), place.container)
        # v2 kills it, and v1 leaves it what it has.
        eventually(lambda: all((text := place.read(path, limit)).isdigit() and int(text) < 192 * MIB for path in paths))
    assert process.poll() is None or place.layout.hierarchy.v2
