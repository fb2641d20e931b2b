"""The status says what was observed, and its patch leaves nothing of an older one behind."""

from dataclasses import replace
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from agent.enforcer import status
from agent.enforcer.status import STALE_SECONDS, EnforcerState, EnforcerStatus
from agent.metric_cache import series
from agent.metric_cache.series import Usage
from agent.predict_server import reclaimable
from agent.predict_server.histories import History
from agent.predict_server.lenders import Requests
from agent.predict_server.prediction import HorizonPromise, NodePrediction, ShadowResult, recommended
from agent.predict_server.reclaimable import Inputs
from agent.predict_server.records import PromiseRecord, WithdrawalRecord
from agent.reporter import conditions, report
from agent.reporter.conditions import Circumstances
from agent.reporter.measurements import AGGREGATIONS, Aggregated, MeasuredAverages, NumaAverages
from agent.reporter.report import ReportInputs
from agent.reporter.schedule import ReportReason
from agent.states_informer.pods import NodePod
from manager.nodeside import promises as node_promises
from shared.api import nodemetric, predictionprior
from shared.api.nodemetric_spec import NodeMetricSpec, PredictPolicy
from shared.api.predictionprior import Tail
from shared.quantity import Resources
from tests.unit.agent.pods import NOW, pod

NOTHING = Requests(Resources(), Resources())


def untrained(problem: str = "") -> NodePrediction:
    return NodePrediction(time=NOW, model="n-sigma-v1", requests=NOTHING, policy_problem=problem)


def trained() -> NodePrediction:
    history = History(Usage(1.0, 2**30), Usage(0.1, 0.0), samples=12, first_observed=NOW - 50)
    peak = Resources(1500, 2**30)
    requests = Requests(Resources(3000, 2**32), Resources())
    answer = reclaimable.compute(Inputs(Resources(4000, 2**33), requests, history, {"n-sigma-v1": peak}, 100, NOW))
    return NodePrediction(NOW, "n-sigma-v1", NOTHING, history, peak, peak, answer, history_percent=50)


def patched(prediction: NodePrediction, measured: MeasuredAverages, *pods: NodePod) -> Any:
    """The status as a reader of JSON sees it."""
    told = conditions.conditions(prediction, Circumstances(), (), NOW)
    observed = ReportInputs(measured, pods, prediction, told)
    sent = msgspec.json.encode(report.patch(report.status(observed, ReportReason.PERIODIC, NOW)))
    (operation,) = msgspec.json.decode(sent)
    assert (operation["op"], operation["path"]) == ("add", "/status")  # in the place of the whole one before
    return operation["value"]


def test_before_the_first_training_nothing_is_reclaimable_and_the_status_says_why() -> None:
    status = patched(untrained(), MeasuredAverages({series.NODE: Usage(1.5, 2**30)}))
    assert status["prodReclaimableMetric"] == {"resource": {"resources": {"cpu": "0", "memory": "0"}}}
    assert "prodPeakMetric" not in status
    prediction = status["prediction"]
    assert prediction["conditions"][0]["reason"] == "InsufficientHistory"
    assert not prediction.keys() & {"mean", "samples"}


def test_it_is_told_how_promises_were_kept_and_what_n_sigma_says_whatever_model_decides() -> None:
    peak = Resources(1500, 2**30)
    kept = PromiseRecord(86400.0, 648, (0.617, 0.0), severity_percents=(0.031, 0.0), lent_percents=(61.2, 48.0))
    tails = (predictionprior.ObservedTail(Tail(-0.01, 0.05), 27.0), predictionprior.ObservedTail(Tail(0.2, 0.0), 27.0))
    promises = (HorizonPromise(peak, kept, tails=tails), HorizonPromise(peak, PromiseRecord(3600.0, 0, (0.0, 0.0))))
    n_sigma = {"n-sigma-v1": Resources(1000, 2**29), "n-sigma-v2": peak}
    known = replace(
        trained(),
        n_sigma=n_sigma,
        promises=promises,
        shadows=(ShadowResult("percentile", kept),),
        withdrawn=(WithdrawalRecord(86400, (2.1, 0.0)),),
        target_violation_percent=1.0,
    )
    prediction = patched(known, MeasuredAverages({}))["prediction"]
    assert prediction["nSigmaV1Peak"] == {"cpu": "1", "memory": "512Mi"}
    assert prediction["nSigmaV2Peak"]["cpu"] == "1500m"
    day, hour = prediction["promises"]
    assert (day["horizonSeconds"], day["outcomes"], day["targetViolationPercent"]) == (86400, 648, "1")
    assert (day["cpuViolationPercent"], day["memoryViolationPercent"]) == ("0.62", "0.00")
    assert (day["cpuSeverityPercent"], day["cpuLentPercent"], day["coveragePercent"]) == ("0.03", "61.20", "96.43")
    assert prediction["shadows"] == [
        {"model": "percentile", "outcomes": 648, "cpuViolationPercent": "0.62", "memoryViolationPercent": "0.00"}
        | {"cpuLentPercent": "61.20", "memoryLentPercent": "48.00"}
    ]
    assert prediction["withdrawals"] == [
        {"windowSeconds": 86400, "cpuPercentPerDay": "2.10", "memoryPercentPerDay": "0.00"}
    ]
    assert (hour["horizonSeconds"], hour["coveragePercent"]) == (3600, "0.00")
    assert day["cpuTail"] == {"quantile": "-0.0100", "meanExcess": "0.0500", "days": "27.00"}
    assert day["memoryTail"]["meanExcess"] == "0.0000"
    assert prediction["prior"] == {"source": "built-in"}
    assert "cpuTail" not in hour
    assert "cpuViolationPercent" not in hour


@given(st.lists(st.tuples(st.integers(0, 672), *[st.floats(0, 100)] * 4), min_size=2, max_size=4), st.floats(0.01, 50))
def test_whoever_reads_the_status_recommends_the_same_model_in_the_same_words(
    told: list[tuple[int, float, float, float, float]], target: float
) -> None:
    target = float(f"{target:g}")
    of_active, *of_shadows = (
        PromiseRecord(86400.0, outcomes, (cpu, memory), lent_percents=(cpu_lent, memory_lent))
        for outcomes, cpu, memory, cpu_lent, memory_lent in told
    )
    promises = (HorizonPromise(Resources(1500, 2**30), of_active),)
    shadows = tuple(ShadowResult(f"shadow-{place}", kept) for place, kept in enumerate(of_shadows))
    known = replace(trained(), promises=promises, shadows=shadows, target_violation_percent=target)
    prediction = msgspec.convert(patched(known, MeasuredAverages({}))["prediction"], nodemetric.Prediction)
    read = node_promises.read(prediction, source="NodeMetric n")
    said = recommended(known.model, promises, shadows, target)
    assert node_promises.recommended(prediction.model, read, NodeMetricSpec()) == said
    without = replace(known, target_violation_percent=None)
    prediction = msgspec.convert(patched(without, MeasuredAverages({}))["prediction"], nodemetric.Prediction)
    read = node_promises.read(prediction, source="NodeMetric n")
    spec = NodeMetricSpec(predict_policy=PredictPolicy(target_violation_percent=f"{target:.9f}"))
    assert node_promises.recommended(prediction.model, read, spec) == said


def test_amounts_are_upstreams_quantities_and_pods_are_sorted() -> None:
    averages = {
        series.NODE: Usage(1.5009, 2**30 + 0.7),
        series.SYSTEM: Usage(0.25, 2**20),
        "b": Usage(0.1, 1024.0),
        "a": Usage(0.2, 2048.0),
    }
    status = patched(trained(), MeasuredAverages(averages), pod("b"), pod("a"), pod("unread"))
    assert status["nodeMetric"]["nodeUsage"] == {"resources": {"cpu": "1500m", "memory": "1Gi"}}
    assert status["nodeMetric"]["systemUsage"] == {"resources": {"cpu": "250m", "memory": "1Mi"}}
    assert list(status["podsMetric"]) == [
        {
            "name": name,
            "namespace": "default",
            "podUsage": {"resources": {"cpu": cpu, "memory": memory}},
            "priority": "koord-prod",
            "qos": "LS",
        }
        for name, cpu, memory in (("a", "200m", "2Ki"), ("b", "100m", "1Ki"))
    ]
    assert status["prodReclaimableMetric"]["resource"]["resources"]["cpu"] == "1500m"
    assert status["prediction"]["peak"]["cpu"] == "1500m"
    assert status["prediction"]["historyPercent"] == 50


def test_a_pod_has_its_predicted_peak_if_its_history_suffices() -> None:
    averages = {series.NODE: Usage(1.5, 2**30), "a": Usage(0.2, 2048.0), "b": Usage(0.1, 1024.0)}
    known = replace(trained(), pod_peaks={"a": Resources(250, 2**20)})
    old, young = patched(known, MeasuredAverages(averages), pod("a"), pod("b"))["podsMetric"]
    assert old["extensions"] == {"predictedPeak": {"cpu": "250m", "memory": "1Mi"}}
    assert "extensions" not in young


def test_every_window_has_every_aggregate_and_in_a_cold_start_all_are_empty() -> None:
    usages = {how: Usage(place + 1.0, 1024.0 * (place + 1)) for place, how in enumerate(AGGREGATIONS)}
    measured = MeasuredAverages({}, node=(Aggregated(300, usages), Aggregated(3600, {})), system=(Aggregated(300, {}),))
    found = patched(untrained(), measured)["nodeMetric"]
    short, long = found["aggregatedNodeUsages"]
    assert (short["duration"], long["duration"]) == ("5m0s", "1h0m0s")
    assert short["usage"]["p95"] == {"resources": {"cpu": "4", "memory": "4Ki"}}
    assert long["usage"] == {"avg": {}, "p50": {}, "p90": {}, "p95": {}, "p99": {}}
    assert found["aggregatedSystemUsages"] == [{"usage": long["usage"], "duration": "5m0s"}]


def test_numa_nodes_are_reported_by_number() -> None:
    measured = MeasuredAverages(
        {},
        numa=(NumaAverages(0, Usage(1.5, 1024), Usage(0.5, 512)), NumaAverages(1, Usage(2.5, 2048), None)),
    )
    status = patched(untrained(), measured)
    assert status["nodeMetric"]["numaUsages"] == [
        {
            "numaNodeID": 0,
            "nodeUsage": {"resources": {"cpu": "1500m", "memory": "1Ki"}},
            "systemUsage": {"resources": {"cpu": "500m", "memory": "512"}},
        },
        {"numaNodeID": 1, "nodeUsage": {"resources": {"cpu": "2500m", "memory": "2Ki"}}, "systemUsage": {}},
    ]
    assert "numaUsages" not in patched(untrained(), MeasuredAverages({}))["nodeMetric"]


def test_a_condition_keeps_the_time_it_last_changed() -> None:
    first = conditions.conditions(untrained(), Circumstances(), (), NOW)
    later = conditions.conditions(untrained(problem="bad"), Circumstances(), first, NOW + 60)
    before, after = ({one.type: one for one in told} for told in (first, later))
    ready, accepted = conditions.MODEL_READY, conditions.POLICY_ACCEPTED
    assert after[ready].last_transition_time == before[ready].last_transition_time
    assert after[accepted].last_transition_time != before[accepted].last_transition_time
    assert (after[accepted].status, after[accepted].message) == ("False", "bad")


def test_what_an_enforcer_has_found_is_a_condition_only_where_there_is_one() -> None:
    def told(enforcer: EnforcerState | None) -> list[tuple[str, str, str]]:
        found = conditions.conditions(trained(), Circumstances(enforcer=enforcer), (), NOW)
        return [(one.status, one.reason, one.message) for one in found if one.type == conditions.ENFORCER_READY]

    assert told(None) == []
    found = EnforcerStatus(at=NOW, layout="cgroup v2 systemd, kubepods.slice")
    at_work = "pods are bounded through cgroup v2 systemd, kubepods.slice"
    assert told(status.state(found, NOW + STALE_SECONDS)) == [("True", "Bounding", at_work)]
    ((state, reason, _),) = told(status.state(found, NOW + STALE_SECONDS + 1))
    assert (state, reason) == ("False", "Silent")
    ((state, reason, _),) = told(status.state(EnforcerStatus(at=NOW), NOW))
    assert (state, reason) == ("False", "NoKubepods")


def test_every_trouble_has_a_condition_of_its_own() -> None:
    def false(prediction: NodePrediction, circumstances: Circumstances) -> dict[str, str]:
        told = conditions.conditions(prediction, circumstances, (), NOW)
        assert all(one.reason and one.message and one.last_transition_time for one in told)
        return {one.type: one.message for one in told if one.status == "False"}

    assert false(trained(), Circumstances(source="cgroup v2 systemd")) == {}
    both = false(replace(trained(), policy_problem="bad"), Circumstances(report_problem="worse"))
    assert both == {conditions.POLICY_ACCEPTED: "bad; worse"}
    by_trees = false(trained(), Circumstances(source="process trees", by_cgroups=False))
    assert by_trees == {conditions.CGROUPS_READ: "usage is read through process trees"}
    silent = status.state(None, NOW)
    assert false(trained(), Circumstances(enforcer=silent)) == {conditions.ENFORCER_READY: silent.message}
    assert false(trained(), Circumstances(pods_problem="big")) == {conditions.PODS_COMPLETE: "big"}
    broken = replace(trained(), predictor_problem="x" * 5000)
    assert false(broken, Circumstances()) == {conditions.PREDICTOR_HEALTHY: "x" * conditions.MAX_MESSAGE}
