"""What a rollout keeps."""

import pytest

from deploy.local.identities import RELEASE
from tests.node.conftest import LENDING_SECONDS
from tests.node.pods import Pods
from tests.node.release import NAMESPACE, Release
from tests.support import eventually

pytestmark = pytest.mark.node_only("state is on the node, and pods come and go")

AGENT = f"daemonset/{RELEASE}-agent"
WHERE = f"--namespace={NAMESPACE}"


def test_a_rollout_of_the_agent_keeps_what_it_has_learnt(lending: Release) -> None:
    learnt = eventually(lambda: (found := lending.samples()) >= 10 and found, LENDING_SECONDS, 1.0)
    (before,) = lending.pods("agent")
    lending.cluster.kubectl("rollout", "restart", AGENT, WHERE)
    lending.cluster.kubectl("rollout", "status", AGENT, WHERE, "--timeout=120s")
    (after,) = lending.pods("agent")
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    restarted_at = after["status"]["startTime"]
    eventually(lambda: lending.reported_at() > restarted_at, 120, 1.0)
    assert lending.samples() >= learnt
    assert lending.mid_cpu() > 0


def test_pods_that_hold_mid_run_on_through_all_of_it(lending: Release, pods: Pods) -> None:
    pod = pods.run("worker", tier="koord-mid", requests={"cpu": "50m", "memory": "16Mi"})
    lending.cluster.kubectl("rollout", "restart", AGENT, WHERE)
    lending.cluster.kubectl("rollout", "restart", f"deployment/{RELEASE}-manager", WHERE)
    for workload in (AGENT, f"deployment/{RELEASE}-manager"):
        lending.cluster.kubectl("rollout", "status", workload, WHERE, "--timeout=180s")
    after = pods.get("worker")
    assert after["status"]["phase"] == "Running"
    assert after["status"]["containerStatuses"] == pod["status"]["containerStatuses"]
