"""How answers are printed: aligned columns for people, JSON and YAML for programs."""

from collections.abc import Collection, Sequence

import msgspec
import yaml

from shared import explanation

MOST_NAMES = 3  # of pods, nodes or groups on one line
UNKNOWN = "-"
HOURS_PER_MONTH = 730  # as clouds bill: 8,760 hours a year by twelve


def structured(answer: object, style: str) -> str:
    """The answer as "json" or "yaml"."""
    plain = msgspec.to_builtins(answer)
    if style == "yaml":
        return yaml.safe_dump(plain, sort_keys=False).rstrip()
    return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode()


def aligned(lines: Sequence[tuple[str, ...]], numbers: Collection[int] = ()) -> list[str]:
    """The lines with their columns below each other; those of `numbers` to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            text.rjust(width) if column in numbers else text.ljust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


def names(listed: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    return explanation.first_names(listed, MOST_NAMES)


def count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def price(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.4f}"


def monthly(per_hour: float) -> str:
    """What it comes to in a month, to the dollar from ten of them on."""
    month = per_hour * HOURS_PER_MONTH
    return f"{month:,.0f} $/month" if month >= 10 else f"{month:.2f} $/month"


def change(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:+.4f}"
