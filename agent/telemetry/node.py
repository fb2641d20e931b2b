"""The node under our own metric names: headroom_agent_*."""

from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric

from agent.metric_cache import series
from agent.metric_cache.series import Usage
from agent.predict_server.prediction import NodePrediction
from agent.states_informer.pods import NodePod
from agent.telemetry.scrape import RESOURCES, ResourceGauge, Scrape, in_cores
from shared.names import PriorityClass
from shared.quantity import Resources

PREFIX = "headroom_agent_"


def families(scrape: Scrape) -> Iterator[Metric]:
    yield from _usage(scrape)
    yield from _prediction(scrape)
    yield _count("pods", "Pods of this node", len(scrape.pods))
    measured = sum(pod.uid in scrape.usages for pod in scrape.pods)
    yield _count("pods_measured", "Pods of this node whose usage is read", measured)
    yield _count("models", "Models in the bank", scrape.models)
    yield _count("series", "Series in the metric cache", scrape.series)
    yield _count("metric_cache_bytes", "What the metric cache takes, on disk and in memory", scrape.metric_cache_bytes)


def _usage(scrape: Scrape) -> Iterator[Metric]:
    usages = scrape.usages
    yield _gauge("node_usage", "Usage of the whole node, last sample", usages.get(series.NODE))
    yield _gauge("system_usage", "Usage of the node beyond its pods, last sample", usages.get(series.SYSTEM))
    classes = ResourceGauge(f"{PREFIX}class_usage", "Usage of all pods of a priority class, last sample", ["priority"])
    for priority_class in PriorityClass:
        classes.add(usages.get(series.of_class(priority_class)), priority_class)
    yield classes.family
    pods = ResourceGauge(f"{PREFIX}pod_usage", "Usage of a pod, last sample", ["namespace", "pod", "priority", "qos"])
    for pod in _newest(scrape.pods):
        metadata = pod.pod.metadata
        pods.add(usages.get(pod.uid), metadata.namespace, metadata.name, pod.priority_class, pod.qos)
    yield pods.family
    applications = ResourceGauge(
        f"{PREFIX}host_application_usage", "Usage of a program of the node itself, last sample", ["name"]
    )
    for application, usage in scrape.host_applications:
        applications.add(usage, application.name)
    yield applications.family


def _prediction(scrape: Scrape) -> Iterator[Metric]:
    prediction = scrape.prediction
    answer, prod, requests = prediction.reclaimable, prediction.prod, prediction.requests
    yield _gauge("prod_mean", "Decayed mean of prod pods and system", prod.mean if prod else None)
    yield _gauge("prod_stdev", "Decayed standard deviation of prod pods and system", prod.stdev if prod else None)
    yield _amount("prod_requested", "Requests of pods that lend", requests.requested)
    yield _amount("prod_cold_requested", "Requests of pods with too short a history", requests.cold)
    yield _amount("prod_peak", "Predicted peak of prod pods and system", answer.peak if answer else None)
    yield _amount("prod_reclaimable", "Requests that can be lent", answer.result if answer else None)
    for model, found in prediction.n_sigma.items():
        yield _amount(f"{model.replace('-', '_')}_peak", f"Peak of the same by {model}, whatever model decides", found)
    yield from _promises(prediction)
    yield _withdrawn(prediction)
    yield from _shadows(prediction)
    yield _amount("node_peak", "Predicted peak of the whole node", prediction.node_peak)
    yield _amount("allocatable", "Allocatable of the Node", scrape.allocatable)
    yield _count("prediction_samples", "Training steps the prediction rests on", prod.samples if prod else 0)
    yield _count("prediction_history_ratio", "Share of the cold start that is over", prediction.history_percent / 100)
    yield InfoMetricFamily(f"{PREFIX}predictor", "The model in force", value={"model": prediction.model})
    problems = GaugeMetricFamily(f"{PREFIX}prediction_problem", "1 while there is one", labels=["of"])
    problems.add_metric(["policy"], bool(prediction.policy_problem))
    problems.add_metric(["predictor"], bool(prediction.predictor_problem))
    yield problems


def _promises(prediction: NodePrediction) -> Iterator[Metric]:
    """The outcomes of promises: sums since the start, and their results in the last 28 days."""
    labels = ["resource", "horizon_seconds"]

    def counter(name: str, help_text: str, more: Sequence[str] = ()) -> CounterMetricFamily:
        return CounterMetricFamily(f"{PREFIX}prediction_{name}", help_text, labels=[*labels, *more])

    def gauge(name: str, help_text: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"{PREFIX}prediction_{name}", help_text, labels=labels)

    outcomes = counter("outcomes", "Promises whose horizon has passed")
    violations = counter("violations", "Those in which more was used than was promised")
    excess = counter("excess_ratio", "Excess over the promise as a share of the peak that came, summed over outcomes")
    promised = counter("promised", "Promised peaks summed over outcomes", ["unit"])
    realised = counter("realised", "Peaks that came summed over outcomes", ["unit"])
    violated = gauge("violated_ratio", "Share of outcomes of 28 days in which more was used than was promised")
    lent = gauge("lent_ratio", "Mean share of requests above the promise, over the outcomes of 28 days")
    coverage = gauge("coverage_ratio", "Share of the hours of 28 days of which an outcome is known")
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
    yield from (outcomes, violations, excess, promised, realised, violated, lent, coverage)
    if prediction.target_violation_percent is not None:
        yield _count(
            "prediction_target_ratio", "Share that the policy allows", prediction.target_violation_percent / 100
        )


def _withdrawn(prediction: NodePrediction) -> Metric:
    family = GaugeMetricFamily(
        f"{PREFIX}prediction_withdrawn_ratio",
        "Share of what is lent that is taken back a day, over a window",
        labels=["resource", "window_seconds"],
    )
    for window in prediction.withdrawn:
        for (resource, _), percent in zip(RESOURCES, window.percents_per_day, strict=True):
            family.add_metric([resource, str(window.window_seconds)], percent / 100)
    return family


def _shadows(prediction: NodePrediction) -> Iterator[Metric]:
    """The results of the models beside the active one, by their promises for the first horizon."""
    labels = ["model", "resource", "horizon_seconds"]

    def gauge(name: str, help_text: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"{PREFIX}shadow_{name}", help_text, labels=labels)

    outcomes = gauge("outcomes", "Promises of 28 days, of a model that lends nothing, whose horizon has passed")
    violated = gauge("violated_ratio", "Share of them in which more was used than was promised")
    lent = gauge("lent_ratio", "Mean share of requests that it would have lent")
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


def _gauge(name: str, help_text: str, usage: Usage | None) -> Metric:
    return ResourceGauge(f"{PREFIX}{name}", help_text).add(usage).family


def _amount(name: str, help_text: str, amount: Resources | None) -> Metric:
    return _gauge(name, help_text, in_cores(amount))


def _count(name: str, help_text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{PREFIX}{name}", help_text, value=value)
