"""Which Mid and Batch pods to evict because their node is under pressure, and why. Pure.

The agent reports its measurements; the amount to release follows from them and from the present thresholds of the
policy, by Koordinator's rules. The eviction order: first pods that use more than they hold of the resource, Batch
before Mid, then by eviction priority, spec.priority and priority label, ascending, then those that use the most. A pod
stays if the pods before it release enough. For memory, Mid pods that use no more than they hold have bounds of their
own. A reported pod that terminates counts as released. While Prod is slowed, pods go by the law of `prod_first`.
"""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from manager.nodeside.noderesource import prod_first
from manager.nodeside.noderesource.explain import CLOCK_SKEW_SECONDS
from manager.nodeside.noderesource.prod_first import Step
from manager.nodeside.noderesource.report import NodeReport
from manager.nodeside.pressure import NodePressure, PodPressure
from manager.pods import PodRecord
from shared import explanation, names
from shared.api.nodemetric_spec import ResourceThresholds
from shared.names import PriorityClass, Tier
from shared.quantity import Resources

STALE_SECONDS = 30.0  # a node under pressure reports every ten
COOL_DOWN_SECONDS = {names.MEMORY: 4.0, names.CPU: 20.0}  # Koordinator's

_UNITS = {names.MEMORY: "bytes", names.CPU: "milli"}
_CLASSES = frozenset({PriorityClass.MID, PriorityClass.BATCH})
_GOES_FIRST = (Tier.BATCH, Tier.MID)


@dataclass(frozen=True, slots=True)
class Need:
    """The amount of a resource to release, in milli-cores or bytes; `released` of it is under way.

    `why` is the complete reason, with the bounds. With `by_usage` a pod releases what it uses of CPU, else what it
    requests. For the last `kept` of it no Mid pod goes that uses no more than it
    holds; such pods only go from `within_percent` of capacity on.
    """

    resource: str
    amount: int
    released: int
    why: str
    kept: int = 0
    within_percent: int = 0
    by_usage: bool = False

    @property
    def remaining(self) -> int:
        return max(0, self.amount - self.released)


@dataclass(frozen=True, slots=True)
class Eviction:
    """One pod to evict because of a resource, without notice if `at_once`, and the amount that this releases."""

    pod: PodRecord
    resource: str
    releases: int
    why: str
    at_once: bool


@dataclass(frozen=True, slots=True)
class Relief:
    """The evictions in order, and one line with the reason for them, or for none."""

    evictions: tuple[Eviction, ...]
    needs: tuple[Need, ...]
    reason: str


class Last(NamedTuple):
    """The last eviction on a node because of a resource: its time (Unix seconds), and the time of its report."""

    at: float
    updated: str


def plan(
    report: NodeReport,
    pods: Collection[PodRecord],
    thresholds: ResourceThresholds,
    now: float,
    *,
    last: Mapping[str, Last] | None = None,
    spared: Container[str] = frozenset(),
    noticed: Container[str] = frozenset(),
) -> Relief:
    """The plan at `now`, in Unix seconds.

    `pods` are all of the node, `spared` the UIDs of pods that must not be evicted now, and `noticed` those of pods that
    go first, because they know that they will be evicted. After an eviction, a new report
    counts only after the cool-down.
    """
    pressure = report.pressure
    if pressure is None or not thresholds.evicts:
        return Relief((), (), "no pressure" if pressure is None else "evictEnabled is not set")
    age = None if report.update_time is None else now - report.update_time
    if age is None or not -CLOCK_SKEW_SECONDS <= age <= STALE_SECONDS:
        told = "at no known time" if age is None else f"{age:.0f} s ago"
        return Relief((), (), f"the pressure was reported {told}, which is too old")
    staying = _staying(pods)
    leaving = [pod for uid, pod in pressure.pods.items() if uid not in staying]
    needs = [
        *_by_thresholds(pressure, thresholds, leaving),
        *_by_waits(report, pressure, thresholds, leaving, now),
    ]
    evictions, reasons = list[Eviction](), []
    for need in needs:
        cooling = _cooling(need, report, last or {}, now)
        if cooling:
            reasons.append(f"{need.why}; {cooling}")
            continue
        chosen = {each.pod.uid for each in evictions}
        on_its_way = sum(_releases(pressure.pods[each.pod.uid], need) for each in evictions)
        known = [pod for pod in candidates(pods, spared) if pod.uid in pressure.pods and pod.uid not in chosen]
        ordered = sorted(in_order(known, need.resource, pressure.pods), key=lambda pod: pod.uid not in noticed)
        found = _evictions(need, need.remaining - on_its_way, ordered, pressure)
        evictions += found
        reasons.append(_reason(need, found))
    return Relief(tuple(evictions), tuple(needs), "; ".join(reasons) or "no threshold of the policy is reached")


def candidates(pods: Iterable[PodRecord], spared: Container[str] = frozenset()) -> list[PodRecord]:
    """The pods that may ever be evicted: Mid or Batch, holding some of it, evictable and not terminating."""
    return [
        pod
        for pod in pods
        if pod.active
        and pod.held_tier is not None
        and pod.priority_class in _CLASSES
        and (known := pod.dispensability) is not None
        and known.evictable
        and not known.terminating
        and pod.uid not in spared
    ]


def in_order(pods: Iterable[PodRecord], resource: str, used: Mapping[str, PodPressure]) -> list[PodRecord]:
    """The pods, all of which are in `used`, in eviction order.

    Among equals the youngest goes first, having least to lose.
    """

    def rank(pod: PodRecord) -> tuple[bool, int, int, int, int, int, float, str]:
        usage, held = _amount(used[pod.uid].usage, resource), _amount(pod.held, resource)
        known = pod.dispensability
        tier = _GOES_FIRST.index(pod.held_tier) if pod.held_tier is not None else len(_GOES_FIRST)
        priority, sub_priority, created_at = (0, 0, 0.0) if known is None else (known[0], known[1], known[2])
        return (usage <= held, tier, priority, pod.priority, sub_priority, -usage, -created_at, pod.key)

    return sorted(pods, key=rank)


def _evictions(need: Need, remaining: int, ordered: Iterable[PodRecord], pressure: NodePressure) -> list[Eviction]:
    found: list[Eviction] = []
    for pod in ordered:
        unit = _UNITS[need.resource]
        usage, held = _amount(pressure.pods[pod.uid].usage, need.resource), _amount(pod.held, need.resource)
        is_within = bool(need.within_percent) and pod.held_tier is Tier.MID and usage <= held  # the last ones in order
        if remaining <= (need.kept if is_within else 0):
            break
        releases = _releases(pressure.pods[pod.uid], need)
        if releases <= 0:
            continue  # releases nothing
        requested = explanation.amount(held, unit)
        own = f"this {pod.held_tier} pod uses {explanation.amount(usage, unit)} of {requested} requested"
        if is_within:
            own = f"{own}, and such pods are evicted from {need.within_percent} % on"
        at_once = need.resource == names.MEMORY and not need.by_usage
        found.append(Eviction(pod, need.resource, releases, f"{need.why}; {own}", at_once))
        remaining -= releases
    return found


def _by_thresholds(
    pressure: NodePressure, thresholds: ResourceThresholds, leaving: Collection[PodPressure]
) -> Iterator[Need]:
    for resource, find in ((names.MEMORY, _memory), (names.CPU, _cpu)):
        need = find(pressure, thresholds) if resource in pressure.resources else None
        if need is not None:
            yield _with_released(need, leaving)


def _by_waits(
    report: NodeReport,
    pressure: NodePressure,
    thresholds: ResourceThresholds,
    leaving: Collection[PodPressure],
    now: float,
) -> Iterator[Need]:
    for resource, of in report.prod_waits.items():
        standing = prod_first.standing(resource, of, report.update_time, thresholds, now)
        if standing.step is not Step.EVICT:
            continue
        used = sum(_amount(each.usage, resource) for each in pressure.pods.values())
        amount, unit = prod_first.to_release(used), _UNITS[resource]
        why = (
            f"{standing.why}: {explanation.amount(amount, unit)} to release, a quarter of the "
            f"{explanation.amount(used, unit)} that Mid and Batch use"
        )
        yield _with_released(Need(resource, amount, 0, why, by_usage=True), leaving)


def _with_released(need: Need, leaving: Iterable[PodPressure]) -> Need:
    return replace(need, released=sum(_releases(each, need) for each in leaving))


def _memory(pressure: NodePressure, thresholds: ResourceThresholds) -> Need | None:
    capacity, used = pressure.capacity.memory_bytes, pressure.usage.memory_bytes
    if used * 100 < thresholds.memory_evict_threshold_percent * capacity:
        return None
    lower = thresholds.memory_lower_percent
    amount = used - capacity * lower // 100
    stalled = f", tasks stalled for memory {pressure.stalls[1]} % of the time" if pressure.stalls[1] else ""
    why = (
        f"memory used {explanation.amount(used, 'bytes')} is {used * 100 // capacity} % of capacity "
        f"{explanation.amount(capacity, 'bytes')}, memoryEvictThresholdPercent is "
        f"{thresholds.memory_evict_threshold_percent}{stalled}: {explanation.amount(amount, 'bytes')} to release down "
        f"to {lower} %"
    )
    within = thresholds.memory_within_percent
    is_beyond = used * 100 >= within * capacity
    kept = capacity * (thresholds.memory_within_lower_percent - lower) // 100 if is_beyond else amount
    return Need(names.MEMORY, amount, 0, why, kept, within)


def _cpu(pressure: NodePressure, thresholds: ResourceThresholds) -> Need | None:
    lower, upper = thresholds.cpu_satisfaction_lower_percent, thresholds.cpu_satisfaction_upper_percent
    request, usage, limit = pressure.cpu_request, pressure.cpu_usage, pressure.cpu_limit
    if lower is None or upper is None or request <= 0 or limit * 100 > lower * request:
        return None
    if usage * 100 < thresholds.cpu_usage_threshold_percent * limit:
        return None
    amount = request * upper // 100 - limit
    stalled = f", tasks stalled for it {pressure.stalls[0]} % of the time" if pressure.stalls[0] else ""
    why = (
        f"of {explanation.amount(request, 'milli')} cpu requested by Mid and Batch, "
        f"{explanation.amount(limit, 'milli')} or {limit * 100 // request} % is what they can get, and "
        f"{explanation.amount(usage, 'milli')} of that is used; "
        f"cpuEvictBESatisfactionLowerPercent is {lower}, cpuEvictBEUsageThresholdPercent "
        f"{thresholds.cpu_usage_threshold_percent}{stalled}: requests of {explanation.amount(amount, 'milli')} to "
        f"release up to {upper} %"
    )
    return Need(names.CPU, amount, 0, why)


def _staying(pods: Iterable[PodRecord]) -> set[str]:
    return {
        pod.uid for pod in pods if pod.active and (pod.dispensability is None or not pod.dispensability.terminating)
    }


def _cooling(need: Need, report: NodeReport, last: Mapping[str, Last], now: float) -> str:
    """Why no pod is evicted for the need yet; empty if one may be."""
    before = last.get(need.resource)
    if before is None or before.updated == report.updated:
        return ""
    seconds = prod_first.COOL_DOWN_SECONDS if need.by_usage else COOL_DOWN_SECONDS[need.resource]
    left = seconds - (now - before.at)
    return f"cooling down for {left:.0f} s after the last eviction" if left > 0 else ""


def _releases(pod: PodPressure, need: Need) -> int:
    """For memory the usage, for CPU the requests, since CPU satisfaction is measured against requests."""
    return _amount(pod.usage if need.by_usage or need.resource == names.MEMORY else pod.held, need.resource)


def _amount(amount: Resources, resource: str) -> int:
    return amount.cpu_milli if resource == names.CPU else amount.memory_bytes


def _reason(need: Need, found: list[Eviction]) -> str:
    if found:
        return f"{need.why}; in eviction order: {', '.join(each.pod.key for each in found[:10])}"
    if need.remaining == 0:
        return f"{need.why}; that much is leaving already"
    within = f", and Mid pods that use no more than they hold stay below {need.within_percent} %"
    return f"{need.why}; no pod may be evicted{within if need.kept else ''}"
