"""Whether a threshold is reached beyond which pods of Mid and Batch may be evicted, with the values seen then.

Koordinator's rules. Memory: the used share of capacity. CPU: the share of their requests that the pods can get, if they
use nearly all of that; their real limit is what the rest of the node leaves. The node's own stalls are reported but do
not decide, since they include those of a container at its own limit; those of Prod pods do, see `interference`.
"""

import math
from collections.abc import Collection, Iterable
from typing import Final

from agent.metric_cache import series
from agent.metric_cache.aggregate import Aggregation
from agent.metric_cache.cache import MetricCache
from agent.metric_cache.series import Kind, Metric, SeriesKey, Usage
from agent.states_informer.pods import NOTHING, NodePod
from shared import names
from shared.api.core import Quantities
from shared.api.nodemetric import PressedPod, Pressure
from shared.api.nodemetric_spec import ResourceThresholds
from shared.names import PriorityClass
from shared.quantity import MILLI_PER_CORE, Resources, format_milli

WINDOW_SECONDS: Final = 10
LEAST_SAMPLES: Final = WINDOW_SECONDS // 3  # in the window, Koordinator's; fewer are too few to judge

_CPU = SeriesKey(Kind.NODE, "", Metric.CPU)
_MEMORY = SeriesKey(Kind.NODE, "", Metric.MEMORY)


def seen(
    cache: MetricCache,
    pods: Iterable[NodePod],
    capacity: Resources,
    thresholds: ResourceThresholds,
    until: int,
    *,
    slowed: Collection[str] = (),
) -> Pressure | None:
    """The pressure up to the cache's second `until`; None while no threshold is reached, or values are unknown.

    Where Prod pods are `slowed`, there is a reason to look at the others regardless of thresholds.
    The check is cheap while memory is below its threshold and there is no CPU bound.
    """
    if not thresholds.evicts or min(capacity) <= 0:
        return None
    memory_bytes = cache.aggregate_one(_MEMORY, Aggregation.LAST, WINDOW_SECONDS, until)
    samples = cache.aggregate_one(_CPU, Aggregation.COUNT, WINDOW_SECONDS, until) or 0
    if memory_bytes is None or samples < LEAST_SAMPLES:
        return None
    is_memory = is_memory_short(memory_bytes, capacity, thresholds)
    if not is_memory and thresholds.cpu_satisfaction_lower_percent is None and not slowed:
        return None
    holding = [pod for pod in pods if pod.holds_request and pod.held != NOTHING]
    mean = cache.usages(Aggregation.AVG, WINDOW_SECONDS, until)
    last = cache.aggregate(Aggregation.LAST, WINDOW_SECONDS, kind=Kind.POD, metric=Metric.MEMORY, until=until)
    node = mean.get(series.NODE)
    if node is None or not holding:
        return None
    used = {
        pod.uid: Usage(mean[pod.uid].cpu_cores, last.get(SeriesKey(Kind.POD, pod.uid, Metric.MEMORY), 0.0))
        for pod in holding
        if pod.uid in mean
    }
    later = memory_bytes * 100 < thresholds.memory_within_percent * capacity.memory_bytes
    may_go = any(not (later and _is_within(pod, used[pod.uid])) for pod in holding if pod.uid in used)
    short = [names.MEMORY] if is_memory and may_go else []
    usage = math.floor(sum(each.cpu_cores for each in used.values()) * MILLI_PER_CORE)
    others = math.ceil(node.cpu_cores * MILLI_PER_CORE) - usage
    limit = min(capacity.cpu_milli, max(0, capacity.cpu_milli - others))
    request = sum(pod.held.cpu_milli for pod in holding)
    if is_cpu_short(request, usage, limit, thresholds):
        short.append(names.CPU)
    if not short and not slowed:
        return None
    return Pressure(
        resources=tuple(short),
        capacity=dict(capacity.quantities()),
        usage=_quantities(Usage(node.cpu_cores, memory_bytes)),
        tiers_cpu_request=format_milli(request),
        tiers_cpu_usage=format_milli(usage),
        tiers_cpu_limit=format_milli(limit),
        cpu_stall_percent=_stall(cache, Metric.PSI_CPU_SOME, until),
        memory_stall_percent=_stall(cache, Metric.PSI_MEMORY_SOME, until),
        pods=tuple(
            _pod(pod, used[pod.uid]) for pod in sorted(holding, key=lambda pod: pod.pod.metadata.key) if pod.uid in used
        ),
    )


def is_memory_short(used_bytes: float, capacity: Resources, thresholds: ResourceThresholds) -> bool:
    """Whether memory usage reaches the threshold for evictions."""
    return used_bytes * 100 >= thresholds.memory_evict_threshold_percent * capacity.memory_bytes


def is_cpu_short(request: int, usage: int, limit: int, thresholds: ResourceThresholds) -> bool:
    """Whether the limit is low for the pods' requests, and they use nearly all of it; all in milli-cores."""
    lower = thresholds.cpu_satisfaction_lower_percent
    if lower is None or request <= 0:
        return False
    return limit * 100 <= lower * request and usage * 100 >= thresholds.cpu_usage_threshold_percent * limit


def _is_within(pod: NodePod, usage: Usage) -> bool:
    """Whether it is a Mid pod that uses no more memory than it holds."""
    return pod.priority_class is PriorityClass.MID and usage.memory_bytes <= pod.held.memory_bytes


def _pod(pod: NodePod, usage: Usage) -> PressedPod:
    meta = pod.pod.metadata
    return PressedPod(meta.namespace, meta.name, pod.uid, _quantities(usage), dict(pod.held.quantities()))


def _quantities(usage: Usage) -> Quantities:
    return dict(Resources(math.floor(usage.cpu_cores * MILLI_PER_CORE), math.floor(usage.memory_bytes)).quantities())


def _stall(cache: MetricCache, metric: Metric, until: int) -> str | None:
    ratio = cache.aggregate_one(SeriesKey(Kind.NODE, "", metric), Aggregation.LAST, WINDOW_SECONDS, until)
    return None if ratio is None else f"{ratio * 100:.2f}"
