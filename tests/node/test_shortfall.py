"""Mid shrinks below what a running pod holds of it: the pod runs on until the policy has it evicted."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.local.apiserver import patching
from shared import names
from tests.node.conftest import lend
from tests.node.layout import NODE
from tests.node.pods import Pods
from tests.node.release import Release, quick_values
from tests.support import eventually

pytestmark = pytest.mark.node_only("a kubelet that starts anew ends pods that do not fit")

HELD = 400  # milli-cores: less than is lent while there is a pod to lend it, and more than without


@pytest.fixture
def lender(lending: Release) -> Iterator[Release]:
    """The pod that Mid lives from may go, and the policy change, until the test ends."""
    yield lending
    lending.install()
    lend(lending)


@contextmanager
def _watched(release: Release, file: Path) -> Iterator[None]:
    """Each version of the Node from now on is a line of `file`, with what it offers of Mid."""
    path = r"{.status.allocatable.kubernetes\.io/mid-cpu}{'\n'}"
    command = [str(release.cluster.layout.assets / "kubectl"), "get", "node", NODE, "--watch"]
    command += [f"--kubeconfig={release.cluster.kubeconfig}", f"--output=jsonpath={path}"]
    with file.open("w") as output, subprocess.Popen(command, stdout=output) as process:
        try:
            yield
        finally:
            process.kill()


def test_a_mid_pod_outlives_mid_that_shrinks_and_a_kubelet_that_is_killed_and_goes_once_the_policy_says_so(
    lender: Release, pods: Pods, tmp_path: Path
) -> None:
    cluster, versions = lender.cluster, tmp_path / "versions"
    eventually(lambda: lender.mid_cpu() > HELD, 180, 1.0)
    before = pods.run("worker", tier="koord-mid", requests={"cpu": f"{HELD}m", "memory": "16Mi"})
    with _watched(lender, versions):
        eventually(versions.read_text)  # the first version is there
        cluster.kubectl("delete", "pod", "idle", "--now")  # of Prod: all that is lent is what it asks for and leaves
        short = names.CONDITION_MID_SHORTFALL
        eventually(lambda: lender.condition(short).get("status") == "True", 120, 0.5)
        cluster.kill("kubelet")
        lender.wait_for_heartbeats(3)
    shown = [int(line) for line in versions.read_text().splitlines() if line]
    assert min(shown) >= HELD
    assert lender.mid_cpu() == HELD
    after = pods.get("worker")
    assert after["status"]["phase"] == "Running"
    assert after["status"]["containerStatuses"] == before["status"]["containerStatuses"]

    evicting = {"colocationConfig": {"strategy": {"evictionAfterSeconds": 3}}}
    Release(cluster, patching.merge(quick_values(), evicting)).install()
    eventually(lambda: not pods.is_there("worker"), 120, 0.5)
    (said,) = eventually(lambda: lender.events("MidResourceEviction"))
    assert "short for" in said
    eventually(lambda: lender.mid_cpu() < HELD, 120, 0.5)
