import uuid

import pytest

from shared.kube.client import Client
from shared.kube.resources import NAMESPACES
from tests.support.apiserver import ApiServer
from tests.unit.kube.conftest import start

__all__ = ["start"]  # a fixture, shared with the unit tests


@pytest.fixture
def client(server: ApiServer) -> Client:
    return server.client()


@pytest.fixture
def namespace(client: Client) -> str:
    """A namespace of the test's own."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name
