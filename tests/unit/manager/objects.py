"""Cluster objects for tests, short to write."""

from collections.abc import Mapping
from typing import Any

from manager.nodeside.noderesource.report import NodeReport
from shared import durations
from shared.api.colocation import ColocationStrategy, NodeStrategy
from shared.api.core import Container, Node, NodeStatus, Pod, PodSpec, PodStatus, Quantities, ResourceRequirements
from shared.api.meta import ObjectMeta, OwnerReference
from shared.api.nodemetric import NodeMetric, NodeMetricInfo, NodeMetricStatus, ReclaimableMetric, ResourceMap
from shared.api.nodemetric_spec import NodeMetricSpec
from shared.explanation import Explanation, ResourceExplanation

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
    requests: Mapping[str, str | int | float] | None = None,
    priority: int | None = None,
    phase: str = "Running",
    owner: tuple[str, str] | None = None,
    **metadata: Any,
) -> Pod:
    """A pod of one container, which requests `cpu` and `memory`, or `requests`. Its `owner` is a kind and a name."""
    asked: Quantities = {"cpu": cpu, "memory": memory} if requests is None else {**requests}
    if owner is not None:
        metadata["owner_references"] = (OwnerReference(kind=owner[0], name=owner[1], controller=True),)
    return Pod(
        metadata=ObjectMeta(**{"name": name, "namespace": "default", "uid": f"uid-{name}", **metadata}),
        spec=PodSpec(
            node_name=on,
            priority=priority,
            containers=(Container(name="c", resources=ResourceRequirements(requests=asked)),),
        ),
        status=PodStatus(phase=phase),
    )


def node_report(name: str = "n1", **fields: Any) -> NodeReport:
    """What is read of a NodeMetric that says only this."""
    return NodeReport(name, f"metric-{name}", "1", **{"spec": NodeMetricSpec(), **fields})


def explanation(bound: str = "", cpu: int = 0, memory: int = 0) -> Explanation:
    """Without any terms."""
    return Explanation(ResourceExplanation((), bound, cpu), ResourceExplanation((), bound, memory))


def enabled(**fields: Any) -> NodeStrategy:
    return NodeStrategy(ColocationStrategy(enable=True, **fields), enabled=True)
