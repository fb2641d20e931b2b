"""How a list or object merges in a strategic patch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListRule:
    """By the `merge_key`, as a `union`, or else the value is replaced."""

    merge_key: str = ""
    union: bool = False
    retain_keys: bool = False
    replace: bool = False


ListRules = Callable[[Path], ListRule | None]
