"""Adapters: from a row's `input` to the product's own functions. Each module holds those of one wing."""

import importlib
import pkgutil
from collections.abc import Callable
from typing import TypeAlias

Adapter: TypeAlias = Callable[[object], object]


def all_adapters() -> dict[str, Adapter]:
    """Every adapter by the group it answers for."""
    found: dict[str, Adapter] = {}
    for module in pkgutil.iter_modules(__path__):
        adapters: dict[str, Adapter] = importlib.import_module(f"{__name__}.{module.name}").ADAPTERS
        twice = found.keys() & adapters.keys()
        if twice:
            raise ValueError(f"groups with two adapters: {sorted(twice)}")
        found |= adapters
    return found
