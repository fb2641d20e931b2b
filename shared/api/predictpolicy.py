"""The bounds of a predict policy: one rule for the manager, which delivers it, and the agent, which applies it.

It is no wider than the NodeMetric's schema, so that the API server accepts every policy that passes here.
"""

import math
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from shared.api.nodemetric_spec import (
    LARGEST_BORG_RATIO,
    LARGEST_MARGIN_PERCENT,
    LARGEST_SIGMA,
    LONGEST_HISTORY_SECONDS,
    LONGEST_WINDOW_SECONDS,
    MOST_WARM_UP_SAMPLES,
    PredictPolicy,
)

PERCENTILE: Final = "percentile"  # Koordinator's model, which lends for each pod separately
LARGEST: Final = 2**31 - 1  # seconds (68 years), sigmas, percent: beyond it a product may be infinite
DEFAULT_TARGET_PERCENT: Final = 1.0
LEAST_TARGET_PERCENT: Final = 0.01
LARGEST_TARGET_PERCENT: Final = 50
SHORTEST_HORIZON_SECONDS: Final = 3600
LONGEST_HORIZON_SECONDS: Final = LONGEST_WINDOW_SECONDS

_BOUNDS: dict[str, tuple[float, float]] = {
    "target_violation_percent": (LEAST_TARGET_PERCENT, LARGEST_TARGET_PERCENT),
    "horizon_seconds": (SHORTEST_HORIZON_SECONDS, LONGEST_HORIZON_SECONDS),
    "cpu_percentile": (1, 100),  # refuses 0.95, which most likely means 95
    "memory_percentile": (1, 100),
    "borg_ratio": (1, LARGEST_BORG_RATIO),
    "reclaim_ratio_percent": (0, 100),  # no more than the request can be reclaimed
    "resource_diff_threshold_percent": (0, LARGEST_MARGIN_PERCENT),
    "cold_start_period_seconds": (0, LONGEST_HISTORY_SECONDS),
    "sigma_cpu": (0, LARGEST_SIGMA),
    "sigma_memory": (0, LARGEST_SIGMA),
    "safety_margin_percent": (0, LARGEST_MARGIN_PERCENT),
    "cpu_half_life_seconds": (1, LONGEST_HISTORY_SECONDS),
    "memory_half_life_seconds": (1, LONGEST_HISTORY_SECONDS),
    "warm_up_samples": (0, MOST_WARM_UP_SAMPLES),
}
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_PREDICTOR = re.compile(rf"\s*({_NAME}|max\(\s*{_NAME}(\s*,\s*{_NAME}){{0,15}}\s*\))\s*")


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
        if value is None or field.name not in _BOUNDS:
            continue
        least, most = _BOUNDS[field.name]
        if not least <= number(value) <= most:
            yield Violation(field.encode_name, value, f"expected a number from {least} to {most}")


def number(value: str | int) -> float:
    """A number, also written "2.5", as custom resources carry no floats; NaN for a text that is no number."""
    try:
        return float(value) if isinstance(value, int) or _NUMBER.fullmatch(value) else math.nan
    except OverflowError:
        return math.inf
