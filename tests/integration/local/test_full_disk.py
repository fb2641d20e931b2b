"""An API server whose disk is full answers, and stores nothing: whoever looks at the cluster is told."""

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.freshness import WriteProbe
from shared import names
from shared.clock import ManualClock
from shared.kube.resources import NAMESPACES
from tests.support.apiserver import EmbeddedApiServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedApiServer]:
    made = EmbeddedApiServer(tmp_path)
    yield made
    made.close()


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="another process's limits can be set on Linux only")
def test_a_store_that_cannot_be_written_is_said_and_so_is_its_end(server: EmbeddedApiServer) -> None:
    client, clock = server.client(), ManualClock(1_700_000_000.0)
    client.create(NAMESPACES, {"metadata": {"name": names.INSTALL_NAMESPACE}})
    probe = WriteProbe(client, clock)
    assert probe.problem() == ""

    pid = server._processes["apiserver"].pid
    limits = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, limits[1]))  # no file grows any more
    clock.advance(10.0)
    assert "the store refused the write" in probe.problem()
    client.list(NAMESPACES)  # what was stored is still told

    resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)
    assert probe.problem(), "it is not asked for more often than now and then"
    clock.advance(10.0)
    assert probe.problem() == ""
