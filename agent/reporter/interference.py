"""Whether Prod pods wait longer for a resource than they do without Mid and Batch pods on the node. Pure.

    slowed      from when the share that they waited is the threshold above the baseline, as a mean of ten seconds,
                until it has been less than half of the threshold above it for a minute
    of a day    the share of time in which Prod was slowed beyond a learned baseline; a day ago counts 37 % of now
    baseline    the 95th percentile of that share on this node without pods that hold Mid or Batch

Where the hypervisor takes CPUs, Prod waits for these, so nothing is concluded about CPU meanwhile.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from agent.metric_cache.aggregate import Aggregation
from agent.metric_cache.cache import MetricCache
from agent.metric_cache.series import Kind, Metric, SeriesKey
from shared import durations, names
from shared.api import nodemetric

WINDOW_SECONDS: Final = 10
CALM_SECONDS: Final = 60.0
LEARNED_SECONDS: Final = 120.0  # without Mid and Batch, before a baseline counts
STEAL_SHARE: Final = 0.05

_QUANTILE = 0.95
_DAY_SECONDS = 86_400.0
_LEAST_SHARE = 0.00001  # of a day, about a second: less is not reported
_STEP = 0.001  # of the baseline a second: it rises by ten points in two minutes, and falls by as many in half an hour
_SERIES = {names.CPU: Metric.PROD_CPU_WAIT, names.MEMORY: Metric.PROD_MEMORY_WAIT}


@dataclass(frozen=True, slots=True)
class WaitState:
    """What is known of one resource. Shares are 0 to 1, times Unix seconds.

    `since` is set while Prod is slowed, `last` is the last time at which it waited too long. `share` is the present
    one, None without one. `slowed_share` is the share of a day in which Prod was slowed.
    """

    share: float | None = None
    baseline: float = 0.0
    learned_seconds: float = 0.0
    since: float | None = None
    last: float | None = None
    slowed_share: float = 0.0

    @property
    def is_learned(self) -> bool:
        return self.learned_seconds >= LEARNED_SECONDS


@dataclass(frozen=True, slots=True)
class JudgedWaits:
    """Each resource, and how many Prod pods their own limits throttled; the other shares are None if unknown."""

    waits: Mapping[str, WaitState]
    throttled_pods: int
    steal_share: float | None
    io_stall_share: float | None

    @property
    def slowed(self) -> tuple[str, ...]:
        """The resources that Prod waits for too long."""
        return tuple(resource for resource, each in self.waits.items() if each.since is not None)


def judged(
    before: WaitState, share: float | None, *, threshold: float, lends: bool, now: float, seconds: float
) -> WaitState:
    """The next state at `now`, `seconds` after the one `before`; `lends` is whether pods hold Mid or Batch.

    With a `threshold` of 1 Prod is never slowed.
    """
    after = _judged(before, share, threshold, lends, now, seconds)
    is_slowed = after.since is not None and after.is_learned
    moved = (is_slowed - before.slowed_share) * min(1.0, seconds / _DAY_SECONDS)
    return replace(after, slowed_share=before.slowed_share + moved)


def _judged(
    before: WaitState, share: float | None, threshold: float, lends: bool, now: float, seconds: float
) -> WaitState:
    last = None if before.last is None else min(before.last, now)  # the clock may have been set back
    since = None if before.since is None else min(before.since, now)
    after = replace(before, share=share, since=since if lends else None, last=last)
    if share is None or not lends:
        after = _learned(after, share, seconds) if share is not None else after
    elif threshold < 1 and share - after.baseline >= (threshold if after.since is None else threshold / 2):
        return replace(after, since=now if after.since is None else after.since, last=now)
    if after.since is not None and (after.last is None or now - after.last >= CALM_SECONDS):
        return replace(after, since=None)
    return after


def measured(cache: MetricCache, until: int) -> JudgedWaits | None:
    """The present shares, as means of ten seconds up to the cache's second `until`; None without any."""

    def found(how: Aggregation, *metrics: Metric) -> dict[Metric, float]:
        keys = [SeriesKey(Kind.NODE, "", metric) for metric in metrics]
        return {key.metric: value for key, value in cache.aggregate_some(keys, how, WINDOW_SECONDS, until).items()}

    last = found(Aggregation.LAST, Metric.PROD_THROTTLED_PODS, Metric.PSI_IO_SOME)
    throttled = last.get(Metric.PROD_THROTTLED_PODS)
    if throttled is None:
        return None
    means = found(Aggregation.AVG, Metric.CPU_STEAL, *_SERIES.values())
    stolen = means.get(Metric.CPU_STEAL)
    waits = {resource: WaitState(means.get(metric)) for resource, metric in _SERIES.items()}
    if stolen is not None and stolen >= STEAL_SHARE:
        waits[names.CPU] = WaitState()
    return JudgedWaits(waits, round(throttled), stolen, last.get(Metric.PSI_IO_SOME))


def report(of: JudgedWaits) -> nodemetric.Interference:
    """As in a NodeMetric."""

    def time(at: float | None) -> str | None:
        return None if at is None else durations.timestamp(at)

    return nodemetric.Interference(
        waits=tuple(
            nodemetric.ProdWait(
                resource=resource,
                wait_percent=_percent(each.share),
                baseline_percent=_percent(each.baseline) if each.is_learned else None,
                since=time(each.since),
                last_time=time(each.last),
                slowed_percent=None if each.slowed_share < _LEAST_SHARE else f"{each.slowed_share * 100:.3f}",
            )
            for resource, each in of.waits.items()
        ),
        throttled_pods=of.throttled_pods,
        steal_percent=_percent(of.steal_share),
        io_stall_percent=_percent(of.io_stall_share),
    )


def restored(reported: nodemetric.Interference) -> dict[str, WaitState]:
    """What the last report of an earlier process knew. Raises ValueError for what no agent writes."""

    def time(text: str | None) -> float | None:
        return None if text is None else durations.instant(text)

    def share(resource: str, text: str | None) -> float:
        percent = float(text or 0)
        if not 0 <= percent <= 100:
            raise ValueError(f"waits[{resource}] has a percentage of {text}")
        return percent / 100

    found = {}
    for each in reported.waits:
        if each.resource not in _SERIES:
            raise ValueError(f"waits[{each.resource}] is of no known resource")
        baseline, slowed = (share(each.resource, text) for text in (each.baseline_percent, each.slowed_percent))
        learned = 0.0 if each.baseline_percent is None else LEARNED_SECONDS
        found[each.resource] = WaitState(None, baseline, learned, time(each.since), time(each.last_time), slowed)
    return found


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{share * 100:.2f}"


def _learned(before: WaitState, share: float, seconds: float) -> WaitState:
    """The quantile by stochastic approximation: it moves up by 95 parts of a step, or down by 5."""
    step = _STEP * min(seconds, WINDOW_SECONDS)
    moved = before.baseline + step * (_QUANTILE if share > before.baseline else _QUANTILE - 1)
    learned = min(before.learned_seconds + seconds, LEARNED_SECONDS)
    return replace(before, baseline=min(1.0, max(0.0, moved)), learned_seconds=learned)
