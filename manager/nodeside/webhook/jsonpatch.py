"""JSON Patch (RFC 6902): the difference between two documents."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

# A raw Kubernetes object, so that unknown fields survive.
JsonObject: TypeAlias = Mapping[str, Any]
Operation: TypeAlias = dict[str, Any]


def difference(old: JsonObject, new: JsonObject) -> list[Operation]:
    """The operations that turn `old` into `new`; lists of unequal length are replaced as a whole."""
    return list(_object(old, new, ""))


def _object(old: JsonObject, new: JsonObject, path: str) -> Iterator[Operation]:
    for key, value in new.items():
        below = path + pointer(key)
        if key in old:
            yield from _value(old[key], value, below)
        else:
            yield {"op": "add", "path": below, "value": value}
    for key in old.keys() - new.keys():
        yield {"op": "remove", "path": path + pointer(key)}


def _value(old: object, new: object, path: str) -> Iterator[Operation]:
    if old is new or old == new:
        return
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        yield from _object(old, new, path)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from _value(before, after, f"{path}/{index}")
    else:
        yield {"op": "replace", "path": path, "value": new}


def pointer(key: str) -> str:
    """One step of a JSON pointer."""
    return "/" + key.replace("~", "~0").replace("/", "~1")
