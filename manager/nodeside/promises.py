"""The agents' reports on their promises; implausible ones are refused: how promises were kept, and their residuals.
Pure.

The reports also hold the promises of shadow models, which lend nothing, the rates of withdrawals, and the model that
follows from all that.
"""

import math
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import msgspec

from shared import names, quantity
from shared.api import predictionprior, predictpolicy
from shared.api.nodemetric import (
    MOST_SHADOWS,
    LastForgotten,
    Prediction,
    PriorInUse,
    Promise,
    PromiseDebt,
    Shadow,
    SurpriseCause,
    Withdrawal,
)
from shared.api.nodemetric_spec import NodeMetricSpec
from shared.api.predictionprior import WINDOW_DAYS, ObservedTail
from shared.errors import InvalidInput
from shared.quantity import INT64_MAX, Resources
from shared.recommendation import ModelRecommendation, Row, recommend

MOST_PROMISES = predictionprior.MOST_HORIZONS
MOST_OUTCOMES = int(24 * WINDOW_DAYS)  # one per hour
MOST_WITHDRAWALS = 8
MOST_PERCENT_PER_DAY = 24 * 100  # everything withdrawn in every hour
MOST_TEXT = 1024  # characters of an agent's text, to fit an Event
RESOURCES = (names.CPU, names.MEMORY)
Percents: TypeAlias = tuple[float | None, float | None]  # of cpu and memory; None is unreported


class KeptPromise(msgspec.Struct, frozen=True, gc=False):
    """One resource for one horizon; None is unreported. The peak is in milli-cores or bytes."""

    resource: str
    horizon_seconds: int
    peak: int | None
    target_percent: float | None
    outcomes: int
    violated_percent: float | None
    lent_percent: float | None
    tail: ObservedTail | None
    cause: str = ""  # the likely one of the last surprise, of SurpriseCause


class ShadowModel(msgspec.Struct, frozen=True, gc=False):
    """A model that lends nothing, with its promises for the horizon that is lent for."""

    model: str
    outcomes: int
    violated_percents: Percents
    lent_percents: Percents


class WithdrawalRate(msgspec.Struct, frozen=True, gc=False):
    """The share of the lent amount that is withdrawn per day, over the last `window_seconds`."""

    window_seconds: int
    percents_per_day: Percents


class KeptPromises(msgspec.Struct, frozen=True, gc=False):
    """A node's kept promises: those of the active model by horizon and resource, as reported."""

    promises: tuple[KeptPromise, ...] = ()
    shadows: tuple[ShadowModel, ...] = ()
    withdrawals: tuple[WithdrawalRate, ...] = ()


NOTHING_KEPT = KeptPromises()


class PooledWithdrawal(msgspec.Struct, frozen=True, gc=False):
    """The withdrawals of `nodes` together, over the longest window that any of them reports.

    `percents_per_day` are weighted by `lent`, which is of the nodes that report a percentage; None where that is 0.
    """

    nodes: int
    window_seconds: int
    lent: Resources
    percents_per_day: Percents


def pool_withdrawals(nodes: Iterable[tuple[Resources, KeptPromises]]) -> PooledWithdrawal | None:
    """The rate over nodes, weighted by lending, each by its longest window; None if no lending node reports any."""
    lent, taken, count, window = [0, 0], [0.0, 0.0], 0, 0
    for amounts, kept in nodes:
        longest = max(kept.withdrawals, key=lambda each: each.window_seconds, default=None)
        known = [] if longest is None else list(zip(amounts, longest.percents_per_day, strict=True))
        for place, (amount, percent) in enumerate(known):
            if percent is not None and amount > 0:
                lent[place] += amount
                taken[place] += amount * percent
        if longest is not None and any(percent is not None and amount > 0 for amount, percent in known):
            count, window = count + 1, max(window, longest.window_seconds)
    cpu, memory = (total / amount if amount else None for total, amount in zip(taken, lent, strict=True))
    return PooledWithdrawal(count, window, Resources(*lent), (cpu, memory)) if count else None


def read(prediction: Prediction, *, source: str) -> KeptPromises:
    """Accepts no more outcomes than four weeks can hold. Raises InvalidInput."""
    promises, shadows = prediction.promises or (), prediction.shadows or ()
    withdrawals = prediction.withdrawals or ()
    if not (promises or shadows or withdrawals):
        return NOTHING_KEPT
    _require_distinct([one.horizon_seconds for one in promises], MOST_PROMISES, source, "promises")
    _require_distinct([one.model for one in shadows], MOST_SHADOWS, source, "shadows")
    _require_distinct([one.window_seconds for one in withdrawals], MOST_WITHDRAWALS, source, "withdrawals")
    return KeptPromises(
        tuple(_read(one, resource, source) for one in promises for resource in RESOURCES),
        tuple(_shadow(one, source) for one in shadows),
        tuple(_withdrawn(one, source) for one in withdrawals),
    )


def recommended(model: str, kept: KeptPromises, spec: NodeMetricSpec) -> ModelRecommendation | None:
    """The recommendation as the node's agent computes it; None if there is no choice.

    The target is that of the active model, or the policy's if that model has none.
    """
    if not kept.promises or not kept.shadows:
        return None
    cpu, memory = kept.promises[:2]  # for the first horizon, which is lent for
    violated, lent = (cpu.violated_percent, memory.violated_percent), (cpu.lent_percent, memory.lent_percent)
    rows = [_row(ShadowModel(model, cpu.outcomes, violated, lent)), *map(_row, kept.shadows)]
    return recommend(rows, _policy_target(spec) if cpu.target_percent is None else cpu.target_percent)


def _row(of: ShadowModel) -> Row:
    """A model with incomplete data has no outcome to judge it by."""
    (cpu, memory), (cpu_lent, memory_lent) = of.violated_percents, of.lent_percents
    if cpu is None or memory is None or cpu_lent is None or memory_lent is None:
        return Row(of.model, 0, (0.0, 0.0), (0.0, 0.0))
    return Row(of.model, of.outcomes, (cpu, memory), (cpu_lent, memory_lent))


def _policy_target(spec: NodeMetricSpec) -> float:
    """The policy's target; the default if unset, or if the agent refuses it."""
    said = None if spec.predict_policy is None else spec.predict_policy.target_violation_percent
    target = math.nan if said is None else predictpolicy.number(said)
    is_valid = predictpolicy.LEAST_TARGET_PERCENT <= target <= predictpolicy.LARGEST_TARGET_PERCENT
    return target if is_valid else predictpolicy.DEFAULT_TARGET_PERCENT


def _require_distinct(keys: Sequence[int | str], most: int, source: str, field: str) -> None:
    if len(keys) > most:
        raise _refused(source, field, len(keys), f"expected at most {most}")
    if len(set(keys)) < len(keys):
        raise _refused(source, field, [str(key)[:MOST_TEXT] for key in keys], "one of them is there twice")


def _read(promise: Promise, resource: str, source: str) -> KeptPromise:
    at = f"promises[{promise.horizon_seconds}]"
    wire = {"cpu": promise.cpu_tail, "memory": promise.memory_tail}[resource]
    violated = {"cpu": promise.cpu_violation_percent, "memory": promise.memory_violation_percent}[resource]
    lent = {"cpu": promise.cpu_lent_percent, "memory": promise.memory_lent_percent}[resource]
    if promise.outcomes < 0 or promise.horizon_seconds < 1:
        raise _refused(source, at, promise.outcomes, "expected outcomes and a horizon, neither negative")
    try:
        tail = predictionprior.reported(wire)
    except ValueError as error:
        raise _refused(source, f"{at}.{resource}Tail", msgspec.to_builtins(wire), str(error)) from error
    return KeptPromise(
        resource,
        promise.horizon_seconds,
        _peak(promise, resource, source, f"{at}.peak"),
        _percent(promise.target_violation_percent, source, f"{at}.targetViolationPercent"),
        min(promise.outcomes, MOST_OUTCOMES),
        _percent(violated, source, f"{at}.{resource}ViolationPercent"),
        _percent(lent, source, f"{at}.{resource}LentPercent"),
        tail,
        _cause(
            {"cpu": promise.cpu_debt, "memory": promise.memory_debt}[resource], source, f"{at}.{resource}Debt.cause"
        ),
    )


def _cause(debt: PromiseDebt | None, source: str, field: str) -> str:
    """Empty if it is not known."""
    cause = (debt.cause if debt else None) or SurpriseCause.UNKNOWN
    if cause not in list(SurpriseCause):
        known = ", ".join(each for each in SurpriseCause if each)
        raise _refused(source, field, cause[:MOST_TEXT], f"expected one of {known}")
    return cause


def _shadow(shadow: Shadow, source: str) -> ShadowModel:
    model = shadow.model[:MOST_TEXT]
    at = f"shadows[{model}]"
    if shadow.outcomes < 0:
        raise _refused(source, f"{at}.outcomes", shadow.outcomes, "expected a number that is not negative")
    return ShadowModel(
        model,
        min(shadow.outcomes, MOST_OUTCOMES),
        _percents((shadow.cpu_violation_percent, shadow.memory_violation_percent), source, at, "ViolationPercent"),
        _percents((shadow.cpu_lent_percent, shadow.memory_lent_percent), source, at, "LentPercent"),
    )


def _withdrawn(withdrawal: Withdrawal, source: str) -> WithdrawalRate:
    at = f"withdrawals[{withdrawal.window_seconds}]"
    texts = withdrawal.cpu_percent_per_day, withdrawal.memory_percent_per_day
    if withdrawal.window_seconds < 1:
        raise _refused(source, at, withdrawal.window_seconds, "expected a window of a second at least")
    percents = _percents(texts, source, at, "PercentPerDay", MOST_PERCENT_PER_DAY)
    return WithdrawalRate(withdrawal.window_seconds, percents)


def _peak(promise: Promise, resource: str, source: str, field: str) -> int | None:
    text = (promise.peak or {}).get(resource)
    if text is None:
        return None
    try:
        amount = quantity.milli(text) if resource == names.CPU else quantity.whole(text)
    except ValueError as error:  # a QuantityError, or more digits than Python reads
        raise _refused(source, field, text, str(error)) from error
    if not 0 <= amount < INT64_MAX:
        raise _refused(source, field, text, "expected an amount of less than 2^63")
    return amount


def _percents(texts: tuple[str | None, str | None], source: str, at: str, of: str, most: float = 100) -> Percents:
    cpu, memory = texts
    return _percent(cpu, source, f"{at}.cpu{of}", most), _percent(memory, source, f"{at}.memory{of}", most)


def _percent(text: str | None, source: str, field: str, most: float = 100) -> float | None:
    if text is None:
        return None
    if not 0 <= predictionprior.decimal(text) <= most:
        raise _refused(source, field, text, f"expected a number from 0 to {most:g}")
    return predictionprior.decimal(text)


def prior(of: PriorInUse | None) -> str:
    """The start of a node's margins, in words; empty if unreported."""
    if of is None or not of.source:
        return ""
    return f"fleet of {of.nodes} nodes" if of.source == "fleet" else "built-in"


def forgotten(last: LastForgotten | None) -> str:
    """What the agent last forgot on request of the Node's annotations; empty if nothing."""
    return "" if last is None else f"{last.of[:MOST_TEXT]} until {last.until[:MOST_TEXT]}"


def _refused(source: str, at: str, value: object, problem: str) -> InvalidInput:
    return InvalidInput(source=source, field=f"status.prediction.{at}", value=value, problem=problem)
