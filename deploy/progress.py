"""How far work that takes a while has come, on a terminal alone; what is piped or logged stays as it is."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
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


@contextmanager
def bar(what: str, total: float) -> Iterator[Callable[[float], None]]:
    """Told of every part that is done, of `total`."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console  # here, as most often there is no terminal
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(what, total=total)
        yield lambda done: shown.update(task, advance=done)
