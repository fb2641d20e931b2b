"""Prints a plan for people: what would be done, the ranking with every term, and why some pods get nothing."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from deploy import plan_nodes, rendering
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
size that suits this cluster{preferred}; SUPPRESSED is the same, nearer to 1 the more nodes come at once. NEW
counts against groups that do not exist yet. RANK = SUPPRESSED x (C+X)/(T+X) x NEW."""


def render(
    plan: Plan, groups: Groups, notes: Sequence[str] = (), *, all_nodes: bool = False, top: int = plan_nodes.MOST_ROWS
) -> str:
    """The whole answer; counts nodes by why they stay, and lists the `top` of those that could go, or all."""
    blocks = [
        [*_cluster(plan, groups), *_demand(plan)],
        _decided(plan),
        _options(plan),
        _compared(plan.comparison),
        _further(plan),
        _not_considered(plan),
        _unplaced(plan),
        _buffers(plan),
        _requests(plan),
        _aside(plan),
        *plan_nodes.blocks(plan, all_nodes=all_nodes, top=top),
        [f"Note: {note}." for note in notes],
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _cluster(plan: Plan, groups: Groups) -> list[str]:
    cost = plan.cost_per_hour
    nodes = groups.nodes
    there = nodes.ready + nodes.unready + nodes.not_started + nodes.being_deleted
    there_in = f"{rendering.count(there, 'node')} in {rendering.count(len(groups.groups), 'group')}"
    name = f"{plan.cluster}, " if plan.cluster else ""
    lines = [f"Cluster  {name}{there_in}, as of {plan.time}"]
    if cost.total:
        shares = ["how much of it is idle is not known" if cost.idle is None else f"{_dollars(cost.idle)} of it idle"]
        if cost.offered:
            shares.append(f"{_dollars(cost.offered)} reclaimed and on offer as Mid and Batch")
        if cost.used:
            shares.append(f"{_dollars(cost.used)} used as those, and not bought")
        lines.append(f"Cost     {_dollars(cost.total)}/h, {rendering.monthly(cost.total)}, {', '.join(shares)}")
    if cost.total and cost.unpriced:
        lines.append(f"         {rendering.count(cost.unpriced, 'node')} without a price are not in it")
    return lines


def _demand(plan: Plan) -> list[str]:
    rows = plan.pending
    total = sum(row.count for row in rows)
    if not total:
        return ["Pending  no pod"]
    parts = [
        (sum(row.on_nodes for row in rows), "fit on nodes there are or on their way"),
        (sum(row.reclaimed for row in rows), "fit on what is about to be reclaimed"),
        (sum(row.triggered for row in rows), "get a new node"),
        (sum(row.unplaced for row in rows), "get none"),
    ]
    return [
        f"Pending  {rendering.count(total, 'pod')}: " + ", ".join(f"{count} {what}" for count, what in parts if count)
    ]


def _decided(plan: Plan) -> list[str]:
    if plan.held:
        return [f"Nothing is decided: {plan.held}"]
    outcome = plan.outcome[0].upper() + plan.outcome[1:]
    if not plan.decisions:
        return [f"{outcome}."]
    rows = [
        (
            f"  {row.what}" + ("" if row.mode == "enforce" else f" ({row.mode} only)"),
            row.group,
            *_changes(row),
            _why(row),
        )
        for row in plan.decisions
    ]
    lines = rendering.table(("", "GROUP", ">NODES NOW", ">THEN", ">AT MOST", ">$/H", "WHY"), rows)
    added = plan.cost_per_hour.added
    return [outcome + (f", {rendering.change(added)} $/h:" if added else ":"), *lines]


def _changes(of: DecisionRow) -> tuple[str, str, str, str]:
    """Size now, then and at most, and the cost; empty if the size stays."""
    if not of.nodes:
        return (rendering.UNKNOWN,) * 4
    most = str(of.max_size) if of.max_size else rendering.UNKNOWN
    return str(of.from_size), str(of.to_size), most, rendering.change(of.cost_per_hour)


def _why(of: DecisionRow) -> str:
    about = f"{of.reason}: {rendering.names(of.node_names)}" if of.node_names else of.reason
    return f"{about}; {of.error}" if of.error else about


def _options(plan: Plan) -> list[str]:
    if not plan.options:
        return []
    several = _mix(plan.comparison)
    taken = _taken(plan.options, plan.comparison)
    failed = [f"Expander {step.expander} left all of them: {step.problem}" for step in plan.steps if step.problem]
    lines = [*_option_rows(plan.options, taken), *_dropped(plan.options), *failed]
    if not any(each.rank for each in plan.options):
        return ["Options:", *lines]
    preferred = "" if plan.preferred_cpu_milli is None else f", {quantity.format_milli(plan.preferred_cpu_milli)} cpu"
    wins = "the lowest rank wins" + ("" if several is None else ", but several groups at once (*) are cheaper")
    if plan.steps and plan.steps[0].expander != PRICE:
        wins = "chosen by " + ", then ".join(step.expander for step in plan.steps)
    return [f"Options, {wins}:", *lines, _RANKING.format(preferred=preferred)]


def _mix(of: ComparisonRow | None) -> PlacementRow | None:
    """The groups that are chosen together, if that is cheaper."""
    return of.several if of is not None and of.uses_several else None


def _taken(options: Iterable[OptionRow], compared: ComparisonRow | None) -> Collection[str]:
    several = _mix(compared)
    return {each.group for each in options if each.chosen} if several is None else several.nodes.keys()


def _option_rows(options: Sequence[OptionRow], taken: Collection[str]) -> list[str]:
    shown = [each for number, each in enumerate(options) if number < MOST_ROWS or each.group in taken]
    rows = [("  *" if each.group in taken else "", *_option(each)) for each in shown]
    used = [0, *(column for column in range(1, len(_HEADER)) if any(row[column] for row in rows))]
    header, *cells = (tuple(row[column] for column in used) for row in (_HEADER, *rows))
    return [*rendering.table(header, cells), *(f"  {line}" for line in rendering.more(len(options), len(shown)))]


def _option(of: OptionRow) -> tuple[str, ...]:
    machine = of.machine_type or rendering.UNKNOWN
    size = f"{machine} ({_amounts({name: amount for name, amount in of.machine.items() if name not in RECLAIMED})})"
    group = of.group if of.exists else f"{of.group} (new)"
    rank = of.rank
    terms = ("", "", "", "", "", "", "", of.problem if of.problem != "there are no prices" else "")
    if rank is not None:
        terms = (
            rendering.price(rank.nodes_price),
            rendering.price(rank.pods_price),
            rendering.price(rank.stabilization_price),
            _number(rank.stabilized_ratio),
            _number(rank.unfitness),
            _number(rank.suppressed_unfitness),
            f"{rank.new_group_factor:g}",
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


def _compared(of: ComparisonRow | None) -> list[str]:
    if of is None or of.single.cost_per_hour is None:
        return []
    taken = " (taken)"
    lines = [f"  one group      {_placement(of.single)}{'' if of.uses_several else taken}"]
    if of.several is not None:
        lines.append(f"  several groups {_placement(of.several)}{taken if of.uses_several else ''}")
    if of.minimum is not None:
        lines.append(
            f"  perfect fit    {rendering.price(of.minimum)} $/h, the theoretical minimum at prices of cpu and memory"
        )
    return ["The same pods on:", *lines]


def _placement(of: PlacementRow) -> str:
    nodes = " + ".join(f"{count} x {group}" for group, count in of.nodes.items())
    return f"{rendering.price(of.cost_per_hour)} $/h, {nodes}"


def _further(plan: Plan) -> list[str]:
    lines = []
    for number, each in enumerate(plan.further, start=2):
        if plan.advice and number == 2:
            lines.append("What is done without the groups that are only recommended:")
        else:
            lines.append(f"Decision {number} of the same round, for the pods that were left:")
        lines += _option_rows(each.options, _taken(each.options, each.comparison))
    return lines


def _not_considered(plan: Plan) -> list[str]:
    lines = [f"  {rendering.names(row.groups)}: {row.reason}" for row in plan.skipped]
    lines += [f"  {row.group} gets {row.allowed} of {row.wanted} nodes: {row.limit}" for row in plan.caps]
    return ["Groups that may not grow, or not as much:", *lines] if lines else []


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
    return ["Room of CapacityBuffers:", *lines, *_bought(plan.buffer_decisions)]


def _bought(decisions: Iterable[FurtherRow]) -> list[str]:
    """The options for other purchases than for pods, and what capped them."""
    lines = []
    for each in decisions:
        if each.options:
            lines += ["Options for them:", *_option_rows(each.options, _taken(each.options, each.comparison))]
        lines += [f"  {row.group} gets {row.allowed} of {row.wanted} nodes: {row.limit}" for row in each.caps]
    return lines


def _requests(plan: Plan) -> list[str]:
    if not plan.requests:
        return []
    header = ("  REQUEST", "CLASS", ">PODS", ">HAVE COME", "STATE", "REASON")
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
    return ["ProvisioningRequests:", *lines, *_bought(plan.request_decisions)]


def _unplaced(plan: Plan) -> list[str]:
    if not plan.unplaced:
        return []
    lines = []
    for row in plan.unplaced[:MOST_ROWS]:
        lines.append(f"  {rendering.names(row.pods)}{_asks(row, plan.pending)}")
        if row.awaiting:
            lines.append("    a group could take it in a later round")
        lines += [f"    {rendering.names(each.groups)}: {', '.join(each.reasons)}" for each in row.reasons]
    more = sum(row.count for row in plan.unplaced[MOST_ROWS:])
    if more:
        lines.append(f"  and {rendering.count(more, 'pod')} of other kinds (all of them: -o json)")
    return ["Pods that get no node now:", *lines]


def _asks(of: UnplacedRow, pending: Sequence[PendingRow]) -> str:
    requests = next((_amounts(row.requests) for row in pending if row.position == of.position), "")
    each = " each" if len(of.pods) > 1 else ""
    return f", {requests}{each}" if requests else ""


def _aside(plan: Plan) -> list[str]:
    lines = [f"  {rendering.names(row.pods)}: {row.reason}" for row in plan.aside]
    lines += [f"  {row.object}: {row.problem}" for row in plan.unread]
    return ["Not looked at:", *lines] if lines else []


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
