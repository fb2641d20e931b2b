"""Helm, and the API server the chart is installed on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.control_plane import MissingBinary, binary
from tests.chart.helm import Helm
from tests.support.apiserver import REAL, ApiServer, RealApiServer, started


def program(name: str, cluster_kind: str) -> Path:
    """A tool of this suite: without it there is nothing to test, which is a failure where it was asked for."""
    try:
        return binary(name)
    except MissingBinary as error:
        if cluster_kind == REAL:
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def helm(cluster_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Without a cluster."""
    return Helm(program("helm", cluster_kind), tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="module")
def server(cluster_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """The API server that --cluster names; on a real one the chart is installed, without pods."""
    server = started(cluster_kind, tmp_path_factory.mktemp("apiserver"))
    yield server
    server.close()


@pytest.fixture(scope="module")
def real(request: pytest.FixtureRequest, cluster_kind: str) -> RealApiServer:
    """A real one: what it decides (access rights, admission policies) the embedded one does not."""
    if cluster_kind != REAL:
        pytest.skip("needs a real kube-apiserver: --cluster apiserver")
    server = request.getfixturevalue("server")
    assert isinstance(server, RealApiServer)
    return server
