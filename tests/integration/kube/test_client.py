import logging
import uuid
from typing import Any

import pytest

from shared.api.core import ConfigMap, Node, Pod
from shared.api.nodemetric import NodeMetric, NodeMetricStatus
from shared.kube import errors, http
from shared.kube.client import Client, Patch
from shared.kube.resources import CONFIGMAPS, NODEMETRICS, NODES, PODDISRUPTIONBUDGETS, PODS, Resource
from tests.support import eventually
from tests.support.apiserver import ApiServer, rule


def configmap(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def new_node(client: Client, **metadata: object) -> str:
    name = f"node-{uuid.uuid4().hex[:8]}"
    client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name} | metadata})
    return name


def new_pod(client: Client, namespace: str, name: str, **labels: str) -> None:
    container = {"name": "main", "image": "pause"}
    metadata = {"name": name, "labels": labels}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
    client.create(PODS, body, namespace)


def test_an_object_lives_from_create_to_delete(client: Client, namespace: str) -> None:
    created = client.create(CONFIGMAPS, configmap("c", key="1"), namespace)
    assert created.uid
    read = client.get(CONFIGMAPS, "c", namespace, into=ConfigMap)
    assert read.data == {"key": "1"}
    assert read.metadata.resource_version == created.resource_version
    body = configmap("c", key="2")
    body["metadata"]["resourceVersion"] = created.resource_version
    replaced = client.replace(CONFIGMAPS, "c", body, namespace)
    assert replaced.resource_version != created.resource_version
    with pytest.raises(errors.Conflict):
        client.replace(CONFIGMAPS, "c", body, namespace)
    with pytest.raises(errors.AlreadyExists):
        client.create(CONFIGMAPS, configmap("c"), namespace)
    with pytest.raises(errors.Conflict):
        client.delete(CONFIGMAPS, "c", namespace, uid="another")
    with pytest.raises(errors.Conflict):
        client.delete(CONFIGMAPS, "c", namespace, uid=created.uid, resource_version=created.resource_version)
    client.delete(CONFIGMAPS, "c", namespace, uid=created.uid, resource_version=replaced.resource_version)
    with pytest.raises(errors.NotFound):
        client.get(CONFIGMAPS, "c", namespace)
    with pytest.raises(errors.NotFound):
        client.delete(CONFIGMAPS, "c", namespace)


def test_more_streams_than_idle_connections_may_be_kept_end_without_a_warning(
    server: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    transport = http.SocketTransport(server.connection, "test")
    query = {"watch": "true"}
    streams = [
        transport.stream("/api/v1/namespaces", query=query, timeout_seconds=60, idle_seconds=60)
        for _ in range(2 * http.MAX_IDLE_CONNECTIONS)
    ]
    for each in streams:
        each.close()
    transport.close()
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING] == []


def test_a_list_in_pages_is_complete_and_filtered(client: Client, namespace: str) -> None:
    for number in range(7):
        body = configmap(f"c{number}")
        body["metadata"]["labels"] = {"odd": str(number % 2)}
        client.create(CONFIGMAPS, body, namespace)
    listing = client.list(CONFIGMAPS, namespace, into=ConfigMap, label_selector="odd", limit=2)
    assert [item.metadata.name for item in listing.items] == [f"c{n}" for n in range(7)]
    odd = client.list(CONFIGMAPS, namespace, into=ConfigMap, label_selector="odd=1", limit=2)
    assert [item.metadata.name for item in odd.items] == ["c1", "c3", "c5"]
    one = client.list(CONFIGMAPS, namespace, into=ConfigMap, field_selector="metadata.name=c4")
    assert [item.metadata.name for item in one.items] == ["c4"]


@pytest.mark.parametrize(
    "fault",
    [
        rule("close"),
        rule("truncate"),
        rule("status", status=503),
        rule("status", status=429, retryAfter=1),
    ],
    ids=["closed", "truncated", "503", "429"],
)
def test_reads_and_idempotent_writes_outlast_a_fault(
    server: ApiServer, client: Client, namespace: str, fault: dict[str, Any]
) -> None:
    client.create(CONFIGMAPS, configmap("c", key="1"), namespace)
    server.fault(fault)
    assert client.get(CONFIGMAPS, "c", namespace, into=ConfigMap).data == {"key": "1"}
    server.fault(fault)
    client.patch(CONFIGMAPS, "c", {"data": {"key": "2"}}, namespace)
    assert client.get(CONFIGMAPS, "c", namespace, into=ConfigMap).data == {"key": "2"}


def test_a_status_patch_touches_the_status_alone(client: Client) -> None:
    name = new_node(client)
    patch = {"spec": {"unschedulable": True}, "status": {"capacity": {"kubernetes.io/mid-cpu": "1500"}}}
    client.patch(NODES, name, patch, kind=Patch.STRATEGIC, subresource="status")
    read = client.get(NODES, name, into=Node)
    assert (read.status.capacity or {})["kubernetes.io/mid-cpu"] == "1500"
    assert not read.spec.unschedulable


def test_every_kind_of_patch_is_understood(client: Client) -> None:
    name = new_node(client, labels={"a": "1", "b": "1"})
    client.patch(NODES, name, {"metadata": {"labels": {"a": None}}})
    client.patch(NODES, name, [{"op": "replace", "path": "/metadata/labels/b", "value": "2"}], kind=Patch.JSON)
    taint = {"key": "k", "effect": "NoSchedule"}
    client.patch(NODES, name, {"spec": {"taints": [taint]}}, kind=Patch.STRATEGIC)
    read = client.get(NODES, name, into=Node)
    assert read.metadata.labels == {"b": "2"}
    assert [taint.key for taint in read.spec.taints or ()] == ["k"]


def test_a_patch_with_a_stale_version_is_a_conflict(client: Client) -> None:
    name = new_node(client)
    stale = client.get(NODES, name, into=Node).metadata.resource_version
    client.patch(NODES, name, {"metadata": {"labels": {"x": "1"}}})
    with pytest.raises(errors.Conflict):
        client.patch(NODES, name, {"metadata": {"resourceVersion": stale, "labels": {"x": "2"}}})


def test_a_node_metric_goes_out_and_comes_back_typed(client: Client) -> None:
    name = new_node(client)
    body = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": name}, "spec": {}}
    client.create(NODEMETRICS, body)
    status = NodeMetricStatus(update_time="2026-01-01T00:00:00Z")
    client.patch(NODEMETRICS, name, {"status": status}, subresource="status")
    assert client.get(NODEMETRICS, name, into=NodeMetric).status == status
    with pytest.raises(errors.Invalid):
        client.patch(NODEMETRICS, name, {"spec": {"predictPolicy": {"coldStartPeriodSeconds": "soon"}}})


def test_a_pod_is_bound_once(client: Client, namespace: str) -> None:
    node = new_node(client)
    new_pod(client, namespace, "p")
    client.bind(namespace, "p", node)
    assert client.get(PODS, "p", namespace, into=Pod).spec.node_name == node
    with pytest.raises(errors.Conflict):
        client.bind(namespace, "p", node)


def test_an_eviction_honours_the_disruption_budget(client: Client, namespace: str) -> None:
    new_pod(client, namespace, "p", app="x")
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}  # others are not protected
    client.patch(PODS, "p", {"status": ready}, namespace, subresource="status")
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}},
    }
    client.create(PODDISRUPTIONBUDGETS, budget, namespace)
    with pytest.raises(errors.TooManyRequests):
        client.evict(namespace, "p")
    client.delete(PODDISRUPTIONBUDGETS, "b", namespace)
    client.evict(namespace, "p")
    eventually(lambda: _gone_or_going(client, namespace, "p"))


def _gone_or_going(client: Client, namespace: str, name: str) -> bool:
    try:
        return client.get(PODS, name, namespace, into=Pod).metadata.deletion_timestamp is not None
    except errors.NotFound:
        return True


def test_an_unknown_resource_is_not_found(client: Client) -> None:
    with pytest.raises(errors.NotFound):
        client.list(Resource("nowhere.io", "v1", "things", namespaced=False))
