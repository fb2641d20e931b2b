"""What is kept of a NodeMetric: numbers where it means something, and the problem where it does not."""

import gc
import weakref
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manager.nodeside.noderesource import report
from manager.nodeside.noderesource.report import NodeReport
from shared.api.nodemetric import NodeMetric
from shared.api.nodemetric_spec import MetricCollectPolicy, NodeMetricSpec
from shared.quantity import Resources


def read(**status: Any) -> NodeReport:
    return report.read(msgspec.convert({"metadata": {"name": "n1", "uid": "u"}, "status": status}, NodeMetric))


def used(cpu: str, memory: str) -> dict[str, Any]:
    return {"resources": {"cpu": cpu, "memory": memory}}


def test_a_report_is_read_into_numbers() -> None:
    found = read(
        updateTime="2023-11-14T22:13:20Z",
        nodeMetric={"nodeUsage": used("2", "3Gi"), "systemUsage": used("100m", "1Gi")},
        podsMetric=[{"name": "p", "namespace": "default", "podUsage": used("150m", "512Mi"), "priority": "koord-mid"}],
        hostApplicationMetric=[
            {"name": "h", "usage": used("50m", "0"), "priority": "koord-prod"},
            {"name": "h", "usage": used("70m", "1"), "priority": "koord-prod"},
        ],
        prodReclaimableMetric={"resource": used("-1", "2Gi")},
    )
    assert found.problem is None
    assert found.update_time == 1_700_000_000
    assert (found.usage, found.system_usage) == (Resources(2000, 3 << 30), Resources(100, 1 << 30))
    assert found.pods["default/p"].usage == Resources(150, 512 << 20)
    assert found.pods["default/p"].priority_class == "koord-mid"
    assert [each.usage for each in found.host_applications] == [Resources(50, 0), Resources(70, 1)]
    assert (found.reclaimable, found.peak) == (Resources(-1000, 2 << 30), (None, None))
    assert found.prod_usage == Resources(1850, 5 << 29), "what Mid uses is no usage that the peak is about"


@pytest.mark.parametrize(
    ("status", "named"),
    [
        ({"updateTime": "yesterday"}, "status.updateTime: 'yesterday'"),
        ({"nodeMetric": {"nodeUsage": used("lots", "1Gi")}}, "status.nodeMetric.nodeUsage: {'cpu': 'lots'"),
        ({"nodeMetric": {"systemUsage": used("-1", "1Gi")}}, "systemUsage: .*a usage cannot be negative"),
        ({"podsMetric": [{"name": "p", "podUsage": used("1", "-1")}]}, r"status.podsMetric\[/p\].podUsage: .*negative"),
        ({"prodPeakMetric": {"resource": used("1", "1ki")}}, "status.prodPeakMetric.resource: .*'1ki'"),
        ({"prodPeakMetric": {"resource": used("-1", "1")}}, "status.prodPeakMetric.resource: .*cannot be negative"),
        ({"nodeMetric": {"nodeUsage": used("9E", "1")}}, r"status.nodeMetric.nodeUsage: .*less than 2\^63"),
        (
            {"podsMetric": [{"name": "p", "podUsage": used("1", "9E9")}, {"name": "q", "podUsage": used("1", "99E")}]},
            r"status.podsMetric\[/q\].podUsage: .*less than 2\^63",
        ),
        ({"prodReclaimableMetric": {"resource": used("1", "-99E")}}, r"prodReclaimableMetric.resource: .*than 2\^63"),
        ({"prediction": {"nodePeak": {"cpu": "-1"}}}, "status.prediction.nodePeak: .*cannot be negative"),
        ({"podsMetric": [{"name": str(i)} for i in range(5000)]}, "status.podsMetric: 5000: no node runs more than"),
        ({"hostApplicationMetric": [{"name": str(i)} for i in range(5000)]}, "status.hostApplicationMetric: 5000"),
    ],
)
def test_a_report_that_means_nothing_says_why_and_nothing_else(status: dict[str, Any], named: str) -> None:
    sound: dict[str, Any] = {
        "updateTime": "2023-11-14T22:13:20Z",
        "prodReclaimableMetric": {"resource": used("1", "1Gi")},
    }
    found = read(**sound | status)
    with pytest.raises(ValueError, match=named):
        raise found.problem or AssertionError("it was taken")
    assert (found.update_time, found.reclaimable, dict(found.pods)) == (None, None, {})


def test_a_refused_report_does_not_hold_on_to_the_object() -> None:
    class Watched(NodeMetric, frozen=True, weakref=True):
        pass

    metric = msgspec.convert({"metadata": {"name": "n1"}, "status": {"updateTime": "never"}}, Watched)
    gone = weakref.ref(metric)
    found = report.read(metric)
    del metric
    gc.collect()
    assert found.problem is not None
    assert gone() is None


def test_equal_specs_are_kept_once() -> None:
    wire = msgspec.json.encode({"spec": {"metricCollectPolicy": {"reportIntervalSeconds": 7}}})
    first, second = (report.read(msgspec.json.decode(wire, type=NodeMetric)) for _ in range(2))
    assert first.spec.metric_collect_policy == MetricCollectPolicy(report_interval_seconds=7)
    assert first.spec is second.spec


@pytest.mark.parametrize(
    ("spec", "unread"),
    [
        ({"predictPolicy": {"sigmaCPU": -3}}, {"predictPolicy": {"sigmaCPU": -3}}),
        ({"midPolicy": 5}, {"midPolicy": 5}),
        ("words", {}),
        (None, None),
        ({}, None),
    ],
)
def test_a_spec_that_means_nothing_counts_as_empty_and_spoils_nothing(spec: object, unread: object) -> None:
    status = {"updateTime": "2023-11-14T22:13:20Z"}
    wire = msgspec.json.encode({"metadata": {"name": "n1"}, "spec": spec, "status": status})
    found = report.read(msgspec.json.decode(wire, type=NodeMetric))
    assert (found.spec, found.unread_spec) == (NodeMetricSpec(), unread)
    assert (found.problem, found.update_time) == (None, 1_700_000_000)


TEXTS = st.text(max_size=6) | st.sampled_from(["1", "-1", "100m", "1e3", "9" * 70, "12E", "0001-01-01T00:00:00+23:59"])


@given(cpu=TEXTS, memory=TEXTS, time=TEXTS)
def test_no_text_is_too_strange_and_no_usage_negative(cpu: str, memory: str, time: str) -> None:
    pods = [{"name": cpu, "namespace": memory, "podUsage": used(cpu, memory), "priority": time}]
    found = read(updateTime=time, nodeMetric={"nodeUsage": used(cpu, memory)}, podsMetric=pods)
    assert all(min(each.usage) >= 0 for each in found.pods.values())
    assert found.usage is None or min(found.usage) >= 0
    assert (found.problem is None) == (found.update_time is not None)


@pytest.mark.parametrize(
    "status",
    [{}, {"nodeMetric": None}, {"nodeMetric": {}}, {"nodeMetric": {"systemUsage": {"resources": {}}}}],
)
def test_each_resource_that_the_system_is_not_reported_to_use_is_unknown(status: dict[str, Any]) -> None:
    assert read(**status).system_usage == (None, None)
    cpu_alone = {"nodeMetric": {"systemUsage": {"resources": {"cpu": "1"}}}}
    assert read(**cpu_alone).system_usage == (1000, None)
    assert read(nodeMetric={"systemUsage": used("1", "1Gi")}).system_usage == Resources(1000, 1 << 30)


def test_each_resource_of_pods_and_peaks_that_is_not_reported_is_unknown_and_none_is_zero() -> None:
    pods = {"whole": used("1", "1Gi"), "cpu": {"resources": {"cpu": "1"}}, "memory": {"resources": {"memory": "1Gi"}}}
    listed = [{"name": name, "podUsage": usage} for name, usage in pods.items()]
    found = read(
        podsMetric=[*listed, {"name": "none"}, {"name": "null", "podUsage": {"resources": {"cpu": None}}}],
        hostApplicationMetric=[{"name": "h", "usage": {"resources": {"cpu": "1"}}, "priority": "koord-prod"}],
        prodPeakMetric={"resource": {"resources": {"memory": "1Gi"}}},
        prediction={"nodePeak": {"cpu": "1"}},
    )
    assert found.problem is None
    assert {key: usage.parts for key, usage in found.pods.items()} == {
        "/whole": (1000, 1 << 30),
        "/cpu": (1000, None),
        "/memory": (None, 1 << 30),
        "/none": (None, None),
        "/null": (None, None),
    }
    assert [each.parts for each in found.host_applications] == [(1000, None)]
    assert (found.peak, found.node_peak) == ((None, 1 << 30), None)
    assert read(prediction={"nodePeak": {"cpu": "1", "memory": "1"}}).node_peak == Resources(1000, 1)
