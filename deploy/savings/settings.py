"""Interprets the command line of `headroom recommend` and `headroom savings`. Pure."""

from typing import TypeVar

from deploy.savings.recommending import EstimatorName, LimitPolicy, RecommendationRules
from shared import durations
from shared.errors import InvalidInput

_SOURCE = "command line"
NameT = TypeVar("NameT", EstimatorName, LimitPolicy)


def rules(
    estimator: str, limits: str, cpu_margin: float, memory_margin: float, *, minds_hpa: bool
) -> RecommendationRules:
    """Raises InvalidInput."""
    return RecommendationRules(
        estimator=_one_of(EstimatorName, estimator, "--estimator"),
        limits=_one_of(LimitPolicy, limits, "--limits"),
        cpu_margin=cpu_margin / 100,
        memory_margin=memory_margin / 100,
        minds_hpa=minds_hpa,
    )


def instant(text: str) -> float | None:
    """Unix seconds; None for an empty text. Raises InvalidInput."""
    if not text:
        return None
    try:
        return durations.instant(text)
    except ValueError as error:
        problem = "expected an instant, such as 2026-01-31T12:00:00Z"
        raise InvalidInput(source=_SOURCE, field="--until", value=text, problem=problem) from error


def _one_of(kind: type[NameT], text: str, option: str) -> NameT:
    try:
        return kind(text)
    except ValueError as error:
        problem = f"expected one of {', '.join(kind)}"
        raise InvalidInput(source=_SOURCE, field=option, value=text, problem=problem) from error
