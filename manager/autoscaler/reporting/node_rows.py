"""Rows about nodes: those that go, those on their way out, why the others stay, and scans of groups. docs/schemas has
them as JSON Schema.

Instants are RFC 3339.
"""

from collections import Counter as Tally
from collections.abc import Iterable
from dataclasses import dataclass, replace

from manager.autoscaler.planning.iteration import Iteration
from manager.autoscaler.reporting import node_status
from manager.autoscaler.reporting.node_status import NodeStatusRow
from manager.autoscaler.reporting.rows import row_of, total_cost
from manager.autoscaler.scale_down.removal_status import DeletionProgress, NodeStanding
from manager.autoscaler.utilization.decisions import ScanDecision, ScanStep, ScanThresholds
from shared import durations

BRIEF_NAMES = 3  # of nodes that stay for one reason
BRIEF_ROWS = 50  # of nodes that go or may go
BRIEF_ASKED_ROWS = 20  # of the others: interrupted nodes, and those that something asks to replace

_ORDER = {standing: number for number, standing in enumerate(NodeStanding)}
_COULD_GO = frozenset({NodeStanding.GOES, NodeStanding.UNNEEDED, NodeStanding.LEAVING, NodeStanding.GONE})
_STAYS = frozenset({NodeStanding.UNNEEDED, NodeStanding.NEEDED, NodeStanding.UNJUDGED})


@dataclass(frozen=True)
class StayReasonRow:
    """Nodes that are kept for the same reason. `detail` is that of the first one."""

    reason: str
    standing: str
    count: int
    nodes: list[str]
    detail: str


@dataclass(frozen=True)
class ScaleDownRow:
    """Why each node is deleted or kept. `nodes` are sorted: nodes to delete come first, and of these the most expensive
    one.

    Brief answers and past iterations list only nodes that are deleted or could be. A brief answer for the last
    iteration also lists the first nodes that are interrupted or were considered for replacement. `stay` counts the
    other nodes by reason. `cooldown` says why no node is deleted for now.

    `saved_per_hour` is the cost of the nodes that are deleted now. `savable_per_hour` adds those that could be deleted
    (null: a price is missing). `replacement` describes the replacement in progress.
    """

    goes: int
    unneeded: int
    leaving: int
    needed: int
    unjudged: int
    cooldown: str
    saved_per_hour: float | None
    savable_per_hour: float | None
    stay: list[StayReasonRow]
    nodes: list[NodeStatusRow]
    replacement: str = ""


@dataclass(frozen=True)
class DeletionRow:
    """A node that is being deleted. After a failure, `error` says why, and the node is kept."""

    node: str
    group: str
    kind: str
    stage: str
    since: str
    waits_for: tuple[str, ...]
    error: str


@dataclass(frozen=True)
class AmountRow:
    """CPU in milli-cores and memory in bytes."""

    cpu: int
    memory: int


@dataclass(frozen=True)
class ScanRow:
    """Utilization of a node group that scales by utilization, and the resulting actions.

    `demand` is `requested`, or the predicted peak if that is larger. The percentages are of `capacity`, the capacity of
    the untainted nodes. They are null if unknown, or if pods wait and there is no node (`from_zero`). `delta` is the
    desired change in nodes. For it nodes are tainted, or untainted and the cloud's target is raised by `increase`.
    Nodes in `deleted` and `drained` were tainted before. Nodes in `unhealthy` are tainted because they are not ready.
    `refusals` are actions that are not possible, and `error` says why the scan failed. A `dry` scan changes nothing.
    `healthy` is null if it was not checked. While the circuit breaker is open (`breaker_open`), no nodes are requested
    from the cloud.
    """

    group: str
    cpu_percent: float | None
    memory_percent: float | None
    from_zero: bool
    thresholds: ScanThresholds
    requested: AmountRow
    demand: AmountRow
    capacity: AmountRow
    untainted: int
    tainted: int
    force_tainted: int
    cordoned: int
    steps: tuple[ScanStep, ...]
    delta: int
    unhealthy: list[str]
    taint: list[str]
    untaint: list[str]
    increase: int
    deleted: list[str]
    drained: list[str]
    refusals: list[str]
    error: str
    locked: bool
    dry: bool
    healthy: bool | None
    breaker_open: bool


@dataclass(frozen=True)
class NodeLeft:
    """Why one node is still here, as of one iteration.

    `moves` has the target node of each of its pods, by pod. `waits_for` are the pods that a deletion in progress waits
    for. `scan` is that of the node's group.
    """

    cluster: str
    time: str
    blocked_reason: str
    answer: NodeStatusRow
    moves: dict[str, str]
    waits_for: tuple[str, ...]
    scan: ScanRow | None


def node_answer(of: Iteration, name: str) -> NodeLeft | None:
    """The answer about one node; None if there is none."""
    status = node_status.node_statuses(of).get(name)
    if status is None:
        return None
    scan = next((each for each in of.scans if any(node.name == name for node in each.classes.all)), None)
    going = {each.node: each.waits_for for each in of.leaving if not each.stage.is_over}
    simulated = of.scale_down.simulated if of.scale_down is not None and not status.stage else ()
    return NodeLeft(
        of.cluster,
        durations.timestamp(of.time),
        of.blocked_reason,
        status,
        moves={pod: to for each in simulated if each.node == name for pod, to in each.moves},
        waits_for=going.get(name, ()) if status.standing == NodeStanding.LEAVING else (),
        scan=None if scan is None else _scan(scan),
    )


def scale_down_row(of: Iteration) -> ScaleDownRow | None:
    """None if there is no verdict on any node."""
    rows = sorted(node_status.node_statuses(of).values(), key=_turn)
    if not rows:
        return None
    counts = Tally(each.standing for each in rows)
    going = [each.cost_per_hour for each in rows if each.standing == NodeStanding.GOES]
    unneeded = [each.cost_per_hour for each in rows if each.standing == NodeStanding.UNNEEDED]
    return ScaleDownRow(
        **{name: counts[name] for name in ("goes", "unneeded", "leaving", "needed", "unjudged")},
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
    """The same with only the first of many nodes; of those that stay, only interrupted ones, and those that something
    asks to replace, the largest saving first.
    """
    if of is None:
        return None
    shown = [row for row in of.nodes if row.standing in _COULD_GO][:BRIEF_ROWS]
    known = {row.node for row in shown}
    asked = [row for row in of.nodes if row.node not in known and (row.interruption or row.replacement)]
    asked.sort(key=lambda row: (not row.interruption, node_status.by_saving(row)))
    return replace(
        of,
        stay=[replace(row, nodes=row.nodes[:BRIEF_NAMES]) for row in of.stay],
        nodes=[*shown, *asked[:BRIEF_ASKED_ROWS]],
    )


def deletion_rows(of: Iterable[DeletionProgress]) -> list[DeletionRow]:
    """Longest under deletion first."""
    ordered = sorted(of, key=lambda each: (each.since, each.node))
    return [row_of(DeletionRow, each, since=durations.timestamp(each.since)) for each in ordered]


def scan_rows(of: Iterable[ScanDecision]) -> list[ScanRow]:
    return [_scan(each) for each in sorted(of, key=lambda each: each.group)]


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


def _scan(of: ScanDecision) -> ScanRow:
    full, used = of.fullness, of.fullness.utilization
    from_zero = used is not None and used.is_from_zero
    known = None if from_zero else used
    nodes = {
        "unhealthy": of.health_taints,
        "taint": of.taint.planned,
        "untaint": of.untaint.planned,
        "deleted": of.deletions,
        "drained": of.drains,
    }
    classes = ("untainted", "tainted", "force_tainted", "cordoned")
    return row_of(
        ScanRow,
        of,
        cpu_percent=None if known is None else known.cpu_percent,
        memory_percent=None if known is None else known.memory_percent,
        from_zero=from_zero,
        **{name: AmountRow(*getattr(full, name)) for name in ("requested", "demand", "capacity")},
        **{name: len(getattr(of.classes, name)) for name in classes},
        **{name: [each.name for each in listed] for name, listed in nodes.items()},
        refusals=list(of.refusals),
        breaker_open=of.breaker.is_open,
    )
