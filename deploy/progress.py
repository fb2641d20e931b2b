"""How far work that takes a while has come, on a terminal alone; what is piped or logged stays as it is."""

import sys
from collections.abc import Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")

LEAST = 1_000  # fewer are read at once


def track(items: Sequence[T], what: str) -> Iterable[T]:
    """The items, with a bar on stderr while there are some left."""
    if len(items) < LEAST or not sys.stderr.isatty():
        return items
    from rich.console import Console  # here, as most often there is no terminal
    from rich.progress import track as on_terminal

    return on_terminal(items, description=what, console=Console(stderr=True), transient=True, update_period=0.2)
