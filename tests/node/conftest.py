"""The cluster with a real node, one for all tests, and the chart on it."""

import os
from collections.abc import Iterator

import psutil
import pytest

from tests.node.cluster import NodeCluster, Parts
from tests.node.layout import NODE
from tests.node.pods import Pods
from tests.node.release import Release, quick_values
from tests.support import eventually

LENDING_SECONDS = 300.0
# What Mid lives from: a pod that asks for most of the node, and does nothing. What all of the machine uses of memory is
# the node's, too.
IDLE = {"cpu": "1200m", "memory": f"{psutil.virtual_memory().total * 3 // 5 >> 20}Mi"}


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeCluster]:
    running = NodeCluster(Parts(os.environ), tmp_path_factory.mktemp("node"))
    yield running
    running.close()


@pytest.fixture(scope="session")
def installed(cluster: NodeCluster) -> Release:
    release = Release(cluster, quick_values())
    release.install()
    return release


@pytest.fixture(scope="session")
def lending(installed: Release) -> Release:
    """The node has something to lend."""
    lend(installed)
    return installed


def lend(release: Release) -> None:
    """Runs what Mid lives from, and returns once it is lent."""
    Pods(release.cluster).run("idle", node=NODE, requests=IDLE)
    eventually(lambda: release.mid_cpu() > 500, LENDING_SECONDS, 1.0)


@pytest.fixture
def pods(cluster: NodeCluster) -> Iterator[Pods]:
    """Gone after the test."""
    made = Pods(cluster)
    yield made
    made.delete()
