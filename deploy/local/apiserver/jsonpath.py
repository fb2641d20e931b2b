"""The part of JSONPath that printer columns and field selectors use: fields, indexes, quoted keys, one filter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from deploy.local.apiserver.objects import Json

_STEP = re.compile(
    r"""\.(?P<field>(?:[\w/-]|\\.)+)
      | \[(?P<index>-?\d+|\*)\]
      | \['(?P<quoted>[^']+)'\]
      | \[\?\(@\.(?P<by>[\w.-]+)\s*==\s*["'](?P<equals>[^"']*)["']\)\]""",
    re.VERBOSE,
)
Step = tuple[str, str, str]


@lru_cache(maxsize=1024)
def parse(path: str) -> tuple[Step, ...]:
    """The steps of a path. Raises ValueError."""
    steps, position = [], 0
    text = path if path.startswith((".", "[")) else f".{path}"
    while position < len(text):
        match = _STEP.match(text, position)
        if match is None:
            raise ValueError(f"unsupported JSONPath {path!r}")
        position = match.end()
        if match["field"] is not None:
            steps.append(("field", match["field"].replace("\\", ""), ""))
        elif match["quoted"] is not None:
            steps.append(("field", match["quoted"], ""))
        elif match["index"] is not None:
            steps.append(("index", match["index"], ""))
        else:
            steps.append(("filter", match["by"], match["equals"]))
    return tuple(steps)


def find(value: Json, path: str) -> Json:
    """The first value at a path, or None."""
    return next(_walk(value, parse(path)), None)


def _walk(value: Json, steps: tuple[Step, ...]) -> Iterator[Json]:
    if not steps:
        yield value
        return
    (kind, name, equals), rest = steps[0], steps[1:]
    if kind == "field" and isinstance(value, dict) and name in value:
        yield from _walk(value[name], rest)
    elif kind == "index" and isinstance(value, list):
        chosen = value if name == "*" else value[int(name) :][:1]
        for item in chosen:
            yield from _walk(item, rest)
    elif kind == "filter" and isinstance(value, list):
        for item in value:
            if str(find(item, name)) == equals:
                yield from _walk(item, rest)
