"""Loads expanders by name, and applies them in turn, until one option is left; then chance decides.

`random` is no plug-in but the end of every chain. The errors of an expander leave all options in.
"""

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar, cast

from manager.autoscaler.expander.contract import Expander, ExpanderContext
from manager.autoscaler.expander.option import Option
from manager.autoscaler.settings.autoscaler_settings import AutoscalerSettings
from shared import plugins
from shared.errors import InvalidInput
from shared.plugins import PluginGroup

logger = logging.getLogger(__name__)

GROUP = PluginGroup("headroom.expanders", "expander")
SOURCE, FIELD = "--expander", "expander"


class ExpanderError(Exception):
    """An expected failure, such as that of a remote server; its text is fit to show to a user."""


class KeptOptions(NamedTuple):
    """The options that an expander keeps. `problem`: why it failed, and all are kept; empty if it did not."""

    options: list[Option]
    problem: str = ""


class LoadedExpander:
    """An expander under its name; for any thread."""

    def __init__(self, name: str, expander: Expander) -> None:
        self.name = name
        self._expander = expander
        self._logged = ""

    def best_options(self, options: Sequence[Option], context: ExpanderContext) -> KeptOptions:
        by_group = {option.group: option for option in options}
        try:
            answer = list(self._expander.best_options(options, context))
            if any(by_group.get(each.group) is not each for each in answer):
                raise ValueError("it returned an option that was not in the request")
            kept = KeptOptions(answer)
        except BaseException as error:  # also an attempt to exit: a plug-in must not end the process
            plugins.reraise_interrupt(error)
            kept = KeptOptions(list(options), str(error) if isinstance(error, ExpanderError) else plugins.told(error))
        if kept.problem and kept.problem != self._logged:
            logger.warning("expander %s failed and keeps all options: %s", self.name, kept.problem)
        self._logged = kept.problem
        return kept


class ExpanderPlugins:
    """The expanders under these settings, each loaded and made at its first use."""

    def __init__(self, settings: AutoscalerSettings | None = None) -> None:
        self._settings = settings or AutoscalerSettings()
        self._loaded: dict[str, LoadedExpander] = {}

    def get(self, name: str) -> LoadedExpander:
        """Raises InvalidInput for an unknown name, and for an expander that cannot be made."""
        found = self._loaded.get(name)
        if found is None:
            found = self._loaded[name] = LoadedExpander(name, self._make(name))
        return found

    def _make(self, name: str) -> Expander:
        factory = cast(Callable[[AutoscalerSettings], Expander], GROUP.load(name, source=SOURCE, field=FIELD))
        try:
            made = factory(self._settings)
        except InvalidInput:
            raise
        except BaseException as error:
            plugins.reraise_interrupt(error)
            raise _unusable(name, f"cannot be made: {plugins.told(error)}") from error
        if not callable(getattr(made, "best_options", None)):
            raise _unusable(name, f"makes a {type(made).__name__}, which has no best_options()")
        return made


def _unusable(name: str, problem: str) -> InvalidInput:
    return InvalidInput(source=SOURCE, field=FIELD, value=name, problem=f"{GROUP.describe(name)} {problem}")


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
    """The options that each expander kept, in order, up to the expander that left no choice."""
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
