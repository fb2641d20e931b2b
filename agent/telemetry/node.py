"""The node under our own metric names: headroom_agent_*."""

from collections.abc import Iterator, Sequence

from prometheus_client.metrics_core import Metric

from agent.metric_cache import series
from agent.metric_cache.series import Usage
from agent.predict_server.models import NSigmaV1, NSigmaV2
from agent.predict_server.prediction import NodePrediction
from agent.states_informer.pods import NodePod
from agent.telemetry.scrape import RESOURCE_LABELS, RESOURCES, ResourceGauge, Scrape, in_cores
from shared.metric_families import CounterFamily, GaugeFamily, InfoFamily
from shared.names import PriorityClass
from shared.quantity import Resources

_PODS = GaugeFamily("headroom_agent_pods", "Number of pods on this node.")
_PODS_MEASURED = GaugeFamily("headroom_agent_pods_measured", "Number of pods on this node whose usage is measured.")
_MODELS = GaugeFamily("headroom_agent_models", "Number of prediction models in memory.")
_SERIES = GaugeFamily("headroom_agent_series", "Number of series in the metric cache.")
_METRIC_CACHE_BYTES = GaugeFamily(
    "headroom_agent_metric_cache_bytes", "Size of the metric cache on disk and in memory, in bytes."
)
_NODE_USAGE = GaugeFamily("headroom_agent_node_usage", "Usage of the whole node in the last sample.", RESOURCE_LABELS)
_SYSTEM_USAGE = GaugeFamily(
    "headroom_agent_system_usage", "Usage of the node outside of pods in the last sample.", RESOURCE_LABELS
)
_PROD_MEAN = GaugeFamily("headroom_agent_prod_mean", "Decayed mean usage of Prod pods and the system.", RESOURCE_LABELS)
_PROD_STDEV = GaugeFamily(
    "headroom_agent_prod_stdev", "Decayed standard deviation of the usage of Prod pods and the system.", RESOURCE_LABELS
)
_PROD_REQUESTED = GaugeFamily(
    "headroom_agent_prod_requested", "Sum of the requests of pods whose unused part is lent.", RESOURCE_LABELS
)
_PROD_COLD_REQUESTED = GaugeFamily(
    "headroom_agent_prod_cold_requested", "Requests of pods whose history is too short to lend them.", RESOURCE_LABELS
)
_PROD_PEAK = GaugeFamily("headroom_agent_prod_peak", "Predicted peak of Prod pods and the system.", RESOURCE_LABELS)
_PROD_RECLAIMABLE = GaugeFamily(
    "headroom_agent_prod_reclaimable", "Amount of requests that can be lent.", RESOURCE_LABELS
)
_NODE_PEAK = GaugeFamily("headroom_agent_node_peak", "Predicted peak of the whole node, by resource.", RESOURCE_LABELS)
_ALLOCATABLE = GaugeFamily(
    "headroom_agent_allocatable", "Allocatable amount of the Node, by resource.", RESOURCE_LABELS
)
_PREDICTION_SAMPLES = GaugeFamily("headroom_agent_prediction_samples", "Number of training steps of the prediction.")
_PREDICTION_HISTORY_RATIO = GaugeFamily(
    "headroom_agent_prediction_history_ratio", "Share of the cold start that has passed."
)
_PREDICTION_TARGET_RATIO = GaugeFamily(
    "headroom_agent_prediction_target_ratio", "Share of broken promises that the policy allows."
)
_CLASS_USAGE = GaugeFamily(
    "headroom_agent_class_usage",
    "Usage of all pods of a priority class in the last sample.",
    ("priority", *RESOURCE_LABELS),
)
_POD_USAGE = GaugeFamily(
    "headroom_agent_pod_usage",
    "Usage of a pod in the last sample.",
    ("namespace", "pod", "priority", "qos", *RESOURCE_LABELS),
)
_N_SIGMA_PEAKS = {
    model: GaugeFamily(
        f"headroom_agent_{model.replace('-', '_')}_peak",
        f"Peak of Prod pods and the system by {model}, whatever model decides.",
        RESOURCE_LABELS,
    )
    for model in (NSigmaV1.name, NSigmaV2.name)
}
_PREDICTOR = InfoFamily("headroom_agent_predictor", "The active model, as a label; the value is 1.", ("model",))
_PREDICTION_PROBLEM = GaugeFamily(
    "headroom_agent_prediction_problem", "1 while the prediction has this problem.", ("of",)
)
_BY_HORIZON = ("resource", "horizon_seconds")
_OUTCOMES = CounterFamily("headroom_agent_prediction_outcomes", "Promises whose horizon has passed.", _BY_HORIZON)
_VIOLATIONS = CounterFamily("headroom_agent_prediction_violations", "Promises that usage exceeded.", _BY_HORIZON)
_EXCESS = CounterFamily(
    "headroom_agent_prediction_excess_ratio",
    "Sum over outcomes of the excess over the promise, as a share of the real peak.",
    _BY_HORIZON,
)
_PROMISED = CounterFamily(
    "headroom_agent_prediction_promised", "Sum of the promised peaks over outcomes.", (*_BY_HORIZON, "unit")
)
_REALISED = CounterFamily(
    "headroom_agent_prediction_realised", "Sum of the real peaks over outcomes.", (*_BY_HORIZON, "unit")
)
_VIOLATED = GaugeFamily(
    "headroom_agent_prediction_violated_ratio",
    "Share of promises of the last 28 days that usage exceeded.",
    _BY_HORIZON,
)
_LENT = GaugeFamily(
    "headroom_agent_prediction_lent_ratio",
    "Mean share of requests that was lent, over the outcomes of the last 28 days.",
    _BY_HORIZON,
)
_COVERAGE = GaugeFamily(
    "headroom_agent_prediction_coverage_ratio",
    "Share of the hours of the last 28 days whose outcome is known.",
    _BY_HORIZON,
)
_SURPRISES = GaugeFamily(
    "headroom_agent_prediction_surprises",
    "Surprises in the last 28 days, by the likely cause of the last one. A surprise breaks all open promises.",
    (*_BY_HORIZON, "cause"),
)
_WITHDRAWN = GaugeFamily(
    "headroom_agent_prediction_withdrawn_ratio",
    "Share of the offer that is withdrawn a day, over a window.",
    ("resource", "window_seconds"),
)
_SHADOW_OUTCOMES = GaugeFamily(
    "headroom_agent_shadow_outcomes",
    "Promises of a shadow model in the last 28 days whose horizon has passed.",
    ("model", *_BY_HORIZON),
)
_SHADOW_VIOLATED = GaugeFamily(
    "headroom_agent_shadow_violated_ratio",
    "Share of the promises of a shadow model in the last 28 days that usage exceeded.",
    ("model", *_BY_HORIZON),
)
_SHADOW_LENT = GaugeFamily(
    "headroom_agent_shadow_lent_ratio",
    "Mean share of requests that the shadow model would have lent.",
    ("model", *_BY_HORIZON),
)


def families(scrape: Scrape) -> Iterator[Metric]:
    yield from _usage(scrape)
    yield from _prediction(scrape)
    yield _PODS.scraped(len(scrape.pods))
    measured = sum(pod.uid in scrape.usages for pod in scrape.pods)
    yield _PODS_MEASURED.scraped(measured)
    yield _MODELS.scraped(scrape.models)
    yield _SERIES.scraped(scrape.series)
    yield _METRIC_CACHE_BYTES.scraped(scrape.metric_cache_bytes)


def _usage(scrape: Scrape) -> Iterator[Metric]:
    usages = scrape.usages
    yield _gauge(_NODE_USAGE, usages.get(series.NODE))
    yield _gauge(_SYSTEM_USAGE, usages.get(series.SYSTEM))
    classes = ResourceGauge(_CLASS_USAGE)
    for priority_class in PriorityClass:
        classes.add(usages.get(series.of_class(priority_class)), priority_class)
    yield classes.family
    pods = ResourceGauge(_POD_USAGE)
    for pod in _newest(scrape.pods):
        metadata = pod.pod.metadata
        pods.add(usages.get(pod.uid), metadata.namespace, metadata.name, pod.priority_class, pod.qos)
    yield pods.family


def _prediction(scrape: Scrape) -> Iterator[Metric]:
    prediction = scrape.prediction
    answer, prod, requests = prediction.reclaimable, prediction.prod, prediction.requests
    yield _gauge(_PROD_MEAN, prod.mean if prod else None)
    yield _gauge(_PROD_STDEV, prod.stdev if prod else None)
    yield _amount(_PROD_REQUESTED, requests.requested)
    yield _amount(_PROD_COLD_REQUESTED, requests.cold)
    yield _amount(_PROD_PEAK, answer.peak if answer else None)
    yield _amount(_PROD_RECLAIMABLE, answer.result if answer else None)
    for model, found in prediction.n_sigma.items():
        yield _amount(_N_SIGMA_PEAKS[model], found)
    yield from _promises(prediction)
    yield _withdrawn(prediction)
    yield from _shadows(prediction)
    yield _amount(_NODE_PEAK, prediction.node_peak)
    yield _amount(_ALLOCATABLE, scrape.allocatable)
    yield _PREDICTION_SAMPLES.scraped(prod.samples if prod else 0)
    yield _PREDICTION_HISTORY_RATIO.scraped(prediction.history_percent / 100)
    yield _PREDICTOR.scraped({"model": prediction.model})
    problems = _PREDICTION_PROBLEM.scraped()
    problems.add_metric(["policy"], bool(prediction.policy_problem))
    problems.add_metric(["predictor"], bool(prediction.predictor_problem))
    yield problems


def _promises(prediction: NodePrediction) -> Iterator[Metric]:
    """The outcomes of promises: sums since the start, and their results in the last 28 days."""
    outcomes, violations, excess = _OUTCOMES.scraped(), _VIOLATIONS.scraped(), _EXCESS.scraped()
    promised, realised = _PROMISED.scraped(), _REALISED.scraped()
    violated, lent, coverage = _VIOLATED.scraped(), _LENT.scraped(), _COVERAGE.scraped()
    surprises = _SURPRISES.scraped()
    for promise in prediction.promises:
        kept, totals = promise.kept, promise.totals
        for place, (resource, unit) in enumerate(RESOURCES):
            values = [resource, str(int(kept.horizon_seconds))]
            outcomes.add_metric(values, totals.outcomes)
            violations.add_metric(values, totals.violations[place])
            excess.add_metric(values, totals.excess[place])
            promised.add_metric([*values, unit], totals.promised[place])
            realised.add_metric([*values, unit], totals.realised[place])
            coverage.add_metric(values, kept.coverage_percent / 100)
            if kept.outcomes:
                violated.add_metric(values, kept.violation_percents[place] / 100)
                lent.add_metric(values, kept.lent_percents[place] / 100)
            if promise.debts and promise.debts[place].surprises:
                debt = promise.debts[place]
                surprises.add_metric([*values, debt.cause.lower() or "unknown"], debt.surprises)
    yield from (outcomes, violations, excess, promised, realised, violated, lent, coverage, surprises)
    if prediction.target_violation_percent is not None:
        yield _PREDICTION_TARGET_RATIO.scraped(prediction.target_violation_percent / 100)


def _withdrawn(prediction: NodePrediction) -> Metric:
    family = _WITHDRAWN.scraped()
    for window in prediction.withdrawn:
        for (resource, _), percent in zip(RESOURCES, window.percents_per_day, strict=True):
            family.add_metric([resource, str(window.window_seconds)], percent / 100)
    return family


def _shadows(prediction: NodePrediction) -> Iterator[Metric]:
    """The results of the models beside the active one, by their promises for the first horizon."""
    outcomes, violated, lent = _SHADOW_OUTCOMES.scraped(), _SHADOW_VIOLATED.scraped(), _SHADOW_LENT.scraped()
    for model, kept in prediction.shadows:
        for place, (resource, _) in enumerate(RESOURCES):
            values = [model, resource, str(int(kept.horizon_seconds))]
            outcomes.add_metric(values, kept.outcomes)
            if kept.outcomes:
                violated.add_metric(values, kept.violation_percents[place] / 100)
                lent.add_metric(values, kept.lent_percents[place] / 100)
    yield from (outcomes, violated, lent)


def _newest(pods: Sequence[NodePod]) -> Iterator[NodePod]:
    """One pod of each name: a pod's replacement may appear before its predecessor disappears."""
    by_name = {pod.pod.metadata.key: pod for pod in sorted(pods, key=lambda pod: pod.created_at)}
    yield from by_name.values()


def _gauge(family: GaugeFamily, usage: Usage | None) -> Metric:
    return ResourceGauge(family).add(usage).family


def _amount(family: GaugeFamily, amount: Resources | None) -> Metric:
    return _gauge(family, in_cores(amount))
