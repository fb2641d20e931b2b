"""An API server whose disk is full answers, and stores nothing."""

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.kube.errors import ApiError
from shared.kube.resources import NAMESPACES
from tests.support.apiserver import EmbeddedApiServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedApiServer]:
    made = EmbeddedApiServer(tmp_path)
    yield made
    made.close()


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="another process's limits can be set on Linux only")
def test_a_store_that_cannot_be_written_refuses_writes_and_answers_reads(server: EmbeddedApiServer) -> None:
    client = server.client().single_attempt()
    client.create(NAMESPACES, {"metadata": {"name": "before"}})
    pid = server._processes["apiserver"].pid
    limits = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, limits[1]))  # no file grows any more
    with pytest.raises(ApiError, match="the store refused the write"):
        client.create(NAMESPACES, {"metadata": {"name": "meanwhile"}})
    assert client.get(NAMESPACES, "before")["metadata"]["name"] == "before"

    resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)
    client.create(NAMESPACES, {"metadata": {"name": "after"}})
