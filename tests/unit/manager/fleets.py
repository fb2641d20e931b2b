"""Nodes that say how their promises were kept, and a fleet of them."""

import msgspec

from manager.nodeside.fleet import FleetOverview
from manager.nodeside.noderesource import report as reports
from manager.nodeside.noderesource.report import NodeReport
from manager.nodeside.reports import PersistentProblems
from manager.pods import PodRecord
from shared.api.core import ConfigMap
from shared.api.meta import ObjectMeta
from shared.api.nodemetric import NodeMetric, Prediction, PriorInUse, Promise, Shadow, Withdrawal
from shared.api.nodemetric_spec import WireTail
from shared.clock import ManualClock
from tests.unit.manager.objects import NOW, metric

DAY = 86400


def promising(of: NodeMetric, **changes: object) -> NodeMetric:
    """With the promise for a day; `changes` are those of its fields."""
    tail = WireTail("0.2", "0.1", "28")
    promise = Promise(
        horizon_seconds=DAY,
        peak={"cpu": "1500m", "memory": "1Gi"},
        target_violation_percent="1",
        outcomes=672,
        cpu_violation_percent="3.00",
        memory_violation_percent="0.50",
        cpu_lent_percent="61.20",
        memory_lent_percent="48.00",
        cpu_tail=tail,
        memory_tail=tail,
    )
    shadow = Shadow("n-sigma-v2", 672, "0.40", "0.00", "36.40", "30.00")
    prediction = Prediction(
        model="peak-mix",
        promises=(msgspec.structs.replace(promise, **changes),),
        withdrawals=(Withdrawal(DAY, "2.10", "0.00"), Withdrawal(28 * DAY, "1.40", None)),
        shadows=(shadow, Shadow("percentile")),
        prior=PriorInUse("fleet", 40),
    )
    return msgspec.structs.replace(of, status=msgspec.structs.replace(of.status, prediction=prediction))


def report(name: str, *, age_seconds: float = 0, spec: bytes = b"", **changes: object) -> NodeReport:
    found = promising(metric(name, age_seconds=age_seconds), **changes)
    return reports.read(msgspec.structs.replace(found, spec=msgspec.Raw(spec)))


class Reports:
    """A cluster of which nothing but reports is known."""

    def __init__(self, *found: NodeReport) -> None:
        self.found = list(found)
        self.waiting_for: list[str] = []
        self.pods_on: dict[str, list[PodRecord]] = {}

    def unsynced(self) -> list[str]:
        return self.waiting_for

    def reports(self) -> list[NodeReport]:
        return self.found

    def pods(self, name: str) -> list[PodRecord]:
        return self.pods_on.get(name, [])

    def config_map(self) -> ConfigMap | None:
        return ConfigMap(metadata=ObjectMeta(name="slo-controller-config", namespace="headroom-system", uid="u"))


def fleet(*found: NodeReport, clock: ManualClock | None = None) -> FleetOverview:
    """After one turn."""
    made = FleetOverview(
        Reports(*found),
        clock or ManualClock(NOW),
        is_leader=lambda: True,
        standing=PersistentProblems(None, lambda: True),
        changed=lambda _: None,
    )
    made.refresh()
    return made
