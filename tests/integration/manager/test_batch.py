"""Batch on a real API server."""

import time
from typing import Any

from shared import durations, names, quantity
from shared.kube.resources import NODEMETRICS, NODES
from shared.names import Tier
from shared.quantity import Resources
from tests.integration.manager.conftest import Cluster, StartManager
from tests.support import eventually

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


def test_batch_comes_and_goes_and_what_others_were_once_told_of_it_goes_at_once(
    cluster: Cluster, start_manager: StartManager
) -> None:
    cluster.configure(**STRATEGY)
    cluster.add_node("n1", lends=None)
    cluster.client.patch(NODES, "n1", {"metadata": {"annotations": {ORIGIN: "{}"}}})
    start_manager(write_rule="upstream")
    cluster.wait_for_metric("n1")
    use(cluster, "n1", cpu="1")
    eventually(lambda: batch(cluster, "n1") == Resources(1_000, 4 * GIB))
    eventually(lambda: annotation(cluster, "n1", ORIGIN) is None)
    cluster.configure(enable=False)
    eventually(lambda: batch(cluster, "n1") is None)
