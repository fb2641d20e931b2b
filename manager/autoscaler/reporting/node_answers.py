"""The answers of the API, `headroom plan` and the page about nodes."""

from collections import Counter as Tally
from collections.abc import Iterable, Iterator
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
    StayReasonRow,
)
from manager.autoscaler.reporting.schemas import Plan
from manager.autoscaler.scale_down.removal_status import DeletionProgress, NodeStanding
from manager.autoscaler.utilization.decisions import ScanDecision
from manager.autoscaler.utilization.observation import GroupNode
from shared import durations

BRIEF_NAMES = 3  # of nodes that stay for one reason
BRIEF_ROWS = 50  # of nodes that go or may go

_ORDER = {standing: number for number, standing in enumerate(NodeStanding)}
_COULD_GO = frozenset({NodeStanding.GOES, NodeStanding.UNNEEDED, NodeStanding.LEAVING, NodeStanding.GONE})
_STAYS = frozenset({NodeStanding.UNNEEDED, NodeStanding.NEEDED, NodeStanding.UNJUDGED})


def empty_answer(cluster: str) -> NodesLeft:
    return NodesLeft(cluster, None, "", False, None, [], [])


def nodes_answer(of: Plan) -> NodesLeft:
    return NodesLeft(of.cluster, of.time, of.held, of.dry_run, of.scale_down, of.leaving, of.scans)


def node_answer(of: Iteration, name: str) -> NodeLeft | None:
    """The answer about one node; None if there is none."""
    row = node_status.node_statuses(of).get(name)
    if row is None:
        return None
    scan = next((each for each in of.scans if any(node.name == name for node in _nodes(each))), None)
    going = {each.node: each.waits_for for each in of.leaving if not each.stage.is_over}
    simulated = of.scale_down.simulated if of.scale_down is not None and not row.stage else ()
    return NodeLeft(
        of.cluster,
        durations.timestamp(of.time),
        of.blocked_reason,
        row,
        moves={pod: to for each in simulated if each.node == name for pod, to in each.moves},
        waits_for=list(going.get(name, ())) if row.standing == NodeStanding.LEAVING else [],
        scan=None if scan is None else _scan(scan),
    )


def scale_down_row(of: Iteration) -> ScaleDownRow | None:
    """None if there is no verdict on any node."""
    rows = sorted(node_status.node_statuses(of).values(), key=_turn)
    if not rows:
        return None
    counts = Tally(row.standing for row in rows)
    going = [row.cost_per_hour for row in rows if row.standing == NodeStanding.GOES]
    unneeded = [row.cost_per_hour for row in rows if row.standing == NodeStanding.UNNEEDED]
    return ScaleDownRow(
        goes=counts[NodeStanding.GOES],
        unneeded=counts[NodeStanding.UNNEEDED],
        leaving=counts[NodeStanding.LEAVING],
        needed=counts[NodeStanding.NEEDED],
        unjudged=counts[NodeStanding.UNJUDGED],
        cooldown="" if of.scale_down is None else of.scale_down.cooldown,
        saved_per_hour=total_cost(going),
        savable_per_hour=total_cost([*going, *unneeded]),
        stay=_by_reason(rows),
        nodes=rows,
        replacement=node_status.replacement(of),
    )


def without_staying_nodes(of: ScaleDownRow | None) -> ScaleDownRow | None:
    """The same without the nodes that stay; their counts remain."""
    return of and replace(of, nodes=[row for row in of.nodes if row.standing in _COULD_GO])


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


def scan_rows(of: Iterable[ScanDecision]) -> list[ScanRow]:
    return [_scan(each) for each in sorted(of, key=lambda each: each.group)]


def total_cost(costs: Iterable[float | None]) -> float | None:
    """None if one of them is not known."""
    listed = list(costs)
    known = [each for each in listed if each is not None]
    return sum(known) if len(known) == len(listed) else None


def _turn(row: NodeStatusRow) -> tuple[int, float, str, str]:
    return _ORDER[NodeStanding(row.standing)], -(row.cost_per_hour or 0.0), row.unneeded_since or "", row.node


def _by_reason(rows: Iterable[NodeStatusRow]) -> list[StayReasonRow]:
    """The reason with most nodes first."""
    found: dict[tuple[str, str], list[NodeStatusRow]] = {}
    for row in rows:
        if row.standing in _STAYS:
            found.setdefault((row.standing, row.reason), []).append(row)
    return [
        StayReasonRow(reason, standing, len(listed), [row.node for row in listed], listed[0].detail)
        for (standing, reason), listed in sorted(found.items(), key=lambda each: (-len(each[1]), each[0]))
    ]


def _nodes(of: ScanDecision) -> Iterator[GroupNode]:
    for listed in (of.classes.untainted, of.classes.tainted, of.classes.force_tainted, of.classes.cordoned):
        yield from listed


def _scan(of: ScanDecision) -> ScanRow:
    full, used, found = of.fullness, of.fullness.utilization, of.classes
    from_zero = used is not None and used.is_from_zero
    known = None if from_zero else used

    def names(nodes: Iterable[GroupNode]) -> list[str]:
        return [each.name for each in nodes]

    return ScanRow(
        group=of.group,
        cpu_percent=None if known is None else known.cpu_percent,
        memory_percent=None if known is None else known.memory_percent,
        from_zero=from_zero,
        thresholds=of.thresholds,
        requested=AmountRow(*full.requested),
        demand=AmountRow(*full.demand),
        capacity=AmountRow(*full.capacity),
        untainted=len(found.untainted),
        tainted=len(found.tainted),
        force_tainted=len(found.force_tainted),
        cordoned=len(found.cordoned),
        steps=list(of.steps),
        delta=of.delta,
        unhealthy=names(of.health_taints),
        taint=names(of.taint.planned),
        untaint=names(of.untaint.planned),
        increase=of.increase,
        deleted=names(of.deletions),
        drained=names(of.drains),
        refusals=[each for each in (*of.refusals, of.forced.refused, of.reaped.refused) if each],
        error=of.error,
        locked=of.locked,
        dry=of.dry,
        healthy=of.healthy,
        breaker_open=of.breaker.is_open,
    )
