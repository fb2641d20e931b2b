"""The answers of the API, `headroom plan` and the page about nodes."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from manager.autoscaler.iteration import Iteration
from manager.autoscaler.reporting import node_status
from manager.autoscaler.reporting.node_schemas import (
    AmountRow,
    DeletionRow,
    NodeLeft,
    NodesLeft,
    NodeStatusRow,
    ScaleDownRow,
    ScanRow,
    ScanStepRow,
    StayReasonRow,
    ThresholdsRow,
)
from manager.autoscaler.reporting.node_status import NodeExplanation
from manager.autoscaler.reporting.schemas import Plan
from manager.autoscaler.scale_down.deletions_in_progress import DeletionProgress
from manager.autoscaler.scale_down.removal_status import NodeStanding
from manager.autoscaler.utilization.decisions import ScanDecision as Scan
from manager.autoscaler.utilization.observation import GroupNode
from shared import durations
from shared.quantity import Resources

BRIEF_NAMES = 3  # of nodes that stay for one reason
BRIEF_ROWS = 50  # of nodes that go or may go

_ORDER = {standing: number for number, standing in enumerate(NodeStanding)}
_COULD_GO = (NodeStanding.GOES.value, NodeStanding.UNNEEDED.value, NodeStanding.LEAVING.value, NodeStanding.GONE.value)


def empty_answer(cluster: str) -> NodesLeft:
    """The answer before the first iteration."""
    return NodesLeft(cluster, None, "", False, None, [], [])


def nodes_answer(of: Plan) -> NodesLeft:
    """The answer about all nodes, from the answer about an iteration."""
    return NodesLeft(of.cluster, of.time, of.held, of.dry_run, of.scale_down, of.leaving, of.scans)


def node_answer(of: Iteration, name: str) -> NodeLeft | None:
    """The answer about one node; None if there is none."""
    stay = node_status.node_statuses(of).get(name)
    if stay is None:
        return None
    scan = next((each for each in of.scans if _is_of(each, name)), None)
    return NodeLeft(
        of.cluster,
        durations.timestamp(of.time),
        of.blocked_reason,
        _row(stay, of.cost.by_node),
        moves=dict(stay.moves),
        waits_for=list(stay.pods) if stay.standing is NodeStanding.LEAVING else [],
        scan=None if scan is None else _scan(scan),
    )


def scale_down_row(of: Iteration) -> ScaleDownRow | None:
    """None if there is no verdict on any node."""
    stays = node_status.node_statuses(of)
    if not stays:
        return None
    rows = sorted((_row(each, of.cost.by_node) for each in stays.values()), key=_turn)
    counts = dict.fromkeys(NodeStanding, 0)
    for each in stays.values():
        counts[each.standing] += 1
    going = [row for row in rows if row.standing == NodeStanding.GOES]
    unneeded = [row for row in rows if row.standing == NodeStanding.UNNEEDED]
    return ScaleDownRow(
        goes=counts[NodeStanding.GOES],
        unneeded=counts[NodeStanding.UNNEEDED],
        leaving=counts[NodeStanding.LEAVING],
        needed=counts[NodeStanding.NEEDED],
        unjudged=counts[NodeStanding.UNJUDGED],
        cooldown="" if of.scale_down is None else of.scale_down.cooldown,
        saved_per_hour=_cost(going),
        savable_per_hour=_cost([*going, *unneeded]),
        stay=_by_reason(rows),
        nodes=rows,
    )


def without_staying_nodes(of: ScaleDownRow | None) -> ScaleDownRow | None:
    """The same without the nodes that stay; their counts remain."""
    if of is None:
        return None
    return replace(of, nodes=[row for row in of.nodes if row.standing in _COULD_GO])


def first_rows(of: ScaleDownRow | None) -> ScaleDownRow | None:
    """The same with only the first of many nodes."""
    found = without_staying_nodes(of)
    if found is None:
        return None
    stay = [replace(row, nodes=row.nodes[:BRIEF_NAMES]) for row in found.stay]
    return replace(found, stay=stay, nodes=found.nodes[:BRIEF_ROWS])


def deletion_rows(of: Iterable[DeletionProgress]) -> list[DeletionRow]:
    """Longest under deletion first."""
    return [
        DeletionRow(
            each.node,
            each.group,
            each.kind.value,
            each.stage.value,
            durations.timestamp(each.since),
            list(each.waits_for),
            each.error,
        )
        for each in sorted(of, key=lambda each: (each.since, each.node))
    ]


def scan_rows(of: Iterable[Scan]) -> list[ScanRow]:
    return [_scan(each) for each in sorted(of, key=lambda each: each.group)]


def _turn(row: NodeStatusRow) -> tuple[int, float, str, str]:
    return _ORDER[NodeStanding(row.standing)], -(row.cost_per_hour or 0.0), row.unneeded_since or "", row.node


def _row(of: NodeExplanation, prices: Mapping[str, float]) -> NodeStatusRow:
    return NodeStatusRow(
        node=of.node,
        group=of.group,
        standing=of.standing.value,
        reason=of.reason,
        detail=of.detail,
        utilization=of.utilization,
        unneeded_since=_instant(of.unneeded_since),
        ripe_at=_instant(of.ripe_at),
        pods=len(of.pods),
        stage=of.stage,
        cost_per_hour=prices.get(of.node),
    )


def _instant(of: float | None) -> str | None:
    """None also for a time outside the calendar: a taint may hold any value."""
    if of is None:
        return None
    try:
        return durations.timestamp(of)
    except (ValueError, OverflowError):
        return None


def _cost(of: Iterable[NodeStatusRow]) -> float | None:
    costs = [row.cost_per_hour for row in of]
    known = [each for each in costs if each is not None]
    return sum(known) if len(known) == len(costs) else None


def _by_reason(rows: Iterable[NodeStatusRow]) -> list[StayReasonRow]:
    """The reason with most nodes first."""
    found: dict[tuple[str, str], list[NodeStatusRow]] = {}
    for row in rows:
        if row.standing in (NodeStanding.UNNEEDED, NodeStanding.NEEDED, NodeStanding.UNJUDGED):
            found.setdefault((row.standing, row.reason), []).append(row)
    return [
        StayReasonRow(reason, standing, len(listed), [row.node for row in listed], listed[0].detail)
        for (standing, reason), listed in sorted(found.items(), key=lambda each: (-len(each[1]), each[0]))
    ]


def _is_of(scan: Scan, node: str) -> bool:
    found = scan.classes
    return any(
        each.name == node
        for listed in (found.untainted, found.tainted, found.force_tainted, found.cordoned)
        for each in listed
    )


def _scan(of: Scan) -> ScanRow:
    full, used, found = of.fullness, of.fullness.utilization, of.classes
    from_zero = used is not None and used.is_from_zero
    known = None if from_zero else used
    return ScanRow(
        group=of.group,
        cpu_percent=None if known is None else known.cpu_percent,
        memory_percent=None if known is None else known.memory_percent,
        from_zero=from_zero,
        thresholds=ThresholdsRow(of.thresholds.lower, of.thresholds.upper, of.thresholds.scale_up),
        requested=_amount(full.requested),
        demand=_amount(full.demand),
        capacity=_amount(full.capacity),
        untainted=len(found.untainted),
        tainted=len(found.tainted),
        force_tainted=len(found.force_tainted),
        cordoned=len(found.cordoned),
        steps=[ScanStepRow(each.rule.value, each.delta) for each in of.steps],
        delta=of.delta,
        unhealthy=_names(of.health_taints),
        taint=_names(of.taint.planned),
        untaint=_names(of.untaint.planned),
        increase=of.increase,
        deleted=_names(of.deletions),
        drained=_names(of.drains),
        refusals=[each for each in (*of.refusals, of.forced.refused, of.reaped.refused) if each],
        error=of.error,
        locked=of.locked,
        dry=of.dry,
        healthy=of.healthy,
        breaker_open=of.breaker.is_open,
    )


def _amount(of: Resources) -> AmountRow:
    return AmountRow(of.cpu_milli, of.memory_bytes)


def _names(of: Iterable[GroupNode]) -> list[str]:
    return [each.name for each in of]
