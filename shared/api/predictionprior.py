"""The expected error of a peak until a node has outcomes of its own: the prior, and how a fleet moves it. Pure.

Residuals are (actual - base) / scale, as in the agent's `calibration`. Two numbers describe their tail: the 90 %
quantile, and the mean excess above it. Agents report them for their nodes. The manager pools them and sends down a
prior within fixed bounds.
"""

import math
import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

import msgspec

from shared import durations
from shared.api.nodemetric_spec import HorizonPrior, PredictionPrior, WireTail
from shared.errors import InvalidInput

SOURCE: Final = "NodeMetric spec.predictionPrior"
WINDOW_DAYS: Final = 28.0  # the age of the oldest remembered outcomes
MOST_HORIZONS: Final = 16
BUILT_IN_NODES: Final = 20.0  # the weight of the built-in prior, in nodes
FULL_WEIGHT_DAYS: Final = 7.0  # of outcomes, from which a node has weight one
CHANGE: Final = 0.005  # scales; a smaller move counts as none
LARGEST_RESIDUAL: Final = 100.0  # scales; no measurement exceeds it

_DECIMAL = re.compile(r"-?[0-9]{1,6}(\.[0-9]{1,9})?")


class Tail(NamedTuple):
    """The tail of residuals: its 90 % quantile and the mean excess above it, in scales."""

    quantile: float
    excess: float


class ObservedTail(NamedTuple):
    """The tail of one node, and the days of outcomes behind it."""

    tail: Tail
    days: float


Tails = tuple[Tail, Tail]  # cpu and memory

BUILT_IN: Final = Tail(0.082, 0.047)
# The bounds of a fleet's prior: it is pooled from what many nodes report of themselves.
LEAST: Final = Tail(0.0, 0.024)
LARGEST: Final = Tail(0.3, 0.15)


class Prior(msgspec.Struct, frozen=True):
    """A fleet's prior: tails by horizon in seconds, the number of nodes, and the time in Unix seconds."""

    nodes: int
    time: float
    by_horizon: dict[int, Tails]

    def differs(self, other: "Prior | None") -> bool:
        """Whether this prior differs enough from `other`, or from the built-in one, to be sent."""
        before = {} if other is None else other.by_horizon
        default = (BUILT_IN, BUILT_IN)
        return any(
            abs(one - another) >= CHANGE
            for horizon in self.by_horizon.keys() | before.keys()
            for pair in zip(self.by_horizon.get(horizon, default), before.get(horizon, default), strict=True)
            for one, another in zip(*pair, strict=True)
        )


def tails(prior: Prior | None, horizon_seconds: float) -> Tails:
    """The prior for a horizon: the fleet's, or the built-in one for a horizon the fleet lacks."""
    default = (BUILT_IN, BUILT_IN)
    return default if prior is None else prior.by_horizon.get(round(horizon_seconds), default)


def pooled(fleet: Sequence[ObservedTail]) -> Tail:
    """Medians over a fleet, within the bounds, in thousandths of a scale.

    A node counts by its days of outcomes, up to a week's worth, and the built-in prior as 20 nodes. So one node,
    whatever it reports, moves a median by at most half a node's weight.
    """
    votes = [*((one.tail, min(one.days, FULL_WEIGHT_DAYS) / FULL_WEIGHT_DAYS) for one in fleet)]
    votes.append((BUILT_IN, BUILT_IN_NODES))
    medians = (weighted_median([(tail[part], weight) for tail, weight in votes]) for part in range(len(BUILT_IN)))
    bounded = (min(max(low, found), high) for low, found, high in zip(LEAST, medians, LARGEST, strict=True))
    return Tail(*(round(value, 3) for value in bounded))


def weighted_median(weighted: Iterable[tuple[float, float]]) -> float:
    """The smallest value that has, with those below it, half of the weight."""
    ordered = sorted(weighted)
    reached = list(accumulate(weight for _, weight in ordered))
    return ordered[bisect_left(reached, reached[-1] / 2)][0]


def reported(wire: WireTail | None) -> ObservedTail | None:
    """The tail that an agent reports, None without one. Raises ValueError for an impossible one."""
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
    """The wire form; None without outcomes, or when `reported` would refuse it."""
    if observed is None:
        return None
    (quantile, excess), days = observed
    wire = WireTail(f"{quantile:.4f}", f"{max(0.0, excess):.4f}", f"{days:.2f}")
    try:
        return wire if reported(wire) else None
    except ValueError:
        return None


def to_wire(prior: Prior) -> PredictionPrior:
    """The prior in the form of a NodeMetric's spec."""

    def wire(tail: Tail) -> WireTail:
        return WireTail(f"{tail.quantile:.3f}", f"{tail.excess:.3f}")

    horizons = tuple(
        HorizonPrior(horizon, wire(cpu), wire(memory)) for horizon, (cpu, memory) in sorted(prior.by_horizon.items())
    )
    return PredictionPrior(prior.nodes, durations.timestamp(prior.time), horizons)


def of_wire(wire: PredictionPrior) -> Prior:
    """Reads a spec. Raises InvalidInput, naming the field."""
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
    """Reads the undecoded value of a spec, None for an absent one. Raises InvalidInput, naming the field."""
    if raw is None:
        return None
    try:
        return of_wire(msgspec.convert(raw, PredictionPrior))
    except msgspec.ValidationError as error:
        raise _refused("predictionPrior", raw, str(error)) from error


def decimal(text: str) -> float:
    """A number as custom resources carry it; NaN for a text that is no number."""
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
