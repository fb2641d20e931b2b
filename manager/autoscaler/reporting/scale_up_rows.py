"""Rows about scale-up: the options with every term of their ranks, the pending pods, and the pods that get no node;
and likewise about CapacityBuffers and ProvisioningRequests. docs/schemas has them as JSON Schema.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from manager.autoscaler.expander.ranking import Rank
from manager.autoscaler.pod_injection.buffer_planning import BufferPlan
from manager.autoscaler.pod_injection.request_planning import RequestPlan
from manager.autoscaler.pricing import gce
from manager.autoscaler.reporting.rows import by_value, row_of
from manager.autoscaler.scale_up.decisions import (
    Cap,
    Comparison,
    ExpanderStep,
    NodeMix,
    RankedOption,
    Reasons,
    ScaleUpDecision,
)


@dataclass(frozen=True)
class ClassCount:
    """Number of pods in the equivalence group at this position of `pending`."""

    position: int
    pods: int


@dataclass(frozen=True)
class OptionRow:
    """A scale-up option: `nodes` new nodes of a group have room for `pods` pending pods.

    If `exists` is false, the group would be created with these `labels` and `taints`. `kept_by` are the expanders that
    kept the option, and `dropped_by` is the one that dropped it (empty: none). If `rank` is null, `problem` says why.
    The nodes may be distributed over the `similar` groups.
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
    """Node groups that were not considered, and why."""

    reason: str
    groups: list[str]


@dataclass(frozen=True)
class PlacementRow:
    """New nodes by group, with room for `pods` pods. The cost is null if a group has no price."""

    nodes: dict[str, int]
    pods: int
    cost_per_hour: float | None


@dataclass(frozen=True)
class ComparisonRow:
    """A single node group compared with the cheapest mix of several for the same pods. `several` is null if no mix was
    found.

    `minimum` is what the pods would cost on machines that fit them perfectly.
    """

    single: PlacementRow
    several: PlacementRow | None
    minimum: float | None
    uses_several: bool


@dataclass(frozen=True)
class FurtherRow:
    """A further decision in the same iteration, for the remaining pods. Positions are those of `pending`."""

    outcome: str
    options: list[OptionRow]
    skipped: list[SkippedRow]
    steps: tuple[ExpanderStep, ...]
    comparison: ComparisonRow | None
    caps: tuple[Cap, ...]


@dataclass(frozen=True)
class PendingRow:
    """An equivalence group of pending pods.

    `count` is the number of its pods. `on_nodes` of them fit on existing or upcoming nodes, and `reclaimed` on capacity
    that is expected within one reporting interval. Of the rest, `triggered` get a new node and `unplaced` get none.
    `requests` are those of one pod: CPU in milli-cores, everything else in whole units.
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
    """The reasons why these node groups have no room for a pod."""

    reasons: tuple[str, ...]
    groups: list[str]


@dataclass(frozen=True)
class UnplacedRow:
    """Pods of one equivalence group that get no node now. If `awaiting` is true, a group may have room for them in a
    later iteration.
    """

    position: int
    pods: tuple[str, ...]
    count: int
    awaiting: bool
    reasons: list[ReasonRow]


@dataclass(frozen=True)
class BufferRow:
    """A CapacityBuffer, "namespace/name", and its chunks.

    `on_nodes` of its chunks fit on existing or upcoming nodes, and `on_mid` in the Mid offer. Of the rest, `triggered`
    get a new node and `unplaced` get none, for these `reasons`. `requests` are those of one chunk, in the units of
    `pending`. Without the ResourceQuotas in `limited_by` there would be `wanted` chunks.
    """

    buffer: str
    chunks: int
    requests: dict[str, int]
    on_nodes: int
    on_mid: int
    triggered: int
    unplaced: int
    reasons: list[ReasonRow]
    wanted: int = 0
    limited_by: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ProvisioningRequestRow:
    """A ProvisioningRequest, "namespace/name", its class and its state.

    `state` is pending, requested (its nodes are being created), booked, expired, revoked or failed. `consumed` of its
    pods exist and have a node. `reason` and `message` are those of its last condition.
    """

    request: str
    provisioning_class: str
    state: str
    pods: int
    consumed: int
    reason: str
    message: str


def further_row(decision: ScaleUpDecision, positions: Mapping[str, int]) -> FurtherRow:
    """Options stand best first; those without a rank come last. `positions` are those of classes, by their pods, in the
    iteration's first decision: later decisions consider fewer pods of fewer classes.
    """

    def order(each: RankedOption) -> tuple[float, str]:
        rank = each.ranked.rank
        return (math.inf if rank is None else rank.height[0]), each.group

    options = [_option(each, decision, positions) for each in sorted(decision.considered, key=order)]
    skipped = by_value((each.group, each.reason) for each in decision.skipped)
    compared = None if decision.comparison is None else _comparison(decision.comparison)
    skipped_rows = [SkippedRow(reason, groups) for reason, groups in skipped.items()]
    return row_of(
        FurtherRow, decision, outcome=decision.outcome.value, options=options, skipped=skipped_rows, comparison=compared
    )


def _comparison(of: Comparison) -> ComparisonRow:
    def placement(mix: NodeMix) -> PlacementRow:
        return PlacementRow(dict(sorted(mix.nodes.items())), mix.pod_count, mix.cost)

    several = None if of.several is None else placement(of.several)
    return row_of(ComparisonRow, of, single=placement(of.single), several=several)


def _option(of: RankedOption, decision: ScaleUpDecision, positions: Mapping[str, int]) -> OptionRow:
    machine, spec = of.ranked.option.machine, of.spec
    return row_of(
        OptionRow,
        of,
        machine_type=gce.machine_type(machine.labels),
        machine={name: amount for name, amount in sorted(machine.capacity.items()) if amount},
        nodes=of.node_count,
        pods=of.pod_count,
        classes=[ClassCount(_position(decision, at, positions), count) for at, count in sorted(of.pods.items())],
        rank=of.ranked.rank,
        problem=of.ranked.problem,
        kept_by=[step.expander for step in decision.steps if of.group in step.groups],
        dropped_by=next((step.expander for step in decision.steps if of.group not in step.groups), ""),
        chosen=decision.chosen is not None and decision.chosen.group == of.group,
        labels={} if spec is None else dict(sorted(spec.labels.items())),
        taints=[] if spec is None else [f"{each.key}={each.value}:{each.effect}" for each in spec.taints],
    )


def unplaced_rows(decision: ScaleUpDecision, positions: Mapping[str, int]) -> list[UnplacedRow]:
    return [
        row_of(
            UnplacedRow,
            left,
            position=_position(decision, left.position, positions),
            count=len(left.pods),
            reasons=_reason_rows(decision.reasons(left)),
        )
        for left in decision.left
    ]


def _reason_rows(by_group: Reasons) -> list[ReasonRow]:
    """The groups that each list of reasons applies to."""
    return [ReasonRow(reasons, groups) for reasons, groups in by_value(by_group.items()).items()]


def pending_rows(decision: ScaleUpDecision, unplaced: Iterable[UnplacedRow]) -> list[PendingRow]:
    left = {each.position: each.count for each in unplaced}
    return [
        row_of(
            PendingRow,
            demand,
            position=position,
            count=len(demand.pods),
            requests=dict(sorted(demand.requests.items())),
            on_nodes=demand.schedulable,
            triggered=len(demand.unplaced) - left.get(position, 0),
            unplaced=left.get(position, 0),
        )
        for position, demand in enumerate(decision.demands)
    ]


def buffer_rows(of: BufferPlan) -> tuple[list[BufferRow], list[FurtherRow]]:
    """One for each buffer, by key, and what was decided of them."""
    rows = [
        row_of(
            BufferRow,
            each,
            buffer=each.key,
            requests=dict(sorted(each.requests.items())),
            reasons=_reason_rows(each.reasons),
            limited_by=list(each.limited_by),
        )
        for each in of.buffers
    ]
    positions = _positions([each.key for each in of.buffers], of.buffer_of)
    return rows, [further_row(each, positions) for each in of.decisions]


def request_rows(of: RequestPlan) -> tuple[list[ProvisioningRequestRow], list[FurtherRow]]:
    """One for each request that is not over, or has just come to its end, by key, and what was bought for them."""
    rows = [row_of(ProvisioningRequestRow, each, request=each.key, state=each.stage.value) for each in of.requests]
    positions = _positions([each.key for each in of.requests], of.request_of)
    return rows, [further_row(each, positions) for each in of.decisions]


def _positions(keys: Iterable[str], key_of: Mapping[str, str]) -> dict[str, int]:
    """By pod, that of its buffer or request."""
    places = {key: place for place, key in enumerate(keys)}
    return {pod: places[key] for pod, key in key_of.items()}


def _position(decision: ScaleUpDecision, position: int, positions: Mapping[str, int]) -> int:
    return positions[decision.demands[position].pods[0]]
