"""`headroom up` buys nodes from its simulated cloud, and says so."""

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import yaml

from manager.autoscaler.cloudprovider.simulated import fake_nodes
from shared.api.core import Node
from shared.kube.resources import NODES, PODS
from tests.e2e.conftest import RunningCluster
from tests.e2e.town import own_taints
from tests.support import eventually

ours = pytest.mark.own_decision("the autoscaler decides, whichever API server has pods and nodes")

BOUGHT_SECONDS = 180.0

Start = Callable[..., RunningCluster]


def bought(cluster: RunningCluster) -> dict[str, Node]:
    """Nodes of the cloud by name."""
    selector = f"{fake_nodes.LABEL_CLOUD}={fake_nodes.CLOUD}"
    nodes = cluster.client.list(NODES, into=Node, label_selector=selector).items
    return {node.metadata.name: node for node in nodes}


def placed(cluster: RunningCluster, counts: Mapping[str, int]) -> dict[str, str]:
    """Where the pods of these apps run, once so many of each do."""

    def look() -> dict[str, str]:
        pods = [
            pod
            for pod in (cluster.client.list(PODS, "default").items if cluster.serves() else [])
            if pod.get("status", {}).get("phase") == "Running"
        ]
        running = Counter(pod["metadata"].get("labels", {}).get("app") for pod in pods)
        if any(running[app] < count for app, count in counts.items()):
            return {}
        pods = [pod for pod in pods if pod["metadata"].get("labels", {}).get("app") in counts]
        return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods}

    return eventually(look, BOUGHT_SECONDS, 0.2)


@pytest.mark.thorough
def test_the_sample_pods_that_fit_nowhere_get_nodes_within_seconds(start: Start, tmp_path: Path) -> None:
    cluster = start(tmp_path, "--nodes", "0")
    on = placed(cluster, {"checkout": 3, "report": 1})
    assert len(on) == 4
    nodes = bought(cluster)
    assert set(on.values()) == set(nodes), "each node that was bought is used"
    apart = nodes[on["report-0"]]
    assert (apart.metadata.labels or {})["dedicated"] == "analytics"
    assert [(taint.key, taint.value) for taint in own_taints(apart)] == [("dedicated", "analytics")]
    assert (apart.metadata.annotation(fake_nodes.ANNOTATION_GROUP) or "").startswith("nodeautoprovisioning-")
    # They are in the table, and watched like any others.
    eventually(lambda: nodes.keys() <= {name for name, row in cluster.nodes().items() if row["used"]})
    groups = {str(node.metadata.annotation(fake_nodes.ANNOTATION_GROUP)) for node in nodes.values()}

    def said() -> set[str]:
        lines = [line for line in cluster.errors.read_text().splitlines() if "Scale-up" in line]
        return {word for line in lines for word in line.split()}

    eventually(lambda: said() >= groups)


@ours
@pytest.mark.thorough
def test_a_cloud_of_ones_own_is_bought_from_and_what_was_bought_stays(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "own", "machine_type": "n1-standard-4", "max": 1}]}))
    cluster = start(tmp_path, "--nodes", "0", "--cloud", str(file))
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "3"}}}
    spec = {"containers": [container], "nodeSelector": {fake_nodes.LABEL_CLOUD: fake_nodes.CLOUD}}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "own", "labels": {"app": "own"}}, "spec": spec}
    eventually(lambda: cluster.nodes() and cluster.pod("steady"), BOUGHT_SECONDS, 0.2)
    cluster.client.create(PODS, body, "default")
    (node,) = placed(cluster, {"own": 1}).values()
    assert bought(cluster)[node].metadata.annotation(fake_nodes.ANNOTATION_GROUP) == "own"
    assert cluster.stop() == 0

    again = start(tmp_path, "--nodes", "0", "--cloud", str(file))
    assert list(placed(again, {"own": 1}).values()) == [node]
    assert set(bought(again)) == {node}
