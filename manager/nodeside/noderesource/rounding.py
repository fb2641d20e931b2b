"""Arithmetic that agrees with Koordinator's, which is Go's, to the last unit."""

from shared.quantity import INT64_MAX

GIGA = 10**9


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


def ratio(percent: int) -> str:
    """A percentage as a ratio in Koordinator's messages: "0.65", "1"."""
    return repr(percent / 100).removesuffix(".0")
