"""Rows about nodes: those that go, those on their way out, why the others stay, and scans of groups. docs/schemas has
them as JSON Schema.

Instants are RFC 3339.
"""

from collections import Counter as Tally
from collections.abc import Iterable
from dataclasses import dataclass, replace

from manager.autoscaler.iteration import Iteration
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
    """Nodes that stay for one reason; `detail` is that of the first."""

    reason: str
    standing: str
    count: int
    nodes: list[str]
    detail: str


@dataclass(frozen=True)
class ScaleDownRow:
    """`nodes` are all there are, those that go first, and the dearest of these; in what is brief, and of past rounds,
    those alone that go or could, and in what is brief of the last round the first that are interrupted or judged for
    a replacement. `stay` counts by their reasons those that neither go nor are on their way.
    `cooldown` says why nothing is deleted for a while.

    `saved_per_hour` is what those that go now cost, `savable_per_hour` with all that could (null: one of them has no
    price). `replacement` says which nodes are replaced, and how far that has come.
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
    """A node on its way out: marking, draining, deleting, gone, or failed, with the `error`, so that it stays."""

    node: str
    group: str
    kind: str
    stage: str
    since: str
    waits_for: tuple[str, ...]
    error: str


@dataclass(frozen=True)
class AmountRow:
    """Thousandths of a core, and bytes."""

    cpu: int
    memory: int


@dataclass(frozen=True)
class ScanRow:
    """How full a group that scales by utilization is, and what is done about it.

    `demand` is what is `requested`, or the predicted peak where that is more; the percentages are of `capacity`, that
    of untainted nodes (null: unknown, or `from_zero`, pods without any node). `delta` is what is wanted; of it nodes
    are tainted, or untainted and the cloud's target raised by `increase`. `deleted` and `drained` nodes were tainted
    before, `unhealthy` ones are tainted for not being ready. `refusals` are what cannot be done, `error` why the scan
    came to nothing. In a `dry` one nothing is done. `healthy` is null where not checked; with the `breaker` open, the
    cloud is not asked for more.
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
    """The same of one node. `moves` says where its pods would go, by pod; `scan` is that of its group."""

    cluster: str
    time: str
    held: str
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
        refusals=[each for each in (*of.refusals, of.forced.refused, of.reaped.refused) if each],
        breaker_open=of.breaker.is_open,
    )
