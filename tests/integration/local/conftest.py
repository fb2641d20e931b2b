"""A machine whose kubelet is the test."""

import secrets
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deploy.local.kubelet import powers
from deploy.local.kubelet.containment import CgroupContainment, Containment, TreeContainment
from deploy.local.kubelet.fields import Host
from deploy.local.kubelet.records import Records
from deploy.local.kubelet.runner import Machine
from deploy.local.kubelet.sources import ApiSources, Sources
from deploy.local.kubelet.wire import RunnablePod
from shared.kube.client import Client
from shared.kube.config import Connection
from shared.quantity import Resources
from tests.integration.local.pods import Harness, a_pod
from tests.support import eventually

CGROUP_ROOT = Path("/sys/fs/cgroup")


@pytest.fixture(params=["cgroups", "trees"])
def held(request: pytest.FixtureRequest) -> Iterator[Containment]:
    if request.param == "trees":
        yield TreeContainment()
        return
    try:
        made = CgroupContainment(CGROUP_ROOT, f"headroom-test-{secrets.token_hex(4)}")
    except OSError as error:
        pytest.skip(f"no cgroups can be made here: {error}")
    yield made
    made.close()


@pytest.fixture
def sources() -> Sources:
    """An API server that nobody may need."""
    return ApiSources(Client(Connection("http://127.0.0.1:1"), "test").single_attempt())


@pytest.fixture
def machine(held: Containment, sources: Sources, tmp_path: Path) -> Iterator[Machine]:
    with ThreadPoolExecutor(4) as probing:
        yield Machine(
            root=tmp_path,
            records=Records(tmp_path / "pods"),
            containment=held,
            sources=sources,
            powers=powers.find_out(tmp_path),
            host=Host("127.0.0.1", Resources(4000, 8 << 30)),
            variables={},
            probing=probing,
        )


@pytest.fixture
def run(machine: Machine) -> Iterator[Callable[..., Harness]]:
    started: list[Harness] = []

    def begin(*command: str, pod: RunnablePod | None = None, policy: str = "Always") -> Harness:
        started.append(Harness(pod or a_pod(*command, policy=policy), machine))
        return started[-1]

    yield begin
    eventually(lambda: all(harness.runner.terminate(0, time.time()) for harness in started))
