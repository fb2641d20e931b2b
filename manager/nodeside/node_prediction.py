"""The API's answer about the promises of one node's agent."""

from dataclasses import dataclass

from manager.nodeside import promises
from manager.nodeside.noderesource.report import NodeReport
from shared.recommendation import ModelRecommendation


@dataclass(frozen=True)
class PromiseRow:
    """The predicted peak of one resource for one horizon, in milli-cores or bytes. null if the agent does not report
    it.

    `violation_percent` is the percentage of outcomes in which usage exceeded the promise. `lent_percent` is the mean
    percentage of requests above the promise.
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
    """A model that runs without effect: how much it would have offered for the first horizon, and how often it would
    have been exceeded.
    """

    model: str
    outcomes: int
    cpu_violation_percent: float | None
    memory_violation_percent: float | None
    cpu_lent_percent: float | None
    memory_lent_percent: float | None


@dataclass(frozen=True)
class WithdrawalRow:
    """Percentage of the offer that is withdrawn per day, over a window."""

    window_seconds: int
    cpu_percent_per_day: float | None
    memory_percent_per_day: float | None


@dataclass(frozen=True)
class PredictionRow:
    """The promises of the node's agent, and how those of the last four weeks were kept.

    `prior` is what the margins start from; it is empty for a model without a prior. `recommended` is null without
    shadow models. `problem` says why promises, shadows and withdrawals are left out.
    """

    model: str
    prior: str
    promises: list[PromiseRow]
    shadows: list[ShadowRow]
    withdrawals: list[WithdrawalRow]
    recommended: ModelRecommendation | None
    problem: str | None


def answer(report: NodeReport) -> PredictionRow:
    """The answer from the node's report, with the recommended model."""
    kept, problem = report.kept, report.promises_problem
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
        recommended=promises.recommended(report.model, kept, report.spec),
        problem=None if problem is None else str(problem),
    )
