"""The result of a predict server."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from agent.predict_server.daily import DAY_SECONDS
from agent.predict_server.histories import History
from agent.predict_server.lenders import Requests
from agent.predict_server.models import Debt
from agent.predict_server.reclaimable import Reclaimable
from agent.predict_server.records import NO_OUTCOMES, PromiseRecord, Totals, WithdrawalRecord
from shared.api.predictionprior import ObservedTail, Prior
from shared.quantity import Resources
from shared.recommendation import ModelRecommendation, Row, recommend


class Unclaimed(NamedTuple):
    """Why there is no claim: a word in CamelCase, and a sentence."""

    reason: str
    message: str


PODS_UNKNOWN = Unclaimed("PodsUnknown", "it is not known which pods run here")
NODE_UNKNOWN = Unclaimed("NodeUnknown", "there is no Node object to say what is allocatable")
UNTRAINED = Unclaimed("InsufficientHistory", "too little is trained yet")


class HorizonPromise(NamedTuple):
    """The peak for one horizon, how often the model's promises for it held in four weeks, and sums since the start."""

    peak: Resources
    kept: PromiseRecord
    totals: Totals = NO_OUTCOMES
    tails: tuple[ObservedTail, ObservedTail] | None = None  # of cpu and memory; None without outcomes
    debts: tuple[Debt, Debt] | None = None  # the same; None for a model that has none


class ShadowResult(NamedTuple):
    """A model beside the active one, and its outcomes had it decided what is lent."""

    model: str
    kept: PromiseRecord


@dataclass(frozen=True)
class NodePrediction:
    """One result. `prod` is None while the history is unknown; nothing is reclaimable then, for the reason in
    `unclaimed`.

    `pod_peaks` are those of prod pods with enough history, by uid: the `percentile` model's, whatever the model.
    `history_percent` is how much of the cold-start period the prod history covers. `predictor_problem` says why the
    model's own result is not used, if it is not. `n_sigma` are the peaks of v1 and v2, whatever the model.
    `recommended` is None without models to choose from.
    """

    time: float
    model: str
    requests: Requests
    prod: History | None = None
    model_peak: Resources | None = None
    node_peak: Resources | None = None
    reclaimable: Reclaimable | None = None
    n_sigma: Mapping[str, Resources] = field(default_factory=dict)
    pod_peaks: Mapping[str, Resources] = field(default_factory=dict)
    promises: tuple[HorizonPromise, ...] = ()
    shadows: tuple[ShadowResult, ...] = ()
    withdrawn: tuple[WithdrawalRecord, ...] = ()
    target_violation_percent: float | None = None  # only of models that have one
    recommended: ModelRecommendation | None = None
    prior: Prior | None = None  # the fleet's; None is the built-in one
    last_forgotten: tuple[str, float] | None = None  # a workload, or "" for all, and up to when
    history_percent: int = 0
    policy_problem: str = ""
    predictor_problem: str = ""
    unclaimed: Unclaimed = UNTRAINED


def surprise_days(horizon_seconds: float, target_percent: float) -> float:
    """The time in which the target allows one surprise, which breaks every promise that is open.

    Within less a target is not enforceable on one node: nothing that is learned foresees a first surprise.
    """
    return horizon_seconds / DAY_SECONDS * 100 / target_percent


def target_note(horizon_seconds: float, target_percent: float, within_days: float) -> str:
    """What a target means on one node within that time; empty where it can be enforced there."""
    days = surprise_days(horizon_seconds, target_percent)
    if days <= within_days:
        return ""
    return (
        f"{target_percent:g} % is not enforceable within {within_days:g} days on one node: one surprise breaks as many "
        f"promises as are allowed in {days:.0f} days"
    )


def recommended(
    model: str, promises: Sequence[HorizonPromise], shadows: Sequence[ShadowResult], target_percent: float
) -> ModelRecommendation | None:
    """The recommendation from the outcomes of promises for the horizon that decides what is lent."""
    rows = [
        Row(name, kept.outcomes, kept.violation_percents, kept.lent_percents)
        for name, kept in ((model, promises[0].kept), *shadows)
    ]
    return recommend(rows, target_percent) if shadows else None


def covered_percent(history_seconds: float, cold_start_seconds: float) -> int:
    """The share of the cold start that the history covers, in percent."""
    covered_seconds = max(0.0, history_seconds)
    return 100 if covered_seconds >= cold_start_seconds else int(100 * covered_seconds / cold_start_seconds)
