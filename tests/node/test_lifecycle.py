"""What a rollout keeps, what happens when the agent is gone, and what an uninstall leaves behind."""

import json

import pytest

from deploy.local.identities import RELEASE
from tests.node.conftest import LENDING_SECONDS
from tests.node.layout import NODE
from tests.node.pods import Pods
from tests.node.release import NAMESPACE, Release
from tests.support import eventually

pytestmark = pytest.mark.node_only("state is on the node, and pods come and go")

AGENT = f"daemonset/{RELEASE}-agent"
WHERE = f"--namespace={NAMESPACE}"
NOWHERE = '{"spec": {"template": {"spec": {"nodeSelector": {"none": "there"}}}}}'
STATE = "var/lib/headroom"


def _samples(release: Release) -> int:
    """Training steps of the model that answers."""
    return int(release.node_metric().get("status", {}).get("prediction", {}).get("samples", 0))


def test_a_rollout_of_the_agent_keeps_what_it_has_learnt(lending: Release) -> None:
    learnt = eventually(lambda: (found := _samples(lending)) >= 20 and found, LENDING_SECONDS, 1.0)
    (before,) = lending.pods("agent")
    lending.cluster.kubectl("rollout", "restart", AGENT, WHERE)
    lending.cluster.kubectl("rollout", "status", AGENT, WHERE, "--timeout=120s")
    (after,) = lending.pods("agent")
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    restarted_at = after["status"]["startTime"]
    eventually(lambda: lending.reported_at() > restarted_at, 120, 1.0)
    assert _samples(lending) >= learnt
    assert lending.mid_cpu() > 0


def test_without_its_agent_a_node_lends_nothing_after_the_degrade_time_and_again_with_it(lending: Release) -> None:
    eventually(lambda: lending.mid_cpu() > 0, LENDING_SECONDS, 1.0)
    lending.cluster.kubectl("patch", AGENT, WHERE, "--type=merge", f"--patch={NOWHERE}")
    try:
        eventually(lambda: not lending.pods("agent"), 60, 0.5)
        eventually(lambda: lending.mid_cpu() == 0, 60 + LENDING_SECONDS, 1.0)
        offered = [name for name in lending.allocatable() if name.startswith("kubernetes.io/")]
        assert not [name for name in offered if lending.allocatable()[name] != "0"]
    finally:
        back = '{"spec": {"template": {"spec": {"nodeSelector": {"none": null}}}}}'
        lending.cluster.kubectl("patch", AGENT, WHERE, "--type=merge", f"--patch={back}")
    eventually(lambda: lending.mid_cpu() > 0, LENDING_SECONDS, 1.0)


def _of_headroom(release: Release) -> set[str]:
    """Objects of the release, and what is on the Node by its hand."""
    kinds = "all,configmaps,secrets,leases,serviceaccounts,roles,rolebindings,poddisruptionbudgets"
    wide = "clusterroles,clusterrolebindings,crds,mutatingwebhookconfigurations,validatingwebhookconfigurations"
    found = release.cluster.kubectl("get", kinds, WHERE, "--output=name").split()
    found += release.cluster.kubectl("get", f"{wide},validatingadmissionpolicies", "--output=name").split()
    node = json.loads(release.cluster.kubectl("get", "node", NODE, "--output=json"))
    found += [f"condition {item['type']}" for item in node["status"]["conditions"]]
    found += [f"resource {name}" for part in ("capacity", "allocatable") for name in node["status"][part]]
    found += [f"annotation {name}" for name in node["metadata"].get("annotations", {})]
    words = ("headroom", "koordinator", "kubernetes.io/mid", "kubernetes.io/batch")
    return {line for line in found if any(word in line for word in words)}


def test_an_uninstall_leaves_nothing_but_what_was_learnt_and_a_new_release_goes_on_from_there(lending: Release) -> None:
    learnt = eventually(lambda: (found := _samples(lending)) >= 20 and found, LENDING_SECONDS, 1.0)
    try:
        lending.uninstall()
        assert _of_headroom(lending) == set()
        assert lending.cluster.inside("ls", f"/{STATE}").split()
    finally:
        lending.install()
    eventually(lambda: lending.mid_cpu() > 0, LENDING_SECONDS, 1.0)
    assert _samples(lending) >= learnt


def test_pods_that_hold_mid_run_on_through_all_of_it(lending: Release, pods: Pods) -> None:
    pod = pods.run("worker", tier="koord-mid", requests={"cpu": "50m", "memory": "16Mi"})
    lending.cluster.kubectl("rollout", "restart", AGENT, WHERE)
    lending.cluster.kubectl("rollout", "restart", f"deployment/{RELEASE}-manager", WHERE)
    for workload in (AGENT, f"deployment/{RELEASE}-manager"):
        lending.cluster.kubectl("rollout", "status", workload, WHERE, "--timeout=180s")
    after = pods.get("worker")
    assert after["status"]["phase"] == "Running"
    assert after["status"]["containerStatuses"] == pod["status"]["containerStatuses"]
