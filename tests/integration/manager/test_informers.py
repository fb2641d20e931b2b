"""The one cache of Nodes and Pods that both sides of the manager read."""

from collections.abc import Callable, Iterator

import pytest
from prometheus_client import CollectorRegistry

from manager.informers import SharedInformers
from shared.kube.resources import NODES, PODS
from shared.telemetry import Loops
from tests.integration.manager.conftest import Cluster
from tests.support import eventually

NODE = "node-of-informers"


@pytest.fixture
def follow(cluster: Cluster) -> Iterator[Callable[[bool], SharedInformers]]:
    """Starts the informers of a manager with or without an autoscaler on a node with one pod; waits for both."""
    loops = Loops(CollectorRegistry())
    ours, others = {"headroom.io/a": "ours"}, {"example.com/machine": "big"}
    cluster.add_node(NODE, lends=None, annotations={**ours, **others})
    containers = [{"name": "c", "image": "none", "resources": {"requests": {"cpu": "250m"}}}]
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    cluster.client.create(PODS, {**body, "spec": {"nodeName": NODE, "containers": containers}}, cluster.namespace)

    def start(with_autoscaler: bool) -> SharedInformers:
        informers = SharedInformers(cluster.client, with_autoscaler=with_autoscaler)
        informers.start(loops)
        eventually(lambda: informers.nodes.get(NODE) and informers.pods.get(f"{cluster.namespace}/p"))
        return informers

    yield start
    loops.close()
    cluster.client.delete(PODS, "p", cluster.namespace, grace_period_seconds=0)
    cluster.client.delete(NODES, NODE)


@pytest.mark.parametrize("with_autoscaler", [False, True])
def test_what_only_an_autoscaler_reads_is_held_only_where_there_is_one(
    cluster: Cluster, follow: Callable[[bool], SharedInformers], with_autoscaler: bool
) -> None:
    informers = follow(with_autoscaler)
    node, pod = informers.nodes.get(NODE), informers.pods.get(f"{cluster.namespace}/p")
    assert node is not None
    assert pod is not None
    assert node.metadata.annotation("headroom.io/a") == "ours"
    assert (node.metadata.annotation("example.com/machine") == "big") is with_autoscaler
    assert (pod.record.node, pod.record.requests.cpu_milli) == (NODE, 250)
    assert (pod.wire is not None) is with_autoscaler
    if pod.wire is not None:
        assert pod.wire.spec.containers[0].resources.requests == {"cpu": "250m"}
