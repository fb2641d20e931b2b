"""Why each node stays or goes: one answer per node, from all results of an iteration.

A node under deletion is described by its stage. Scale-down judges the others, and the scan judges those of groups that
scale by utilization.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from manager.autoscaler.cluster_state.actions import Action, ActionKind
from manager.autoscaler.cluster_state.cost import Cost
from manager.autoscaler.planning.iteration import Iteration
from manager.autoscaler.scale_down.removal_status import (
    DeletionProgress,
    DeletionStage,
    NodeRemovalStatus,
    NodeStanding,
    UnremovableReason,
)
from manager.autoscaler.scale_up.decisions import ScaleUpOutcome
from manager.autoscaler.settings.modes import Mode
from manager.autoscaler.snapshot import taints
from manager.autoscaler.utilization import decisions
from manager.autoscaler.utilization.decisions import ScanDecision, ScanRule
from manager.autoscaler.utilization.observation import GroupNode
from manager.autoscaler.utilization.reaping import TaintedNodeReason, TaintedNodeStatus
from shared import durations
from shared.errors import InvalidInput
from shared.explanation import ScaleExplanation, Term, first_names

NOT_LOOKED_AT = "scale-down has not examined it yet"
GROWING = "scale-down is skipped in iterations that scale up"
UNHEALTHY = "not ready for too long"
CORDONED = "cordoned"
COMES_BACK = "comes back"
OTHERS_FIRST = "other nodes of its group are deleted first"
NONE_MAY_GO = "the remaining nodes of its group have no room for its pods, or would be too few"
MOST_PODS = 3  # named in one sentence


@dataclass(frozen=True)
class NodeStatusRow:
    """Why a node is kept or deleted.

    `standing` is one of: goes (it is deleted now), unneeded (it may be deleted later), leaving (it is being deleted),
    gone (it was deleted), needed (it is kept), unjudged (it has not been examined yet). `reason` is Cluster
    Autoscaler's term if there is one, or else that of the group's scan. `detail` explains it in a sentence. `headroom
    plan` does not watch the nodes over time, so it reports none that only have to wait.

    `utilization` is the largest requested share of a resource. `ripe_at` is when the node will have been unneeded for
    long enough. `pods` is the number of pods to evict. `stage` is the progress of the deletion. `cost_per_hour` is null
    if the node has no price. `terms` are the values that were compared.

    `replacement` says why the node is replaced or is not. `replacement_reason` is Underutilized (cheaper nodes exist),
    Interrupted, Expired, Drifted or Unhealthy. `replacement_saves_per_month` is the saving (null: no price is known),
    an upper bound if `replacement_saves_at_most` is true. `replacement_terms` are the values that were compared. All of
    these are empty if nothing requires a replacement.

    `interruption` is what the cloud has announced, with the taint or condition that reports it; empty if nothing. After
    SpotInterruption and InstanceTermination the cloud takes the node within minutes. The others are
    ScheduledMaintenance and RebalanceRecommendation.
    """

    node: str
    group: str
    standing: str
    reason: str
    detail: str
    utilization: float | None
    unneeded_since: str | None
    ripe_at: str | None
    pods: int
    stage: str
    cost_per_hour: float | None
    replacement: str = ""
    replacement_saves_per_month: float | None = None
    replacement_reason: str = ""
    replacement_saves_at_most: bool = False
    replacement_terms: list[Term] = field(default_factory=list)
    interruption: str = ""
    terms: list[Term] = field(default_factory=list)


def node_statuses(made: Iteration) -> dict[str, NodeStatusRow]:
    """By node, in the order of their names."""
    evicted: dict[str, int] = {}
    if made.scale_down is not None:
        evicted |= {each.node: len(each.moves) for each in made.scale_down.simulated}
        evicted |= {each.node: len(each.evicted) for each in made.scale_down.removals}
    known = {} if made.scale_down is None else made.scale_down.statuses
    found = {
        node: _row(of, made.cost, evicted.get(node, 0) if of is known.get(node) else 0)
        for node, of in _verdicts(made).items()
    }
    about_nodes = [each for each in made.actions if each.kind in _ABOUT_NODES and not each.is_soft_taint]
    actions = {node: action for action in about_nodes for node in action.nodes}
    found |= {node: _acted(found[node], action) for node, action in actions.items() if node in found}
    for going in made.leaving:
        found[going.node] = _leaving(made, going, found.get(going.node))
    verdicts = () if made.consolidation is None else made.consolidation.verdicts.values()
    for verdict in verdicts:
        if verdict.node in found:
            found[verdict.node] = replace(
                found[verdict.node],
                replacement=str(verdict),
                replacement_saves_per_month=verdict.saves_per_month,
                replacement_reason=verdict.disruption.value,
                replacement_saves_at_most=verdict.is_upper_bound,
                replacement_terms=list(verdict.terms),
            )
    for name in made.interruptions.keys() & found.keys():
        found[name] = replace(found[name], interruption=str(made.interruptions[name]))
    return dict(sorted(found.items()))


def replacement(made: Iteration) -> str:
    """The replacement that begins, is under way, is over or is only advised, in a sentence; empty without one."""
    decided = made.consolidation
    if decided is None:
        return ""
    if decided.ended:
        return decided.ended
    if decided.option is not None:
        return f"{'advised: ' if decided.advice else ''}{', '.join(decided.option.removed)}: {decided.option}"
    return f"{decided.move.phase}: {decided.move}" if decided.move is not None else ""


def by_saving(row: NodeStatusRow) -> tuple[bool, float, str]:
    """A key for sorting: the largest saving first, and what is only an upper bound after all others."""
    return row.replacement_saves_at_most, -(row.replacement_saves_per_month or 0.0), row.node


_ABOUT_NODES = frozenset({ActionKind.REMOVE_NODES, ActionKind.DELETE_NODES, ActionKind.TAINT, ActionKind.UNTAINT})


def _unjudged(made: Iteration) -> str:
    if made.blocked_reason:
        return f"nothing is decided: {made.blocked_reason}"
    grows = made.decision is not None and made.decision.outcome is ScaleUpOutcome.GROW
    return GROWING if grows else NOT_LOOKED_AT


def _verdicts(made: Iteration) -> dict[str, NodeRemovalStatus]:
    """What is said of each node before anything is done: by its group's scan only where scale-down says nothing."""
    why = ScaleExplanation(_unjudged(made))
    groups = {node: group.id for group in made.state.groups.values() for node in group.nodes}
    groups |= dict.fromkeys(made.state.ungrouped, "")
    found = {node: NodeRemovalStatus(node, group, NodeStanding.UNJUDGED, why) for node, group in groups.items()}
    if made.scale_down is not None:
        found |= made.scale_down.statuses
    for each in (each for scan in made.scans for each in _scanned(scan, would=scan.dry or made.dry_run)):
        before = found.get(each.node)
        if before is None or before.explanation.bound in ("", UnremovableReason.NOT_AUTOSCALED):
            found[each.node] = replace(each, group=before.group if before is not None and before.group else each.group)
    return found


def _row(of: NodeRemovalStatus, cost: Cost, pods: int = 0) -> NodeStatusRow:
    why, times = of.explanation, (_instant(of.unneeded_since), _instant(of.ripe_at))
    said, price = (why.bound, why.reason, of.utilization), cost.by_node.get(of.node)
    return NodeStatusRow(of.node, of.group, of.standing, *said, *times, pods, "", price, terms=list(why.terms))


def _instant(of: float | None) -> str | None:
    """None also for a time outside the calendar: a taint may hold any value."""
    try:
        return None if of is None else durations.timestamp(of)
    except (ValueError, OverflowError):
        return None


def _acted(row: NodeStatusRow, action: Action) -> NodeStatusRow:
    """The row with the result of the action."""
    if action.done:
        return row
    if action.error:
        return replace(row, detail=f"{row.detail}; it failed: {action.error}")
    return replace(row, detail=f"only recommended: {row.detail}") if action.mode is Mode.RECOMMEND else row


def _leaving(made: Iteration, going: DeletionProgress, before: NodeStatusRow | None) -> NodeStatusRow:
    unknown = NodeRemovalStatus(going.node, going.group, NodeStanding.UNJUDGED, ScaleExplanation())
    known = before or _row(unknown, made.cost)
    if going.stage is DeletionStage.FAILED:
        failed = f"its deletion failed: {going.error}"
        return replace(known, detail=f"{failed}; {known.detail}" if known.detail else failed)
    waits, named = len(going.waits_for), first_names(going.waits_for, MOST_PODS)
    is_gone = going.stage is DeletionStage.GONE
    return replace(
        known,
        group=going.group,
        standing=NodeStanding.GONE if is_gone else NodeStanding.LEAVING,
        reason="" if is_gone else UnremovableReason.BEING_DELETED,
        detail=f"{going.stage}: {going.kind}" + (f", waits for {named}" if waits else ""),
        pods=waits,
        stage=going.stage,
    )


def _scanned(scan: ScanDecision, *, would: bool) -> Iterator[NodeRemovalStatus]:
    """What a scan says of the nodes of its group; it only `would` taint them where nothing is done."""
    classes, group = scan.classes, scan.group
    tainting, untainting, unhealthy = map(_names, (scan.taint.planned, scan.untaint.planned, scan.health_taints))
    marked = {each.node.name: each for reaping in (scan.forced, scan.reaped) for each in reaping.statuses}
    why, full, terms = _why(scan), decisions.fullness_reason(scan), decisions.terms_of(scan)
    said = f"{why}: {full}" if full else why
    tainted = "would be tainted" if would else "is tainted now"
    kept = OTHERS_FIRST if tainting else "; ".join(scan.refusals) or NONE_MAY_GO
    for name in (node.name for node in classes.untainted):
        if name in unhealthy:
            standing, reason, detail = NodeStanding.UNNEEDED, UNHEALTHY, f"{tainted}: {UNHEALTHY}"
        elif name in tainting:
            standing, reason, detail = NodeStanding.UNNEEDED, why, f"{tainted}: {said}"
        elif scan.delta < 0:
            standing, reason, detail = NodeStanding.NEEDED, kept, f"{kept}; {said}"
        else:
            standing, reason, detail = NodeStanding.NEEDED, why, said
        yield NodeRemovalStatus(name, group, standing, ScaleExplanation(detail, terms, reason))
    for node in (*classes.tainted, *classes.force_tainted):
        if node.name in untainting:
            back = ScaleExplanation(f"its taint is removed: {said}", terms, COMES_BACK)
            yield NodeRemovalStatus(node.name, group, NodeStanding.NEEDED, back)
        elif node.name in marked:
            yield _tainted(scan, marked[node.name])
        else:
            waits = ScaleExplanation(f"tainted; {said}", terms, why)
            since = _tainted_at(node)
            yield NodeRemovalStatus(node.name, group, NodeStanding.UNNEEDED, waits, unneeded_since=since)
    for node in classes.cordoned:
        alone = ScaleExplanation("cordoned, so the autoscaler does not change it", bound=CORDONED)
        yield NodeRemovalStatus(node.name, group, NodeStanding.NEEDED, alone)


def _tainted(scan: ScanDecision, of: TaintedNodeStatus) -> NodeRemovalStatus:
    goes = (of.goes or of.drains) and not scan.dry
    pods = f", {of.pods} of them" if of.pods and of.why is TaintedNodeReason.HOLDS_PODS else ""
    detail = f"tainted, {of.why}{pods}"
    standing, bound = (NodeStanding.GOES, "") if goes else (NodeStanding.UNNEEDED, of.why)
    since = of.tainted_at if of.tainted_at is not None else _tainted_at(of.node)
    why = ScaleExplanation(detail, decisions.terms_of(scan), bound, -int(goes))
    return NodeRemovalStatus(of.node.name, scan.group, standing, why, unneeded_since=since)


def _why(scan: ScanDecision) -> str:
    """What decided about the group's nodes."""
    if scan.error:
        return scan.error
    return scan.steps[-1].rule if scan.steps else ScanRule.NOTHING_THERE


def _names(nodes: Iterable[GroupNode]) -> frozenset[str]:
    return frozenset(node.name for node in nodes)


def _tainted_at(node: GroupNode) -> float | None:
    try:
        return taints.tainted_at(node.taints, node=node.name)
    except InvalidInput:
        return None
