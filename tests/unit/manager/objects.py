"""Cluster objects for tests, short to write."""

from typing import Any

from shared import durations
from shared.api.colocation import ColocationStrategy, NodeStrategy
from shared.api.core import Container, Node, NodeStatus, Pod, PodSpec, PodStatus, Quantities, ResourceRequirements
from shared.api.meta import ObjectMeta
from shared.api.nodemetric import (
    NodeMetric,
    NodeMetricInfo,
    NodeMetricStatus,
    ReclaimableMetric,
    ResourceMap,
)

NOW = 1_700_000_000.0
GIB = 1 << 30


def node(
    name: str = "n1",
    *,
    cpu: str = "10",
    memory: str = "100Gi",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    mid: Quantities | None = None,
    capacity_mid: Quantities | None = None,
    created_at: float | None = None,
) -> Node:
    native: Quantities = {"cpu": cpu, "memory": memory}
    offered = mid or {}
    return Node(
        metadata=ObjectMeta(
            name=name,
            uid=f"uid-{name}",
            resource_version="7",
            creation_timestamp=None if created_at is None else durations.timestamp(created_at),
            labels=labels,
            annotations=annotations,
        ),
        status=NodeStatus(
            capacity={**native, **(offered if capacity_mid is None else capacity_mid)},
            allocatable={**native, **offered},
        ),
    )


def metric(
    name: str = "n1",
    *,
    age_seconds: float | None = 0,
    reclaimable: Quantities | None = None,
    usage: Quantities | None = None,
) -> NodeMetric:
    return NodeMetric(
        metadata=ObjectMeta(name=name, uid=f"metric-{name}"),
        status=NodeMetricStatus(
            update_time=None if age_seconds is None else durations.timestamp(NOW - age_seconds),
            node_metric=NodeMetricInfo(
                node_usage=None if usage is None else ResourceMap(resources=usage),
                system_usage=ResourceMap(resources={"cpu": "0", "memory": "0"}),
            ),
            prod_reclaimable_metric=(
                None if reclaimable is None else ReclaimableMetric(resource=ResourceMap(resources=reclaimable))
            ),
        ),
    )


def pod(
    name: str = "p1",
    *,
    on: str = "n1",
    cpu: str = "1",
    memory: str = "1Gi",
    priority: int | None = None,
    phase: str = "Running",
) -> Pod:
    requests: Quantities = {"cpu": cpu, "memory": memory}
    return Pod(
        metadata=ObjectMeta(name=name, namespace="default", uid=f"uid-{name}"),
        spec=PodSpec(
            node_name=on,
            priority=priority,
            containers=(Container(name="c", resources=ResourceRequirements(requests=requests)),),
        ),
        status=PodStatus(phase=phase),
    )


def enabled(**fields: Any) -> NodeStrategy:
    return NodeStrategy(ColocationStrategy(enable=True, **fields), enabled=True)
