"""Arithmetic that agrees with Koordinator's, which is Go's, to the last unit."""

from collections.abc import Callable
from decimal import Decimal

from shared.quantity import INT64_MAX

GIGA = 10**9

Shown = Callable[[int], Decimal]


def percent(amount: int, percent: int) -> int:
    """A percentage computed as `int64(float64(amount) * (percent / 100))`: truncated.

    Saturates at the ends of int64.
    """
    product = amount * (percent / 100)
    return int(max(-INT64_MAX, min(product, INT64_MAX)))


def divided(amount: int, parts: int) -> int:
    """One of equal parts, rounded up, so that the sum is never less than the whole."""
    return -(-amount // parts)


def scaled(amount: int, unit: int) -> int:
    """The amount in units, rounded away from zero, as Quantity.ScaledValue does."""
    return -(-amount // unit) if amount >= 0 else amount // unit


def whole(unit: int) -> Callable[[int], str]:
    """Text of amounts in whole units, as Koordinator's messages have them: their sums can be wrong by a unit a term."""
    return lambda amount: str(scaled(amount, unit))


def summed(unit: int, result: int, formula: Callable[[Shown], Decimal]) -> Callable[[int], str]:
    """Text of amounts in units, with as few decimals as make a written formula right.

    The formula of the amounts as shown gives the result as shown, to half of the last decimal.
    """
    for decimals in range(len(str(unit))):
        of = _rounding_to(unit, decimals)
        if 2 * abs(formula(of) - of(result)) <= Decimal(1).scaleb(-decimals):
            return lambda amount: f"{of(amount):f}"
    exact = _rounding_to(unit, len(str(unit)) - 1)
    return lambda amount: f"{exact(amount):f}"


def _rounding_to(unit: int, decimals: int) -> Shown:
    """Whole units are rounded away from zero, as Koordinator's, and decimals to the nearest."""
    if not decimals:
        return lambda amount: Decimal(scaled(amount, unit))
    return lambda amount: round(Decimal(amount) / unit, decimals)


def fraction(percent: int) -> Decimal:
    return Decimal(percent) / 100


def ratio(percent: int) -> str:
    """A percentage as a ratio in Koordinator's messages: "0.65", "1"."""
    return repr(percent / 100).removesuffix(".0")
