"""The NodeMetric status as one value. Pure."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agent.metric_cache import series
from agent.metric_cache.series import Usage
from agent.predict_server.reclaimable import rounded_up
from agent.predict_server.server import Prediction
from agent.reporter.schedule import Reason
from agent.states_informer.pods import NodePod
from shared import durations
from shared.api.core import Condition
from shared.api.nodemetric import (
    NodeMetricInfo,
    NodeMetricStatus,
    PodMetricInfo,
    ReclaimableMetric,
    ResourceMap,
)
from shared.api.nodemetric import Prediction as WirePrediction
from shared.quantity import MILLI_PER_CORE, Resources

MODEL_READY = "ModelReady"
POLICY_ACCEPTED = "PolicyAccepted"


@dataclass(frozen=True)
class Observed:
    """What one report is made of; `averages` are over the aggregate duration, by entity of the metric cache."""

    averages: Mapping[str, Usage]
    pods: Iterable[NodePod]
    prediction: Prediction
    conditions: tuple[Condition, ...]


def status(observed: Observed, reason: Reason, now: float) -> NodeMetricStatus:
    prediction = observed.prediction
    answer = prediction.reclaimable
    return NodeMetricStatus(
        update_time=durations.timestamp(now),
        node_metric=NodeMetricInfo(
            node_usage=_usage(observed.averages.get(series.NODE)),
            system_usage=_usage(observed.averages.get(series.SYSTEM)),
        ),
        pods_metric=_pods(observed),
        prod_reclaimable_metric=ReclaimableMetric(ResourceMap.of(answer.result if answer else Resources())),
        prod_peak_metric=ReclaimableMetric(ResourceMap.of(answer.peak)) if answer else None,
        prediction=_prediction(prediction, observed.conditions, reason),
    )


def conditions(
    prediction: Prediction, before: Iterable[Condition], now: float, *, report_problem: str = ""
) -> tuple[Condition, ...]:
    """What a reader must know of the prediction; a condition keeps the time it last changed.

    `report_problem` is what is wrong with the spec's report policy; the prediction knows of its own.
    """
    ready = prediction.reclaimable is not None
    problems = "; ".join(filter(None, (prediction.policy_problem, report_problem)))
    fresh = (
        _condition(
            MODEL_READY,
            ready,
            "Trained" if ready else "InsufficientHistory",
            f"{prediction.prod.samples} training steps" if ready and prediction.prod else "nothing is claimed yet",
        ),
        _condition(
            POLICY_ACCEPTED,
            not problems,
            "InvalidPolicy" if problems else "Applied",
            problems or "the policy of the spec is in force",
        ),
    )
    since = {(old.type, old.status): old.last_transition_time for old in before}
    return tuple(
        Condition(
            type=new.type,
            status=new.status,
            reason=new.reason,
            message=new.message,
            last_transition_time=since.get((new.type, new.status)) or durations.timestamp(now),
        )
        for new in fresh
    )


def _condition(kind: str, good: bool, reason: str, message: str) -> Condition:
    return Condition(type=kind, status="True" if good else "False", reason=reason, message=message)


def _pods(observed: Observed) -> tuple[PodMetricInfo, ...]:
    measured = [pod for pod in observed.pods if pod.uid in observed.averages]
    return tuple(
        PodMetricInfo(
            name=pod.pod.metadata.name,
            namespace=pod.pod.metadata.namespace,
            pod_usage=_usage(observed.averages[pod.uid]),
            priority=pod.priority_class,
            qos=pod.qos,
        )
        for pod in sorted(measured, key=lambda pod: (pod.pod.metadata.namespace, pod.pod.metadata.name))
    )


def _prediction(prediction: Prediction, conditions: tuple[Condition, ...], reason: Reason) -> WirePrediction:
    prod = prediction.prod
    return WirePrediction(
        model=prediction.model,
        mean=dict(rounded_up(prod.mean).quantities()) if prod else None,
        stdev=dict(rounded_up(prod.stdev).quantities()) if prod else None,
        peak=dict(prediction.model_peak.quantities()) if prediction.model_peak else None,
        node_peak=dict(prediction.node_peak.quantities()) if prediction.node_peak else None,
        samples=prod.samples if prod else 0,
        confidence_percent=prediction.confidence_percent,
        report_reason=reason,
        conditions=conditions,
    )


def amount(usage: Usage) -> Resources:
    """As integers, truncated as Koordinator reports usage."""
    return Resources(math.floor(usage.cpu_cores * MILLI_PER_CORE), math.floor(usage.memory_bytes))


def _usage(usage: Usage | None) -> ResourceMap | None:
    return None if usage is None else ResourceMap.of(amount(usage))
