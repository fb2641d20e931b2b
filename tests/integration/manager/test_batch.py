"""Batch on a real API server: shared with other allocators, and in the zones of a node."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from shared import durations, names, quantity
from shared.kube.resources import NODEMETRICS, NODERESOURCETOPOLOGIES, NODES
from shared.names import Tier
from shared.quantity import Resources
from tests.integration.manager.conftest import Cluster, StartManager, counted
from tests.support import eventually
from tests.support.custom_kinds import CRDS, is_served

ORIGIN = names.ANNOTATION_ORIGIN_EXTENDED_ALLOCATABLE
GIB = 1 << 30

# Half of 4 cores and of 8 GiB may be reclaimed, of which the system has a core.
STRATEGY: dict[str, Any] = {"cpuReclaimThresholdPercent": 50, "memoryReclaimThresholdPercent": 50}


def use(cluster: Cluster, name: str, *, cpu: str) -> None:
    """A report in which the system alone uses anything."""
    usage = {"resources": {"cpu": cpu, "memory": "0"}}
    status = {
        "updateTime": durations.timestamp(time.time()),
        "nodeMetric": {"nodeUsage": usage, "systemUsage": usage},
    }
    cluster.client.patch(NODEMETRICS, name, {"status": status}, subresource="status")


def batch(cluster: Cluster, name: str) -> Resources | None:
    """What is on offer to Batch, on which capacity and allocatable must agree."""
    status = cluster.client.get(NODES, name)["status"]
    capacity, allocatable = (
        [status[part].get(resource) for resource in names.TIER_RESOURCES[Tier.BATCH]]
        for part in ("capacity", "allocatable")
    )
    assert capacity == allocatable
    cpu, memory = allocatable
    return None if cpu is None and memory is None else Resources(quantity.whole(cpu), quantity.whole(memory))


def annotation(cluster: Cluster, name: str, key: str) -> str | None:
    value: str | None = cluster.client.get(NODES, name)["metadata"].get("annotations", {}).get(key)
    return value


def note_taken(cluster: Cluster, name: str, text: str | None) -> None:
    """What another allocator does, or whoever fakes it."""
    annotations = {names.ANNOTATION_THIRD_PARTY_ALLOCATIONS: text}
    cluster.client.patch(NODES, name, {"metadata": {"annotations": annotations}})


def test_others_read_what_there_is_and_kubernetes_gets_what_they_leave(
    cluster: Cluster, start_manager: StartManager
) -> None:
    cluster.configure(**STRATEGY)
    start_manager(write_rule="upstream")
    cluster.add_node("n1", lends=None)
    cluster.wait_for_metric("n1")
    use(cluster, "n1", cpu="1")
    eventually(lambda: batch(cluster, "n1") == Resources(1_000, 4 * GIB))
    origin = {"resources": {names.BATCH_CPU: "1k", names.BATCH_MEMORY: "4Gi"}}
    assert json.loads(annotation(cluster, "n1", ORIGIN) or "") == origin

    amount = {names.BATCH_CPU: "600", names.BATCH_MEMORY: "5Gi"}
    note_taken(
        cluster,
        "n1",
        json.dumps({"allocations": [{"name": "yarn", "priority": "koord-batch", "resources": amount}]}),
    )
    eventually(lambda: batch(cluster, "n1") == Resources(400, 0))
    assert json.loads(annotation(cluster, "n1", ORIGIN) or "") == origin

    note_taken(cluster, "n1", "{")
    eventually(lambda: batch(cluster, "n1") == Resources(1_000, 4 * GIB))
    eventually(lambda: [e for e in cluster.events() if names.ANNOTATION_THIRD_PARTY_ALLOCATIONS in e["message"]])

    note_taken(cluster, "n1", None)
    cluster.configure(enable=False)
    eventually(lambda: batch(cluster, "n1") is None)
    assert annotation(cluster, "n1", ORIGIN) is None


@pytest.fixture
def topologies(cluster: Cluster) -> Iterator[None]:
    """A cluster with the kind."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    kind = {"kind": "NodeResourceTopology", "listKind": "NodeResourceTopologyList"}
    kind |= {"plural": NODERESOURCETOPOLOGIES.plural, "singular": "noderesourcetopology"}
    name = f"{NODERESOURCETOPOLOGIES.plural}.{NODERESOURCETOPOLOGIES.group}"
    annotations = {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/1870"}
    body = {
        "apiVersion": CRDS.api_version,
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"group": NODERESOURCETOPOLOGIES.group, "scope": "Cluster", "names": kind, "versions": [version]},
    }
    cluster.client.create(CRDS, body)
    eventually(lambda: is_served(cluster.client, NODERESOURCETOPOLOGIES))
    yield
    cluster.client.delete(CRDS, name)


def zone(name: str, cpu: str, memory: str) -> dict[str, Any]:
    amounts = {"cpu": cpu, "memory": memory}
    resources = [
        {"name": each, **dict.fromkeys(("capacity", "allocatable", "available"), amounts[each])} for each in amounts
    ]
    return {"name": name, "type": "Node", "costs": [{"name": name, "value": 10}], "resources": resources}


def zones(cluster: Cluster, name: str) -> dict[str, dict[str, str]]:
    """What is available in each zone; all else of it must have stayed."""
    found = {}
    for each in cluster.client.get(NODERESOURCETOPOLOGIES, name)["zones"]:
        assert each["costs"] == [{"name": each["name"], "value": 10}]
        found[each["name"]] = {entry["name"]: entry["available"] for entry in each["resources"]}
    return found


def test_batch_is_entered_in_the_zones_and_goes_with_the_nodes(
    cluster: Cluster, start_manager: StartManager, topologies: None
) -> None:
    native = {"node-0": {"cpu": "2", "memory": "5Gi"}, "node-1": {"cpu": "2", "memory": "3Gi"}}
    body = {
        "apiVersion": NODERESOURCETOPOLOGIES.api_version,
        "kind": "NodeResourceTopology",
        "metadata": {"name": "n1"},
        "topologyPolicies": ["None"],
        "zones": [zone(name, **amounts) for name, amounts in native.items()],
    }
    cluster.client.create(NODERESOURCETOPOLOGIES, body)
    cluster.configure(**STRATEGY)
    manager = start_manager()
    cluster.add_node("n1", lends=None)
    cluster.wait_for_metric("n1")
    use(cluster, "n1", cpu="1")

    def entered(cpu: str) -> dict[str, dict[str, str]]:
        memory = {"node-0": 5 * GIB // 2, "node-1": 3 * GIB // 2}
        return {
            name: {**amounts, names.BATCH_CPU: cpu, names.BATCH_MEMORY: str(memory[name])}
            for name, amounts in native.items()
        }

    eventually(lambda: zones(cluster, "n1") == entered("500"))
    use(cluster, "n1", cpu="1500m")
    eventually(lambda: zones(cluster, "n1") == entered("250"))

    # Another writer's change of a zone is the new ground, whatever this manager has known before.
    changed = cluster.client.get(NODERESOURCETOPOLOGIES, "n1")
    changed["zones"][1]["resources"] = zone("node-1", "1", "3Gi")["resources"]
    cluster.client.replace(NODERESOURCETOPOLOGIES, "n1", changed)
    native["node-1"]["cpu"] = "1"
    expected = entered("250")
    expected["node-1"][names.BATCH_CPU] = "0"
    eventually(lambda: zones(cluster, "n1") == expected)
    eventually(lambda: counted(manager, "zone_writes_total") >= 3)

    cluster.configure(enable=False)
    eventually(lambda: zones(cluster, "n1") == native)
