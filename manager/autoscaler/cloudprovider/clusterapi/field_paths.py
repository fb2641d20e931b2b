"""Fields of objects whose kinds are not known here, by paths such as spec.args[name=node-labels].value. Pure."""

import re
from collections.abc import Callable
from typing import Any

_STEP = re.compile(r"([A-Za-z0-9_-]+)(?:\[([A-Za-z0-9_-]+)=([^\]]+)\])?(?:\.|$)")


def change_at(body: dict[str, Any], path: str, change: Callable[[Any], object]) -> None:
    """Puts there, in place, what `change` makes of the value, which is None where there is none; what leads there is
    made. Raises ValueError where something else is in the way.
    """
    *way, last = (step.groups() for step in _STEP.finditer(path))
    holder = body
    for name, key, value in way:
        holder = _member(holder, name) if key is None else _element(holder, name, key, value)
    holder[last[0]] = change(holder.get(last[0]))


def _member(holder: dict[str, Any], name: str) -> dict[str, Any]:
    if holder.get(name) is None:
        holder[name] = {}
    found = holder[name]
    if not isinstance(found, dict):
        raise ValueError(f"{name} is no object")
    return found


def _element(holder: dict[str, Any], name: str, key: str, value: str) -> dict[str, Any]:
    """That of a list with this key."""
    if holder.get(name) is None:
        holder[name] = []
    listed = holder[name]
    if not isinstance(listed, list):
        raise ValueError(f"{name} is no list")
    found: dict[str, Any] | None = next(
        (each for each in listed if isinstance(each, dict) and each.get(key) == value), None
    )
    if found is None:
        found = {key: value}
        listed.append(found)
    return found
