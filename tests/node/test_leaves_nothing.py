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
from tests.support import eventually

pytestmark = pytest.mark.node_only("it is about the namespaces of the node")

START_SECONDS = 120.0
OWNER = """
import os, sys, time
from pathlib import Path
from tests.node.cluster import NodeCluster, Parts
print(NodeCluster(Parts(os.environ), Path(sys.argv[1])).name, flush=True)
time.sleep(600)
"""


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has started a cluster, of whose name the first line of its output is."""
    command = [sys.executable, "-c", OWNER, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def _named(owner: subprocess.Popen[str]) -> str:
    assert owner.stdout is not None
    return owner.stdout.readline().strip()


def _processes(name: str) -> list[str]:
    return (cgroups.ROOT / "pids" / name / "cgroup.procs").read_text().split()


def test_nothing_is_left_of_a_cluster_whose_owner_was_killed(owner: subprocess.Popen[str]) -> None:
    name = _named(owner)
    assert _processes(name)
    owner.kill()
    eventually(lambda: name not in cgroups.left_behind() and not keeper.folder(name).exists(), 60, 0.2)


def test_a_keeper_that_was_killed_takes_the_cluster_along_and_the_next_one_clears_up(
    owner: subprocess.Popen[str],
) -> None:
    name = _named(owner)
    (child,) = psutil.Process(owner.pid).children()
    os.kill(child.pid, signal.SIGKILL)
    eventually(lambda: not _processes(name), 60, 0.2)
    assert name in cgroups.left_behind()
    owner.kill()
    owner.wait()
    keeper.clear_dead()
    assert name not in cgroups.left_behind()
    assert not keeper.folder(name).exists()
