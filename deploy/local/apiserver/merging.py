"""How lists and objects merge: what patches and server-side apply ask about a field."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListRule:
    """How a list (or an object) merges.

    In a strategic patch: by the `merge_key`, as a `union`, or else it is replaced; when applied: by the `map_keys`, as
    a set, or not at all (`atomic`).
    """

    merge_key: str = ""
    map_keys: tuple[str, ...] = ()
    union: bool = False
    is_set: bool = False
    retain_keys: bool = False
    replace: bool = False
    atomic: bool = False
    atomic_items: bool = False


ListRules = Callable[[Path], ListRule | None]
