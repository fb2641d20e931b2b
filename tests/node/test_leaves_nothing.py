"""A cluster whose owner is killed ends, and leaves neither processes nor cgroups nor files."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.node import cgroups, keeper
from tests.node.images import ROOT
from tests.node.layout import Kind
from tests.support import eventually

pytestmark = pytest.mark.node_only("it is about the namespaces of the node")

START_SECONDS = 120.0
OWNER = """
import os, sys, time
from pathlib import Path
from tests.node.cluster import NodeCluster, Parts
from tests.node.layout import Kind
print(NodeCluster(Parts(os.environ, Kind(sys.argv[2])), Path(sys.argv[1])).name, flush=True)
time.sleep(600)
"""


@pytest.fixture
def owner(kind: Kind, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has started a cluster, of whose name the first line of its output is."""
    command = [sys.executable, "-c", OWNER, str(tmp_path), kind]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def _named(owner: subprocess.Popen[str]) -> str:
    assert owner.stdout is not None
    return owner.stdout.readline().strip()


def _processes(kind: Kind, name: str) -> list[str]:
    """Of the cluster but for its keeper: control plane and kernel have files of the cluster's on their command line."""
    if kind is Kind.V1:
        return (cgroups.ROOT / "pids" / name / "cgroup.procs").read_text().split()
    return [str(process.pid) for process in psutil.process_iter() if _is_of(process, name)]


def _is_of(process: psutil.Process, name: str) -> bool:
    try:
        return any(name in word for word in process.cmdline())
    except psutil.Error:
        return False


def test_nothing_is_left_of_a_cluster_whose_owner_was_killed(kind: Kind, owner: subprocess.Popen[str]) -> None:
    name = _named(owner)
    assert _processes(kind, name)
    owner.kill()
    eventually(lambda: name not in cgroups.left_behind() and not keeper.folder(name).exists(), 60, 0.2)
    assert kind is Kind.V1 or not _processes(kind, name)


def test_a_keeper_that_was_killed_takes_the_cluster_along_and_the_next_one_clears_up(
    kind: Kind, owner: subprocess.Popen[str]
) -> None:
    name = _named(owner)
    (child,) = psutil.Process(owner.pid).children()
    os.kill(child.pid, signal.SIGKILL)
    eventually(lambda: not _processes(kind, name), 60, 0.2)
    assert keeper.folder(name).exists()
    assert kind is not Kind.V1 or name in cgroups.left_behind()
    owner.kill()
    owner.wait()
    keeper.clear_dead()
    assert name not in cgroups.left_behind()
    assert not keeper.folder(name).exists()
