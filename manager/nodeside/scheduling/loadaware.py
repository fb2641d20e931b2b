"""Load-aware scheduling: a node's known load, the pods that it refuses because of it, and the node's score.

`load` reads a node's report and pods, and runs once per change of either; `why_refused` and `score` are a few integer
operations per pod and node. The rules are upstream's LoadAwareScheduling; the predicted peak adds to the score, so that
nodes that will be idle for long are preferred, and a node whose Prod pods are slowed scores 0.
"""

import logging
import math
from collections.abc import Collection
from functools import lru_cache
from typing import Annotated, NamedTuple

import msgspec

from manager.nodeside.noderesource.report import NEGATIVE, NodeReport
from manager.nodeside.scheduling import args as arguments
from manager.nodeside.scheduling import estimate
from manager.nodeside.scheduling.args import AggregationType, LoadAwareArgs, Percents
from manager.pods import NOTHING, PodRecord
from shared import names
from shared.api.core import Node
from shared.api.meta import Wire, prepared
from shared.api.nodemetric import AggregatedUsage, ResourceMap
from shared.names import LENDING_CLASSES, PriorityClass
from shared.quantity import Resources

logger = logging.getLogger(__name__)

MAX_SCORE = 100
NEUTRAL_SCORE = MAX_SCORE // 2
REPORT_INTERVAL_SECONDS = 60  # of an agent without a configured interval

EXPIRED = "node(s) nodeMetric expired"


class LoadLimits(NamedTuple):
    """The limits on one node: for prod pods, if not empty, and for all others.

    `usage` bounds the plain usage, or the `aggregation` of the last `seconds`; 0 seconds mean the longest.
    """

    prod: Percents
    usage: Percents
    aggregation: AggregationType = ""
    seconds: float = 0.0


class NodeLoad(msgspec.Struct, frozen=True):
    """A node's load without the incoming pod, plus the expected usage of pods without a measurement.

    The filter reads `used`, the score `scored_used`, and both read `prod_used` where prod counts alone. `peak` is None
    if too little is known, `is_known` False if no usage was reported. `reported_at` is in Unix seconds.
    `prod_slowed` is whether Prod pods wait too long beside Mid and Batch.
    """

    allocatable: Resources
    limits: LoadLimits
    reported_at: float | None = None
    is_known: bool = False
    used: Resources = NOTHING
    scored_used: Resources = NOTHING
    prod_used: Resources = NOTHING
    peak: Resources | None = None
    prod_slowed: bool = False


class Incoming(NamedTuple):
    """The pod to place."""

    estimate: Resources
    is_prod: bool = False
    is_of_daemon_set: bool = False


class _CustomAggregated(Wire, frozen=True):
    usage_thresholds: dict[str, Annotated[int, msgspec.Meta(ge=0, le=100)]] | None = None
    usage_aggregation_type: AggregationType = ""
    usage_aggregated_duration: str = ""


@prepared
class _Custom(Wire, frozen=True):
    """The thresholds in a node's annotation."""

    usage_thresholds: dict[str, Annotated[int, msgspec.Meta(ge=0, le=100)]] | None = None
    prod_usage_thresholds: dict[str, Annotated[int, msgspec.Meta(ge=0, le=100)]] | None = None
    aggregated_usage: _CustomAggregated | None = None


_AGGREGATED = msgspec.json.Decoder(tuple[AggregatedUsage, ...] | None)


def load(node: Node, report: NodeReport, pods: Collection[PodRecord], args: LoadAwareArgs) -> NodeLoad:
    """The load of a node with a NodeMetric. Raises QuantityError for an invalid allocatable."""
    allocatable, limits = node.allocatable, limits_of(node, args)
    usage, peak = report.usage, report.node_peak
    if usage is None:
        return NodeLoad(allocatable, limits, report.update_time)
    delta = _delta(report, pods, args)
    scored = args.aggregated.score_aggregation_type, arguments.seconds(args.aggregated.score_aggregated_duration)
    counts_prod = bool(limits.prod) or args.score_according_prod_usage
    is_trusted = report.history_percent >= args.predicted_peak_history_percent
    return NodeLoad(
        allocatable,
        limits,
        report.update_time,
        is_known=True,
        used=_used(report, usage, delta, pods, args, (limits.aggregation, limits.seconds)),
        scored_used=_used(report, usage, delta, pods, args, scored),
        prod_used=_prod_used(report, pods, args) if counts_prod else NOTHING,
        peak=peak.plus(delta) if peak is not None and is_trusted else None,
        prod_slowed=any(wait.since is not None for wait in report.prod_waits.values()),
    )


def why_refused(load: NodeLoad, pod: Incoming, args: LoadAwareArgs, now: float) -> str | None:
    """Why the node refuses the pod, in upstream's words; None if it does not."""
    if pod.is_of_daemon_set:
        return None
    by_prod = pod.is_prod and bool(load.limits.prod)
    thresholds = load.limits.prod if by_prod else load.limits.usage
    if not thresholds:
        return None
    if args.filter_expired_node_metrics and is_expired(load, args, now):
        return None if args.enable_schedule_when_node_metrics_expired else EXPIRED
    if not load.is_known:
        return None
    used = load.prod_used if by_prod else load.used
    how = "aggregated " if load.limits.aggregation and not by_prod else ""
    if _exceeds(used[0] + pod.estimate[0], load.allocatable[0], thresholds.cpu):
        return f"node(s) {names.CPU} {how}usage exceed threshold"
    if _exceeds(used[1] + pod.estimate[1], load.allocatable[1], thresholds.memory):
        return f"node(s) {names.MEMORY} {how}usage exceed threshold"
    return None


def score(load: NodeLoad, pod: Incoming, args: LoadAwareArgs, now: float) -> int:
    """The node's score for the pod, 0..100: the more is free, now and at the predicted peak, the higher.

    0 without weights, for an unknown node, and for one whose Prod pods are slowed.
    """
    if not args.resource_weights or not load.is_known or load.prod_slowed or is_expired(load, args, now):
        return 0
    used = load.prod_used if pod.is_prod and args.score_according_prod_usage else load.scored_used
    now_score = _left_over(used, pod.estimate, load.allocatable, args)
    peak_weight = args.predicted_peak_weight
    if peak_weight == 0:
        return now_score
    peak_score = NEUTRAL_SCORE
    if load.peak is not None:
        peak_score = _left_over(load.peak, pod.estimate, load.allocatable, args)
    weight = args.resource_weights.cpu + args.resource_weights.memory
    return (now_score * weight + peak_score * peak_weight) // (weight + peak_weight)


def is_expired(load: NodeLoad, args: LoadAwareArgs, now: float) -> bool:
    """Whether the report is so old that the node counts as unknown; a missing report counts as old."""
    return load.reported_at is None or now - load.reported_at >= args.node_metric_expiration_seconds


def limits_of(node: Node, args: LoadAwareArgs) -> LoadLimits:
    """The thresholds of the node's annotation, else those of the arguments."""
    text = node.metadata.annotation(names.ANNOTATION_USAGE_THRESHOLDS)
    own = (_custom(text) if text else None) or _Custom()
    prod = _percents(own.prod_usage_thresholds) or args.prod_usage_thresholds
    aggregated = own.aggregated_usage
    if aggregated is not None and aggregated.usage_aggregation_type:
        thresholds = _percents(aggregated.usage_thresholds)
        if thresholds:
            seconds = arguments.seconds(aggregated.usage_aggregated_duration)
            return LoadLimits(prod, thresholds, aggregated.usage_aggregation_type, seconds)
    general = args.aggregated
    if general.usage_thresholds and general.usage_aggregation_type:
        seconds = arguments.seconds(general.usage_aggregated_duration)
        return LoadLimits(prod, general.usage_thresholds, general.usage_aggregation_type, seconds)
    return LoadLimits(prod, _percents(own.usage_thresholds) or args.usage_thresholds)


def _exceeds(used: int, allocatable: int, percent: int) -> bool:
    if percent == 0 or allocatable == 0:
        return False
    return estimate.rounded(float(used) / float(allocatable) * 100) > percent


def _left_over(used: Resources, more: Resources, allocatable: Resources, args: LoadAwareArgs) -> int:
    """The weighted mean of the free shares; with a weight of its own, the scarcest resource counts once more."""
    weights, dominant_weight = args.resource_weights, args.dominant_resource_weight
    cpu = _free_share(used[0] + more[0], allocatable[0])
    memory = _free_share(used[1] + more[1], allocatable[1])
    weighted = cpu * weights.cpu + memory * weights.memory + min(cpu, memory) * dominant_weight
    return weighted // (weights.cpu + weights.memory + dominant_weight)


def _free_share(used: int, allocatable: int) -> int:
    free = (allocatable - used) * MAX_SCORE // allocatable if allocatable > 0 else 0
    return min(max(free, 0), MAX_SCORE)


def _used(
    report: NodeReport,
    usage: Resources,
    delta: Resources,
    pods: Collection[PodRecord],
    args: LoadAwareArgs,
    aggregate: tuple[AggregationType, float],
) -> Resources:
    """The plain usage or the requested aggregate, with `delta`; without such an aggregate the estimates of all pods."""
    aggregation, seconds = aggregate
    if not aggregation:
        return usage.plus(delta)
    aggregated = _aggregated(report, aggregation, seconds)
    if aggregated is None and seconds == 0:
        aggregated = usage
    if aggregated is not None:
        return aggregated.plus(delta)
    expected = [estimate.estimate(pod, args) for pod in pods if pod.active]
    return Resources(sum(each[0] for each in expected), sum(each[1] for each in expected))


def _aggregated(report: NodeReport, aggregation: AggregationType, seconds: float) -> Resources | None:
    """The aggregate of the last `seconds`, or of the longest time for 0; None if absent or unreadable."""
    found: dict[float, Resources] = {}
    try:
        for one in (_AGGREGATED.decode(report.aggregated) or ()) if report.aggregated else ():
            listed = (one.usage or {}).get(aggregation)
            if listed is not None and listed.resources:
                found[arguments.seconds(one.duration)] = _of_usage(listed)
    except ValueError as error:
        logger.warning("aggregated usages cannot be read: %s", error, extra={"node": report.name})
        return None
    if seconds == 0:
        return found[max(found)] if found else None
    return found.get(seconds)


def _of_usage(listed: ResourceMap) -> Resources:
    """Raises ValueError, also for a negative amount."""
    amount = listed.amount
    if min(amount) < 0:
        raise ValueError(f"{amount}: {NEGATIVE}")
    return amount


class _Measured(NamedTuple):
    """The time from which a pod's measured usage is representative; times are Unix seconds.

    `forced` says that an estimate may still count for longer, which then must be checked per pod.
    """

    since: float
    reported_at: float
    forced: bool

    def tells(self, pod: PodRecord, used: Resources, args: LoadAwareArgs) -> bool:
        """Whether the measured usage covers a whole interval; a pod without a scheduling time counts as covered."""
        if used == NOTHING or (pod.scheduled_at is not None and pod.scheduled_at > self.since):
            return False
        until = estimate.deadline(pod, args) if self.forced else None
        return until is None or until <= self.reported_at


def _measured(report: NodeReport, args: LoadAwareArgs) -> _Measured:
    policy = report.spec.metric_collect_policy
    interval = None if policy is None else policy.report_interval_seconds
    reported_at = report.update_time or 0.0
    return _Measured(
        reported_at - (REPORT_INTERVAL_SECONDS if interval is None else interval),
        reported_at,
        args.allow_customize_estimation
        or args.estimated_seconds_after_pod_scheduled > 0
        or args.estimated_seconds_after_initialized > 0,
    )


def _delta(report: NodeReport, pods: Collection[PodRecord], args: LoadAwareArgs) -> Resources:
    """The expected usage of the node's pods beyond the measured one."""
    cpu = memory = 0
    reported, measured = report.pods, _measured(report, args)
    since = -math.inf if measured.forced else measured.since
    for pod in pods:
        of_pod = reported.get(pod.key)
        if of_pod is not None and (of_pod.cpu_milli or of_pod.memory_bytes) and (pod.scheduled_at or 0.0) <= since:
            continue  # as most pods are: `tells`, without a call for each of them
        used = NOTHING if of_pod is None else of_pod.usage
        if pod.active and not measured.tells(pod, used, args):
            expected = estimate.estimate(pod, args)
            cpu += max(0, expected[0] - used[0])
            memory += max(0, expected[1] - used[1])
    return Resources(cpu, memory)


def _prod_used(report: NodeReport, pods: Collection[PodRecord], args: LoadAwareArgs) -> Resources:
    """The measured and the expected usage of prod pods. A pod that was not reported as prod was not measured, and of
    one that was, a resource that is not reported is expected.
    """
    total = NOTHING
    if args.prod_usage_include_sys:
        total = Resources(*(amount or 0 for amount in report.system_usage))
    measured = _measured(report, args)
    for pod in pods:
        if not pod.active or pod.priority_class not in LENDING_CLASSES:
            continue
        of_pod = report.pods.get(pod.key)
        is_measured = of_pod is not None and of_pod.priority_class == PriorityClass.PROD
        parts = of_pod.parts if of_pod is not None and is_measured else NOTHING
        used = Resources(*(part or 0 for part in parts))
        total = total.plus(used)
        if not measured.tells(pod, used, args):
            total = total.plus(estimate.estimate(pod, args).minus(used).floored())
        elif None in parts:
            expected = zip(parts, estimate.estimate(pod, args), strict=True)
            total = total.plus(Resources(*(more if part is None else 0 for part, more in expected)))
    return total


def _percents(listed: dict[str, int] | None) -> Percents:
    return Percents(listed.get(names.CPU, 0), listed.get(names.MEMORY, 0)) if listed else Percents()


@lru_cache(maxsize=1024)
def _custom(text: str) -> _Custom | None:
    """The content of the annotation; None, with a log line, for an invalid one."""
    try:
        custom = msgspec.json.decode(text, type=_Custom)
        if custom.aggregated_usage is not None:
            arguments.seconds(custom.aggregated_usage.usage_aggregated_duration)
    except (ValueError, RecursionError) as error:
        logger.warning("annotation %s is not in effect: %s", names.ANNOTATION_USAGE_THRESHOLDS, error)
        return None
    return custom
