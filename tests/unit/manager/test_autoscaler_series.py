"""No series that dashboards and alerts read is lost, renamed, or has other labels."""

from dataclasses import replace
from pathlib import Path

from prometheus_client import CollectorRegistry

from manager.autoscaler.cluster_state.actions import Action, ActionKind
from manager.autoscaler.estimator.limits import CPU, MEMORY, ResourceBounds
from manager.autoscaler.iteration import GroupScan, ScanResult
from manager.autoscaler.reporting.gauges import ClusterAutoscalerOptions
from manager.autoscaler.reporting.metrics import AutoscalerMetrics
from manager.autoscaler.reporting.metrics_escalator import EscalatorNames
from tests.unit.manager import rounds
from tests.unit.manager.test_autoscaler_metrics import MADE

SERIES = Path(__file__).with_name("autoscaler_series.txt")  # name, type and labels, one a line


def test_every_series_is_scraped_under_its_name_with_its_labels() -> None:
    registry = CollectorRegistry()
    bounds = {CPU: ResourceBounds(1, 2), MEMORY: ResourceBounds(1, 2)}
    metrics = AutoscalerMetrics(
        registry, ClusterAutoscalerOptions(bounds, per_group=True), EscalatorNames("simulated", {"jobs": "pool"})
    )
    shrinking = rounds.shrinking()
    scan = replace(shrinking.scans[0], healthy=True)
    kept = Action(ActionKind.DELETE_NODES, "pool", nodes=("jobs1",), error="no")
    metrics.scanned(ScanResult((GroupScan(scan, (kept,), held_seconds=1.0, lags=(1.0,)),)))
    metrics.note(MADE, failure=ValueError("a bug"))
    metrics.note(replace(shrinking, state=MADE.state, scans=(scan,)))
    metrics.took("main", 1.0)
    found = {
        " ".join(
            (family.name, family.type, *sorted({label for each in family.samples for label in each.labels} - {"le"}))
        )
        for family in registry.collect()
        if family.samples
    }
    assert sorted(found) == SERIES.read_text().splitlines()
