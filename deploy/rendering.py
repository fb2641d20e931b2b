"""How answers are printed: aligned columns for people, JSON and YAML for programs."""

from collections.abc import Collection, Sequence

import msgspec
import yaml


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
