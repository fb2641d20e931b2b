"""The API server of the suite: one process for all, which begins each test without faults."""

import contextlib
from collections.abc import Iterator

import pytest

from shared import names
from shared.kube.errors import AlreadyExists, NotFound
from shared.kube.resources import CONFIGMAPS, EVENTS, LEASES, NAMESPACES
from tests.support.apiserver import ApiServer, started


@pytest.fixture(scope="session")
def process(cluster_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    server = started(cluster_kind, tmp_path_factory.mktemp("apiserver"))
    yield server
    server.close()


@pytest.fixture
def server(process: ApiServer) -> Iterator[ApiServer]:
    process.heal()
    yield process
    process.heal()


@pytest.fixture
def install_namespace(server: ApiServer) -> Iterator[str]:
    """Where the product is installed, empty of what it leaves there: nowhere else may a manager work."""
    client = server.client()
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names.INSTALL_NAMESPACE}}
    with contextlib.suppress(AlreadyExists):
        client.create(NAMESPACES, body)
    yield names.INSTALL_NAMESPACE
    for resource in (CONFIGMAPS, EVENTS, LEASES):
        for item in client.list(resource, names.INSTALL_NAMESPACE).items:
            with contextlib.suppress(NotFound):
                client.delete(resource, item["metadata"]["name"], names.INSTALL_NAMESPACE)
