"""Pods that hold Mid, and decisions that leave them too little, short to write."""

from typing import Any

from manager.nodeside.eviction.tracker import Tracker
from manager.nodeside.noderesource.explain import Decision, Offer
from manager.nodeside.noderesource.report import ReportedUsage
from manager.nodeside.noderesource.situation import NodeSituation
from manager.pods import NOTHING, NodeRequests, PodRecord, record
from shared.clock import ManualClock
from shared.names import Tier
from shared.quantity import Resources
from tests.unit.manager.objects import NOW, explanation, node_report, pod

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
    return record(pod(name, requests=asked, priority=priority, phase=phase, **metadata))


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
    pods = {key: ReportedUsage("koord-mid", *usage) for key, usage in (usages or {}).items()}
    observed = NodeSituation("n1", NOTHING, NOTHING, NOTHING, requested=NodeRequests(), report=node_report(pods=pods))
    offer = Offer(offered, explanation(bound, cpu_milli or 0, cpu_milli or 0), held_back)
    return Decision({Tier.MID: offer}, NOW, hold=hold, observed=observed, expires_at=expires_at)


def tracker() -> tuple[Tracker, ManualClock]:
    clock = ManualClock(NOW)
    return Tracker(clock), clock
