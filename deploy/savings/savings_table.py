"""Prints savings: the bill and where it goes, the stages, and the data behind them."""

from collections.abc import Sequence
from dataclasses import asdict

from deploy import rendering
from deploy.prices.estimates import BY_SIZE
from deploy.savings.recommend_table import shorten
from deploy.savings.rows import OwnerSavingsRow, Savings, StageRow
from shared.quantity import MILLI_PER_CORE

MOST_ROWS = 10
_ALL = "--top N; all: -o wide"
_GIB = 1 << 30


def render(of: Savings, *, top: int = MOST_ROWS, whole: bool = False) -> str:
    """The whole text; `whole` shows every row, full names, and the kind of each workload."""
    top = max(top, len(of.workloads), len(of.namespaces), len(of.obstacles), len(of.replacements)) if whole else top
    blocks = [[of.bill.prices_remedy], _bill(of), _stages(of), _groups(of, whole=whole)]
    blocks += [_owners(of, rows, top, whole=whole) for rows in (of.namespaces, of.workloads)]
    blocks += [_obstacles(of, top), _replacements(of, top), _prediction(of), _since(of), _ends(of)]
    return "\n\n".join("\n".join(block) for block in blocks if any(block))


def table_csv(of: Savings) -> str:
    """A line for each workload."""
    return rendering.sheet(OwnerSavingsRow.__dataclass_fields__, map(asdict, of.workloads))


def freed_names(of: Savings) -> str:
    """The workloads that right-sizing shrinks, as `headroom recommend --workload` takes them."""
    freed = [row for row in of.workloads if row.cpu_freed > 0 or row.memory_freed > 0]
    return "\n".join(f"{row.namespace}/{row.kind}/{row.workload}" for row in freed)


def money(value: float | None, *, estimated: bool = False) -> str:
    return rendering.UNKNOWN if value is None else rendering.approximate(f"{value:,.2f}", estimated=estimated)


def _bill(of: Savings) -> list[str]:
    bill, unit = of.bill, of.currency
    known = of.knowledge
    sources = ", ".join(f"{many} from {source}" for source, many in sorted(known.known.items())) or "none"
    title = f"{of.cluster} at {of.time} costs {_money(of, bill.total)} {unit} a month"
    title += f": {rendering.count(bill.nodes, 'node')}"
    if bill.estimated_nodes:
        title += f", {bill.estimated_nodes} of them {BY_SIZE} ({', '.join(bill.estimated_types[:3])})"
    if not _is_priced(of):
        many, kinds = rendering.count(bill.nodes, "node"), ", ".join(bill.unpriced_types[:3])
        title = f"{of.cluster} at {of.time} costs an unknown sum: {many}, none with a known price ({kinds})"
    elif bill.unpriced_nodes:
        title += f", {bill.unpriced_nodes} of them without a known price ({', '.join(bill.unpriced_types[:3])})"
    parts = [
        ("used", bill.used),
        ("requested and not used", bill.unused),
        ("requested by no pod", bill.idle),
        ("on offer as Mid and Batch", bill.offered),
        ("requested as Mid and Batch", bill.lent),
    ]
    if bill.used is None and bill.idle is not None:
        parts[:2] = [("requested (usage unknown)", bill.total - sum(value or 0.0 for _, value in parts[2:]))]
    rows = [
        (f"  {name}", _money(of, value), f"{value / bill.total:.0%}" if bill.total else "")
        for name, value in parts
        if value
    ]
    lines = rendering.table(("  WHERE IT GOES", f">{unit}/MONTH", ">SHARE"), rows) if rows else []
    sure = f"Usage known: {sources} of {rendering.count(known.containers, 'container')}; {known.sure}"
    if known.gap_days:
        sure += f", {rendering.count(known.gap_days, 'day')} without samples"
    return [title, *lines, f"{sure}."]


def _money(of: Savings, value: float | None) -> str:
    """A sum over the whole cluster, or at what a core and a GiB cost on all of its nodes."""
    return money(value, estimated=bool(of.bill.estimated_nodes))


def _is_priced(of: Savings) -> bool:
    return not of.bill.nodes or of.bill.unpriced_nodes < of.bill.nodes


def _stages(of: Savings) -> list[str]:
    def column(row: StageRow, *, with_headroom: bool) -> str:
        if row.saved is None:
            return "skipped" if row.skipped else rendering.UNKNOWN
        return "" if row.needs_headroom and not with_headroom else _money(of, row.saved)

    header = ("  STAGE", ">WITHOUT HEADROOM", ">WITH HEADROOM", ">CORES", ">GIB", ">NODES LEFT")
    rows = [
        (
            f"  {row.stage}",
            column(row, with_headroom=False),
            column(row, with_headroom=True),
            *((rendering.UNKNOWN,) * 2 if row.skipped else _amounts(row.cpu, row.memory)),
            str(row.nodes),
            _money(of, row.bill if _is_priced(of) else None),
        )
        for row in of.stages
    ]
    total = ("  total", _money(of, of.without_headroom), _money(of, of.with_headroom), "", "", "", "")
    lines = rendering.table((*header, f">BILL {of.currency}/MONTH"), [*rows, total])
    why = [f"  {row.stage}: {row.how or 'skipped, ' + row.skipped}" for row in of.stages]
    return [f"It could save, in {of.currency} a month, each stage after the one before:", *lines, *why]


def _amounts(cpu: int, memory: int) -> tuple[str, str]:
    return f"{cpu / MILLI_PER_CORE:,.1f}", f"{memory / _GIB:,.1f}"


def _groups(of: Savings, *, whole: bool) -> list[str]:
    if not of.groups:
        return []
    header = ("  GROUP", "MACHINE", ">NODES", ">EACH/H", f">{of.currency}/MONTH", ">COULD GO", ">THEN", ">SAVED")
    rows = [
        (
            f"  {(row.group if whole else shorten(row.group)) or '(none)'}",
            row.machine_type or rendering.UNKNOWN,
            str(row.nodes),
            rendering.approximate(rendering.price(row.price_per_hour), estimated=row.estimated),
            money(row.cost, estimated=row.estimated),
            rendering.UNKNOWN if row.goes is None else str(row.goes),
            rendering.UNKNOWN if row.then is None else str(row.then),
            money(row.saved, estimated=row.estimated),
        )
        for row in of.groups
    ]
    return ["Node groups:", *rendering.table(header, rows)]


def _owners(of: Savings, rows: Sequence[OwnerSavingsRow], top: int, *, whole: bool) -> list[str]:
    if not rows:
        return []
    by_workload = bool(rows[0].workload)
    what = "WORKLOAD" if by_workload else "NAMESPACE"
    header = (f"  {what}", ">CORES", ">GIB", f">{of.currency}/MONTH", ">CORES FREED", ">GIB FREED", ">WORTH")
    lines = []
    for row in rows[:top]:
        parts = (row.namespace, row.kind if whole else "", row.workload) if by_workload else (row.namespace,)
        name = "/".join(filter(None, parts))
        lines.append(
            (
                f"  {name if whole else shorten(name)}",
                *_amounts(row.cpu_requested, row.memory_requested),
                _money(of, row.cost),
                *_amounts(row.cpu_freed, row.memory_freed),
                _money(of, row.freed),
            )
        )
    title = "Workloads" if by_workload else "Namespaces"
    about = f"{title}, what they request and what right-sizing frees:"
    return [about, *rendering.table(header, lines), *rendering.more(len(rows), top, _ALL)]


def _obstacles(of: Savings, top: int) -> list[str]:
    if not of.obstacles:
        return []
    header = ("  WHY NODES STAY", ">NODES", f">{of.currency}/MONTH", "FOR EXAMPLE")
    rows = [
        (
            f"  {row.reason}",
            str(row.nodes),
            money(row.cost, estimated=row.estimated),
            f"{row.example}: {row.detail}".rstrip(": "),
        )
        for row in of.obstacles[:top]
    ]
    return rendering.table(header, rows)


def _replacements(of: Savings, top: int) -> list[str]:
    if not of.replacements:
        return []
    header = ("  REPLACED BY PRICE", f">{of.currency}/MONTH", ">WOULD SAVE", "WHY OR WHY NOT")
    rows = [
        (
            f"  {row.node}",
            money(row.cost, estimated=row.estimated),
            ("<= " if row.saves_at_most else "") + money(row.saves, estimated=row.estimated),
            row.sentence.removeprefix(f"{row.node} "),
        )
        for row in of.replacements[:top]
    ]
    return [*rendering.table(header, rows), *rendering.more(len(of.replacements), top, _ALL)]


def _prediction(of: Savings) -> list[str]:
    if not of.lendable:
        return []
    header = ("  RESOURCE", ">REQUESTED", ">PROMISED PEAK", ">NODES", ">DAYS", ">BROKEN", ">TARGET")
    rows = []
    for row in of.lendable:
        scale, unit = (MILLI_PER_CORE, "cores") if row.resource == "cpu" else (_GIB, "GiB")
        broken = rendering.UNKNOWN if row.violation_percent is None else f"{row.violation_percent:.2f} %"
        rows.append(
            (
                f"  {row.resource}",
                f"{row.requested / scale:,.1f} {unit}",
                f"{row.promised / scale:,.1f} {unit}",
                str(row.nodes),
                f"{row.days:.1f}",
                broken,
                f"{row.target_percent:g} %",
            )
        )
    title = f"Prediction by {of.lendable[0].model} over recorded usage, for {of.lendable[0].horizon_hours} h ahead:"
    return [title, *rendering.table(header, rows)]


def _since(of: Savings) -> list[str]:
    if of.since is None:
        return []
    now, unit = of.since, of.currency
    avoided = f"What that avoids is {now.avoided_known}."
    if now.avoided is not None:
        nodes = rendering.count(now.avoided_nodes or 0, "node")
        avoided = f"That avoids {nodes}, {_money(of, now.avoided)} a month: {now.avoided_known}."
    said = [
        f"Headroom offers {_money(of, now.offered)} {unit} a month of capacity now; "
        f"pods request {_money(of, now.lent)} of it.",
        avoided,
    ]
    percent = now.withdrawn_percent_per_day
    taken_back = "How much of it is withdrawn" if percent is None else f"{percent:.1f} % of it is withdrawn a day"
    joint = " is " if percent is None else ", "
    said.append(f"{taken_back}{joint}{now.withdrawn_known}.")
    if (record := now.record) is not None:
        offered, lent, saved = (_money(of, each) for each in (record.offered, record.lent, record.avoided))
        said.append(
            f"Since {record.start}, in {unit} and in all: {offered} on offer, {lent} of it requested, {saved} avoided; "
            f"{record.known}, at today's prices."
        )
    return said


def _ends(of: Savings) -> list[str]:
    return ["Assumed:", *(f"  {each}" for each in of.assumptions), *(f"Note: {note}" for note in of.notes)]
