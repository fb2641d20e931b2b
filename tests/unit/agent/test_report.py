"""The status says what was observed, and its patch leaves nothing of an older one behind."""

from typing import Any

from agent.metric_cache import series
from agent.metric_cache.series import Usage
from agent.predict_server import reclaimable
from agent.predict_server.models import History, NSigmaV1
from agent.predict_server.reclaimable import Inputs, Requests, rounded_up
from agent.predict_server.server import Prediction
from agent.reporter import patch, report
from agent.reporter.report import Observed
from agent.reporter.schedule import Reason
from agent.states_informer.pods import NodePod
from shared.quantity import Resources
from tests.unit.agent.pods import NOW, pod

NOTHING = Requests(Resources(), Resources())


def untrained(problem: str = "") -> Prediction:
    return Prediction(time=NOW, model="n-sigma-v1", requests=NOTHING, policy_problem=problem)


def trained() -> Prediction:
    model = NSigmaV1(Usage(5.0, 5.0))
    history = History(Usage(1.0, 2**30), Usage(0.1, 0.0), samples=12, first_observed=NOW - 50)
    peak = model.peak(history)
    answer = reclaimable.compute(
        Inputs(
            Resources(4000, 2**33), Requests(Resources(3000, 2**32), Resources()), history, model.sigma, peak, 100, NOW
        )
    )
    return Prediction(
        NOW, model.name, NOTHING, history, rounded_up(peak), rounded_up(peak), answer, confidence_percent=50
    )


def patched(prediction: Prediction, averages: dict[str, Usage], *pods: NodePod) -> Any:
    """The status as a reader of JSON sees it."""
    conditions = report.conditions(prediction, (), NOW)
    observed = Observed(averages, pods, prediction, conditions)
    return patch.body(report.status(observed, Reason.PERIODIC, NOW))["status"]


def test_before_the_first_training_nothing_is_reclaimable_and_the_status_says_why() -> None:
    status = patched(untrained(), {series.NODE: Usage(1.5, 2**30)})
    assert status["prodReclaimableMetric"] == {"resource": {"resources": {"cpu": "0", "memory": "0"}, "devices": None}}
    assert status["prodPeakMetric"] is None
    prediction = status["prediction"]
    assert prediction["conditions"][0]["reason"] == "InsufficientHistory"
    assert prediction["mean"] is None
    assert prediction["samples"] == 0


def test_amounts_are_upstreams_quantities_and_pods_are_sorted() -> None:
    averages = {
        series.NODE: Usage(1.5009, 2**30 + 0.7),
        series.SYSTEM: Usage(0.25, 2**20),
        "b": Usage(0.1, 1024.0),
        "a": Usage(0.2, 2048.0),
    }
    status = patched(trained(), averages, pod("b"), pod("a"), pod("unread"))
    assert status["nodeMetric"] == {
        "nodeUsage": {"resources": {"cpu": "1500m", "memory": "1Gi"}, "devices": None},
        "systemUsage": {"resources": {"cpu": "250m", "memory": "1Mi"}, "devices": None},
    }
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
    assert status["prediction"]["confidencePercent"] == 50


def test_a_patch_names_every_field_so_that_none_survives_from_an_older_report() -> None:
    assert patched(untrained(), {}).keys() == patched(trained(), {series.NODE: Usage(1.0, 1.0)}).keys()
    older, newer = patched(trained(), {})["prediction"], patched(untrained(), {})["prediction"]
    assert older.keys() == newer.keys()


def test_a_condition_keeps_the_time_it_last_changed() -> None:
    first = report.conditions(untrained(), (), NOW)
    later = report.conditions(untrained(problem="bad"), first, NOW + 60)
    times = {condition.type: condition.last_transition_time for condition in later}
    assert times[report.MODEL_READY] == first[0].last_transition_time
    assert times[report.POLICY_ACCEPTED] != first[1].last_transition_time
    assert later[1].status == "False"
    assert later[1].message == "bad"
    both = report.conditions(untrained(problem="bad"), first, NOW + 60, report_problem="worse")
    assert both[1].message == "bad; worse"
