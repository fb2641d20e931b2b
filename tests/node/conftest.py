"""The cluster with a real node, one for all tests, and the chart on it."""

import os
from collections.abc import Generator, Iterator
from contextlib import suppress

import pytest

from shared import quantity
from tests.node.cluster import Failed, NodeCluster, Parts
from tests.node.layout import NODE, Kind
from tests.node.pods import Pods
from tests.node.release import Release, quick_values
from tests.node.starting import started
from tests.support import eventually

LENDING_SECONDS = 300.0
IDLE_SHARE, LENT_SHARE = 0.7, 0.25  # of the node, requested by who does nothing, and lent then
RELEASE_MILLI = 200  # some of what the release requests, for which there has to be room


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Function) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure comes with what the cluster says of nodes and pods just then."""
    report = yield
    cluster = item.funcargs.get("cluster")
    if report.failed and isinstance(cluster, NodeCluster):
        with suppress(Failed):  # the API server may be what failed
            report.sections.append(("cluster", cluster.state()))
    return report


@pytest.fixture(scope="session")
def kind(request: pytest.FixtureRequest) -> Kind:
    """Of all nodes of this run."""
    return Kind(request.config.getoption("--node"))


@pytest.fixture(scope="session")
def cluster(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeCluster]:
    running = started(Parts(os.environ, kind), tmp_path_factory.mktemp("node"))
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


def idle(release: Release) -> dict[str, str]:
    """What Mid lives from: the requests of a pod that asks for most of a node, and does nothing. What all of the
    machine uses of memory is the node's, too.
    """
    capacity = release.capacity()
    milli = int(quantity.milli(capacity["cpu"]) * IDLE_SHARE) - RELEASE_MILLI
    return {"cpu": f"{milli}m", "memory": f"{int(quantity.whole(capacity['memory']) * 0.6) >> 20}Mi"}


def lent_milli(release: Release) -> int:
    """More than this is lent of CPU while who does nothing is there."""
    return int(quantity.milli(release.capacity()["cpu"]) * LENT_SHARE)


def lend(release: Release) -> None:
    """Runs what Mid lives from, of the class that gives the others no weight, and returns once it is lent."""
    asked = idle(release)
    Pods(release.cluster).run("idle", node=NODE, requests=asked, limits=asked)
    enough = lent_milli(release)
    eventually(lambda: release.mid_cpu() > enough, LENDING_SECONDS, 1.0)


@pytest.fixture
def pods(cluster: NodeCluster) -> Iterator[Pods]:
    """Gone after the test."""
    made = Pods(cluster)
    yield made
    made.delete()
