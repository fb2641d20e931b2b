"""Rows about scale-up: the options with every term of their ranks, the pending pods, and the pods that get no node.

docs/schemas has them as JSON Schema.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from manager.autoscaler.expander.ranking import Rank
from manager.autoscaler.pricing import gce
from manager.autoscaler.scale_up.decisions import (
    Cap,
    Comparison,
    ExpanderStep,
    NodeMix,
    RankedOption,
    Reasons,
    ScaleUpDecision,
)

ValueT = TypeVar("ValueT", str, tuple[str, ...])


@dataclass(frozen=True)
class ClassCount:
    """So many pods of the class at this position of `pending`."""

    position: int
    pods: int


@dataclass(frozen=True)
class OptionRow:
    """`nodes` new nodes of a group take `pods` pods. One that does not exist would be created with `labels`, `taints`.

    `kept_by` are the expanders that left it in, `dropped_by` the one that did not (empty: none). `rank` is null where
    there is none, for the reason in `problem`. Nodes may be shared out over `similar` groups.
    """

    group: str
    exists: bool
    machine_type: str
    machine: dict[str, int]
    nodes: int
    pods: int
    classes: list[ClassCount]
    node_price: float | None
    rank: Rank | None
    problem: str
    kept_by: list[str]
    dropped_by: str
    chosen: bool
    similar: tuple[str, ...]
    labels: dict[str, str]
    taints: list[str]


@dataclass(frozen=True)
class SkippedRow:
    """Groups that were not even looked at, and why."""

    reason: str
    groups: list[str]


@dataclass(frozen=True)
class PlacementRow:
    """New nodes by group that take so many pods; the cost is null where a group has no price."""

    nodes: dict[str, int]
    pods: int
    cost_per_hour: float | None


@dataclass(frozen=True)
class ComparisonRow:
    """One group against the cheapest mix of several that places the same pods (null: none was found).

    `minimum` is what the pods would cost on machines that fit them perfectly.
    """

    single: PlacementRow
    several: PlacementRow | None
    minimum: float | None
    uses_several: bool


@dataclass(frozen=True)
class FurtherRow:
    """What was decided after that in the same round, for the pods that were left; positions are those of `pending`."""

    outcome: str
    options: list[OptionRow]
    skipped: list[SkippedRow]
    steps: tuple[ExpanderStep, ...]
    comparison: ComparisonRow | None
    caps: tuple[Cap, ...]


@dataclass(frozen=True)
class PendingRow:
    """Pods that are alike. Of them so many go to nodes there are or on their way, so many to what reclaiming gives
    within a reporting interval; of the rest, `triggered` get a new node and `unplaced` none.

    `count` is the number of all, `requests` are those of one: cpu in thousandths of a core, all else in whole units.
    """

    position: int
    namespace: str
    pods: tuple[str, ...]
    count: int
    requests: dict[str, int]
    on_nodes: int
    reclaimed: int
    triggered: int
    unplaced: int


@dataclass(frozen=True)
class ReasonRow:
    """Why each of these groups cannot take a pod."""

    reasons: tuple[str, ...]
    groups: list[str]


@dataclass(frozen=True)
class UnplacedRow:
    """Pods of one class that get no node now. `awaiting`: some group could take them, in a later round."""

    position: int
    pods: tuple[str, ...]
    count: int
    awaiting: bool
    reasons: list[ReasonRow]


def further_row(decision: ScaleUpDecision, positions: Mapping[str, int]) -> FurtherRow:
    """Options stand best first; those without a rank come last. `positions` are those of classes, by their pods, in the
    iteration's first decision: later decisions consider fewer pods of fewer classes.
    """

    def order(each: RankedOption) -> tuple[float, str]:
        rank = each.ranked.rank
        return (math.inf if rank is None else rank.height[0]), each.group

    skipped = by_value((each.group, each.reason) for each in decision.skipped)
    return FurtherRow(
        decision.outcome,
        [_option(each, decision, positions) for each in sorted(decision.considered, key=order)],
        [SkippedRow(reason, groups) for reason, groups in skipped.items()],
        decision.steps,
        None if decision.comparison is None else _comparison(decision.comparison),
        decision.caps,
    )


def _comparison(of: Comparison) -> ComparisonRow:
    def placement(mix: NodeMix) -> PlacementRow:
        return PlacementRow(dict(sorted(mix.nodes.items())), mix.pod_count, mix.cost)

    several = None if of.several is None else placement(of.several)
    return ComparisonRow(placement(of.single), several, of.minimum, of.uses_several)


def _option(of: RankedOption, decision: ScaleUpDecision, positions: Mapping[str, int]) -> OptionRow:
    machine, spec = of.ranked.option.machine, of.spec
    return OptionRow(
        group=of.group,
        exists=of.exists,
        machine_type=gce.machine_type(machine.labels),
        machine={name: amount for name, amount in sorted(machine.capacity.items()) if amount},
        nodes=of.node_count,
        pods=of.pod_count,
        classes=[ClassCount(_position(decision, at, positions), count) for at, count in sorted(of.pods.items())],
        node_price=of.node_price,
        rank=of.ranked.rank,
        problem=of.ranked.problem,
        kept_by=[step.expander for step in decision.steps if of.group in step.groups],
        dropped_by=next((step.expander for step in decision.steps if of.group not in step.groups), ""),
        chosen=decision.chosen is not None and decision.chosen.group == of.group,
        similar=of.similar,
        labels={} if spec is None else dict(sorted(spec.labels.items())),
        taints=[] if spec is None else [f"{each.key}={each.value}:{each.effect}" for each in spec.taints],
    )


def unplaced_rows(decision: ScaleUpDecision, positions: Mapping[str, int]) -> list[UnplacedRow]:
    return [
        UnplacedRow(
            _position(decision, left.position, positions),
            left.pods,
            len(left.pods),
            left.awaiting,
            reason_rows(decision.reasons(left)),
        )
        for left in decision.left
    ]


def reason_rows(by_group: Reasons) -> list[ReasonRow]:
    """The groups that each list of reasons applies to."""
    return [ReasonRow(reasons, groups) for reasons, groups in by_value(by_group.items()).items()]


def pending_rows(decision: ScaleUpDecision, unplaced: Iterable[UnplacedRow]) -> list[PendingRow]:
    left = {each.position: each.count for each in unplaced}
    return [
        PendingRow(
            position,
            demand.namespace,
            demand.pods,
            len(demand.pods),
            dict(sorted(demand.requests.items())),
            demand.schedulable,
            demand.reclaimed,
            len(demand.unplaced) - left.get(position, 0),
            left.get(position, 0),
        )
        for position, demand in enumerate(decision.demands)
    ]


def by_value(pairs: Iterable[tuple[str, ValueT]]) -> dict[ValueT, list[str]]:
    """The names that have each value, both sorted."""
    found: dict[ValueT, list[str]] = {}
    for name, value in sorted(pairs, key=lambda pair: pair[0]):
        found.setdefault(value, []).append(name)
    return dict(sorted(found.items()))


def _position(decision: ScaleUpDecision, position: int, positions: Mapping[str, int]) -> int:
    return positions[decision.demands[position].pods[0]]
