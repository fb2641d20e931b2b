"""Prod first: what a node does while its Prod pods are slowed by Mid and Batch. Pure.

    hold    while Prod is slowed, and for five minutes after it last waited too long: nothing is lent anew
    evict   once it has been slowed for 15 s, while it waits: a quarter of what Mid and Batch use, again after 20 s
    free    otherwise
    teach   5 % of the Mid of that resource is withheld for each minute a day that Prod was slowed beyond 0.1 %, at most
            50 %. The agent's share of a day fades, so Mid comes back slowly

The agent judges whether Prod is slowed (see its `interference`) with a minute of hysteresis, and reports the times, so
this needs no memory and survives a restart. Without Mid or Batch pods no node is slowed; without a baseline none is
evicted. A hold lasts five minutes at least, so the offer cannot swing faster than that.
"""

import enum
import math
from collections.abc import Mapping
from typing import NamedTuple

from shared import durations, names
from shared.api import nodemetric
from shared.api.nodemetric_spec import ResourceThresholds
from shared.errors import InvalidInput

HOLD_SECONDS = 300.0
PATIENCE_SECONDS = 15.0
COOL_DOWN_SECONDS = 20.0  # the agent's mean of ten seconds, and the time that a pod takes to end
RELEASED_SHARE = 4  # of what Mid and Batch use, one part of this many goes at a time

OBJECTIVE_PERCENT = 0.1  # of a day, that Prod may be slowed
MOST_WITHHELD_PERMILLE = 500

_PERMILLE_A_PERCENT = 720  # 50 for a minute, of which a percent of a day has 14.4
_MINUTES_A_PERCENT = 14.4  # of a day
_WAITING_SECONDS = 5.0  # between the report and the last time that Prod waited too long, for it to wait still
_SKEW_SECONDS = 60.0
_RESOURCES = (names.CPU, names.MEMORY)


class Step(enum.IntEnum):
    """In the order in which they follow each other."""

    FREE = 0
    HOLD = 1
    EVICT = 2


class ProdWaiting(NamedTuple):
    """The waits for one resource. Percents are None if unknown; times are Unix seconds."""

    wait_percent: float | None
    baseline_percent: float | None
    since: float | None
    last: float | None
    slowed_percent: float = 0.0


class Lesson(NamedTuple):
    """What a node withholds of Mid, in thousandths, since lending has slowed Prod for this share of a day."""

    permille: int
    slowed_percent: float

    @property
    def source(self) -> str:
        return (
            f"{self.permille / 10:g} % less, since Prod was slowed for {self.slowed_percent:g} % of a day, beyond the "
            f"{OBJECTIVE_PERCENT:g} % that it may be (NodeMetric {{node}} status.interference)"
        )


class Standing(NamedTuple):
    """The step for one resource, and why."""

    step: Step
    why: str


def read(wire: nodemetric.Interference | None, *, source: str) -> Mapping[str, ProdWaiting]:
    """By resource. Raises InvalidInput."""
    source = f"{source} status.interference"
    found = {}
    for each in () if wire is None else wire.waits:
        if each.resource not in _RESOURCES:
            problem = f"expected one of {', '.join(_RESOURCES)}"
            raise InvalidInput(source=source, field="waits", value=each.resource, problem=problem)
        field = f"waits[{each.resource}]"
        found[each.resource] = ProdWaiting(
            _percent(each.wait_percent, source, f"{field}.waitPercent"),
            _percent(each.baseline_percent, source, f"{field}.baselinePercent"),
            _time(each.since, source, f"{field}.since"),
            _time(each.last_time, source, f"{field}.lastTime"),
            _percent(each.slowed_percent, source, f"{field}.slowedPercent") or 0.0,
        )
    return found


def standing(
    resource: str, of: ProdWaiting, reported_at: float | None, thresholds: ResourceThresholds | None, now: float
) -> Standing:
    """What to do about one resource at `now`; `reported_at` is the time of the report that has it."""
    if thresholds is None or not thresholds.evicts:
        return Standing(Step.FREE, "the policy lets no pod be evicted")
    if thresholds.ignores_waits:
        return Standing(Step.FREE, "prodWaitThresholdPercent is 100, so no wait of Prod pods is too long")
    if of.last is None or reported_at is None or now - of.last > HOLD_SECONDS:
        return Standing(Step.FREE, f"Prod pods have not waited too long for {resource} lately")
    if of.last > reported_at + _SKEW_SECONDS:
        return Standing(Step.FREE, f"the wait for {resource} is dated after its report")
    why = _why(resource, of)
    if of.since is None or reported_at - of.last > _WAITING_SECONDS:
        left = max(0.0, HOLD_SECONDS - (now - of.last))
        return Standing(Step.HOLD, f"{why}; if they do not again, more is lent in {left:.0f} s")
    if of.baseline_percent is None:
        return Standing(Step.HOLD, f"{why}; without a baseline no pod is evicted for it")
    if reported_at - of.since < PATIENCE_SECONDS:
        return Standing(Step.HOLD, f"{why}; pods are evicted after {PATIENCE_SECONDS:.0f} s")
    return Standing(Step.EVICT, why)


def hold(
    waits: Mapping[str, ProdWaiting], reported_at: float | None, thresholds: ResourceThresholds | None, now: float
) -> str:
    """Why nothing is lent anew; empty if something may be."""
    found = (standing(resource, of, reported_at, thresholds, now) for resource, of in waits.items())
    return "; ".join(each.why for each in found if each.step is not Step.FREE)


def lessons(waits: Mapping[str, ProdWaiting], thresholds: ResourceThresholds | None) -> Mapping[str, Lesson]:
    """By resource, where Mid is withheld."""
    if thresholds is None or not thresholds.evicts or thresholds.ignores_waits:
        return {}
    found = {}
    for resource, of in waits.items():
        beyond = max(0.0, of.slowed_percent - OBJECTIVE_PERCENT)
        permille = min(MOST_WITHHELD_PERMILLE, round(_PERMILLE_A_PERCENT * beyond))
        if permille:
            found[resource] = Lesson(permille, of.slowed_percent)
    return found


def slowed_minutes_per_day(waits: Mapping[str, ProdWaiting]) -> float | None:
    """Of the resource that Prod waited for the longest; None where waits are not measured."""
    return max((of.slowed_percent * _MINUTES_A_PERCENT for of in waits.values()), default=None)


def to_release(used: int) -> int:
    """How much goes at a time of what Mid and Batch use, in milli-cores or bytes."""
    return math.ceil(used / RELEASED_SHARE)


def sentence(resource: str, of: ProdWaiting) -> str:
    """How long Prod pods wait for the resource."""
    return f"Prod pods wait for {resource} {_shares(of)}" if of.since is None else _why(resource, of)


def _why(resource: str, of: ProdWaiting) -> str:
    when = "lately" if of.since is None else f"since {durations.timestamp(of.since)}"
    return f"Prod pods wait too long for {resource} {when}: {_shares(of)}"


def _shares(of: ProdWaiting) -> str:
    share = "an unknown share" if of.wait_percent is None else f"{of.wait_percent:g} %"
    baseline = "" if of.baseline_percent is None else f", {of.baseline_percent:g} % without Mid and Batch"
    return f"{share} of their time{baseline}"


def _percent(text: str | None, source: str, field: str) -> float | None:
    if text is None:
        return None
    try:
        percent = float(text)
    except ValueError:
        percent = math.nan
    if not 0 <= percent <= 100:
        raise InvalidInput(source=source, field=field, value=text, problem="must be from 0 to 100")
    return percent


def _time(text: str | None, source: str, field: str) -> float | None:
    if text is None:
        return None
    try:
        return durations.instant(text)
    except (ValueError, OverflowError) as error:
        raise InvalidInput(source=source, field=field, value=text, problem=str(error)) from error
