"""Load-aware scheduling refuses and scores by upstream's rules, and prefers nodes whose predicted peak is low."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manager.nodeside.noderesource.prod_first import ProdWaiting
from manager.nodeside.noderesource.report import NodeReport, ReportedUsage, read
from manager.nodeside.scheduling import args as arguments
from manager.nodeside.scheduling import estimate, loadaware
from manager.nodeside.scheduling.args import LoadAwareArgs
from manager.nodeside.scheduling.loadaware import Incoming
from manager.pods import Estimation, PodRecord
from shared import names
from shared.api.nodemetric import AggregatedUsage, NodeMetric, NodeMetricInfo, NodeMetricStatus, Prediction, ResourceMap
from shared.api.nodemetric_spec import MetricCollectPolicy, NodeMetricSpec
from shared.errors import InvalidInput
from shared.names import PriorityClass, QoS
from shared.quantity import Resources
from tests.unit.manager.objects import GIB, NOW, node, node_report

MIB = 1 << 20
SMALL = Incoming(Resources(100, 100 * MIB))
PROD = Incoming(Resources(100, 100 * MIB), is_prod=True)
NOTHING = Resources()


def args(**fields: Any) -> LoadAwareArgs:
    return arguments.parse(fields, source="test")


def a_pod(name: str = "p", **fields: Any) -> PodRecord:
    """A prod pod on n1 that has run for an hour."""
    known: dict[str, Any] = {
        "key": f"default/{name}",
        "uid": name,
        "node": "n1",
        "active": True,
        "priority_class": PriorityClass.PROD,
        "qos": QoS.LS,
        "priority": 9000,
        "requests": Resources(1000, GIB),
        "scheduled_at": NOW - 3600,
    }
    return PodRecord(**known | fields)


USAGE = Resources(2000, 20 * GIB)


def a_report(usage: Resources | None = USAGE, *, age: float = 10, **fields: Any) -> NodeReport:
    spec = NodeMetricSpec(metric_collect_policy=MetricCollectPolicy(report_interval_seconds=60))
    return node_report(spec=spec, update_time=NOW - age, usage=usage, **fields)


def aggregated(**by_duration: dict[str, Resources]) -> bytes:
    return msgspec.json.encode(
        [
            AggregatedUsage(duration=duration, usage={how: ResourceMap.of(amount) for how, amount in usages.items()})
            for duration, usages in by_duration.items()
        ]
    )


def refused(
    report: NodeReport,
    chosen: LoadAwareArgs,
    *pods: PodRecord,
    incoming: Incoming = SMALL,
    annotation: object = None,
) -> str | None:
    annotations = None if annotation is None else {names.ANNOTATION_USAGE_THRESHOLDS: json.dumps(annotation)}
    load = loadaware.load(node(annotations=annotations), report, pods, chosen)
    return loadaware.why_refused(load, incoming, chosen, NOW)


def scored(report: NodeReport, chosen: LoadAwareArgs, *pods: PodRecord, incoming: Incoming = SMALL) -> int:
    return loadaware.score(loadaware.load(node(), report, pods, chosen), incoming, chosen, NOW)


# What a pod is expected to use


@pytest.mark.parametrize(
    ("pod", "chosen", "expected"),
    [
        (a_pod(), {}, Resources(850, 751_619_277)),
        (a_pod(limits=Resources(2000, 4 * GIB)), {}, Resources(1700, 3_006_477_107)),
        (a_pod(limits=Resources(500, 0)), {}, Resources(500, 751_619_277)),
        (a_pod(requests=NOTHING), {}, Resources(250, 200 * MIB)),
        (a_pod(priority_class=PriorityClass.NONE, requests=NOTHING), {}, Resources(250, 200 * MIB)),
        (a_pod(priority_class=PriorityClass.BATCH, held=Resources(4000, GIB)), {}, Resources(3400, 751_619_277)),
        (a_pod(priority_class=PriorityClass.BATCH), {}, Resources(250, 200 * MIB)),
        (a_pod(priority_class=PriorityClass.MID, held=Resources(4000, GIB)), {}, Resources(3400, 751_619_277)),
        (a_pod(priority_class=PriorityClass.MID), {}, NOTHING),
        (a_pod(priority_class=PriorityClass.FREE), {}, NOTHING),
        (a_pod(), {"estimatedScalingFactors": {"cpu": 50}}, Resources(500, 0)),
        (a_pod(estimation=Estimation(cpu_factor=10)), {}, Resources(850, 751_619_277)),
        (a_pod(estimation=Estimation(cpu_factor=10)), {"allowCustomizeEstimation": True}, Resources(100, 751_619_277)),
    ],
)
def test_a_pod_is_expected_to_use_a_share_of_what_it_may(
    pod: PodRecord, chosen: dict[str, Any], expected: Resources
) -> None:
    assert estimate.estimate(pod, args(**chosen)) == expected


@pytest.mark.parametrize(("value", "whole"), [(0.4999, 0), (0.5, 1), (1.5, 2), (2.5, 3), (2.0, 2)])
def test_halves_round_up(value: float, whole: int) -> None:
    assert estimate.rounded(value) == whole


@pytest.mark.parametrize(
    ("chosen", "own", "initialized_at", "expected"),
    [
        ({}, None, NOW, None),
        ({"estimatedSecondsAfterPodScheduled": 60}, None, None, NOW - 3540),
        ({"estimatedSecondsAfterPodScheduled": 60, "estimatedSecondsAfterInitialized": 5}, None, NOW, NOW + 5),
        ({"estimatedSecondsAfterPodScheduled": 60, "estimatedSecondsAfterInitialized": 5}, None, None, NOW - 3540),
        ({"allowCustomizeEstimation": True}, Estimation(seconds_after_scheduled=7), None, NOW - 3593),
        ({"allowCustomizeEstimation": True}, Estimation(seconds_after_initialized=7), NOW, NOW + 7),
        ({}, Estimation(seconds_after_scheduled=7), None, None),
    ],
)
def test_an_estimate_may_count_for_longer_than_the_report_takes(
    chosen: dict[str, Any], own: Estimation | None, initialized_at: float | None, expected: float | None
) -> None:
    assert estimate.deadline(a_pod(estimation=own, initialized_at=initialized_at), args(**chosen)) == expected


# The filter


@pytest.mark.parametrize(
    ("usage", "reason"),
    [
        (Resources(6449, 0), None),  # with the pod's 100m: 65.49 %, which rounds to the threshold
        (Resources(6450, 0), "node(s) cpu usage exceed threshold"),
        (Resources(0, 95 * GIB), None),
        (Resources(0, 96 * GIB), "node(s) memory usage exceed threshold"),
        (Resources(9000, 99 * GIB), "node(s) cpu usage exceed threshold"),
    ],
)
def test_a_node_above_a_threshold_is_refused(usage: Resources, reason: str | None) -> None:
    assert refused(a_report(usage), args()) == reason


def test_a_threshold_of_zero_is_off() -> None:
    busy = a_report(Resources(9900, 99 * GIB))
    assert refused(busy, args(usageThresholds={"cpu": 0, "memory": 0})) is None
    assert refused(busy, args(usageThresholds={})) is None
    assert refused(busy, args(usageThresholds={"memory": 50})) == "node(s) memory usage exceed threshold"


def test_pods_of_daemon_sets_go_anywhere() -> None:
    assert refused(a_report(Resources(9900, 0)), args(), incoming=Incoming(NOTHING, is_of_daemon_set=True)) is None


@pytest.mark.parametrize(
    ("age", "chosen", "reason"),
    [
        (179.9, {}, None),
        (180, {}, loadaware.EXPIRED),
        (180, {"nodeMetricExpirationSeconds": 181}, None),
        (9999, {"filterExpiredNodeMetrics": False}, None),
        (9999, {"enableScheduleWhenNodeMetricsExpired": True}, None),
        (9999, {"usageThresholds": {}}, None),
    ],
)
def test_a_node_that_has_not_reported_for_too_long_is_refused(
    age: float, chosen: dict[str, Any], reason: str | None
) -> None:
    assert refused(a_report(age=age), args(**chosen)) == reason


def test_a_node_that_never_reported_has_not_reported_for_too_long() -> None:
    silent = node_report()
    assert refused(silent, args()) == loadaware.EXPIRED
    assert refused(silent, args(filterExpiredNodeMetrics=False)) is None


def test_a_report_without_usage_refuses_nobody() -> None:
    assert refused(a_report(None), args()) is None


def test_an_expired_node_is_refused_by_usage_where_expiry_is_not_looked_at() -> None:
    old = a_report(Resources(9000, 0), age=9999)
    assert refused(old, args(filterExpiredNodeMetrics=False)) == "node(s) cpu usage exceed threshold"


def test_prod_pods_are_held_against_the_usage_of_prod_alone() -> None:
    chosen = args(prodUsageThresholds={"cpu": 30})
    pods = {"default/p": ReportedUsage("koord-prod", 2000, GIB)}
    report = a_report(Resources(9000, 0), pods=pods)
    assert refused(report, chosen, a_pod(), incoming=PROD) is None
    assert refused(report, chosen, a_pod()) == "node(s) cpu usage exceed threshold"
    more = {"default/p": ReportedUsage("koord-prod", 3000, GIB)}
    assert refused(a_report(pods=more), chosen, a_pod(), incoming=PROD) == "node(s) cpu usage exceed threshold"


def test_prod_usage_is_that_of_pods_reported_as_prod_and_the_estimate_of_those_that_are_not() -> None:
    chosen = args(prodUsageThresholds={"cpu": 30}, prodUsageIncludeSys=True)
    pods = {
        "default/reported": ReportedUsage("koord-prod", 1000, GIB),
        "default/renamed": ReportedUsage("koord-batch", 9000, GIB),
        "default/batch": ReportedUsage("koord-batch", 9000, GIB),
    }
    report = a_report(pods=pods, system_usage=Resources(300, 0))
    running = [
        a_pod("reported"),
        a_pod("renamed"),
        a_pod("batch", priority_class=PriorityClass.BATCH),
        a_pod("ended", active=False),
    ]
    load = loadaware.load(node(), report, running, chosen)
    assert load.prod_used.cpu_milli == 300 + 1000 + 850


@pytest.mark.parametrize(
    ("reported", "used"),
    [((1000, GIB), (1000, GIB)), ((None, GIB), (850, GIB)), ((1000, None), (1000, 751_619_277))],
)
def test_a_resource_that_is_not_reported_of_a_prod_pod_is_expected(
    reported: tuple[int | None, int | None], used: tuple[int, int]
) -> None:
    report = a_report(pods={"default/p": ReportedUsage("koord-prod", *reported)})
    load = loadaware.load(node(), report, [a_pod()], args(prodUsageThresholds={"cpu": 30}))
    assert load.prod_used == used


def test_an_aggregate_stands_in_for_the_usage() -> None:
    chosen = args(aggregated={"usageThresholds": {"cpu": 50}, "usageAggregationType": "p95"})
    usages = aggregated(
        **{"5m0s": {"p95": Resources(1000, GIB)}, "30m0s": {"p95": Resources(6000, GIB), "avg": Resources(100, GIB)}}
    )
    report = a_report(Resources(9000, GIB), aggregated=usages)
    assert refused(report, chosen) == "node(s) cpu aggregated usage exceed threshold"
    of_five_minutes = {"usageThresholds": {"cpu": 50}, "usageAggregationType": "p95", "usageAggregatedDuration": "5m"}
    assert refused(report, args(aggregated=of_five_minutes)) is None


@pytest.mark.parametrize(
    "usages",
    [
        b"",
        aggregated(**{"5m0s": {}}),
        b"[{]",
        b'[{"duration": "nonsense", "usage": {"p95": {"resources": {"cpu": "1"}}}}]',
        aggregated(**{"5m0s": {"p95": Resources(-1, GIB)}}),
    ],
)
def test_without_an_aggregate_of_any_time_it_is_the_plain_usage(usages: bytes) -> None:
    chosen = args(aggregated={"usageThresholds": {"cpu": 50}, "usageAggregationType": "p95"})
    report = a_report(Resources(6000, GIB), aggregated=usages)
    assert refused(report, chosen) == "node(s) cpu aggregated usage exceed threshold"


def test_without_the_aggregate_of_the_time_asked_for_it_is_what_all_pods_should_use() -> None:
    wanted = {"usageThresholds": {"cpu": 50}, "usageAggregationType": "p95", "usageAggregatedDuration": "1h"}
    report = a_report(Resources(9000, GIB), aggregated=aggregated(**{"5m0s": {"p95": Resources(9000, GIB)}}))
    load = loadaware.load(node(), report, [a_pod("a"), a_pod("b"), a_pod("c", active=False)], args(aggregated=wanted))
    assert load.used == Resources(1700, 2 * 751_619_277)


def test_a_node_sets_its_own_thresholds() -> None:
    report = a_report(Resources(5000, GIB))
    assert refused(report, args(), annotation={"usageThresholds": {"cpu": 40}}) == "node(s) cpu usage exceed threshold"
    assert refused(report, args(usageThresholds={"cpu": 10}), annotation={"usageThresholds": {"cpu": 60}}) is None
    prod = {"prodUsageThresholds": {"cpu": 1}}
    assert refused(report, args(), a_pod(), incoming=PROD, annotation=prod) == "node(s) cpu usage exceed threshold"
    usages = aggregated(**{"5m0s": {"p90": Resources(9000, GIB)}})
    by_p90 = {"aggregatedUsage": {"usageThresholds": {"cpu": 70}, "usageAggregationType": "p90"}}
    busy = a_report(Resources(5000, GIB), aggregated=usages)
    assert refused(busy, args(), annotation=by_p90) == "node(s) cpu aggregated usage exceed threshold"
    assert refused(busy, args(), annotation={"aggregatedUsage": {"usageThresholds": {"cpu": 70}}}) is None


@pytest.mark.parametrize("text", ["{", "[]", '{"usageThresholds": {"cpu": 101}}', '{"usageThresholds": 5}'])
def test_an_annotation_that_means_nothing_sets_nothing(text: str) -> None:
    found = node(annotations={names.ANNOTATION_USAGE_THRESHOLDS: text})
    assert loadaware.limits_of(found, args()).usage == args().usage_thresholds


# Pods that are not measured yet

UNMEASURED = Resources(850, 751_619_277)


@pytest.mark.parametrize(
    ("pod", "reported", "chosen", "delta"),
    [
        (a_pod(), None, {}, UNMEASURED),
        (a_pod(), NOTHING, {}, UNMEASURED),
        (a_pod(), Resources(300, 1), {}, NOTHING),
        (a_pod(scheduled_at=None), Resources(300, GIB), {}, NOTHING),
        (a_pod(scheduled_at=NOW - 70), Resources(300, GIB), {}, NOTHING),  # reported 10 s ago, of the 60 s before
        (a_pod(scheduled_at=NOW - 69), Resources(300, GIB), {}, Resources(550, 0)),
        (a_pod(scheduled_at=NOW - 69), Resources(900, GIB), {}, NOTHING),
        (a_pod(scheduled_at=NOW), None, {}, UNMEASURED),
        (a_pod(), Resources(300, GIB), {"estimatedSecondsAfterPodScheduled": 3590}, NOTHING),
        (a_pod(), Resources(300, GIB), {"estimatedSecondsAfterPodScheduled": 3591}, Resources(550, 0)),
        (a_pod(scheduled_at=NOW - 70), Resources(300, GIB), {"estimatedSecondsAfterPodScheduled": 1}, NOTHING),
        (a_pod(active=False), None, {}, NOTHING),
    ],
)
def test_a_pod_counts_with_its_estimate_until_it_is_measured(
    pod: PodRecord, reported: Resources | None, chosen: dict[str, Any], delta: Resources
) -> None:
    pods = {} if reported is None else {pod.key: ReportedUsage("koord-prod", *reported)}
    load = loadaware.load(node(), a_report(Resources(2000, 20 * GIB), pods=pods), [pod], args(**chosen))
    assert load.used == load.scored_used == Resources(2000, 20 * GIB).plus(delta)


# The score


def test_the_score_is_the_weighted_share_left_over() -> None:
    report = a_report(Resources(1900, 20 * GIB - 100 * MIB))  # with the pod: 20 % of both
    assert scored(report, args(predictedPeakWeight=0)) == 80
    report = a_report(Resources(5900, 20 * GIB - 100 * MIB))
    assert scored(report, args(predictedPeakWeight=0)) == 60
    assert scored(report, args(predictedPeakWeight=0, resourceWeights={"cpu": 3, "memory": 1})) == 50
    assert scored(report, args(predictedPeakWeight=0, resourceWeights={"cpu": 1})) == 40
    assert scored(report, args(predictedPeakWeight=0, dominantResourceWeight=2)) == 50
    assert scored(report, args(predictedPeakWeight=0, resourceWeights={})) == 0


@pytest.mark.parametrize("report", [a_report(age=180), a_report(None), node_report()])
def test_nothing_is_good_about_a_node_that_is_not_known(report: NodeReport) -> None:
    assert scored(report, args(filterExpiredNodeMetrics=False)) == 0


def test_the_score_may_go_by_prod_usage_or_by_an_aggregate() -> None:
    pods = {"default/p": ReportedUsage("koord-prod", 900, GIB)}
    report = a_report(Resources(8900, GIB), pods=pods, aggregated=aggregated(**{"5m0s": {"p95": Resources(4900, GIB)}}))
    by_cpu = {"predictedPeakWeight": 0, "resourceWeights": {"cpu": 1}}
    assert scored(report, args(**by_cpu), a_pod(), incoming=PROD) == 10
    assert scored(report, args(scoreAccordingProdUsage=True, **by_cpu), a_pod(), incoming=PROD) == 90
    assert scored(report, args(scoreAccordingProdUsage=True, **by_cpu), a_pod()) == 10
    assert scored(report, args(aggregated={"scoreAggregationType": "p95"}, **by_cpu), a_pod()) == 50


def test_of_nodes_in_equal_use_the_one_that_will_be_idle_for_long_is_better() -> None:
    def peaking(cpu_milli: int, history: int = 90) -> NodeReport:
        return a_report(node_peak=Resources(cpu_milli, 20 * GIB), history_percent=history)

    low, high, unknown = (scored(each, args()) for each in (peaking(3000), peaking(9500), a_report()))
    assert low > unknown > high
    assert scored(peaking(9500, history=49), args()) == unknown
    assert scored(peaking(9500, history=50), args()) == high
    assert scored(peaking(3000), args(predictedPeakWeight=0)) == scored(peaking(9500), args(predictedPeakWeight=0))


amounts = st.builds(Resources, st.integers(0, 20_000), st.integers(0, 200 * GIB))
negatives_too = amounts.map(Resources(5000, 50 * GIB).minus)
weights = st.fixed_dictionaries({"cpu": st.integers(0, 100), "memory": st.integers(0, 100)})


@given(negatives_too, amounts, st.none() | amounts, weights, st.integers(0, 100), st.integers(0, 100))
def test_more_usage_never_scores_higher_and_is_never_let_in_where_less_is_not(
    used: Resources, more: Resources, peak: Resources | None, weighed: dict[str, int], dominant: int, peak_weight: int
) -> None:
    chosen = args(resourceWeights=weighed, dominantResourceWeight=dominant, predictedPeakWeight=peak_weight)
    known: dict[str, Any] = {"node_peak": peak, "history_percent": 100}
    less_used, more_used = a_report(used, **known), a_report(used.plus(more), **known)
    assert 0 <= scored(more_used, chosen) <= scored(less_used, chosen) <= loadaware.MAX_SCORE
    if refused(less_used, chosen) is not None:
        assert refused(more_used, chosen) is not None


# From the wire


def test_what_an_agent_reports_is_read_for_schedulers_too() -> None:
    wire: dict[str, Any] = {
        "metadata": {"name": "n1"},
        "status": {
            "updateTime": "2023-11-14T22:13:20Z",
            "nodeMetric": {
                "nodeUsage": {"resources": {"cpu": "1", "memory": "1Gi"}},
                "aggregatedNodeUsages": [
                    {"duration": "5m0s", "usage": {"p95": {"resources": {"cpu": "2500m", "memory": "3Gi"}}, "p50": {}}}
                ],
            },
            "prediction": {"nodePeak": {"cpu": "4", "memory": "5Gi"}, "historyPercent": 66},
        },
    }
    found = read(msgspec.json.decode(msgspec.json.encode(wire), type=NodeMetric))
    assert (found.node_peak, found.history_percent) == (Resources(4000, 5 * GIB), 66)
    older = {**wire, "status": {**wire["status"], "prediction": {"confidencePercent": 40}}}
    assert read(msgspec.json.decode(msgspec.json.encode(older), type=NodeMetric)).history_percent == 40
    by_p95 = args(aggregated={"usageThresholds": {"cpu": 20}, "usageAggregationType": "p95"})
    assert refused(found, by_p95) == "node(s) cpu aggregated usage exceed threshold"


def test_no_node_needs_so_many_aggregates_that_all_are_kept() -> None:
    usage = {"p95": ResourceMap.of(Resources(1000, GIB))}
    listed = tuple(AggregatedUsage(usage, f"{index}s") for index in range(1000))
    info = NodeMetricInfo(
        ResourceMap.of(Resources(1000, GIB)), aggregated_node_usages=msgspec.Raw(msgspec.json.encode(listed))
    )
    metric = NodeMetric(status=NodeMetricStatus(node_metric=info))
    assert read(metric).aggregated == b""
    assert read(metric).usage == Resources(1000, GIB)


def test_a_peak_that_means_nothing_spoils_its_report_alone() -> None:
    metric = NodeMetric(status=NodeMetricStatus(prediction=Prediction(node_peak={"cpu": "-1", "memory": "1Gi"})))
    problem = read(metric).problem
    assert problem is not None
    assert problem.field == "status.prediction.nodePeak"


# The arguments


def test_the_sample_file_says_what_is_so_without_it() -> None:
    assert arguments.load("deploy/scheduler/load-aware-args.yaml") == LoadAwareArgs()


def test_without_a_file_load_refuses_no_node() -> None:
    shipped = arguments.load("")
    assert refused(a_report(Resources(9999, 99 * GIB), age=9999), shipped) is None
    assert scored(a_report(age=299), shipped) > scored(a_report(age=300), shipped) == 0


@pytest.mark.parametrize(
    ("document", "named"),
    [
        ({"usageThresholds": {"cpu": 101}}, "usageThresholds.cpu: 101: Expected `int` <= 100"),
        ({"usageThresholds": {"gpu": 1}}, "usageThresholds: {'gpu': 1}: Object contains unknown field `gpu`"),
        ({"nodeMetricExpirationSeconds": 0}, "nodeMetricExpirationSeconds: 0"),
        ({"aggregated": {"usageAggregationType": "p33"}}, "aggregated.usageAggregationType: 'p33'"),
        ({"aggregated": {"scoreAggregatedDuration": "soon"}}, "aggregated.scoreAggregatedDuration: 'soon'"),
        ({"estimatedScalingFactor": {}}, "estimatedScalingFactor"),
        (["usageThresholds"], "(document)"),
        ({"supportedResources": ["memory"]}, "supportedResources: ['memory']: expected both"),
        ({"supportedResources": []}, "supportedResources: []: expected both"),
    ],
)
def test_arguments_that_mean_nothing_are_named(document: object, named: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        arguments.parse(document, source="args.yaml")
    assert str(refusal.value).startswith("args.yaml: ")
    assert named in str(refusal.value)


def test_a_node_whose_prod_pods_wait_too_long_is_the_last_choice_while_they_do() -> None:
    def waits(since: float | None) -> dict[str, ProdWaiting]:
        return {names.CPU: ProdWaiting(30.0, 1.0, since, NOW - 100)}

    assert scored(a_report(prod_waits=waits(NOW - 60)), args()) == 0
    assert scored(a_report(prod_waits=waits(None)), args()) == scored(a_report(), args()) > 0
