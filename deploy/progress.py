"""Shows the progress of long work on a terminal; piped and logged output stays as it is."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

LEAST = 1_000  # fewer items take no time


def track(items: Sequence[T], what: str) -> Iterable[T]:
    """The items, with a bar on stderr while some are left."""
    if len(items) < LEAST or not sys.stderr.isatty():
        return items
    from rich.console import Console  # here, because most runs have no terminal
    from rich.progress import track as on_terminal

    return on_terminal(items, description=what, console=Console(stderr=True), transient=True, update_period=0.2)


@contextmanager
def bar(what: str, total: float) -> Iterator[Callable[[float], None]]:
    """A bar; call it with the number of completed parts of `total`."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console  # here, because most runs have no terminal
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(what, total=total)
        yield lambda done: shown.update(task, advance=done)
