"""Finds what packages add to Headroom: predictors, expanders and cloud providers, each by an entry point.

The built-in ones are entry points of Headroom's own package, found and loaded in the same way. No other package can
take the name of a built-in one.
"""

import functools
import importlib.metadata
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from shared.errors import InvalidInput

DISTRIBUTION = "headroom-k8s"
"""The name of our own package: `headroom` is another project's on the Python Package Index."""


@dataclass(frozen=True)
class PluginGroup:
    """An entry-point group. `noun` is what its plug-ins are called in messages."""

    name: str
    noun: str

    def names(self) -> tuple[str, ...]:
        """The names of all that is installed."""
        return tuple(sorted(_installed(self.name, tuple(sys.path)).names))

    def built_in(self) -> tuple[str, ...]:
        """The names of the built-in plug-ins."""
        return tuple(sorted(each.name for each in _installed(self.name, tuple(sys.path)) if _is_ours(each)))

    def has(self, name: str) -> bool:
        return bool(self._entry_points(name))

    def load(self, name: str, *, source: str, field: str) -> object:
        """The object behind the entry point of that name, imported at the first call.

                Raises InvalidInput, with the entry point and the reason, for a missing one and for one that cannot be
        imported.
        """
        found = self._entry_points(name)
        if not found:
            problem = f"no {self.noun} {name!r} (known: {', '.join(self.names())})"
            raise InvalidInput(source=source, field=field, value=name, problem=problem)
        try:
            return found[0].load()
        except BaseException as error:  # also a module's attempt to exit
            reraise_interrupt(error)
            raise InvalidInput(
                source=source, field=field, value=name, problem=f"{self.describe(name)} cannot be loaded: {told(error)}"
            ) from error

    def describe(self, name: str) -> str:
        """The entry point, for messages."""
        found = self._entry_points(name)[0]
        package = f" of {found.dist.name} {found.dist.version}" if found.dist is not None else ""
        return f"entry point {found.name} = {found.value} in {self.name}{package}"

    def _entry_points(self, name: str) -> Sequence[importlib.metadata.EntryPoint]:
        """Ours first."""
        return _found(self.name, name, tuple(sys.path))


def told(error: BaseException) -> str:
    """An error's kind and text."""
    return f"{type(error).__name__}: {error}"


def reraise_interrupt(error: BaseException) -> None:
    """Raises the interrupt of a person at the keyboard; only the main thread receives it."""
    if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
        raise error


@functools.lru_cache(maxsize=3)
def _installed(group: str, _paths: tuple[str, ...]) -> importlib.metadata.EntryPoints:
    """All plug-ins of a group. Each package's entry points are read from its files, and only once while Python's search
    path is unchanged: an agent looks them up some ten times at its start.
    """
    return importlib.metadata.entry_points(group=group)


@functools.lru_cache(maxsize=64)
def _found(group: str, name: str, paths: tuple[str, ...]) -> Sequence[importlib.metadata.EntryPoint]:
    """Those of that name, ours first. Whose an entry point is takes milliseconds to read, and an agent loads its
    predictors at each prediction.
    """
    return sorted(_installed(group, paths).select(name=name), key=_is_ours, reverse=True)


def _is_ours(entry_point: importlib.metadata.EntryPoint) -> bool:
    return entry_point.dist is not None and entry_point.dist.name == DISTRIBUTION
