"""Usages of many entities by name, in one array from the reading of the counters to the metric cache."""

import itertools
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from agent.metric_cache.series import Usage
from agent.metrics_advisor.rates import Floats


class Usages(Mapping[str, Usage]):
    """`array` is of shape (names, 2): cores and bytes."""

    __slots__ = ("array", "names")

    def __init__(self, names: tuple[str, ...], array: Floats) -> None:
        self.names = names
        self.array = array

    @classmethod
    def of(cls, usages: Mapping[str, Usage]) -> "Usages":
        """The same usages as `Usages`, from any mapping."""
        if isinstance(usages, Usages):
            return usages
        flat = itertools.chain.from_iterable(usages.values())
        return cls(tuple(usages), np.fromiter(flat, np.float64, 2 * len(usages)).reshape(-1, 2))

    def __getitem__(self, name: str) -> Usage:
        if name not in self.names:
            raise KeyError(name)
        return Usage(*self.array[self.names.index(name)].tolist())

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


class Names:
    """Gives names to rows of usages, and leaves out unknown ones."""

    def __init__(self, names: Iterable[str]) -> None:
        self._all = tuple(names)
        self._known = np.zeros(len(self._all), bool)
        self._names: tuple[str, ...] = ()  # of the known rows; rebuilt only when these change

    def __len__(self) -> int:
        return len(self._all)

    def of(self, array: Floats) -> Usages:
        """`array` is of shape (names, 2), with NaN for the cores of an unknown usage."""
        known = ~np.isnan(array[:, 0])
        if not np.array_equal(known, self._known):
            self._known = known
            self._names = tuple(itertools.compress(self._all, known))
        return Usages(self._names, array[known])
