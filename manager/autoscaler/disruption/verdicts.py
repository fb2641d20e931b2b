"""Why each node is replaced, or why not and what its replacement would save."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from manager.autoscaler.cluster_state.replacement import DisruptionReason, Replacement
from manager.autoscaler.scale_up.decisions import GroupCreation
from shared.explanation import Term

HOURS_PER_MONTH = 730  # by convention


def price_term(name: str, per_hour: float) -> Term:
    return Term(name, round(per_hour * 1_000_000), "millionthsPerHour", "prices of machine types")


class ConsolidationReason(enum.StrEnum):
    """Why a node is not replaced."""

    NOT_ELIGIBLE = "NotEligible"
    PRICE_UNKNOWN = "PriceUnknown"
    TOO_YOUNG = "NodeTooYoung"
    DO_NOT_DISRUPT = "DoNotDisrupt"
    BLOCKED_BY_POD = "BlockedByPod"
    PEAK_UNKNOWN = "PredictedPeakUnknown"
    AT_MINIMUM = "NodeGroupMinSizeReached"
    BELOW_LIMIT = "MinimalResourceLimitExceeded"
    LEFT_TO_SCALE_DOWN = "LeftToScaleDown"
    NOT_CHEAPER = "NoCheaperNodes"
    SAVES_TOO_LITTLE = "SavesTooLittle"
    DISTURBS_TOO_MUCH = "DisturbsTooMuch"
    FEW_ALTERNATIVES = "TooFewSpotAlternatives"
    LIMITED = "DisruptionLimitReached"
    COOLDOWN = "InCooldown"
    NOT_ITS_TURN = "AnotherReplacementFirst"
    OUT_OF_TIME = "SimulationTimedOut"
    TOO_MANY_UNHEALTHY = "TooManyUnhealthyNodes"
    NO_NEW_NODE = "NoNewNode"


class Denied(NamedTuple):
    """Why nodes are not replaced; `saving` per hour is what their replacement would save, where that is known."""

    reason: ConsolidationReason
    detail: str
    saving: float | None = None
    terms: tuple[Term, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplacementVerdict:
    """One node; `reason` is None where it is replaced. `saves_per_month` is what its replacement saves, or would, in
    the price model's currency; with `is_upper_bound` no more is known than that it saves no more than this where it is
    replaced alone. It is
    None where the price of the node is not known, or something else asks for the replacement, as `disruption` says.
    `terms` are what was compared.
    """

    node: str
    reason: ConsolidationReason | None
    detail: str
    saves_per_month: float | None = None
    disruption: DisruptionReason = DisruptionReason.UNDERUTILIZED
    is_upper_bound: bool = False
    terms: tuple[Term, ...] = ()

    def __str__(self) -> str:
        if self.reason is None:
            return f"{self.node} is replaced: {self.detail}"
        text = f"{self.node} is not replaced, {self.reason}: {self.detail}"
        if self.saves_per_month is None or not self.is_upper_bound:
            return text
        return f"{text}; alone it would save {self.saves_per_month:.4g}/month at most"


@dataclass(frozen=True)
class ReplacementOption:
    """Nodes that go, the number of new nodes by group, and the cost of each side per hour.

    `score` is the share of the cluster's cost that it saves, over the share of its disruption. `moves` are the new
    places of the pods; `alternatives` is the number of spot groups that would save, too (None where none is involved).
    `creations` are the groups among those of `added` that are to be created first. `node_prices` are those of the new
    nodes by group, per hour.
    For any other `reason` than price the costs are 0, and `why` says what is the matter with the node.
    """

    removed: tuple[str, ...]
    added: Mapping[str, int]
    before: float
    after: float
    score: float
    moves: tuple[tuple[str, str], ...] = ()
    alternatives: int | None = None
    reason: DisruptionReason = DisruptionReason.UNDERUTILIZED
    why: str = ""
    creations: tuple[GroupCreation, ...] = ()
    node_prices: Mapping[str, float] = field(default_factory=dict)

    @property
    def saving(self) -> float:
        """Per hour."""
        return self.before - self.after

    @property
    def saves_per_month(self) -> float:
        return self.saving * HOURS_PER_MONTH

    @property
    def terms(self) -> tuple[Term, ...]:
        return price_term("oldNodes", self.before), price_term("newNodes", self.after)

    def __str__(self) -> str:
        new = {each.group for each in self.creations}
        made = ", ".join(
            f"{count} of {'new group ' if group in new else ''}{group}" for group, count in sorted(self.added.items())
        )
        if self.reason is not DisruptionReason.UNDERUTILIZED:
            place = f"by {made}" if made else "remaining nodes have room for its pods"
            return f"{self.reason}, {self.why}: {place}"
        return (
            f"{len(self.removed)} {'node' if len(self.removed) == 1 else 'nodes'} at {self.before:.4g}/h "
            f"by {made} at {self.after:.4g}/h, which saves {self.saves_per_month:.4g}/month"
        )


@dataclass(frozen=True)
class ConsolidationDecision:
    """A verdict on every node that is a candidate or might be; `option` is what is done now, or is only advised.

    `move` is the replacement under way after this iteration, and `ended` says what the last one came to, if it ended
    just now, with `is_done` if all of it is done; `reason` is what asked for either. `unpriced_groups` says why groups
    that may grow are not launched for their price: none is known.
    """

    verdicts: Mapping[str, ReplacementVerdict] = field(default_factory=dict)
    option: ReplacementOption | None = None
    advice: bool = False
    move: Replacement | None = None
    ended: str = ""
    is_done: bool = False
    reason: DisruptionReason = DisruptionReason.UNDERUTILIZED
    unpriced_groups: Mapping[str, str] = field(default_factory=dict)

    @property
    def acts(self) -> bool:
        """Whether a replacement begins, is under way, or has ended just now."""
        return (self.option is not None and not self.advice) or self.move is not None or bool(self.ended)
