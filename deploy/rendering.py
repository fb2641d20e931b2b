"""Prints answers: aligned columns for people, JSON and YAML for programs."""

import csv
import io
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
import yaml

from shared import explanation

MOST_NAMES = 3  # of pods, nodes or groups on one line
UNKNOWN = "-"
HOURS_PER_MONTH = 730  # as clouds bill: 8,760 hours a year, divided by twelve


def structured(answer: object, style: str) -> str:
    """The answer as "json" or "yaml"."""
    plain = msgspec.to_builtins(answer)
    if style == "yaml":
        return yaml.safe_dump(plain, sort_keys=False).rstrip()
    return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode()


def aligned(lines: Sequence[tuple[str, ...]], numbers: Collection[int] = ()) -> list[str]:
    """The lines with their columns aligned; the columns in `numbers` to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            text.rjust(width) if column in numbers else text.ljust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The rows below their headings; a heading that begins with ">" aligns its column to the right."""
    numbers = [place for place, heading in enumerate(headings) if heading.startswith(">")]
    return aligned([tuple(heading.removeprefix(">") for heading in headings), *map(tuple, rows)], numbers)


def more(total: int, shown: int, how: str = "all of them: -o json") -> list[str]:
    """A line about the rows that are not shown, if any, and `how` to see them."""
    return [f"  and {total - shown} more ({how})"] if total > shown else []


def sheet(fields: Iterable[str], rows: Iterable[Mapping[str, object]]) -> str:
    """The rows as CSV."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(fields), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().rstrip()


def names(listed: Sequence[str]) -> str:
    """The first names, and the number of further ones."""
    return explanation.first_names(listed, MOST_NAMES)


def count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def price(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.4f}"


def approximate(text: str, *, estimated: bool) -> str:
    """A sum, marked if it rests on an estimate."""
    return f"~{text}" if estimated and text not in ("", UNKNOWN) else text


def monthly(per_hour: float) -> str:
    """The monthly cost, in whole dollars from ten dollars on."""
    month = per_hour * HOURS_PER_MONTH
    return f"{month:,.0f} $/month" if month >= 10 else f"{month:.2f} $/month"


def change(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:+.4f}"
