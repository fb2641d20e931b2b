"""The bounds of a predict policy: one rule for the manager, which delivers it, and the agent, which applies it.

It is no wider than the NodeMetric's schema, so that the API server accepts every policy that passes here.
"""

import math
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from shared.api.nodemetric import PredictPolicy

PERCENTILE: Final = "percentile"  # Koordinator's model, which lends for each pod separately
LARGEST: Final = 2**31 - 1  # seconds (68 years), sigmas, percent: beyond it a product may be infinite
DEFAULT_TARGET_PERCENT: Final = 1.0
LEAST_TARGET_PERCENT: Final = 0.01
LARGEST_TARGET_PERCENT: Final = 50
SHORTEST_HORIZON_SECONDS: Final = 3600
LONGEST_HORIZON_SECONDS: Final = 7 * 86400

_BOUNDS: dict[str, tuple[float, float]] = {
    "target_violation_percent": (LEAST_TARGET_PERCENT, LARGEST_TARGET_PERCENT),
    "horizon_seconds": (SHORTEST_HORIZON_SECONDS, LONGEST_HORIZON_SECONDS),
    "cpu_percentile": (1, 100),  # refuses 0.95, which most likely means 95
    "memory_percentile": (1, 100),
    "borg_ratio": (1, LARGEST),
    "reclaim_ratio_percent": (0, 100),  # no more than the request can be reclaimed
}
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_PREDICTOR = re.compile(rf"\s*({_NAME}|max\(\s*{_NAME}(\s*,\s*{_NAME}){{0,15}}\s*\))\s*")
_TEXTS = frozenset({"predictor", "training_input"})


class Violation(NamedTuple):
    """One invalid value, by its name on the wire."""

    field: str
    value: object
    problem: str


def violations(policy: PredictPolicy) -> Iterator[Violation]:
    """The values of a policy that are out of bounds. The agent checks predictor names: some are plug-ins."""
    if policy.predictor is not None and not _PREDICTOR.fullmatch(policy.predictor):
        yield Violation("predictor", policy.predictor, "expected the name of a predictor, or max(a,b) of several")
    for field in msgspec.structs.fields(PredictPolicy):
        value = getattr(policy, field.name)
        if value is None or field.name in _TEXTS:
            continue
        least, most = _BOUNDS.get(field.name, (0, LARGEST))
        if not least <= number(value) <= most:
            yield Violation(field.encode_name, value, f"expected a number from {least} to {most}")


def number(value: str | int) -> float:
    """A number, also written "2.5", as custom resources carry no floats; NaN for a text that is no number."""
    try:
        return float(value) if isinstance(value, int) or _NUMBER.fullmatch(value) else math.nan
    except OverflowError:
        return math.inf
