"""What it costs an agent to measure how long Prod pods wait, beside a reader of the same files in plain Python.

Both read plain files in memory, laid out as in cgroup v2: the same system calls, without what the kernel does to count.
"""

import itertools
import re
import tempfile
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from agent.metric_cache.series import Kind
from agent.metrics_advisor import cgroups
from agent.metrics_advisor.cgroup import Cgroup, Readings, TrackedCgroup
from agent.metrics_advisor.cgroups import Driver, Version
from agent.metrics_advisor.files import Descriptors
from agent.metrics_advisor.waits import MOST_A_TICK, Waits
from shared.clock import ManualClock
from tests.bench.agent import PODS, cpu_seconds
from tests.bench.row import Measure, Row
from tests.unit.agent.trees import Counters, Tree

REACH_PERCENT = 0.1  # of a core
ROUND_TICKS = PODS // MOST_A_TICK  # in which every pod has its turn
IN_MEMORY = Path("/dev/shm")
_NUMBER = re.compile(rb"\d+")


def measures() -> tuple[Measure, ...]:
    return (_of_many_pods,)


def _of_many_pods() -> Iterator[Row]:
    with tempfile.TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as folder:
        tree = Tree(Path(folder, "cgroup"), Version.V2, Driver.CGROUPFS)
        uids = [str(uuid.uuid4()) for _ in range(PODS)]
        for uid in uids:
            tree.write(tree.pod_path(uid), Counters(cpu_seconds=1.0, cpu_waited_seconds=0.1))
        ours = cpu_seconds(_agents(tree, uids), rounds=ROUND_TICKS)
        theirs = cpu_seconds(_plain(tree, uids), rounds=ROUND_TICKS)
    yield Row(
        figure=f"waits of Prod pods at 1 Hz, {PODS} pods, in files of tmpfs",
        value=ours * 100,
        unit="% of a core",
        target=REACH_PERCENT,
        baseline=f"open, read and close of three files of each of {MOST_A_TICK} pods, in plain Python",
        baseline_value=theirs * 100,
    )


def _agents(tree: Tree, uids: list[str]) -> Callable[[], None]:
    """A tick of the agent's."""
    layout = cgroups.detect(tree.root)
    assert layout is not None
    clock, descriptors, waits = ManualClock(), Descriptors(), Waits()

    def open_pod(uid: str) -> Cgroup:
        directories = layout.hierarchy.directories(tree.pod_path(uid))
        return Cgroup(Kind.POD, uid, directories, v2=True, descriptors=descriptors, monotonic=clock.monotonic)

    pods = {uid: TrackedCgroup(partial(open_pod, uid)) for uid in uids}
    for pod in pods.values():
        pod.look(clock.monotonic())
    waits.follow(pods)

    def tick() -> None:
        clock.advance(1.0)
        readings: Readings = {}
        waits.sample(clock.monotonic(), readings)

    return tick


def _plain(tree: Tree, uids: list[str]) -> Callable[[], None]:
    """A tick that reads files of as many pods, and takes a number from each."""
    names = ("cpu.stat", "cpu.pressure", "memory.pressure")
    pods = itertools.cycle([[tree.root / tree.pod_path(uid) / name for name in names] for uid in uids])

    def tick() -> None:
        for paths in itertools.islice(pods, MOST_A_TICK):
            for path in paths:
                int(_NUMBER.findall(path.read_bytes())[-1])

    return tick
