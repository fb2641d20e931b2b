"""A machine whose kubelet is the test."""

import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deploy.local.kubelet.containment import CgroupContainment, Containment
from deploy.local.kubelet.runner import KubeletHost
from deploy.local.kubelet.wire import RunnablePod
from tests.integration.local.pods import Harness, a_pod
from tests.support import eventually

CGROUP_ROOT = Path("/sys/fs/cgroup")


@pytest.fixture(params=["cgroups", "trees"])
def held(request: pytest.FixtureRequest) -> Iterator[Containment]:
    if request.param == "trees":
        yield Containment()
        return
    try:
        made = CgroupContainment(CGROUP_ROOT, f"headroom-test-{secrets.token_hex(4)}")
    except OSError as error:
        pytest.skip(f"no cgroups can be made here: {error}")
    yield made
    made.close()


@pytest.fixture
def machine(held: Containment, tmp_path: Path) -> KubeletHost:
    return KubeletHost(tmp_path, held, "127.0.0.1")


@pytest.fixture
def run(machine: KubeletHost) -> Iterator[Callable[..., Harness]]:
    started: list[Harness] = []

    def begin(*command: str, pod: RunnablePod | None = None, policy: str = "Always") -> Harness:
        started.append(Harness(pod or a_pod(*command, policy=policy), machine))
        return started[-1]

    yield begin
    eventually(lambda: all(harness.runner.terminate(0, time.time()) for harness in started))
