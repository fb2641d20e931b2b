"""Pods that hold Mid, and decisions that leave them too little, short to write."""

from typing import Any

from manager.nodeside.eviction.tracker import Tracker
from manager.nodeside.noderesource.explain import Decision, Offer
from manager.nodeside.noderesource.report import NodeReport, ReportedUsage
from manager.nodeside.noderesource.situation import NOTHING, NodeSituation
from manager.pods import NodeRequests, PodRecord, record
from shared.api.core import Container, Pod, PodSpec, PodStatus, ResourceRequirements
from shared.api.meta import ObjectMeta
from shared.api.nodemetric import NodeMetricSpec
from shared.clock import ManualClock
from shared.explanation import Explanation, ResourceExplanation
from shared.names import Tier
from shared.quantity import Resources
from tests.unit.manager.objects import NOW

GIB = 1 << 30


def mid_pod(
    name: str,
    cpu_milli: int = 1000,
    memory_bytes: int = GIB,
    *,
    priority: int | None = 7500,
    phase: str = "Running",
    **metadata: Any,
) -> PodRecord:
    asked = {"kubernetes.io/mid-cpu": cpu_milli, "kubernetes.io/mid-memory": memory_bytes}
    return record(
        Pod(
            metadata=ObjectMeta(name=name, namespace="default", uid=f"uid-{name}", **metadata),
            spec=PodSpec(
                node_name="n1",
                priority=priority,
                containers=(Container(name="c", resources=ResourceRequirements(requests=dict(asked))),),
            ),
            status=PodStatus(phase=phase),
        )
    )


def decision(
    cpu_milli: int | None,
    memory_bytes: int = 100 * GIB,
    *,
    bound: str = "reclaimable",
    held_back: Resources = NOTHING,
    hold: bool = False,
    usages: dict[str, Resources] | None = None,
    expires_at: float | None = None,
) -> Decision:
    """A decision about Mid; a cpu of None takes it off the node."""
    offered = None if cpu_milli is None else Resources(cpu_milli, memory_bytes)
    explained = ResourceExplanation((), bound, cpu_milli or 0)
    pods = {key: ReportedUsage("koord-mid", *usage) for key, usage in (usages or {}).items()}
    report = NodeReport("n1", "uid", "1", NodeMetricSpec(), pods=pods)
    observed = NodeSituation("n1", NOTHING, NOTHING, NOTHING, requested=NodeRequests(), report=report)
    offer = Offer(offered, Explanation(explained, explained), held_back)
    return Decision({Tier.MID: offer}, NOW, hold=hold, observed=observed, expires_at=expires_at)


def tracker() -> tuple[Tracker, ManualClock]:
    clock = ManualClock(NOW)
    return Tracker(clock), clock
