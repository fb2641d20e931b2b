"""The API's answer about the promises of one node's agent."""

from dataclasses import dataclass

from manager.nodeside import promises
from manager.nodeside.noderesource.report import NodeReport


@dataclass(frozen=True)
class PromiseRow:
    """One resource for one horizon: `peak` in milli-cores or bytes; null is what the agent does not say.

    `violation_percent` is of outcomes, `lent_percent` the mean share of requests that was above the promise.
    """

    resource: str
    horizon_seconds: int
    peak: int | None
    target_violation_percent: float | None
    outcomes: int
    violation_percent: float | None
    lent_percent: float | None


@dataclass(frozen=True)
class ShadowRow:
    """A model that lends nothing: what it would have lent for the first horizon, and how often it was wrong."""

    model: str
    outcomes: int
    cpu_violation_percent: float | None
    memory_violation_percent: float | None
    cpu_lent_percent: float | None
    memory_lent_percent: float | None


@dataclass(frozen=True)
class WithdrawalRow:
    """How much of what is lent is taken back a day, over that window."""

    window_seconds: int
    cpu_percent_per_day: float | None
    memory_percent_per_day: float | None


@dataclass(frozen=True)
class RecommendationRow:
    """The model that the node should lend by, and why, in the words of its agent."""

    model: str
    sentence: str


@dataclass(frozen=True)
class PredictionRow:
    """What the node's agent promises, and how its promises of four weeks were kept.

    `prior` is what its margins start from, empty for a model without. `recommended` is null without shadows, and
    `problem` why promises, shadows and withdrawals are left out.
    """

    model: str
    prior: str
    promises: list[PromiseRow]
    shadows: list[ShadowRow]
    withdrawals: list[WithdrawalRow]
    recommended: RecommendationRow | None
    problem: str | None


def answer(report: NodeReport) -> PredictionRow:
    """The answer from the node's report, with the recommended model."""
    kept, problem = report.kept, report.promises_problem
    recommended = promises.recommended(report.model, kept, report.spec)
    return PredictionRow(
        model=report.model,
        prior=report.prior,
        promises=[
            PromiseRow(
                resource=one.resource,
                horizon_seconds=one.horizon_seconds,
                peak=one.peak,
                target_violation_percent=one.target_percent,
                outcomes=one.outcomes,
                violation_percent=one.violated_percent,
                lent_percent=one.lent_percent,
            )
            for one in kept.promises
        ],
        shadows=[
            ShadowRow(one.model, one.outcomes, *one.violated_percents, *one.lent_percents) for one in kept.shadows
        ],
        withdrawals=[WithdrawalRow(one.window_seconds, *one.percents_per_day) for one in kept.withdrawals],
        recommended=None if recommended is None else RecommendationRow(*recommended),
        problem=None if problem is None else str(problem),
    )
