"""The node under names of our own: headroom_agent_*."""

from collections.abc import Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric

from agent.metric_cache import series
from agent.metric_cache.series import Usage
from agent.predict_server.server import Prediction
from agent.states_informer.pods import NodePod
from agent.telemetry.scrape import ResourceGauge, Scrape, in_cores
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
    yield _amount("node_peak", "Predicted peak of the whole node", prediction.node_peak)
    yield _amount("allocatable", "Allocatable of the Node", scrape.allocatable)
    yield _count("prediction_samples", "Training steps the prediction rests on", prod.samples if prod else 0)
    yield _count(
        "prediction_confidence_ratio", "Share of the cold start that is over", prediction.confidence_percent / 100
    )
    yield InfoMetricFamily(f"{PREFIX}predictor", "The model in force", value={"model": prediction.model})
    problems = GaugeMetricFamily(f"{PREFIX}prediction_problem", "1 while there is one", labels=["of"])
    problems.add_metric(["policy"], bool(prediction.policy_problem))
    problems.add_metric(["predictor"], bool(prediction.predictor_problem))
    yield problems


def _promises(prediction: Prediction) -> Iterator[Metric]:
    """How the promises of the last 28 days were kept."""
    labels = ["resource", "horizon_seconds"]
    outcomes = GaugeMetricFamily(
        f"{PREFIX}prediction_outcomes", "Promises of the last 28 days whose horizon has passed", labels=labels
    )
    violated = GaugeMetricFamily(
        f"{PREFIX}prediction_violated_ratio", "Share of them in which more was used than was promised", labels=labels
    )
    for promise in prediction.promises:
        kept = promise.kept
        for resource, percent in zip(("cpu", "memory"), kept.violation_percents, strict=True):
            values = [resource, str(int(kept.horizon_seconds))]
            outcomes.add_metric(values, kept.outcomes)
            if kept.outcomes:
                violated.add_metric(values, percent / 100)
    yield outcomes
    yield violated
    if prediction.target_violation_percent is not None:
        yield _count(
            "prediction_target_ratio", "Share that the policy allows", prediction.target_violation_percent / 100
        )


def _newest(pods: Sequence[NodePod]) -> Iterator[NodePod]:
    """One of each name: a pod may be replaced before its predecessor is out of sight."""
    by_name = {pod.pod.metadata.key: pod for pod in sorted(pods, key=lambda pod: pod.created_at)}
    yield from by_name.values()


def _gauge(name: str, help_text: str, usage: Usage | None) -> Metric:
    return ResourceGauge(f"{PREFIX}{name}", help_text).add(usage).family


def _amount(name: str, help_text: str, amount: Resources | None) -> Metric:
    return _gauge(name, help_text, in_cores(amount))


def _count(name: str, help_text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{PREFIX}{name}", help_text, value=value)
