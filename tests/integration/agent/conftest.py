"""Real cgroups with real processes in them."""

import functools
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from agent.main import Agent
from agent.metrics_advisor import cgroups
from agent.metrics_advisor.cgroups import Driver, Layout
from agent.metrics_advisor.processes import POD_UID_VARIABLE
from agent.reporter import reporter
from agent.settings import AgentSettings
from shared.clock import SystemClock
from shared.names import KubeQoS
from tests.integration.agent.node import Node, Steady
from tests.support import eventually
from tests.support.apiserver import ApiServer

CGROUP_ROOT = Path("/sys/fs/cgroup")
CONTROLLERS = ("cpu", "memory")
DELEGATED = " ".join(f"+{controller}" for controller in CONTROLLERS)

BURN = """
import time
while True:
    end = time.perf_counter() + 0.02
    while time.perf_counter() < end: pass
    time.sleep(0.02)
"""


class PodGroup:
    """One pod's cgroups, or only its environment, and the processes in them."""

    def __init__(self, uid: str, directories: list[Path]) -> None:
        self.uid = uid
        self._directories = list(dict.fromkeys(directories))  # v2 has one tree for all controllers
        self._processes: list[subprocess.Popen[bytes]] = []
        for directory in self._directories:
            directory.mkdir(parents=True)
            _delegate(directory)

    def run(self, code: str) -> subprocess.Popen[bytes]:
        """A Python process that is in the group before its first line runs."""

        def join() -> None:
            for directory in self._directories:
                (directory / "cgroup.procs").write_text(str(os.getpid()))

        process = subprocess.Popen(
            [sys.executable, "-c", code],
            env=os.environ | {POD_UID_VARIABLE: self.uid},
            preexec_fn=join,  # the only way into a v1 cgroup before the first allocation
        )
        self._processes.append(process)
        return process

    def remove(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait(10)
        self._processes.clear()
        for directory in self._directories:
            eventually(functools.partial(is_removed, directory))


def _delegate(directory: Path) -> None:
    """On v2 a cgroup has the controllers that each one above it passes on."""
    for above in reversed(directory.relative_to(CGROUP_ROOT).parents):
        control = CGROUP_ROOT / above / "cgroup.subtree_control"
        if control.exists():
            control.write_text(DELEGATED)


def is_delegated() -> bool:
    """Whether the machine's tree passes the controllers on, which is not a test's to change."""
    passed = (CGROUP_ROOT / "cgroup.subtree_control").read_text().split()
    return set(CONTROLLERS) <= set(passed)


def is_removed(directory: Path) -> bool:
    """The kernel takes a moment to let go of the dead."""
    try:
        directory.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


class Machine:
    """A kubepods tree of this test's own."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._groups: list[PodGroup] = []

    def pod(self, uid: str, qos: KubeQoS = KubeQoS.BURSTABLE) -> PodGroup:
        return self.add(PodGroup(uid, [self.layout.pod_dir(controller, qos, uid) for controller in CONTROLLERS]))

    def container(self, uid: str, container_id: str, qos: KubeQoS = KubeQoS.BURSTABLE) -> PodGroup:
        """A container of a pod that was made before."""
        named = f"containerd://{container_id}"
        return self.add(PodGroup(uid, [self.layout.container_dir(one, qos, uid, named) for one in CONTROLLERS]))

    def add(self, group: PodGroup) -> PodGroup:
        self._groups.append(group)
        return group

    def close(self) -> None:
        for group in reversed(self._groups):
            group.remove()
        for controller in CONTROLLERS:
            top = self.layout.hierarchy.roots[controller] / self.layout.parent
            for directory, _, _ in os.walk(top, topdown=False):
                os.rmdir(directory)


@pytest.fixture(params=list(Driver))
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    hierarchy = cgroups.hierarchy(CGROUP_ROOT)
    if hierarchy is None or not all(os.access(root, os.W_OK) for root in hierarchy.roots.values()):
        pytest.skip("cgroups are not writable here")
    if hierarchy.v2 and not is_delegated():
        pytest.skip("the root of the cgroup tree does not delegate cpu and memory")
    made = Machine(Layout(hierarchy, request.param, f"headroom-test-{uuid.uuid4().hex[:8]}"))
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def node(server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    """Its agents look ten times a second whether there is something to report, and lend by a sum done by hand."""
    monkeypatch.setattr(reporter, "LOOK_SECONDS", 0.1)
    agents: list[Agent] = []

    def start(of: Node, **changes: Any) -> Agent:
        settings = AgentSettings(
            node_name=of.name,
            listen="127.0.0.1:0",
            state_dir=str(of.state_dir),
            predictor="n-sigma-v2",
            cold_start_seconds=0.0,
            histogram_update_interval_seconds=1.0,
            check_prediction_interval_seconds=1.0,
            checkpoint_interval_seconds=1.0,
        )
        settings = msgspec.structs.replace(settings, **changes)
        client = server.client(server.agent_connection(of.name))
        agent = Agent(settings, client, Steady(), SystemClock(), CollectorRegistry())
        agent.start()
        agents.append(agent)
        return agent

    yield Node(server.client(), tmp_path, start)
    for agent in agents:
        agent.close()
