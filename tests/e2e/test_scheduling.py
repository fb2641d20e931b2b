"""Whoever places the pods of a local cluster asks the manager where they should not go."""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from manager.autoscaler.cloudprovider.simulated import fake_nodes
from shared.kube.resources import EVENTS, NODES, PODS
from tests.e2e.conftest import RunningCluster, pods_run
from tests.support import eventually
from tests.support.local_http import LOCAL_HTTP

ANSWERED = 'headroom_manager_extender_requests_total{code="200",verb="filter"}'


def answered(cluster: RunningCluster) -> bool:
    """Whether the manager was asked about a pod, and had an answer."""
    try:
        lines = LOCAL_HTTP.get(f"{cluster.manager_url}/metrics", timeout=5).text.splitlines()
    except httpx.HTTPError:
        return False
    return any(line.startswith(ANSWERED) for line in lines)


def place_a_pod(cluster: RunningCluster) -> None:
    """Returns once it is on a node, and the manager was asked about it."""
    container = {"name": "main", "image": "example.com/image:1", "command": ["sleep", "600"]}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "asked-about"}, "spec": spec}
    eventually(lambda: cluster.nodes() and cluster.pod("steady"), 60, 0.2)
    cluster.client.create(PODS, body, "default")
    eventually(lambda: (cluster.pod("asked-about") or {}).get("spec", {}).get("nodeName"))
    eventually(lambda: answered(cluster))
    cluster.client.delete(PODS, "asked-about", "default")


def test_the_embedded_scheduler_asks_the_manager(cluster: RunningCluster) -> None:
    place_a_pod(cluster)


@pytest.mark.real_only("kube-scheduler comes with a real control plane")
def test_kube_scheduler_places_the_pods_where_it_is_asked_to_and_asks_the_manager(
    start: Callable[..., RunningCluster], tmp_path: Path
) -> None:
    running = start(tmp_path, "--nodes", "0", "--scheduler", "kube-scheduler")
    pods_run(running)
    events = running.client.list(EVENTS, "default", field_selector="reason=Scheduled").items
    assert {event["reportingComponent"] for event in events} == {"default-scheduler"}
    assert not any(event.get("firstTimestamp") for event in events), "ours writes the events of the core group"
    place_a_pod(running)


def test_without_a_cloud_nothing_is_bought_and_nobody_asks_for_it(cluster: RunningCluster) -> None:
    assert not cluster.client.list(NODES, label_selector=f"{fake_nodes.LABEL_CLOUD}={fake_nodes.CLOUD}").items
    assert cluster.pod("report-0") is None
