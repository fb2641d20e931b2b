"""No series that dashboards and alerts read is lost, renamed, or has other labels."""

from dataclasses import replace
from pathlib import Path

from prometheus_client import CollectorRegistry

from manager.autoscaler.reporting.metrics import AutoscalerMetrics
from tests.unit.manager import rounds
from tests.unit.manager.test_autoscaler_metrics import MADE

SERIES = Path(__file__).with_name("autoscaler_series.txt")  # name, type and labels, one a line


def test_every_series_is_scraped_under_its_name_with_its_labels() -> None:
    registry = CollectorRegistry()
    metrics = AutoscalerMetrics(registry)
    shrinking = rounds.shrinking()
    scan = replace(shrinking.scans[0], healthy=True)
    metrics.note(MADE)
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
