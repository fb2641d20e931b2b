"""Builds each answer of the API from the agent's parts."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import numpy as np

from agent.enforcer import bounds
from agent.http import queries
from agent.http.rooms import READING_SECONDS, Rooms
from agent.http.schemas import (
    Aggregate,
    AmountSchema,
    Bound,
    ContainerUsage,
    DebtSchema,
    Histogram,
    ModelHistory,
    ModelSays,
    NodeUsage,
    PodBoundsSchema,
    PodDetail,
    PodsSchema,
    PodUsageSchema,
    PredictionSchema,
    PriorSchema,
    PromiseSchema,
    ReadingSchema,
    ReportSchema,
    SeriesSchema,
    UsageSummary,
    Value,
    Values,
    WithdrawalSchema,
)
from agent.metric_cache import series, windows
from agent.metric_cache.aggregate import Aggregation
from agent.metric_cache.cache import StorageTier
from agent.metric_cache.series import Kind, Metric, SeriesKey, Usage
from agent.predict_server import histogram
from agent.predict_server import prediction as predicted
from agent.predict_server.histories import History
from agent.predict_server.models import Debt
from agent.predict_server.reclaimable import rounded_up
from agent.predict_server.records import Pair, PromiseRecord
from agent.reporter.report import amount
from agent.states_informer.pods import NodePod
from shared import durations
from shared.api.predictionprior import WINDOW_DAYS
from shared.names import PriorityClass
from shared.quantity import Resources

MOST_VALUES = 100_000  # of one answer: about 1 MB
SUMMARY_SECONDS = (300, 3600, 86400)
DECIMALS = 6  # single precision has no more below 10 cores

UNITS: Mapping[Metric, str] = {
    Metric.CPU: "cores",
    Metric.LOAD_1M: "tasks",
    Metric.LOAD_5M: "tasks",
    Metric.LOAD_15M: "tasks",
    Metric.DISK_READ: "bytes_per_second",
    Metric.DISK_WRITE: "bytes_per_second",
    Metric.PROD_THROTTLED_PODS: "pods",
    **dict.fromkeys((one for one in Metric if one.startswith(("memory", "disk_used", "disk_size"))), "bytes"),
    **dict.fromkeys((one for one in Metric if one.startswith(("psi", "cpu_throttled", "cpu_steal"))), "ratio"),
    **dict.fromkeys((Metric.PROD_CPU_WAIT, Metric.PROD_MEMORY_WAIT), "ratio"),
}


def node(rooms: Rooms) -> NodeUsage:
    usages, state = rooms.usages(), rooms.states.node()
    used = _used(usages.get(series.NODE))
    classes = {str(one): _used(usages.get(series.of_class(one))) for one in PriorityClass}
    return NodeUsage(
        name=rooms.node_name,
        time=rooms.time,
        source=rooms.advisor.source,
        cpu_milli=used.cpu_milli if used else None,
        memory_bytes=used.memory_bytes if used else None,
        system=_used(usages.get(series.SYSTEM)),
        allocatable=_amount(state.allocatable if state else None),
        classes={name: used for name, used in classes.items() if used is not None},
        readings=_readings(rooms, Kind.NODE, ""),
    )


def pods(rooms: Rooms) -> PodsSchema:
    usages = rooms.usages()
    listed = sorted(rooms.states.pods(), key=lambda pod: pod.pod.metadata.key)
    return PodsSchema(rooms.time, [_pod(pod, usages) for pod in listed])


def pod(rooms: Rooms, uid: str) -> PodDetail | None:
    """None for a pod that is not on this node."""
    found = next((one for one in rooms.states.pods() if one.uid == uid), None)
    if found is None:
        return None
    now, spec = rooms.clock.now(), found.pod.spec

    def history(key: str) -> ModelHistory | None:
        known = rooms.predict_server.history(key)
        return None if known is None else _history(known, now)

    return PodDetail(
        **vars(_pod(found, rooms.usages())),
        time=rooms.time,
        created=durations.timestamp(found.created_at),
        cold=rooms.predict_server.cold(found),
        readings=_readings(rooms, Kind.POD, uid),
        containers=[_container(rooms, uid, one.name) for one in (*(spec.init_containers or ()), *spec.containers)],
        usage=[_summary(rooms, Kind.POD, uid, seconds) for seconds in SUMMARY_SECONDS],
        workload_history=history(series.of_workload(found.workload)) if found.workload else None,
        history=history(uid),  # read last: an answer with the workload's history then also has the pod's
        enforcer=_enforced(rooms, uid),
    )


def _enforced(rooms: Rooms, uid: str) -> PodBoundsSchema | None:
    """The enforcer's report on the pod, in wall clock times."""
    told = None if rooms.enforcer_status is None else bounds.read(rooms.enforcer_status)
    found = None if told is None else told.pods.get(uid)
    if found is None:
        return None
    booted_at = rooms.clock.now() - rooms.clock.monotonic()

    def said(one: bounds.CgroupBound) -> Bound:
        time = durations.timestamp(min(max(0.0, booted_at + one.at), rooms.clock.now()))
        rest = {name: value for name, value in msgspec.structs.asdict(one).items() if name != "at"}
        return Bound(**rest, time=time)

    return PodBoundsSchema(found.tier, [said(one) for one in found.bounds], found.omitted)


class Chosen(NamedTuple):
    """Series of one kind and metric."""

    kind: Kind
    metric: Metric
    keys: list[SeriesKey]


def choose(rooms: Rooms, kind: Kind, metric: Metric, entity: str | None, wanted: Mapping[str, str]) -> Chosen:
    """The existing series of one entity, or of all entities with the labels."""
    labelled = _Labels(rooms)
    keys = [
        key
        for key in rooms.cache.series_keys(kind, metric)
        if entity in (None, key.entity) and wanted.items() <= labelled.of(key).items()
    ]
    return Chosen(kind, metric, keys)


def samples(rooms: Rooms, chosen: Chosen, tier: StorageTier, span: queries.Span) -> SeriesSchema:
    """Raises InvalidInput for too many samples."""
    keys = chosen.keys
    store = rooms.cache
    start, end = (store.second(float(time)) for time in span)
    labelled = _Labels(rooms)
    times = store.range(keys[0], start, end, tier).times if keys else np.empty(0, np.int64)
    if len(times) * len(keys) > MOST_VALUES:
        problem = (
            f"{len(keys)} series of {len(times)} values each are more than {MOST_VALUES}; "
            f"ask for a shorter range, the tier {StorageTier.MEANS}, or fewer series"
        )
        raise queries.refused("start", durations.timestamp(span.start), problem)
    rows = []
    for key in keys:
        values = np.full(len(times), np.nan)
        if len(times):
            # The ring advances meanwhile, and may have dropped the oldest of these seconds.
            found = store.range(key, int(times[0]), int(times[-1]), tier).values
            values[len(times) - len(found) :] = found
        rows.append(Values(key.entity, labelled.of(key), np.round(values, DECIMALS).tolist()))
    return SeriesSchema(
        kind=chosen.kind,
        metric=chosen.metric,
        unit=UNITS[chosen.metric],
        tier=tier,
        step_seconds=1 if tier is StorageTier.SECONDS else windows.STEP_SECONDS,
        times=(times + store.wall_time(0)).tolist(),
        series=rows,
    )


def aggregates(rooms: Rooms, chosen: Chosen, how: Aggregation, window_seconds: int) -> Aggregate:
    store = rooms.cache
    now, last = store.second(), store.last_second
    until = last if now - last == 1 else now  # the present second is sampled only at its middle
    kind, metric, keys = chosen
    if len(keys) == 1:
        found = {keys[0]: store.aggregate_one(keys[0], how, window_seconds, until)}
    else:
        found = {**store.aggregate(how, window_seconds, kind=kind, metric=metric, until=until)}
    labelled = _Labels(rooms)
    return Aggregate(
        kind=kind,
        metric=metric,
        agg=how,
        unit="samples" if how is Aggregation.COUNT else UNITS[metric],
        window_seconds=window_seconds,
        time=durations.timestamp(store.wall_time(until)),
        tier=store.tier(kind, window_seconds, until, metric=metric),
        values=[Value(key.entity, labelled.of(key), _rounded(found.get(key))) for key in keys],
    )


def prediction(rooms: Rooms) -> PredictionSchema:
    synced = rooms.states.synced  # read first: an earlier list of pods may be incomplete
    listed = rooms.states.pods()
    found = rooms.predict_server.predict(listed if synced else None, rooms.states.node())
    answer, prod = found.reclaimable, found.prod
    explained = answer.explanation if answer else None
    return PredictionSchema(
        time=durations.timestamp(found.time),
        model=found.model,
        samples=prod.samples if prod else 0,
        history_percent=found.history_percent,
        requested=AmountSchema(*found.requests.requested),
        cold_requested=AmountSchema(*found.requests.cold),
        mean=_amount(rounded_up(prod.mean) if prod else None),
        stdev=_amount(rounded_up(prod.stdev) if prod else None),
        models=_models(rooms.predict_server.peaks(listed), found),
        peak=_amount(answer.peak if answer else None),
        node_peak=_amount(found.node_peak),
        promises=[_promise(one, found) for one in found.promises],
        withdrawals=[
            WithdrawalSchema(one.window_seconds, *(_percent(each) for each in one.percents_per_day))
            for one in found.withdrawn
        ],
        recommended=found.recommended,
        target_violation_percent=found.target_violation_percent,
        prior=PriorSchema("built-in", 0) if found.prior is None else PriorSchema("fleet", found.prior.nodes),
        reclaimable=_amount(answer.result if answer else None),
        reason=explained.reason if explained else found.unclaimed.message,
        resources={"cpu": explained.cpu, "memory": explained.memory} if explained else {},
        policy_problem=found.policy_problem,
        predictor_problem=found.predictor_problem,
    )


def _promise(promise: predicted.HorizonPromise, found: predicted.NodePrediction) -> PromiseSchema:
    kept = promise.kept
    pairs = (kept.violation_percents, kept.severity_percents, kept.over_estimate_percents, kept.lent_percents)
    target = found.target_violation_percent
    cpu, memory = (None, None) if promise.debts is None else map(_debt, promise.debts, (0, 1), (found.time, found.time))
    return PromiseSchema(
        int(kept.horizon_seconds),
        AmountSchema(*promise.peak),
        kept.outcomes,
        _percent(kept.coverage_percent),
        "" if target is None else predicted.target_note(kept.horizon_seconds, target, WINDOW_DAYS),
        cpu,
        memory,
        *_percents(kept, *pairs),
    )


def _debt(debt: Debt, resource: int, now: float) -> DebtSchema:
    return DebtSchema(
        debt.surprises,
        durations.timestamp(debt.last) if debt.last else None,
        str(debt.cause),
        round(debt.promises, 1),
        rounded_up(Usage(debt.withheld, debt.withheld))[resource],
        durations.timestamp(now + debt.seconds) if debt.promises else None,
    )


def _percents(kept: PromiseRecord, *pairs: Pair) -> list[float | None]:
    """Those of cpu and memory in turn; None without outcomes, which give no percentage."""
    return [_percent(each) if kept.outcomes else None for pair in pairs for each in pair]


def _models(peaks: Mapping[str, Resources], found: predicted.NodePrediction) -> dict[str, ModelSays]:
    """The current prediction of every model, and the outcomes of its promises where it made any here."""
    known = {shadow.model: shadow.kept for shadow in found.shadows}
    if found.promises:
        known[found.model] = found.promises[0].kept

    def said(name: str, peak: Resources) -> ModelSays:
        if (kept := known.get(name)) is None:
            return ModelSays(*peak)
        return ModelSays(*peak, kept.outcomes, *_percents(kept, kept.violation_percents, kept.lent_percents))

    return {name: said(name, peak) for name, peak in peaks.items()}


def _percent(percent: float) -> float:
    return round(percent, 3)


def histograms(rooms: Rooms, key: str) -> dict[str, Histogram] | None:
    """The histograms by resource; None for a key without a model."""
    found = rooms.predict_server.histograms(key)
    if found is None:
        return None
    layouts = {"cpu": (histogram.CPU, "cores"), "memory": (histogram.MEMORY, "bytes")}
    return {
        resource: Histogram(
            unit=unit,
            reference_time=durations.timestamp(max(0.0, found[resource].reference_timestamp)),
            bucket_weights=found[resource].bucket_weights,
            bucket_starts={bucket: float(layout.starts[bucket]) for bucket in found[resource].bucket_weights},
            total_weight=found[resource].total_weight,
        )
        for resource, (layout, unit) in layouts.items()
    }


def report(rooms: Rooms) -> ReportSchema | None:
    """None before the first report has arrived."""
    last = rooms.reporter.last
    if last is None:
        return None
    return ReportSchema(durations.timestamp(last.time), last.reason, msgspec.to_builtins(last.status))


class _Labels:
    """The names by which people know an entity."""

    def __init__(self, rooms: Rooms) -> None:
        self._pods = {pod.uid: pod for pod in rooms.states.pods()}

    def of(self, key: SeriesKey) -> dict[str, str]:
        if key.kind is Kind.CLASS:
            return {"priority": key.entity}
        if key.kind is Kind.WORKLOAD:
            return {"namespace": key.entity.partition("/")[0], "workload": key.entity}
        if key.kind not in (Kind.POD, Kind.CONTAINER):
            return {}
        uid, _, container = key.entity.partition("/")
        pod = self._pods.get(uid)
        if pod is None:
            return {}
        known = {
            "namespace": pod.pod.metadata.namespace,
            "pod": pod.pod.metadata.name,
            "priority": str(pod.priority_class),
            "workload": pod.workload,
        }
        return known | ({"container": container} if key.kind is Kind.CONTAINER else {})


def _pod(pod: NodePod, usages: Mapping[str, Usage]) -> PodUsageSchema:
    used = _used(usages.get(pod.uid))
    return PodUsageSchema(
        uid=pod.uid,
        namespace=pod.pod.metadata.namespace,
        name=pod.pod.metadata.name,
        priority=str(pod.priority_class),
        qos=str(pod.qos),
        workload=pod.workload,
        cpu_milli=used.cpu_milli if used else None,
        memory_bytes=used.memory_bytes if used else None,
        request=AmountSchema(*pod.request),
    )


def _container(rooms: Rooms, uid: str, name: str) -> ContainerUsage:
    entity = f"{uid}/{name}"
    used = _aggregated(rooms, Kind.CONTAINER, entity, Aggregation.LAST, READING_SECONDS)
    return ContainerUsage(
        name=name,
        cpu_milli=used.cpu_milli if used else None,
        memory_bytes=used.memory_bytes if used else None,
        readings=_readings(rooms, Kind.CONTAINER, entity),
    )


def _summary(rooms: Rooms, kind: Kind, entity: str, seconds: int) -> UsageSummary:
    def aggregated(how: Aggregation) -> AmountSchema | None:
        return _aggregated(rooms, kind, entity, how, seconds)

    until = rooms.advisor.second
    count = rooms.cache.aggregate_one(SeriesKey(kind, entity, Metric.CPU), Aggregation.COUNT, seconds, until)
    return UsageSummary(
        window_seconds=seconds,
        tier=rooms.cache.tier(kind, seconds, until),
        samples=int(count or 0),
        avg=aggregated(Aggregation.AVG),
        p95=aggregated(Aggregation.P95),
        max=aggregated(Aggregation.MAX),
    )


def _aggregated(rooms: Rooms, kind: Kind, entity: str, how: Aggregation, seconds: int) -> AmountSchema | None:
    until = rooms.advisor.second
    cpu_cores, memory_bytes = (
        rooms.cache.aggregate_one(SeriesKey(kind, entity, metric), how, seconds, until)
        for metric in (Metric.CPU, Metric.MEMORY)
    )
    if cpu_cores is None or memory_bytes is None:
        return None
    return _amount_of(Usage(cpu_cores, memory_bytes))


def _readings(rooms: Rooms, kind: Kind, entity: str) -> dict[str, ReadingSchema]:
    """The last values other than usage."""
    until = rooms.advisor.second
    last = {
        metric: rooms.cache.aggregate_one(SeriesKey(kind, entity, metric), Aggregation.LAST, READING_SECONDS, until)
        for metric in Metric
        if metric not in (Metric.CPU, Metric.MEMORY)
    }
    return {
        str(metric): ReadingSchema(round(value, DECIMALS), UNITS[metric])
        for metric, value in last.items()
        if value is not None
    }


def _history(known: History, now: float) -> ModelHistory:
    return ModelHistory(
        first_observed=durations.timestamp(known.first_observed),
        observed_seconds=max(0, int(now - known.first_observed)),
        samples=known.samples,
        mean=AmountSchema(*rounded_up(known.mean)),
        stdev=AmountSchema(*rounded_up(known.stdev)),
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, DECIMALS)


def _amount(resources: Resources | None) -> AmountSchema | None:
    return None if resources is None else AmountSchema(*resources)


def _amount_of(usage: Usage) -> AmountSchema:
    return AmountSchema(*amount(usage))


def _used(usage: Usage | None) -> AmountSchema | None:
    return None if usage is None else _amount_of(usage)
