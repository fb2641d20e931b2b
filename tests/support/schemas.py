"""Whether JSON is what a schema of docs/schemas says: the part of JSON Schema that those are written in."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "docs" / "schemas"

_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}


def published(name: str) -> dict[str, Any]:
    """The schema of that name."""
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return found


def problems(value: Any, schema: dict[str, Any], root: dict[str, Any] | None = None, at: str = "$") -> Iterator[str]:
    """Everything in which the value differs, keys that the schema does not know included."""
    root = schema if root is None else root
    if "$ref" in schema:
        yield from problems(value, root["$defs"][schema["$ref"].rpartition("/")[2]], root, at)
        return
    if "anyOf" in schema:
        if all(list(problems(value, each, root, at)) for each in schema["anyOf"]):
            yield f"{at}: {value!r} is none of {schema['anyOf']}"
        return
    if "enum" in schema:
        if value not in schema["enum"]:
            yield f"{at}: {value!r} is none of {schema['enum']}"
        return
    kind = _TYPES[schema["type"]]
    if not isinstance(value, kind) or (isinstance(value, bool) and schema["type"] != "boolean"):
        yield f"{at}: {value!r} is no {schema['type']}"
        return
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from problems(each, schema["items"], root, f"{at}[{index}]")
    if isinstance(value, dict):
        known, others = schema.get("properties", {}), schema.get("additionalProperties")
        yield from (f"{at}.{key}: missing" for key in schema.get("required", ()) if key not in value)
        for key, each in value.items():
            if key in known:
                yield from problems(each, known[key], root, f"{at}.{key}")
            elif isinstance(others, dict):
                yield from problems(each, others, root, f"{at}[{key}]")
            else:
                yield f"{at}.{key}: not in the schema"
