"""Mid shrinks below what a running pod holds of it: the pod runs on until the policy has it evicted. And what a pod
requests that was bound without a scheduler is never offered.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.local.apiserver import patching
from shared import names, quantity
from tests.node.conftest import lend, lent_milli
from tests.node.layout import NODE
from tests.node.pods import Pods
from tests.node.release import Release, quick_values
from tests.support import eventually

pytestmark = pytest.mark.node_only("a kubelet that starts anew ends pods that do not fit")

WORLD = {names.MID_CPU: "1000000", names.MID_MEMORY: "1Ti"}
HELD_SHARE = 0.8  # of what is lent at least while there is a pod to lend it: more than without


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
    held = int(lent_milli(lender) * HELD_SHARE)
    eventually(lambda: lender.mid_cpu() > held, 180, 1.0)
    before = pods.run("worker", tier="koord-mid", requests={"cpu": f"{held}m", "memory": "16Mi"})
    with _watched(lender, versions):
        eventually(versions.read_text)  # the first version is there
        cluster.kubectl("delete", "pod", "idle", "--now")  # of Prod: all that is lent is what it asks for and leaves
        short = names.CONDITION_MID_SHORTFALL
        eventually(lambda: lender.condition(short).get("status") == "True", 120, 0.5)
        cluster.kill("kubelet")
        lender.wait_for_heartbeats(3)
    shown = [quantity.whole(line) for line in versions.read_text().splitlines() if line]  # a kubelet writes "2k"
    assert min(shown) >= held
    assert lender.mid_cpu() == held
    after = pods.get("worker")
    assert after["status"]["phase"] == "Running"
    assert after["status"]["containerStatuses"] == before["status"]["containerStatuses"]

    evicting = {"colocationConfig": {"strategy": {"evictionAfterSeconds": 3}}}
    Release(cluster, patching.merge(quick_values(), evicting)).install()
    eventually(lambda: not pods.is_there("worker"), 120, 0.5)
    (said,) = eventually(lambda: lender.events("MidResourceEviction"))
    assert "short for" in said
    eventually(lambda: lender.mid_cpu() < held, 120, 0.5)


def test_a_pod_that_a_tenant_binds_itself_raises_no_offer_and_a_kubelet_that_restarts_refuses_it(
    lending: Release, pods: Pods, tmp_path: Path
) -> None:
    cluster, versions = lending.cluster, tmp_path / "versions"
    before = pods.run("worker", tier="koord-mid", requests={"cpu": "50m", "memory": "16Mi"})
    allocatable = quantity.milli(lending.allocatable()["cpu"])  # which Mid never exceeds by formula
    with _watched(lending, versions):
        eventually(versions.read_text)
        cluster.hold("kubelet")
        try:
            cluster.kill("kubelet")
            pods.create("thief", bound=NODE, requests=WORLD, limits=WORLD)
            short = names.CONDITION_MID_SHORTFALL
            said = eventually(lambda: lending.condition(short), 60, 0.2)
            assert (said["status"], said["reason"]) == ("True", "BeyondOffer")
            assert "default/thief (cpu 1000" in said["message"]
            assert said["message"] in eventually(lambda: lending.events("MidResourceShort"))
            lending.wait_for_report()  # and decided on, with the pod still there
        finally:
            cluster.release("kubelet")
        eventually(lambda: pods.get("thief")["status"]["phase"] == "Failed", 120, 0.5)
        # It lacks both, and a kubelet names whichever it looks at first.
        assert pods.get("thief")["status"]["reason"] in (f"OutOf{names.MID_CPU}", f"OutOf{names.MID_MEMORY}")
        lending.wait_for_heartbeats(3)
    shown = [quantity.whole(line) for line in versions.read_text().splitlines() if line]  # a kubelet writes "2k"
    assert 50 <= min(shown) <= max(shown) <= allocatable
    after = pods.get("worker")
    assert after["status"]["phase"] == "Running"
    assert after["status"]["containerStatuses"] == before["status"]["containerStatuses"]
    eventually(lambda: lending.condition(short)["status"] == "False", 120, 0.5)
