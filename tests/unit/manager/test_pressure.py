"""What an agent says of pressure is read in integers; what cannot be costs itself alone."""

from typing import Any

import msgspec
import pytest

from manager.nodeside.noderesource import report
from manager.nodeside.pressure import MOST_PODS, NodePressure, PodPressure
from shared.api.nodemetric import NodeMetric
from shared.quantity import Resources

SEEN: dict[str, Any] = {
    "resources": ["cpu", "memory", "disk"],
    "capacity": {"cpu": "8", "memory": "1Gi"},
    "usage": {"cpu": "7500m", "memory": "900Mi"},
    "tiersCPURequest": "4",
    "tiersCPUUsage": "1",
    "tiersCPULimit": "1500m",
    "memoryStallPercent": "12.50",
    "pods": [{"namespace": "n", "name": "p", "uid": "u", "usage": {"memory": "5Mi"}, "held": {"cpu": "1"}}],
}


def read(pressure: Any) -> report.NodeReport:
    status = {"updateTime": "2026-01-01T00:00:00Z", "prediction": {"pressure": pressure, "model": "m"}}
    return report.read(msgspec.convert({"metadata": {"name": "n1"}, "status": status}, NodeMetric))


def test_it_is_read_by_uid_and_what_is_no_resource_of_ours_is_left_out() -> None:
    found = read(SEEN).pressure
    mib = 1 << 20
    assert found == NodePressure(
        ("memory", "cpu"),
        Resources(8000, 1024 * mib),
        Resources(7500, 900 * mib),
        4000,
        1000,
        1500,
        {"u": PodPressure(Resources(0, 5 * mib), Resources(1000, 0))},
        ("", "12.50"),
    )
    assert read(None).pressure is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("capacity", {"cpu": "8"}),
        ("capacity", None),
        ("usage", {"memory": "-1"}),
        ("usage", {"memory": "lots"}),
        ("tiersCPULimit", "1e30"),
        ("pods", [{"uid": "u", "usage": {"cpu": "x"}}]),
        ("pods", [{"uid": str(number)} for number in range(MOST_PODS + 1)]),
    ],
)
def test_what_cannot_be_is_refused_by_its_field_and_the_rest_of_the_report_stands(field: str, value: Any) -> None:
    found = read(SEEN | {field: value})
    assert (found.pressure, found.problem, found.model) == (None, None, "m")
    assert f"NodeMetric n1 status.prediction.pressure: {field}" in str(found.pressure_problem)
