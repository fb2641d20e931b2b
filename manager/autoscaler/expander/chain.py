"""Applies several expanders in turn, until one option is left; then chance decides.

`random` is no plug-in but the end of every chain.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from manager.autoscaler.expander.plugins import FIELD, GROUP
from shared.errors import InvalidInput

RANDOM, PRICE, PRIORITY = "random", "price", "priority"
DEFAULT = PRICE

T = TypeVar("T")
Filter = Callable[[Sequence[T]], Sequence[T]]


def parse(text: str, *, source: str) -> tuple[str, ...]:
    """The names in "price,least-waste".

    Raises InvalidInput for unknown and repeated names, and for names after random.
    """
    found: list[str] = []
    for name in text.split(","):
        problem = ""
        if name != RANDOM and not GROUP.has(name):
            problem = f"unknown; expected some of {', '.join((RANDOM, *GROUP.names()))}"
        elif name in found:
            problem = "named twice"
        elif found and found[-1] == RANDOM:
            problem = f"comes after {RANDOM}, which leaves nothing to choose from"
        if problem:
            raise InvalidInput(source=source, field=FIELD, value=name, problem=problem)
        found.append(name)
    return tuple(found)


def filter_in_order(
    options: Sequence[T], filters: Mapping[str, Filter[T]], names: Sequence[str]
) -> list[tuple[str, list[T]]]:
    """What each expander left, in order, up to the one that left no choice."""
    steps: list[tuple[str, list[T]]] = []
    left = list(options)
    for name in names:
        if len(left) <= 1:
            break
        if name != RANDOM:
            left = list(filters[name](left))
            steps.append((name, left))
    return steps


def pick(options: Sequence[T], chance: random.Random) -> T | None:
    """One of the options at random, all equally likely; None without options."""
    return chance.choice(options) if options else None
