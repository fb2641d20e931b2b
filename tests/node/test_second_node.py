"""What takes two nodes: where pods go, and that what befalls one node leaves the other alone."""

import json
import time
from collections.abc import Iterator

import pytest

from deploy.local.apiserver import patching
from deploy.local.identities import RELEASE
from shared import names
from tests.node.conftest import LENDING_SECONDS, idle
from tests.node.images import PROBE
from tests.node.layout import NODE, SECOND
from tests.node.pods import Pods
from tests.node.release import NAMESPACE, Release, quick_values
from tests.support import eventually

pytestmark = pytest.mark.node_only("kubelets are two")

AGENT = (f"daemonset/{RELEASE}-agent", f"--namespace={NAMESPACE}", "--type=merge")
# Of each Mid pod: two of them are less than what is lent, and one is more than the second node can lend while it runs
# nothing but the release.
MILLI = 100
LABELS = {"app": "workers"}


@pytest.fixture(scope="module")
def two(lending: Release) -> Release:
    """With an agent that reports on each."""
    lending.cluster.add_node()
    eventually(lambda: lending.node_metric(SECOND).get("status", {}).get("prediction"), 180, 1.0)
    return lending


@pytest.fixture
def workers(two: Release) -> Iterator[None]:
    """Two Mid pods, of which a budget lets one be away."""
    asked = {"cpu": f"{MILLI}m", "memory": "16Mi"}
    container = {"name": "main", "image": PROBE, "imagePullPolicy": "Never", "resources": {"requests": asked}}
    template = {
        "metadata": {"labels": LABELS | {names.LABEL_PRIORITY_CLASS: "koord-mid"}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    }
    selector = {"matchLabels": LABELS}
    objects = [
        ("apps/v1", "Deployment", {"replicas": 2, "selector": selector, "template": template}),
        ("policy/v1", "PodDisruptionBudget", {"minAvailable": 1, "selector": selector}),
    ]
    for version, kind, spec in objects:
        body = {"apiVersion": version, "kind": kind, "metadata": {"name": "workers"}, "spec": spec}
        two.cluster.kubectl("apply", "--filename=-", text=json.dumps(body))
    yield
    two.cluster.kubectl("delete", "deployment/workers", "pdb/workers", "--cascade=foreground", "--wait")


def _where(release: Release) -> list[str]:
    """The nodes of the Mid pods that are ready, and are not about to go."""
    found = release.cluster.kubectl("get", "pods", "--selector=app=workers", "--output=json")
    return sorted(
        pod["spec"]["nodeName"]
        for pod in json.loads(found)["items"]
        if "deletionTimestamp" not in pod["metadata"]
        and {"type": "Ready", "status": "True"}.items()
        <= next((each for each in pod["status"].get("conditions", ()) if each["type"] == "Ready"), {}).items()
    )


def test_each_node_has_its_agent_and_its_report(two: Release) -> None:
    assert {pod["spec"]["nodeName"] for pod in two.pods("agent")} == {NODE, SECOND}
    eventually(lambda: NAMESPACE in _reported(two, NODE) & _reported(two, SECOND), LENDING_SECONDS, 1.0)


def _reported(release: Release, node: str) -> set[str]:
    """The namespaces of the pods in a node's report, of which the first one may be made before any was sampled."""
    return {each["namespace"] for each in release.node_metric(node)["status"].get("podsMetric", ())}


def test_mid_pods_go_where_mid_is_and_move_by_their_budget_from_the_one_node_that_runs_short(
    two: Release, workers: None, pods: Pods
) -> None:
    eventually(lambda: _where(two) == [NODE, NODE], 180, 0.5)
    assert two.mid_cpu(SECOND) < MILLI
    pods.run("idle-2", node=SECOND, requests=idle(two))
    eventually(lambda: two.mid_cpu(SECOND) > 2 * MILLI, LENDING_SECONDS, 1.0)

    least = {"name": "least", "nodeSelector": {"matchLabels": {"kubernetes.io/hostname": NODE}}}
    strategy = {"evictionAfterSeconds": 3, "nodeConfigs": [least | {"midCPUThresholdPercent": 1}]}
    Release(two.cluster, patching.merge(quick_values(), {"colocationConfig": {"strategy": strategy}})).install()
    deadline, ready = time.monotonic() + 300, _where(two)
    while ready != [SECOND, SECOND] and time.monotonic() < deadline:
        time.sleep(0.2)
        ready = _where(two)
        assert ready, "the budget was not kept to"
    assert ready == [SECOND, SECOND]
    assert two.condition(names.CONDITION_MID_SHORTFALL, SECOND).get("status", "False") == "False"
    assert two.mid_cpu(SECOND) >= 2 * MILLI
    two.install()
    eventually(lambda: two.mid_cpu() > 2 * MILLI, LENDING_SECONDS, 1.0)


def test_a_node_without_agent_lends_nothing_after_the_degrade_time_and_the_other_goes_on(
    two: Release, pods: Pods
) -> None:
    pods.run("idle-2", node=SECOND, requests=idle(two))
    eventually(lambda: two.mid_cpu(SECOND) > 0 and two.mid_cpu() > 0, LENDING_SECONDS, 1.0)
    _select(two, NODE)
    try:
        eventually(lambda: len(two.pods("agent")) == 1, 60, 0.5)
        eventually(lambda: not _offers(two, SECOND), 60 + LENDING_SECONDS, 1.0)
        assert _offers(two, NODE)
    finally:
        _select(two, None)
    eventually(lambda: two.mid_cpu(SECOND) > 0, LENDING_SECONDS, 1.0)


def _offers(release: Release, node: str) -> set[str]:
    """What there is of Mid and Batch."""
    offered = release.allocatable(node)
    return {name for name in offered if name.startswith("kubernetes.io/") and offered[name] != "0"}


def _select(release: Release, node: str | None) -> None:
    """Lets agents run on this node alone, or on all."""
    selector = {"nodeSelector": {"kubernetes.io/hostname": node}}
    patch = {"spec": {"template": {"spec": selector}}}
    release.cluster.kubectl("patch", *AGENT, f"--patch={json.dumps(patch)}")
