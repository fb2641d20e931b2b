"""The embedded API server for whoever needs one."""

import signal
from collections.abc import Iterator

import pytest

from tests.support.apiserver import ApiServer


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    server = ApiServer(tmp_path_factory.mktemp("apiserver"))
    yield server
    server.kill(signal.SIGTERM)


@pytest.fixture
def server(process: ApiServer) -> Iterator[ApiServer]:
    """One process for a module, without faults at the beginning of each test."""
    process.heal()
    yield process
    process.heal()
