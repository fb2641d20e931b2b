"""Nodes that have to go are replaced in a real cluster, and the pods run again."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared import durations
from shared.api.core import Node
from shared.kube.client import Patch
from shared.kube.resources import CONFIGMAPS, EVENTS, NODES, PODS
from tests.integration.manager.conftest import Cluster, StartManager, fetch
from tests.integration.manager.test_autoscaler import NEVER_SECONDS, PATIENCE_SECONDS, WEB, Town, later_decisions
from tests.integration.manager.test_scale_down import Shrinking
from tests.support import eventually
from tests.support.apiserver import ApiServer

ours = pytest.mark.own_decision("the autoscaler and its cloud decide, whichever API server has the nodes")


@pytest.fixture
def shrinking(server: ApiServer, cluster: Cluster, tmp_path: Path, start_manager: StartManager) -> Iterator[Shrinking]:
    town = Town(cluster, server.add_namespace(), tmp_path / "cloud.yaml", start_manager)
    town.offer(WEB)
    shrinking = Shrinking(town)
    yield shrinking
    shrinking.close()
    town.close()


def has_clean_books(shrinking: Shrinking) -> bool:
    kept = shrinking.town.kept()
    return kept.replacing is None and not kept.requests and not kept.backoffs


def passes_a_second_after(*nodes: Node) -> bool:
    """New nodes are told from older ones by their creation, which the API server gives in whole seconds."""
    return time.time() > max(node.metadata.created_at for node in nodes) + 1


def row_of(manager: Any, name: str) -> dict[str, Any]:
    found = fetch(manager, "/api/v1/autoscaler/nodes").json()["scale_down"] or {"nodes": []}
    return next((row for row in found["nodes"] if row["node"] == name), {"replacement": ""})


@ours
def test_an_unhealthy_node_is_replaced_and_its_pod_runs_again(shrinking: Shrinking) -> None:
    shrinking.manager("0:10:web", node_repair_conditions=("KernelDeadlock=True:1m",))
    shrinking.want(2, cpu="2100m")
    before = shrinking.eventually_bound(2)
    assert len(set(before.values())) == 2, "each pod is too large for the other's node"
    sick = before["p0"]
    eventually(lambda: passes_a_second_after(*shrinking.nodes.values()), PATIENCE_SECONDS)
    since = durations.timestamp(shrinking.nodes[sick].metadata.created_at - 3600)
    condition = {"type": "KernelDeadlock", "status": "True", "reason": "Hung", "lastTransitionTime": since}
    status = {"status": {"conditions": [condition]}}
    shrinking.client.patch(NODES, sick, status, kind=Patch.STRATEGIC, subresource="status")

    eventually(lambda: sick not in shrinking.nodes, PATIENCE_SECONDS)
    after = shrinking.eventually_bound(2)
    assert len(set(after.values())) == 2
    assert after["p1"] == before["p1"], "the other pod is left alone"
    assert shrinking.made_again == ["p0"]
    assert shrinking.town.targets() == {"web": 2}
    eventually(lambda: has_clean_books(shrinking), PATIENCE_SECONDS)


@ours
def test_nodes_of_a_group_that_has_changed_are_replaced_one_after_the_other_and_then_all_is_quiet(
    shrinking: Shrinking,
) -> None:
    manager = shrinking.manager("0:10:web", replace_drifted_nodes=True, disruption_budgets=("0;reasons=Drifted",))
    shrinking.want(1, cpu="2100m")
    (old,) = shrinking.eventually_bound(1).values()
    eventually(lambda: passes_a_second_after(shrinking.nodes[old]), PATIENCE_SECONDS)
    shrinking.town.offer({**WEB, "labels": {**WEB["labels"], "image": "v2"}})
    eventually(lambda: row_of(manager, old)["replacement"], PATIENCE_SECONDS)
    row = row_of(manager, old)
    assert row["replacement_reason"] == "Drifted"
    assert row["replacement"].startswith(f"{old} is not replaced, DisruptionLimitReached: Drifted, it was launched as ")
    manager.close()

    shrinking.manager("0:10:web", replace_drifted_nodes=True)
    eventually(lambda: old not in shrinking.nodes and len(shrinking.nodes) == 1, PATIENCE_SECONDS)
    (new,) = shrinking.eventually_bound(1).values()
    assert (shrinking.nodes[new].metadata.labels or {})["image"] == "v2"
    eventually(lambda: has_clean_books(shrinking), PATIENCE_SECONDS)
    assert shrinking.made_again == ["p0"]


def adopt(shrinking: Shrinking, pod: str) -> None:
    """The pod has a controller from now on, which the API server knows."""
    namespace = shrinking.town.namespace
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}}
    owner = shrinking.client.create(CONFIGMAPS, body, namespace)
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.uid, "controller": True}
    shrinking.client.patch(PODS, pod, {"metadata": {"ownerReferences": [reference]}}, namespace)


@ours
def test_a_node_that_the_cloud_takes_has_its_successor_before_it_is_drained_and_leaves_its_group_after(
    shrinking: Shrinking,
) -> None:
    quiet = {"scale_down_unneeded_time_seconds": NEVER_SECONDS}
    first = shrinking.manager("0:10:web", **quiet)
    shrinking.want(2, cpu="2100m")
    before = shrinking.eventually_bound(2)
    taken = before["p0"]
    adopt(shrinking, "p0")
    told = {"key": "aws-node-termination-handler/spot-itn", "value": "an-event", "effect": "NoSchedule"}
    shrinking.client.patch(NODES, taken, {"spec": {"unschedulable": True, "taints": [told]}})
    shrinking.eventually_has_nodes(3)
    eventually(lambda: has_clean_books(shrinking), PATIENCE_SECONDS)
    row = row_of(first, taken)
    assert row["interruption"] == "SpotInterruption (taint aws-node-termination-handler/spot-itn)"
    assert shrinking.eventually_bound(2) == before, "nothing of ours has evicted the pod"
    first.close()
    later_decisions(shrinking.manager("0:10:web", **quiet))
    assert shrinking.town.targets() == {"web": 3}, "the next manager launches no other one"

    shrinking.client.delete(PODS, "p0", shrinking.town.namespace, grace_period_seconds=0)  # as what drains it does
    eventually(lambda: taken not in shrinking.nodes, PATIENCE_SECONDS)
    after = shrinking.eventually_bound(2)
    assert after["p1"] == before["p1"]
    assert set(after.values()) == set(shrinking.nodes)
    assert shrinking.town.targets() == {"web": 2}, "the cloud is not to launch another one in its place"
    events = shrinking.client.list(EVENTS, "default").items
    assert [each["reason"] for each in events if each["involvedObject"]["name"] == taken].count("NodeInterrupted") >= 1
