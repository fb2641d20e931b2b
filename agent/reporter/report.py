"""The NodeMetric status as one value. Pure."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from agent.metric_cache import series
from agent.metric_cache.aggregate import Aggregation
from agent.metric_cache.series import Usage
from agent.predict_server.distribution import Distribution
from agent.predict_server.models import NSigmaV1, NSigmaV2
from agent.predict_server.prediction import HorizonPromise, NodePrediction, ShadowResult, target_note
from agent.predict_server.reclaimable import rounded_up
from agent.predict_server.records import Pair, PromiseRecord, WithdrawalRecord
from agent.reporter import measurements
from agent.reporter.measurements import Aggregated, MeasuredAverages
from agent.reporter.schedule import ReportReason
from agent.states_informer.pods import NodePod
from shared import durations, names
from shared.api import predictionprior
from shared.api.core import Condition, Quantities
from shared.api.nodemetric import (
    AggregatedUsage,
    Interference,
    LastForgotten,
    NodeMetricInfoReport,
    NodeMetricReport,
    NumaUsage,
    PodExtensions,
    PodMetricInfoReport,
    PredictionReport,
    Pressure,
    PriorInUse,
    PromiseDebt,
    ReclaimableMetric,
    ResourceMap,
    UsageHistogram,
    Withdrawal,
)
from shared.api.nodemetric import Promise as WirePromise
from shared.api.nodemetric import Shadow as WireShadow
from shared.api.predictionprior import WINDOW_DAYS
from shared.quantity import MILLI_PER_CORE, Resources

RESOURCES = (names.CPU, names.MEMORY)

_UNKNOWN = ResourceMap()


@dataclass(frozen=True)
class ReportInputs:
    """The inputs of one report. It leaves out `pods` without a measurement."""

    measured: MeasuredAverages
    pods: Iterable[NodePod]
    prediction: NodePrediction
    conditions: tuple[Condition, ...]
    pressure: Pressure | None = None
    interference: Interference | None = None


def status(observed: ReportInputs, reason: ReportReason, now: float) -> NodeMetricReport:
    prediction, measured = observed.prediction, observed.measured
    answer = prediction.reclaimable
    return NodeMetricReport(
        update_time=durations.timestamp(now),
        node_metric=NodeMetricInfoReport(
            node_usage=_usage(measured.averages.get(series.NODE)),
            aggregated_node_usages=tuple(map(_aggregated, measured.node)),
            system_usage=_usage(measured.averages.get(series.SYSTEM)),
            aggregated_system_usages=tuple(map(_aggregated, measured.system)),
            numa_usages=numa(measured.numa),
        ),
        pods_metric=_pods(observed),
        prod_reclaimable_metric=ReclaimableMetric(ResourceMap.of(answer.result if answer else Resources())),
        prod_peak_metric=ReclaimableMetric(ResourceMap.of(answer.peak)) if answer else None,
        interference=observed.interference,
        prediction=_prediction(prediction, observed.conditions, reason, observed.pressure),
    )


def patch(status: NodeMetricReport) -> list[dict[str, object]]:
    """A JSON patch that replaces the previous status, of any writer, as a whole."""
    return [{"op": "add", "path": "/status", "value": status}]


def numa(usages: Iterable[measurements.NumaAverages]) -> tuple[NumaUsage, ...] | None:
    """None for a machine without NUMA information."""
    wire = tuple(NumaUsage(one.number, _usage(one.node), _usage(one.system) or _UNKNOWN) for one in usages)
    return wire or None


def amount(usage: Usage) -> Resources:
    """The amount in integers, truncated as Koordinator reports usage."""
    return Resources(math.floor(usage.cpu_cores * MILLI_PER_CORE), math.floor(usage.memory_bytes))


def _aggregated(aggregated: Aggregated) -> AggregatedUsage:
    """Every aggregate by its name, because readers look up each; in a cold start all are empty."""

    def usage(how: Aggregation) -> ResourceMap:
        return _usage(aggregated.usages.get(how)) or _UNKNOWN

    return AggregatedUsage(
        usage={str(how): usage(how) for how in measurements.AGGREGATIONS},
        duration=durations.render(aggregated.seconds),
    )


def _pods(observed: ReportInputs) -> tuple[PodMetricInfoReport, ...]:
    averages = observed.measured.averages
    measured = [pod for pod in observed.pods if pod.uid in averages]
    return tuple(
        PodMetricInfoReport(
            name=pod.pod.metadata.name,
            namespace=pod.pod.metadata.namespace,
            pod_usage=_usage(averages[pod.uid]),
            priority=pod.priority_class,
            qos=pod.qos,
            extensions=_extensions(observed.prediction.pod_peaks.get(pod.uid)),
        )
        for pod in sorted(measured, key=lambda pod: (pod.pod.metadata.namespace, pod.pod.metadata.name))
    )


def _extensions(peak: Resources | None) -> dict[str, object] | None:
    return None if peak is None else msgspec.to_builtins(PodExtensions(dict(peak.quantities())))


def _prediction(
    prediction: NodePrediction, conditions: tuple[Condition, ...], reason: ReportReason, pressure: Pressure | None
) -> PredictionReport:
    prod = prediction.prod
    return PredictionReport(
        model=prediction.model,
        mean=dict(rounded_up(prod.mean).quantities()) if prod else None,
        stdev=dict(rounded_up(prod.stdev).quantities()) if prod else None,
        peak=_peak(prediction.model_peak),
        node_peak=_peak(prediction.node_peak),
        n_sigma_v1_peak=_peak(prediction.n_sigma.get(NSigmaV1.name)),
        n_sigma_v2_peak=_peak(prediction.n_sigma.get(NSigmaV2.name)),
        promises=tuple(
            _promise(one, prediction.target_violation_percent, prediction.time) for one in prediction.promises
        )
        or None,
        withdrawals=tuple(map(_withdrawal, prediction.withdrawn)) or None,
        shadows=tuple(map(_shadow, prediction.shadows)) or None,
        prior=_prior(prediction),
        last_forgotten=_forgotten(prediction.last_forgotten),
        samples=prod.samples if prod else 0,
        history_percent=prediction.history_percent,
        report_reason=reason,
        conditions=conditions,
        pressure=pressure,
        usage_histograms=_histograms(prod.distributions) if prod else None,
    )


def _histograms(distributions: tuple[Distribution, ...]) -> tuple[UsageHistogram, ...] | None:
    """The histograms of cpu and memory; None without either."""
    if len(distributions) < len(RESOURCES):
        return None
    return tuple(
        UsageHistogram(resource, one.bounds, one.shares, *one.percentiles)
        for resource, one in zip(RESOURCES, distributions, strict=True)
    )


def _promise(promise: HorizonPromise, target_percent: float | None, now: float) -> WirePromise:
    kept = promise.kept
    cpu_severity, memory_severity = _judged(kept, kept.severity_percents)
    return WirePromise(
        horizon_seconds=int(kept.horizon_seconds),
        peak=_peak(promise.peak),
        target_violation_percent=None if target_percent is None else f"{target_percent:g}",
        outcomes=kept.outcomes,
        coverage_percent=_decimal(kept.coverage_percent),
        cpu_severity_percent=cpu_severity,
        memory_severity_percent=memory_severity,
        **_violated_and_lent(kept),
        cpu_tail=predictionprior.report(promise.tails[0]) if promise.tails else None,
        memory_tail=predictionprior.report(promise.tails[1]) if promise.tails else None,
        target_note=_note(promise, target_percent),
        cpu_debt=_debt(promise, 0, now),
        memory_debt=_debt(promise, 1, now),
    )


def _note(promise: HorizonPromise, target_percent: float | None) -> str | None:
    if target_percent is None:
        return None
    return target_note(promise.kept.horizon_seconds, target_percent, WINDOW_DAYS) or None


def _debt(promise: HorizonPromise, resource: int, now: float) -> PromiseDebt | None:
    """What broken promises of one resource cost; None without any."""
    debt = promise.debts[resource] if promise.debts else None
    if debt is None or not (debt.surprises or debt.promises):
        return None
    withheld = rounded_up(Usage(debt.withheld, debt.withheld)).quantities()[RESOURCES[resource]]
    return PromiseDebt(
        surprises=debt.surprises,
        last_surprise_time=durations.timestamp(debt.last) if debt.last else None,
        cause=debt.cause or None,
        broken_promises=f"{debt.promises:.1f}",
        withheld=withheld if debt.promises else None,
        paid_time=durations.timestamp(now + debt.seconds) if debt.promises else None,
    )


def _prior(prediction: NodePrediction) -> PriorInUse | None:
    """None for a model without a target, which has no margin to learn."""
    if prediction.target_violation_percent is None:
        return None
    return PriorInUse("built-in") if prediction.prior is None else PriorInUse("fleet", prediction.prior.nodes)


def _forgotten(last: tuple[str, float] | None) -> LastForgotten | None:
    return None if last is None else LastForgotten(last[0] or "node", durations.timestamp(last[1]))


def _shadow(shadow: ShadowResult) -> WireShadow:
    return WireShadow(model=shadow.model, outcomes=shadow.kept.outcomes, **_violated_and_lent(shadow.kept))


def _violated_and_lent(kept: PromiseRecord) -> dict[str, str | None]:
    """The fields that a promise and a shadow share."""
    named = {"violation": _judged(kept, kept.violation_percents), "lent": _judged(kept, kept.lent_percents)}
    return {
        f"{resource}_{name}_percent": percent
        for name, percents in named.items()
        for resource, percent in zip(RESOURCES, percents, strict=True)
    }


def _withdrawal(withdrawn: WithdrawalRecord) -> Withdrawal:
    cpu, memory = map(_decimal, withdrawn.percents_per_day)
    return Withdrawal(withdrawn.window_seconds, cpu_percent_per_day=cpu, memory_percent_per_day=memory)


def _judged(kept: PromiseRecord, percents: Pair) -> tuple[str, str] | tuple[None, None]:
    """The outcomes of cpu and memory; None without outcomes, which give no percentage."""
    cpu, memory = map(_decimal, percents)
    return (cpu, memory) if kept.outcomes else (None, None)


def _decimal(percent: float) -> str:
    return f"{percent:.2f}"


def _peak(peak: Resources | None) -> Quantities | None:
    return None if peak is None else dict(peak.quantities())


def _usage(usage: Usage | None) -> ResourceMap | None:
    return None if usage is None else ResourceMap.of(amount(usage))
