"""Why each node stays or goes: one answer per node, from all results of an iteration.

A node under deletion is described by its stage. Scale-down judges the others, and the scan judges those of groups that
scale by utilization.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from manager.autoscaler import taints
from manager.autoscaler.iteration import Action, ActionKind, Iteration
from manager.autoscaler.modes import Mode
from manager.autoscaler.scale_down.deletions_in_progress import DeletionProgress, DeletionStage
from manager.autoscaler.scale_down.removal_status import NodeRemovalStatus, NodeStanding
from manager.autoscaler.scale_down.rules import UnremovableReason
from manager.autoscaler.scale_down_planning import LIKELY_TO_GO, NEEDED_AGAIN
from manager.autoscaler.scale_up.decisions import ScaleUpOutcome
from manager.autoscaler.utilization import reaping, reasons
from manager.autoscaler.utilization.decisions import ScanDecision as Scan
from manager.autoscaler.utilization.decisions import ScanRule
from manager.autoscaler.utilization.observation import GroupNode
from shared.errors import InvalidInput

NOT_LOOKED_AT = "scale-down has not looked at it"
GROWING = "pods have groups grow, and in such a round no node goes"
UNHEALTHY = "not ready for too long"
CORDONED = "cordoned"
COMES_BACK = "comes back"
OTHERS_FIRST = "other nodes of its group go first"
NONE_MAY_GO = "the others of its group could not take what is on it, or are too few"
MOST_PODS = 3  # named in one sentence


@dataclass(frozen=True, slots=True)
class NodeExplanation:
    """The explanation for one node. `reason` is the metric label: Cluster Autoscaler's word, or that of a scan. Times
    are in Unix seconds; from `ripe_at` on the node has been unneeded for long enough.

    `pods` are those that are evicted with it, or that it waits for; `moves` are their new places, pairs of pod and
    node.
    """

    node: str
    group: str
    standing: NodeStanding
    reason: str = ""
    detail: str = ""
    utilization: float | None = None
    unneeded_since: float | None = None
    ripe_at: float | None = None
    pods: tuple[str, ...] = ()
    moves: tuple[tuple[str, str], ...] = ()
    stage: str = ""


def node_statuses(made: Iteration) -> dict[str, NodeExplanation]:
    """By node, in the order of their names."""
    found = {node: _unjudged(made, node, group) for node, group in _registered(made)}
    actions = {
        node: action
        for action in made.actions
        if action.kind in _ABOUT_NODES and not is_soft_taint(action)
        for node in action.nodes
    }
    found |= {each.node: each for each in _judged_nodes(made)}
    for scan in made.scans:
        for each in _scanned(scan, dry=scan.dry or made.dry_run):
            before = found.get(each.node)
            if before is None or before.reason in ("", UnremovableReason.NOT_AUTOSCALED):
                group = each.group if before is None or not before.group else before.group
                found[each.node] = replace(each, group=group)
    found = {node: _acted(each, actions.get(node)) for node, each in found.items()}
    for going in made.leaving:
        found[going.node] = _leaving(going, found.get(going.node))
    return dict(sorted(found.items()))


def latest_scans(made: Iteration, before: Iterable[Scan]) -> tuple[Scan, ...]:
    """The last scan decision of each group, which stands until the next.

    A manager without groups has no scans either.
    """
    kept = {each.group: each for each in before} if made.state.groups else {}
    return tuple((kept | {each.group: each for each in made.scans}).values())


def is_soft_taint(action: Action) -> bool:
    """Whether it changes only soft taints, which mark deletion candidates."""
    return action.kind in (ActionKind.TAINT, ActionKind.UNTAINT) and action.reason in (LIKELY_TO_GO, NEEDED_AGAIN)


_ABOUT_NODES = frozenset({ActionKind.REMOVE_NODES, ActionKind.DELETE_NODES, ActionKind.TAINT, ActionKind.UNTAINT})


def _registered(made: Iteration) -> Iterator[tuple[str, str]]:
    for group in made.state.groups.values():
        for node in group.nodes:
            yield node, group.id
    for node in made.state.ungrouped:
        yield node, ""


def _unjudged(made: Iteration, node: str, group: str) -> NodeExplanation:
    grows = made.decision is not None and made.decision.outcome is ScaleUpOutcome.GROW
    why = f"nothing is decided: {made.blocked_reason}" if made.blocked_reason else GROWING if grows else NOT_LOOKED_AT
    return NodeExplanation(node, group, NodeStanding.UNJUDGED, detail=why)


def _judged_nodes(made: Iteration) -> Iterator[NodeExplanation]:
    decided = made.scale_down
    if decided is None:
        return
    moves = {each.node: each.moves for each in decided.simulated}
    evicted = {each.node: each.evicted for each in decided.removals}
    for verdict in decided.statuses.values():
        yield _of_verdict(verdict, moves, evicted)


def _of_verdict(
    of: NodeRemovalStatus, moves: Mapping[str, tuple[tuple[str, str], ...]], evicted: Mapping[str, tuple[str, ...]]
) -> NodeExplanation:
    moved = moves.get(of.node, ())
    return NodeExplanation(
        of.node,
        of.group,
        of.standing,
        "" if of.reason is None else of.reason.value,
        of.detail,
        of.utilization,
        of.unneeded_since,
        of.ripe_at,
        evicted.get(of.node, tuple(pod for pod, _ in moved)),
        moved,
    )


def _acted(stay: NodeExplanation, action: Action | None) -> NodeExplanation:
    """The explanation with the result of the action."""
    if action is None or action.done:
        return stay
    if action.error:
        return replace(stay, detail=f"{stay.detail}; it failed: {action.error}")
    if action.mode is Mode.RECOMMEND:
        return replace(stay, detail=f"only recommended: {stay.detail}")
    return stay


def _leaving(going: DeletionProgress, before: NodeExplanation | None) -> NodeExplanation:
    known = before or NodeExplanation(going.node, going.group, NodeStanding.UNJUDGED)
    if going.stage is DeletionStage.FAILED:
        failed = f"it was to go, which failed: {going.error}"
        return replace(known, detail=f"{failed}; {known.detail}" if known.detail else failed)
    waits = len(going.waits_for)
    named = ", ".join(going.waits_for[:MOST_PODS]) + (f" and {waits - MOST_PODS} more" if waits > MOST_PODS else "")
    detail = f"{going.stage}: {going.kind}" + (f", waits for {named}" if waits else "")
    return replace(
        known,
        group=going.group,
        standing=NodeStanding.GONE if going.stage is DeletionStage.GONE else NodeStanding.LEAVING,
        reason="" if going.stage is DeletionStage.GONE else UnremovableReason.BEING_DELETED.value,
        detail=detail,
        pods=going.waits_for,
        moves=(),
        stage=going.stage.value,
    )


def _scanned(scan: Scan, *, dry: bool) -> Iterator[NodeExplanation]:
    classes = scan.classes
    tainting, untainting = _names(scan.taint.planned), _names(scan.untaint.planned)
    unhealthy = _names(scan.health_taints)
    refused = {each.node.name: scan.forced.refused for each in scan.forced.statuses}
    refused |= {each.node.name: scan.reaped.refused for each in scan.reaped.statuses}
    marked = {each.node.name: each for each in (*scan.forced.statuses, *scan.reaped.statuses)}
    why, full = _why(scan), reasons.fullness(scan)
    said = f"{why}: {full}" if full else why
    would = "would be tainted" if dry else "is tainted now"
    for node in classes.untainted:
        if node.name in unhealthy:
            yield NodeExplanation(node.name, scan.group, NodeStanding.UNNEEDED, UNHEALTHY, f"{would}: {UNHEALTHY}")
        elif node.name in tainting:
            yield NodeExplanation(node.name, scan.group, NodeStanding.UNNEEDED, why, f"{would}: {said}")
        elif scan.delta < 0:
            kept = OTHERS_FIRST if tainting else "; ".join(scan.refusals) or NONE_MAY_GO
            yield NodeExplanation(node.name, scan.group, NodeStanding.NEEDED, kept, f"{kept}; {said}")
        else:
            yield NodeExplanation(node.name, scan.group, NodeStanding.NEEDED, why, said)
    for node in (*classes.tainted, *classes.force_tainted):
        if node.name in untainting:
            yield NodeExplanation(
                node.name, scan.group, NodeStanding.NEEDED, COMES_BACK, f"its taint is taken off: {said}"
            )
        elif node.name in marked:
            yield _of_mark(scan, marked[node.name], refused[node.name])
        else:
            since = _tainted_at(node)
            yield NodeExplanation(
                node.name, scan.group, NodeStanding.UNNEEDED, why, f"tainted; {said}", unneeded_since=since
            )
    for node in classes.cordoned:
        yield NodeExplanation(node.name, scan.group, NodeStanding.NEEDED, CORDONED, "cordoned, and so left alone")


def _of_mark(scan: Scan, of: reaping.TaintedNodeStatus, refused: str) -> NodeExplanation:
    goes = (of.goes or of.drains) and not refused and not scan.dry
    pods = f", {of.pods} of them" if of.pods and of.why is reaping.TaintedNodeReason.HOLDS_PODS else ""
    detail = f"tainted, {of.why}{pods}" + (f"; {refused}" if refused else "")
    standing = NodeStanding.GOES if goes else NodeStanding.UNNEEDED
    since = of.tainted_at if of.tainted_at is not None else _tainted_at(of.node)
    return NodeExplanation(
        of.node.name, scan.group, standing, "" if goes else of.why.value, detail, unneeded_since=since
    )


def _why(scan: Scan) -> str:
    """What decided about the group's nodes."""
    if scan.error:
        return scan.error
    return (scan.steps[-1].rule if scan.steps else ScanRule.NOTHING_THERE).value


def _names(nodes: Iterable[GroupNode]) -> frozenset[str]:
    return frozenset(node.name for node in nodes)


def _tainted_at(node: GroupNode) -> float | None:
    try:
        return taints.tainted_at(node.taints, node=node.name)
    except InvalidInput:
        return None
