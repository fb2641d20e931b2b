"""Prints a plan for people: what would be done, the ranking with every term, and why some pods get nothing."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from deploy import plan_nodes, rendering
from deploy.prices.estimates import BY_SIZE
from manager.autoscaler.cluster_state.actions import ActionKind
from manager.autoscaler.expander.chain import PRICE
from manager.autoscaler.reporting.answers import Plan
from manager.autoscaler.reporting.group_rows import DecisionRow, Groups
from manager.autoscaler.reporting.scale_up_rows import (
    ComparisonRow,
    FurtherRow,
    OptionRow,
    PendingRow,
    PlacementRow,
    UnplacedRow,
)
from manager.autoscaler.scale_up.decisions import ScaleUpOutcome
from manager.autoscaler.snapshot.templates import RECLAIMED
from shared import explanation, quantity
from shared.names import CPU, MEMORY

MOST_ROWS = 20
_UNTOLD = ("pods", "ephemeral-storage")
_HEADER = (
    *("", "GROUP", "MACHINE", ">NODES", ">PODS"),
    *(">C", ">T", ">X", ">(C+X)/(T+X)", ">UNFIT", ">SUPPRESSED", ">NEW", ">RANK"),
)
_RANKING = """\
C is what the new nodes cost in $/h, T what their pods would cost on machines that fit them perfectly, X the price of
one small pod, which keeps tiny options comparable. UNFIT is how many times a machine is larger or smaller than the
size that suits this cluster{preferred}; SUPPRESSED is UNFIT, nearer to 1 the more nodes are launched at once.
{new}RANK = SUPPRESSED x (C+X)/(T+X){times_new}."""
_NEW = "NEW is a factor for groups that do not exist yet. "


def render(
    plan: Plan,
    groups: Groups,
    notes: Sequence[str] = (),
    *,
    remedy: str = "",
    all_nodes: bool = False,
    top: int = plan_nodes.MOST_ROWS,
) -> str:
    """The whole answer: the `remedy` for unknown prices, what would be done, then why.

    Counts nodes by why they stay, and lists the `top` of those that could be deleted, or all.
    """
    blocks = [
        [remedy],
        _decided(plan),
        _other_changes(plan),
        [*_cluster(plan, groups), *_demand(plan)],
        _options(plan),
        _compared(plan.comparison, plan.cost_per_hour.estimated_groups),
        _further(plan),
        _not_considered(plan),
        _unplaced(plan),
        _buffers(plan),
        _requests(plan),
        _disagreements(plan),
        _aside(plan),
        *plan_nodes.blocks(plan, all_nodes=all_nodes, top=top),
        [f"Note: {note}." for note in notes],
    ]
    return "\n\n".join("\n".join(block) for block in blocks if any(block))


def _cluster(plan: Plan, groups: Groups) -> list[str]:
    cost = plan.cost_per_hour
    nodes = groups.nodes
    there = nodes.ready + nodes.unready + nodes.not_started + nodes.being_deleted
    there_in = f"{rendering.count(there, 'node')} in {rendering.count(len(groups.groups), 'group')}"
    name = f"{plan.cluster}, " if plan.cluster else ""
    lines = [f"Cluster  {name}{there_in}, as of {plan.time}"]
    if cost.total:
        about = "~" if cost.estimated else ""
        shares = ["the idle part is unknown" if cost.idle is None else f"{about}{_dollars(cost.idle)} of it idle"]
        if cost.offered:
            shares.append(f"{about}{_dollars(cost.offered)} reclaimed and on offer as Mid and Batch")
        if cost.used:
            shares.append(f"{about}{_dollars(cost.used)} used as Mid and Batch")
        total = f"{about}{_dollars(cost.total)}/h, {about}{rendering.monthly(cost.total)}"
        lines.append(f"Cost     {total}, {', '.join(shares)}")
        if cost.estimated:
            lines.append(f"         {rendering.count(cost.estimated, 'node')} {BY_SIZE}")
    if cost.total and cost.unpriced:
        lines.append(f"         {rendering.count(cost.unpriced, 'node')} without a price are not included")
    return lines


def _demand(plan: Plan) -> list[str]:
    rows = plan.pending
    skipped = sum(row.count for row in plan.skipped_pods)
    total = sum(row.count for row in rows) + skipped
    if not total:
        return ["Pending  no pod"]
    parts = [
        (sum(row.on_nodes for row in rows), "fit on present or upcoming nodes"),
        (sum(row.reclaimed for row in rows), "fit on Mid or Batch of the next reports"),
        (sum(row.triggered for row in rows), "get a new node"),
        (sum(row.unplaced for row in rows), "get none"),
        (skipped, "not considered now"),
    ]
    return [
        f"Pending  {rendering.count(total, 'pod')}: " + ", ".join(f"{count} {what}" for count, what in parts if count)
    ]


def _decided(plan: Plan) -> list[str]:
    if plan.blocked_reason:
        return [f"Nothing is decided: {plan.blocked_reason}"]
    outcome = plan.outcome[0].upper() + plan.outcome[1:]
    if plan.outcome == ScaleUpOutcome.NOT_NEEDED and (plan.skipped_pods or plan.invalid_objects):
        outcome = "No pod that is considered needs a new node"
    return _changed(plan, outcome, [row for row in plan.decisions if _is_growth(row, plan)]) or [f"{outcome}."]


def _other_changes(plan: Plan) -> list[str]:
    """What is done besides a scale-up for pods: a title that speaks of the pods would be untrue of it."""
    others = [] if plan.blocked_reason else [row for row in plan.decisions if not _is_growth(row, plan)]
    title = "Also" if len(others) < len(plan.decisions) else "Changes"
    return _changed(plan, title, others)


def _is_growth(of: DecisionRow, plan: Plan) -> bool:
    return plan.outcome == ScaleUpOutcome.GROW and of.what in (ActionKind.INCREASE, ActionKind.CREATE_GROUP)


def _changed(plan: Plan, title: str, changes: Sequence[DecisionRow]) -> list[str]:
    if not changes:
        return []
    rows = [
        (
            f"  {row.what}" + ("" if row.mode == "enforce" else f" ({row.mode} only)"),
            row.group,
            *_changes(row, estimated=row.group in plan.cost_per_hour.estimated_groups),
            _why(row),
        )
        for row in changes
    ]
    lines = rendering.table(("", "GROUP", ">NODES NOW", ">THEN", ">AT MOST", ">$/H", "WHY"), rows)
    guessed = plan.cost_per_hour.estimated_groups
    rests = any(row.group in guessed for row in changes)
    adds = any(row.nodes > 0 for row in changes)
    added = plan.cost_per_hour.added if adds else None
    if not added:
        return [f"{title}:", *lines]
    change = rendering.approximate(rendering.change(added), estimated=rests)
    monthly = rendering.approximate(rendering.monthly(added), estimated=rests)
    return [f"{title}, {change} $/h, {monthly}{f', {BY_SIZE}' if rests else ''}:", *lines]


def _changes(of: DecisionRow, *, estimated: bool) -> tuple[str, str, str, str]:
    """Size now, then and at most, and the cost; empty if the size stays."""
    if not of.nodes:
        return (rendering.UNKNOWN,) * 4
    most = str(of.max_size) if of.max_size else rendering.UNKNOWN
    change = rendering.approximate(rendering.change(of.cost_per_hour), estimated=estimated)
    return str(of.from_size), str(of.to_size), most, change


def _why(of: DecisionRow) -> str:
    about = f"{of.reason}: {rendering.names(of.node_names)}" if of.node_names else of.reason
    return f"{about}; {of.error}" if of.error else about


def _options(plan: Plan) -> list[str]:
    if not plan.options:
        return []
    several = _mix(plan.comparison)
    taken = _taken(plan.options, plan.comparison)
    failed = [f"Expander {step.expander} left all of them: {step.problem}" for step in plan.steps if step.problem]
    guessed = plan.cost_per_hour.estimated_groups
    lines = [*_option_rows(plan.options, taken, guessed), *_dropped(plan.options), *failed]
    if not any(each.rank for each in plan.options):
        return ["Options:", *lines]
    preferred = "" if plan.preferred_cpu_milli is None else f", {quantity.format_milli(plan.preferred_cpu_milli)} cpu"
    wins = "the lowest rank wins" + ("" if several is None else ", but several groups at once (*) are cheaper")
    if plan.steps and plan.steps[0].expander != PRICE:
        wins = "chosen by " + ", then ".join(step.expander for step in plan.steps)
    counts_new = any(each.rank and each.rank.new_group_factor != 1 for each in plan.options)
    new, times_new = (_NEW, " x NEW") if counts_new else ("", "")
    return [f"Options, {wins}:", *lines, _RANKING.format(preferred=preferred, new=new, times_new=times_new)]


def _mix(of: ComparisonRow | None) -> PlacementRow | None:
    """The groups that are chosen together, if that is cheaper."""
    return of.several if of is not None and of.uses_several else None


def _taken(options: Iterable[OptionRow], compared: ComparisonRow | None) -> Collection[str]:
    several = _mix(compared)
    return {each.group for each in options if each.chosen} if several is None else several.nodes.keys()


def _option_rows(options: Sequence[OptionRow], taken: Collection[str], guessed: Collection[str]) -> list[str]:
    shown = [each for number, each in enumerate(options) if number < MOST_ROWS or each.group in taken]
    rows = [("  *" if each.group in taken else "", *_option(each, estimated=each.group in guessed)) for each in shown]
    used = [0, *(column for column in range(1, len(_HEADER)) if any(row[column] for row in rows))]
    header, *cells = (tuple(row[column] for column in used) for row in (_HEADER, *rows))
    return [*rendering.table(header, cells), *(f"  {line}" for line in rendering.more(len(options), len(shown)))]


def _option(of: OptionRow, *, estimated: bool) -> tuple[str, ...]:
    machine = of.machine_type or rendering.UNKNOWN
    size = f"{machine} ({_amounts({name: amount for name, amount in of.machine.items() if name not in RECLAIMED})})"
    group = of.group if of.exists else f"{of.group} (new)"
    rank = of.rank
    terms = ("", "", "", "", "", "", "", of.problem if of.problem != "there are no prices" else "")
    if rank is not None:
        terms = (
            rendering.approximate(rendering.price(rank.nodes_price), estimated=estimated),
            rendering.price(rank.pods_price),
            rendering.price(rank.stabilization_price),
            _number(rank.stabilized_ratio),
            _number(rank.unfitness),
            _number(rank.suppressed_unfitness),
            "" if rank.new_group_factor == 1 else f"{rank.new_group_factor:g}",
            _number(rank.rank),
        )
    return (group, size, str(of.nodes), str(of.pods), *terms)


def _dropped(options: Iterable[OptionRow]) -> list[str]:
    """Options dropped by expanders other than price, whose ranks say it themselves."""
    found: dict[str, list[str]] = {}
    for each in options:
        if each.dropped_by and each.dropped_by != PRICE:
            found.setdefault(each.dropped_by, []).append(each.group)
    return [f"Dropped by {expander}: {rendering.names(groups)}" for expander, groups in found.items()]


def _compared(of: ComparisonRow | None, guessed: Collection[str]) -> list[str]:
    if of is None or of.single.cost_per_hour is None:
        return []
    taken = " (taken)"
    lines = [f"  one group      {_placement(of.single, guessed)}{'' if of.uses_several else taken}"]
    if of.several is not None:
        lines.append(f"  several groups {_placement(of.several, guessed)}{taken if of.uses_several else ''}")
    if of.minimum is not None:
        lines.append(
            f"  perfect fit    {rendering.price(of.minimum)} $/h, the theoretical minimum at prices of cpu and memory"
        )
    return ["The same pods on:", *lines]


def _placement(of: PlacementRow, guessed: Collection[str]) -> str:
    nodes = " + ".join(f"{count} x {group}" for group, count in of.nodes.items())
    rests = any(group in guessed for group in of.nodes)
    price = rendering.approximate(rendering.price(of.cost_per_hour), estimated=rests)
    return f"{price} $/h{f' {BY_SIZE}' if rests else ''}, {nodes}"


def _further(plan: Plan) -> list[str]:
    lines = []
    for number, each in enumerate(plan.further, start=2):
        if plan.advice and number == 2:
            lines.append("Decision without the groups in mode recommend:")
        else:
            lines.append(f"Decision {number} of the same iteration, for the remaining pods:")
        taken = _taken(each.options, each.comparison)
        lines += _option_rows(each.options, taken, plan.cost_per_hour.estimated_groups)
    return lines


def _not_considered(plan: Plan) -> list[str]:
    lines = [f"  {rendering.names(row.groups)}: {row.reason}" for row in plan.skipped]
    lines += [f"  {row.group} gets {row.allowed} of {row.wanted} nodes: {row.limit}" for row in plan.caps]
    return ["Groups that cannot be scaled up, or only in part:", *lines] if lines else []


def _buffers(plan: Plan) -> list[str]:
    if not plan.buffers:
        return []
    header = ("  BUFFER", ">CHUNKS", ">ON NODES", ">ON MID", ">NEW NODES", ">NONE", "OF EACH")
    shown = plan.buffers[:MOST_ROWS]
    rows = (
        (
            f"  {each.buffer}",
            *map(str, (each.chunks, each.on_nodes, each.on_mid, each.triggered, each.unplaced)),
            _amounts(each.requests),
        )
        for each in shown
    )
    lines = [*rendering.table(header, rows), *rendering.more(len(plan.buffers), MOST_ROWS)]
    for each in shown:
        if each.limited_by:
            lines.append(
                f"  {each.buffer} would have {rendering.count(each.wanted, 'chunk')} but for ResourceQuota "
                f"{rendering.names(each.limited_by)}"
            )
        if each.unplaced:
            lines.append(f"  {each.buffer} gets no node for {rendering.count(each.unplaced, 'chunk')}:")
            lines += [f"    {rendering.names(row.groups)}: {', '.join(row.reasons)}" for row in each.reasons]
    return ["Room of CapacityBuffers:", *lines, *_bought(plan.buffer_decisions, plan)]


def _bought(decisions: Iterable[FurtherRow], plan: Plan) -> list[str]:
    """The options for other purchases than for pods, and what capped them."""
    lines = []
    for each in decisions:
        if each.options:
            taken, guessed = _taken(each.options, each.comparison), plan.cost_per_hour.estimated_groups
            lines += ["Options for them:", *_option_rows(each.options, taken, guessed)]
        lines += [f"  {row.group} gets {row.allowed} of {row.wanted} nodes: {row.limit}" for row in each.caps]
    return lines


def _requests(plan: Plan) -> list[str]:
    if not plan.requests:
        return []
    header = ("  REQUEST", "CLASS", ">PODS", ">CREATED", "STATE", "REASON")
    shown = plan.requests[:MOST_ROWS]
    rows = (
        (
            f"  {each.request}",
            each.provisioning_class.partition(".")[0],
            str(each.pods),
            str(each.consumed),
            each.state,
            each.reason,
        )
        for each in shown
    )
    lines = [*rendering.table(header, rows), *rendering.more(len(plan.requests), MOST_ROWS)]
    lines += [f"  {each.request}: {each.message}" for each in shown if each.message]
    return ["ProvisioningRequests:", *lines, *_bought(plan.request_decisions, plan)]


def _unplaced(plan: Plan) -> list[str]:
    if not plan.unplaced:
        return []
    lines = []
    for row in plan.unplaced[:MOST_ROWS]:
        lines.append(f"  {rendering.names(row.pods)}{_asks(row, plan.pending)}")
        if row.awaiting:
            lines.append("    a group could take them in a later iteration")
        lines += [f"    {rendering.names(each.groups)}: {', '.join(each.reasons)}" for each in row.reasons]
    more = sum(row.count for row in plan.unplaced[MOST_ROWS:])
    if more:
        lines.append(f"  and {rendering.count(more, 'pod')} of other kinds (all of them: -o json)")
    return ["Pods that get no node now:", *lines]


def _disagreements(plan: Plan) -> list[str]:
    lines = []
    for row in plan.disagreements:
        places = [rendering.count(row.nodes, "ready node")] if row.nodes else []
        places += [f"new nodes of {rendering.names(row.groups)}"] if row.groups else []
        lines.append(f"  {rendering.names(row.pods)}, until {row.until} on {' and '.join(places)}: {row.message}")
    return ["The scheduler rejects pods that fit by the predicates:", *lines] if lines else []


def _asks(of: UnplacedRow, pending: Sequence[PendingRow]) -> str:
    requests = next((_amounts(row.requests) for row in pending if row.position == of.position), "")
    each = " each" if len(of.pods) > 1 else ""
    return f", {requests}{each}" if requests else ""


def _aside(plan: Plan) -> list[str]:
    lines = [f"  {rendering.names(row.pods)}: {row.reason}" for row in plan.skipped_pods]
    lines += [f"  {row.object}: {row.problem}" for row in plan.invalid_objects]
    return ["Not considered now:", *lines] if lines else []


def _amounts(of: Mapping[str, int]) -> str:
    """As "4 cpu, 16 GiB, 1 nvidia.com/gpu", without resources that every machine has."""
    found = []
    for name in sorted(of, key=lambda each: (each not in (CPU, MEMORY), each)):
        short = name.rpartition("/")[2]
        if name == CPU or (name in RECLAIMED and short.endswith(CPU)):
            found.append(f"{quantity.format_milli(of[name])} {short}")
        elif name == MEMORY:
            found.append(explanation.amount(of[name], "bytes"))
        elif name in RECLAIMED:
            found.append(f"{explanation.amount(of[name], 'bytes')} {short}")
        elif name not in _UNTOLD:
            found.append(f"{of[name]} {name}")
    return ", ".join(found)


def _dollars(value: float) -> str:
    return f"{value:.2f} $" if value >= 0.01 or not value else f"{value:.4f} $"


def _number(value: float | None) -> str:
    return "infinite" if value is None else f"{value:.3f}"
