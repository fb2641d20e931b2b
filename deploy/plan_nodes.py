"""The part of a plan that says why nodes are still here: nodes that could go, nodes that stay, and scans of groups."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from deploy import rendering
from deploy.prices.estimates import BY_SIZE
from manager.autoscaler.reporting.answers import Plan
from manager.autoscaler.reporting.node_rows import DeletionRow, ScaleDownRow, ScanRow
from manager.autoscaler.reporting.node_status import NodeStatusRow, by_saving
from manager.autoscaler.scale_down.removal_status import NodeStanding

MOST_ROWS = 20
_ALL = "--top N, --all-nodes"
_COULD_GO = (NodeStanding.GOES, NodeStanding.UNNEEDED)


def blocks(plan: Plan, *, all_nodes: bool = False, top: int = MOST_ROWS) -> list[list[str]]:
    """One paragraph each; empty if there is nothing to say. Lists the `top` nodes that could go, or all."""
    found = plan.scale_down
    nodes = []
    if found is not None:
        most = len(found.nodes) if all_nodes else top
        stay = _stay(found, all_nodes=all_nodes)
        nodes = [
            _interrupted(found, most),
            _could_go(found, most, plan.cost_per_hour.estimated_groups),
            stay,
            _replaced(found, most),
        ]
    return [*nodes, _leaving(plan.leaving), _scans(plan.scans)]


def _could_go(of: ScaleDownRow, most: int, guessed: Collection[str]) -> list[str]:
    rows = [row for row in of.nodes if row.standing in _COULD_GO]
    if not rows:
        return []
    shown = rows[:most]
    going = [row for row in rows if row.standing == NodeStanding.GOES]
    title = f"{rendering.count(len(rows), 'node')} could be deleted{_saving(of.savable_per_hour, rows, guessed)}, "
    title += f"{of.goes or 'none'} of them now{_saving(of.saved_per_hour, going, guessed)}:"
    cells = (
        (
            "  *" if row.standing == NodeStanding.GOES else "",
            row.node,
            row.group,
            _percent(row),
            str(row.pods),
            rendering.approximate(rendering.price(row.cost_per_hour), estimated=row.group in guessed),
            _reason(row),
        )
        for row in shown
    )
    lines = rendering.table(("", "NODE", "GROUP", ">REQUESTED", ">PODS", ">$/H", "WHY"), cells)
    if len(shown) < len(rows):
        reasons = Counter(row.reason or row.standing for row in rows[len(shown) :])
        counted = ", ".join(f"{many} {reason}" for reason, many in reasons.most_common())
        lines.append(f"  and {len(rows) - len(shown)} more: {counted} (more of them: --top N, --all-nodes)")
    if of.cooldown:
        lines.append(f"Nothing is deleted for now: {of.cooldown}.")
    return [title, *lines]


def _interrupted(of: ScaleDownRow, most: int) -> list[str]:
    """The cloud's announcement, and what the node waits for."""
    rows = [row for row in of.nodes if row.interruption]
    if not rows:
        return []
    cells = ((f"  {row.node}", row.group, row.interruption, row.standing, _reason(row)) for row in rows[:most])
    lines = rendering.table(("  NODE", "GROUP", "ANNOUNCED", "STANDING", "WHY"), cells)
    return ["Interruptions that the cloud has announced:", *lines, *rendering.more(len(rows), most, _ALL)]


def _replaced(of: ScaleDownRow, most: int) -> list[str]:
    """Which nodes are replaced, and what keeps the others; empty if none was considered."""
    rows = [row for row in of.nodes if row.replacement]
    if not rows and not of.replacement:
        return []
    rows.sort(key=by_saving)
    lines = [f"  {row.replacement}" for row in rows[:most]]
    return [f"Replaced nodes: {of.replacement or 'none now'}", *lines, *rendering.more(len(rows), most, _ALL)]


def _stay(of: ScaleDownRow, *, all_nodes: bool) -> list[str]:
    rows = [row for row in of.stay if row.standing not in _COULD_GO]
    if not rows:
        return []
    if all_nodes:
        listed = [row for row in of.nodes if row.standing in (NodeStanding.NEEDED, NodeStanding.UNJUDGED)]
        cells = [(f"  {row.node}", row.group, _percent(row), _reason(row)) for row in listed]
        lines = rendering.table(("  NODE", "GROUP", ">REQUESTED", "WHY"), cells)
    else:
        reasons = [(f"  {row.reason or row.standing}", str(row.count), f"{row.nodes[0]}: {row.detail}") for row in rows]
        lines = rendering.table(("  REASON", ">NODES", "FOR EXAMPLE"), reasons)
    count = sum(row.count for row in rows)
    return [f"{rendering.count(count, 'node')} {'is' if count == 1 else 'are'} not deleted:", *lines]


def _leaving(rows: Sequence[DeletionRow]) -> list[str]:
    if not rows:
        return []
    cells = (
        (f"  {row.node}", row.group, row.stage, row.since, row.error or rendering.names(row.waits_for)) for row in rows
    )
    lines = rendering.table(("  NODE", "GROUP", "STAGE", "SINCE", "WAITS FOR"), cells)
    return ["Nodes being deleted:", *lines]


def _scans(rows: Sequence[ScanRow]) -> list[str]:
    if not rows:
        return []
    header = ("  GROUP", ">NODES", ">TAINTED", ">CPU", ">MEMORY", ">TAINT BELOW", ">GROW ABOVE", ">DELTA", "WHY")
    lines = rendering.table(header, map(_scan, rows))
    return ["Groups that scale by utilization:", *lines, *(line for row in rows for line in _done(row))]


def _scan(of: ScanRow) -> tuple[str, ...]:
    limits = of.thresholds
    return (
        f"  {of.group}",
        str(of.untainted + of.tainted + of.force_tainted + of.cordoned),
        str(of.tainted + of.force_tainted),
        _of_hundred(of.cpu_percent),
        _of_hundred(of.memory_percent),
        f"{limits.lower} %, {limits.upper} %",
        f"{limits.scale_up} %",
        f"{of.delta:+d}" if of.delta else "0",
        of.error or ", ".join(f"{step.rule} {step.delta:+d}" if step.delta else step.rule for step in of.steps),
    )


def _done(of: ScanRow) -> Iterable[str]:
    """What happens to each group, one line each."""
    acts = [
        ("tainted, as they are not ready", of.unhealthy),
        ("tainted", of.taint),
        ("untainted", of.untaint),
        ("drained", of.drained),
        ("deleted", of.deleted),
    ]
    for what, nodes in acts:
        if nodes:
            yield f"  {of.group}: {rendering.names(nodes)} would be {what}"
    if of.increase:
        yield f"  {of.group}: the cloud would be requested to launch {rendering.count(of.increase, 'node')} more"
    for refusal in of.refusals:
        yield f"  {of.group}: {refusal}"


def _saving(value: float | None, rows: Iterable[NodeStatusRow], guessed: Collection[str]) -> str:
    if not value:
        return ""
    if any(row.group in guessed for row in rows):
        return f" (~{value:.4f} $/h, ~{rendering.monthly(value)}, {BY_SIZE})"
    return f" ({value:.4f} $/h, {rendering.monthly(value)})"


def _percent(of: NodeStatusRow) -> str:
    return rendering.UNKNOWN if of.utilization is None else _of_hundred(of.utilization * 100)


def _of_hundred(value: float | None) -> str:
    return rendering.UNKNOWN if value is None else f"{value:.1f} %"


def _reason(of: NodeStatusRow) -> str:
    return of.detail if not of.reason or of.reason in of.detail else f"{of.reason}: {of.detail}"
