"""Prints recommendations: a table for people, CSV for spreadsheets."""

from collections.abc import Callable, Sequence
from dataclasses import asdict

from deploy import rendering
from deploy.savings.rows import ContainerRecommendationRow, Recommendations, RecommendedAmountRow
from shared import quantity

MIB = 1 << 20
MOST_NAME = 40


def render(of: Recommendations, *, top: int | None = None, details: bool = False) -> str:
    rows = [row for row in of.containers if row.changes]
    shown = rows if top is None else rows[:top]
    remedy, notes = (of.notes[:1], of.notes[1:]) if of.estimated else ([], of.notes)
    lines = [*remedy, _headline(of), _money(of), ""]
    if shown:
        header = ("WORKLOAD", "CONTAINER", ">REPLICAS", ">CPU", ">MEMORY", f">SAVED {of.currency}/MONTH", "RISK", "WHY")
        lines += rendering.table((*header, "DAYS"), (_line(row, estimated=of.estimated) for row in shown))
        if details:
            lines += ["", *(line for row in shown for line in _details(row))]
        if len(shown) < len(rows):
            lines.append(f"and {len(rows) - len(shown)} more (--top N; all: -o json)")
    else:
        lines.append("No container's requests should change.")
    kept = [row for row in of.containers if not row.changes]
    if kept:
        lines += ["", f"{rendering.count(len(kept), 'container')} without a change:", *_kept(kept)]
    lines += [f"Note: {note}" for note in notes]
    return "\n".join(lines)


def changed_names(of: Recommendations) -> str:
    """The workloads whose requests or limits should change, each once, as `--workload` takes them."""
    changed = (f"{row.namespace}/{row.kind}/{row.workload}" for row in of.containers if row.changes)
    return "\n".join(dict.fromkeys(changed))


def table_csv(of: Recommendations) -> str:
    rows = list(map(_flat, of.containers))
    return rendering.sheet(rows[0], rows) if rows else ""


def _flat(row: ContainerRecommendationRow) -> dict[str, object]:
    """A row with the amounts of both resources at the end."""
    plain = asdict(row)
    amounts = {name: plain.pop(name) for name in ("cpu", "memory")}
    return plain | {f"{name}_{key}": value for name, each in amounts.items() for key, value in each.items()}


def _headline(of: Recommendations) -> str:
    known = ", ".join(f"{many} from {source}" for source, many in sorted(of.known.items())) or "none"
    total = rendering.count(len(of.containers), "container")
    return f"{total} of {of.cluster} at {of.time}; usage known: {known}; rules of {of.estimator}"


def _money(of: Recommendations) -> str:
    cores, gib = of.cpu_saved / quantity.MILLI_PER_CORE, of.memory_saved / (1 << 30)
    text = f"All changes free {cores:,.2f} cores and {gib:,.2f} GiB of requests"
    if of.saved_per_month is None:
        return f"{text}."
    about = "~" if of.estimated else ""
    money = f"{about}{of.saved_per_month:,.2f} {of.currency} a month ({of.prices})"
    return f"{text}, which cost {money}. Money is saved once nodes are deleted."


def _line(row: ContainerRecommendationRow, *, estimated: bool) -> tuple[str, ...]:
    saved = rendering.UNKNOWN if row.saved is None else f"{row.saved:,.2f}"
    return (
        shorten(f"{row.namespace}/{row.workload}"),
        row.container,
        str(row.replicas),
        _change(row.cpu, cpu),
        _change(row.memory, memory),
        rendering.approximate(saved, estimated=estimated),
        row.risk,
        f"{row.cpu.reason}, {row.memory.reason}",
        f"{row.days:.1f}",
    )


def _change(of: RecommendedAmountRow, show: Callable[[int | None], str]) -> str:
    if of.request == of.recommended_request and of.limit == of.recommended_limit:
        return show(of.request)
    text = f"{show(of.request)} -> {show(of.recommended_request)}"
    if of.limit != of.recommended_limit:
        text += f", limit {show(of.limit)} -> {show(of.recommended_limit)}"
    return text


def cpu(milli: int | None) -> str:
    return rendering.UNKNOWN if milli is None else quantity.format_milli(milli)


def memory(amount: int | None) -> str:
    return rendering.UNKNOWN if amount is None else f"{amount / MIB:,.0f}Mi"


def _details(row: ContainerRecommendationRow) -> Sequence[str]:
    name = f"{row.namespace}/{row.kind}/{row.workload} {row.container}"
    about = f"{row.source}, {row.points} samples, {row.days:.1f} days, confidence: {row.confidence}"
    return [f"{name} ({about})", f"  cpu     {row.cpu.detail}", f"  memory  {row.memory.detail}"]


def _kept(rows: Sequence[ContainerRecommendationRow]) -> list[str]:
    reasons: dict[tuple[str, str], list[ContainerRecommendationRow]] = {}
    for row in rows:
        reasons.setdefault((row.cpu.reason, row.memory.reason), []).append(row)
    lines = []
    for (of_cpu, of_memory), members in sorted(reasons.items(), key=lambda item: -len(item[1])):
        first = members[0]
        name = f"{first.namespace}/{first.workload} {first.container}"
        lines.append((f"  {of_cpu}", of_memory, str(len(members)), name))
    return rendering.table(("  CPU", "MEMORY", ">CONTAINERS", "FOR EXAMPLE"), lines)


def shorten(name: str, most: int = MOST_NAME) -> str:
    """The text, with its middle cut out if it is long."""
    return name if len(name) <= most else f"{name[: most // 2 - 1]}..{name[-(most // 2 - 1) :]}"
