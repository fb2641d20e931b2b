"""Which model a node should lend by, from how well each kept its promises there. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from shared.explanation import Shown

LEAST_OUTCOMES = 168  # a week of hours: a shorter time has no week-end
WORTHWHILE_PERCENT = 1.0  # of requests: the least gain that justifies a change


class Row(NamedTuple):
    """A model and the outcomes of its promises: pairs are cpu and memory, in percent of outcomes and of requests."""

    model: str
    outcomes: int
    violation_percents: tuple[float, float]
    lent_percents: tuple[float, float]

    @property
    def violation_percent(self) -> float:
        """The larger violation rate of the two resources."""
        return max(self.violation_percents)

    @property
    def lent_percent(self) -> float:
        return sum(self.lent_percents) / 2

    def rounded(self) -> "Row":
        (cpu, memory), (cpu_lent, memory_lent) = self.violation_percents, self.lent_percents
        return self._replace(
            violation_percents=(round(cpu, 2), round(memory, 2)),
            lent_percents=(round(cpu_lent, 2), round(memory_lent, 2)),
        )


class ModelRecommendation(Shown, frozen=True):
    """The model that the outcomes of all models on a node recommend for it, and why."""

    model: str
    sentence: str


def recommend(rows: Sequence[Row], target_percent: float) -> ModelRecommendation:
    """The model to use and why, from the rows; the first row is the active model, and there is at least one.

    Percentages count to two digits, as in a NodeMetric, so that every caller gets the same result.

    The candidates are models with a week of outcomes whose violation rate is within the target. The one that lends most
    wins, but the active model stays if it is a candidate and no other lends a point more. Without a candidate, the
    model with the lowest violation rate wins.
    """
    rows = [row.rounded() for row in rows]
    active = rows[0]
    judged = [row for row in rows if row.outcomes >= LEAST_OUTCOMES]
    if active not in judged:
        needs = f"{active.model} has {active.outcomes} outcomes of the {LEAST_OUTCOMES} that it takes to judge it"
        return ModelRecommendation(active.model, f"Keep {active.model}: {needs}.")
    kept = [row for row in judged if row.violation_percent <= target_percent]
    if not kept:
        best = min(judged, key=lambda row: row.violation_percent)
        why = f"no model was wrong in at most {target_percent:g} % of outcomes, and {_said(best)}"
    else:
        best = max(kept, key=lambda row: row.lent_percent)
        if active in kept and best.lent_percent < active.lent_percent + WORTHWHILE_PERCENT:
            best = active
        why = f"{_said(best)}, with a target of {target_percent:g} %"
    if best.violation_percent == active.violation_percent and best.lent_percent <= active.lent_percent:
        best = active
    if best is active:
        return ModelRecommendation(active.model, f"Keep {active.model}: {why}.")
    return ModelRecommendation(best.model, f"Use {best.model}: {why}; {_said(active)}.")


def _said(row: Row) -> str:
    cpu, memory = row.lent_percents
    wrong = f"was wrong in {row.violation_percent:.1f} % of {row.outcomes} outcomes"
    return f"{row.model} {wrong} and lent {cpu:.0f} % of cpu and {memory:.0f} % of memory"
