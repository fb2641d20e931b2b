"""A NodeMetric as Koordinator's agent writes it is read whole, and written again as it was."""

import json
from typing import Any

import msgspec
import pytest

from shared.api.nodemetric import NodeMetric, NodeMetricReport
from shared.quantity import Resources


def usage(cpu: str, memory: str, **more: object) -> dict[str, Any]:
    return {"resources": {"cpu": cpu, "memory": memory}, **more}


def aggregated(duration: str, cpu: str) -> dict[str, Any]:
    return {"usage": {how: usage(cpu, "2Gi") for how in ("avg", "p50", "p90", "p95", "p99")}, "duration": duration}


UPSTREAM: dict[str, Any] = {
    "metadata": {"name": "node-1", "uid": "u", "resourceVersion": "7", "generation": 3},
    "spec": {
        "metricCollectPolicy": {
            "aggregateDurationSeconds": 300,
            "reportIntervalSeconds": 60,
            "nodeAggregatePolicy": {"durations": ["5m0s", "10m0s", "30m0s"]},
            "nodeMemoryCollectPolicy": "usageWithoutPageCache",
        }
    },
    "status": {
        "updateTime": "2026-01-02T03:04:05Z",
        "nodeMetric": {
            "nodeUsage": usage(
                "5312m",
                "13105438720",
                devices=[{"id": "GPU-1", "minor": 0, "type": "gpu", "resources": {"koordinator.sh/gpu-core": "50"}}],
            ),
            "aggregatedNodeUsages": [
                aggregated("5m0s", "5300m"),
                {"usage": {how: {} for how in ("avg", "p50", "p90", "p95", "p99")}, "duration": "10m0s"},
            ],
            "systemUsage": usage("312m", "1Gi"),
            "aggregatedSystemUsages": [aggregated("5m0s", "300m")],
            "numaUsages": [
                {"numaNodeID": 0, "nodeUsage": usage("3", "8Gi"), "systemUsage": usage("200m", "512Mi")},
                {"numaNodeID": 1, "nodeUsage": usage("2312m", "4Gi")},
            ],
        },
        "podsMetric": [
            {
                "name": "web",
                "namespace": "shop",
                "podUsage": usage("2500m", "4Gi"),
                "priority": "koord-prod",
                "qos": "LS",
                "extensions": {"interference": {"cpi": {"avg": 2}}},
            },
            {"name": "job", "namespace": "shop", "podUsage": usage("500m", "1Gi"), "priority": "koord-batch"},
        ],
        "hostApplicationMetric": [
            {"name": "nginx", "usage": usage("1", "2Gi"), "priority": "koord-prod", "qos": "LS"},
        ],
        "prodReclaimableMetric": {"resource": usage("7", "9Gi")},
        "prodPeakMetric": {"resource": usage("3500m", "5Gi")},
    },
}


def test_what_koordinators_agent_writes_comes_out_as_it_went_in() -> None:
    report = msgspec.json.decode(json.dumps(UPSTREAM["status"]).encode(), type=NodeMetricReport)
    assert json.loads(msgspec.json.encode(report)) == UPSTREAM["status"]


@pytest.mark.parametrize("field", list(UPSTREAM["status"]))
def test_every_field_may_be_missing(field: str) -> None:
    rest = {name: value for name, value in UPSTREAM["status"].items() if name != field}
    assert json.loads(msgspec.json.encode(msgspec.convert(rest, NodeMetricReport))) == rest


def test_a_reader_finds_what_it_acts_upon_in_koordinators_report() -> None:
    read = msgspec.json.decode(json.dumps(UPSTREAM).encode(), type=NodeMetric)
    assert json.loads(bytes(read.spec)) == UPSTREAM["spec"]
    for metric, amount in (
        (read.status.prod_reclaimable_metric, Resources(7000, 9 << 30)),
        (read.status.prod_peak_metric, Resources(3500, 5 << 30)),
    ):
        assert metric is not None
        assert metric.resource is not None
        assert metric.resource.amount == amount
    assert read.status.node_metric is not None
    assert read.status.node_metric.node_usage is not None
    assert read.status.node_metric.node_usage.amount == Resources(5312, 13105438720)
    assert [one.priority for one in read.status.pods_metric or ()] == ["koord-prod", "koord-batch"]
    assert [one.name for one in read.status.host_application_metric or ()] == ["nginx"]


@pytest.mark.parametrize(
    "unread", [{"aggregatedNodeUsages": "lots"}, {"aggregatedNodeUsages": None}, {"numaUsages": [{}]}]
)
def test_what_a_reader_does_not_act_upon_cannot_spoil_the_rest(unread: dict[str, object]) -> None:
    status = UPSTREAM["status"] | {"nodeMetric": UPSTREAM["status"]["nodeMetric"] | unread}
    read = msgspec.json.decode(json.dumps({"status": status}), type=NodeMetric)
    assert read.status.node_metric is not None
