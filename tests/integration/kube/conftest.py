import pytest

from shared.kube.client import Client
from tests.support.apiserver import ApiServer
from tests.unit.kube.conftest import start

__all__ = ["start"]  # a fixture, shared with the unit tests


@pytest.fixture
def client(server: ApiServer) -> Client:
    return server.client()


@pytest.fixture
def namespace(server: ApiServer) -> str:
    """A namespace of the test's own."""
    return server.add_namespace()
