"""How far off a peak may be until a node has outcomes of its own: the prior, and how a fleet moves it. Pure.

Residuals are (what came - base) / scale, as the agent's `calibration` has them. Of their tail two numbers matter: the
90 % quantile, and the mean excess above it. Agents report those of their nodes, the manager pools them, and what it
sends down stays within fixed bounds.
"""

import math
import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

import msgspec

from shared import durations
from shared.api.nodemetric import HorizonPrior, PredictionPrior, WireTail
from shared.errors import InvalidInput

SOURCE: Final = "NodeMetric spec.predictionPrior"
WINDOW_DAYS: Final = 28.0  # of outcomes are remembered
MOST_HORIZONS: Final = 16
BUILT_IN_NODES: Final = 20.0  # so many nodes the built-in prior counts as
FULL_WEIGHT_DAYS: Final = 7.0  # of outcomes, with which a node counts as one
CHANGE: Final = 0.005  # scales; a prior that moved by less is the same
LARGEST_RESIDUAL: Final = 100.0  # scales; nothing that is measured is beyond

_DECIMAL = re.compile(r"-?[0-9]{1,6}(\.[0-9]{1,9})?")


class Tail(NamedTuple):
    """The tail of residuals: its 90 % quantile and the mean excess above it, in scales."""

    quantile: float
    excess: float


class ObservedTail(NamedTuple):
    """The tail of one node, and how many days of outcomes it rests on."""

    tail: Tail
    days: float


Tails = tuple[Tail, Tail]  # of cpu and of memory

BUILT_IN: Final = Tail(0.082, 0.047)
# A fleet may move the prior within these: what it says is pooled from what many nodes say of themselves.
LEAST: Final = Tail(0.0, 0.024)
LARGEST: Final = Tail(0.3, 0.15)


class Prior(msgspec.Struct, frozen=True):
    """What a fleet says: tails by horizon in seconds, from so many nodes, at a time in Unix seconds."""

    nodes: int
    time: float
    by_horizon: dict[int, Tails]

    def differs(self, other: "Prior | None") -> bool:
        """Whether it is worth sending in the place of another, or of the built-in one."""
        before = {} if other is None else other.by_horizon
        default = (BUILT_IN, BUILT_IN)
        return any(
            abs(one - another) >= CHANGE
            for horizon in self.by_horizon.keys() | before.keys()
            for pair in zip(self.by_horizon.get(horizon, default), before.get(horizon, default), strict=True)
            for one, another in zip(*pair, strict=True)
        )


def tails(prior: Prior | None, horizon_seconds: float) -> Tails:
    """The prior for a horizon: the fleet's, or the built-in one where the fleet knows none."""
    default = (BUILT_IN, BUILT_IN)
    return default if prior is None else prior.by_horizon.get(round(horizon_seconds), default)


def pooled(fleet: Sequence[ObservedTail]) -> Tail:
    """Medians over a fleet, within the bounds, in thousandths of a scale.

    A node counts by its days of outcomes, up to a week's worth, and the built-in prior as 20 nodes. So one node, of
    whatever it speaks, moves a median by no more than half a node's weight.
    """
    everybody = [*((one.tail, min(one.days, FULL_WEIGHT_DAYS) / FULL_WEIGHT_DAYS) for one in fleet)]
    everybody.append((BUILT_IN, BUILT_IN_NODES))
    medians = (weighted_median([(tail[part], weight) for tail, weight in everybody]) for part in range(len(BUILT_IN)))
    bounded = (min(max(low, found), high) for low, found, high in zip(LEAST, medians, LARGEST, strict=True))
    return Tail(*(round(value, 3) for value in bounded))


def weighted_median(weighted: Iterable[tuple[float, float]]) -> float:
    """The least value that, with those below it, has half of the weight."""
    ordered = sorted(weighted)
    reached = list(accumulate(weight for _, weight in ordered))
    return ordered[bisect_left(reached, reached[-1] / 2)][0]


def reported(wire: WireTail | None) -> ObservedTail | None:
    """What an agent says of its node's tail, None where it says nothing. Raises ValueError for what cannot be."""
    if wire is None:
        return None
    quantile, excess, days = (decimal(text) for text in (wire.quantile, wire.mean_excess, wire.days))
    if not (abs(quantile) <= LARGEST_RESIDUAL and 0 <= excess <= LARGEST_RESIDUAL and 0 < days <= WINDOW_DAYS):
        raise ValueError(
            f"quantile {wire.quantile!r}, meanExcess {wire.mean_excess!r}, days {wire.days!r}: expected up to "
            f"{LARGEST_RESIDUAL:g} scales, and more than 0 to {WINDOW_DAYS:g} days"
        )
    return ObservedTail(Tail(quantile, excess), days)


def report(observed: ObservedTail | None) -> WireTail | None:
    """The same on the wire; None where there are no outcomes, or none that `reported` would take."""
    if observed is None:
        return None
    (quantile, excess), days = observed
    wire = WireTail(f"{quantile:.4f}", f"{max(0.0, excess):.4f}", f"{days:.2f}")
    try:
        return wire if reported(wire) else None
    except ValueError:
        return None


def to_wire(prior: Prior) -> PredictionPrior:
    """For the spec of a NodeMetric."""

    def wire(tail: Tail) -> WireTail:
        return WireTail(f"{tail.quantile:.3f}", f"{tail.excess:.3f}")

    horizons = tuple(
        HorizonPrior(horizon, wire(cpu), wire(memory)) for horizon, (cpu, memory) in sorted(prior.by_horizon.items())
    )
    return PredictionPrior(prior.nodes, durations.timestamp(prior.time), horizons)


def of_wire(wire: PredictionPrior) -> Prior:
    """What a spec says. Raises InvalidInput, naming the field."""
    if wire.nodes < 1:
        raise _refused("nodes", wire.nodes, "expected at least 1")
    if len(wire.horizons) > MOST_HORIZONS:
        raise _refused("horizons", len(wire.horizons), f"expected at most {MOST_HORIZONS}")
    try:
        time = durations.instant(wire.pooled_time)
    except (ValueError, OverflowError) as error:
        raise _refused("pooledTime", wire.pooled_time, str(error)) from error
    found: dict[int, Tails] = {}
    for place, one in enumerate(wire.horizons):
        field = f"horizons[{place}]"
        if one.horizon_seconds < 1 or one.horizon_seconds in found:
            raise _refused(f"{field}.horizonSeconds", one.horizon_seconds, "expected seconds, each horizon once")
        found[one.horizon_seconds] = (_bounded(f"{field}.cpu", one.cpu), _bounded(f"{field}.memory", one.memory))
    return Prior(wire.nodes, time, found)


def of_raw(raw: object) -> Prior | None:
    """What stands in a spec as it came, None for nothing. Raises InvalidInput, naming the field."""
    if raw is None:
        return None
    try:
        return of_wire(msgspec.convert(raw, PredictionPrior))
    except msgspec.ValidationError as error:
        raise _refused("predictionPrior", raw, str(error)) from error


def decimal(text: str) -> float:
    """A number as custom resources carry it; NaN for a text that is none."""
    return float(text) if _DECIMAL.fullmatch(text) else math.nan


def _bounded(field: str, wire: WireTail) -> Tail:
    values = []
    for name, text, least, most in (
        ("quantile", wire.quantile, LEAST.quantile, LARGEST.quantile),
        ("meanExcess", wire.mean_excess, LEAST.excess, LARGEST.excess),
    ):
        if not least <= decimal(text) <= most:
            raise _refused(f"{field}.{name}", text, f"expected a number from {least} to {most}")
        values.append(decimal(text))
    return Tail(*values)


def _refused(field: str, value: object, problem: str) -> InvalidInput:
    return InvalidInput(source=SOURCE, field=field, value=value, problem=problem)
