"""How deep a body may nest: what works on objects recurses, and is to do so well within the interpreter's stack."""

from __future__ import annotations

from deploy.local.apiserver.objects import Json

MAX_LEVELS = 128  # a CustomResourceDefinition of a pod's spec has some 40
TOO_DEEP = f"exceeded max depth: more than {MAX_LEVELS} levels"
TOO_MANY_ALIASES = "document contains excessive aliasing"

_OTHERS = bytes(set(range(256)) - set(b"{}[]"))


class TooNested(ValueError):
    """The text says which bound a document breaks."""


def check_json(body: bytes, parsed: Json) -> None:
    """Raises TooNested. The brackets alone tell it in all but the oddest bodies, many times faster than a walk."""
    brackets = body.translate(None, _OTHERS)
    if len(brackets) <= 2 * MAX_LEVELS:
        return
    for _ in range(MAX_LEVELS):
        if not brackets:
            return
        brackets = brackets.replace(b"{}", b"").replace(b"[]", b"")
    if brackets:  # too deep, or strings hold brackets of their own
        check(parsed)


def check(parsed: Json, most_values: int | None = None) -> None:
    """Raises TooNested. `most_values`: what the text could hold; with aliases, a YAML document may hold far more."""
    level, count, values = [parsed], 0, 0
    while level:
        if count > MAX_LEVELS:
            raise TooNested(TOO_DEEP)
        values += len(level)
        if most_values is not None and values > most_values:
            raise TooNested(TOO_MANY_ALIASES)
        level = [
            each
            for value in level
            if isinstance(value, dict | list)
            for each in (value.values() if isinstance(value, dict) else value)
        ]
        count += 1
