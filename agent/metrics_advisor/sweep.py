"""Usage of many cgroups from tick to tick.

Most of the agent's CPU time goes into this, because it runs for every cgroup at every tick. So the files are read in
one pass (see `HotFiles`), their values are stored side by side, and the results are computed for all at once.
"""

from collections.abc import Callable, Iterable

import numpy as np

from agent.metrics_advisor import formats, rates
from agent.metrics_advisor.cgroup import Readings, TrackedCgroup
from agent.metrics_advisor.files import HotFiles
from agent.metrics_advisor.pace import Turns
from agent.metrics_advisor.rates import Floats, Monotonic

# This many files share one clock reading. Reading them takes 0.2 ms, so a rate over a second is accurate to 0.02 %; if
# a pause between them lengthens one second, it shortens the next.
FILES_AN_INSTANT = 50

# A charge that moved by less than the greater of these counts as unchanged: a third of a histogram bucket's width.
MOVED_SHARE, MOVED_BYTES = 1 / 64, 1 << 20

# The stored values of each cgroup. The charge is that of the last memory read.
_CPU_SECONDS, _AT_SECONDS, _CHARGED_BYTES, _MEMORY_BYTES = range(4)
_COUNTED = slice(_CPU_SECONDS, _AT_SECONDS + 1)


class Sweep:
    """Follows cgroups of one hierarchy, and closes those that it no longer follows."""

    def __init__(self, *, v2: bool, monotonic: Monotonic) -> None:
        self._cpu_time: Callable[[bytes], float] = formats.usage_usec if v2 else int  # cpuacct.usage: nanoseconds
        self._unit_seconds = 1e-6 if v2 else 1e-9
        self._monotonic = monotonic
        self._tracked: tuple[TrackedCgroup, ...] = ()
        self._last = np.empty((4, 0))  # at the last tick, a column for each; NaN for unknown values
        self._arrange()

    def follow(self, tracked: Iterable[TrackedCgroup]) -> None:
        """Follows these from now on, each once and in this order."""
        before, self._tracked = self._tracked, tuple(tracked)
        if self._tracked == before:
            return
        for gone in set(before).difference(self._tracked):
            gone.close()
        places = {one: place for place, one in enumerate(before)}
        unknown = np.full((4, 1), np.nan)  # last, so that place -1 finds it
        self._last = np.append(self._last, unknown, axis=1)[:, [places.get(one, -1) for one in self._tracked]]
        self._arrange()

    def sample(self, now: float, cpu_count: int, readings: Readings) -> Floats:
        """Cores and bytes of each as an array of shape (tracked, 2).

        Cores are NaN without a cgroup, on the first tick and after a counter reset. `readings` gets page cache where it
        is due at `now`.
        """
        found = [one for one in self._missing if one.look(now)]
        if found:
            self._arrange()
        before = self._last[_COUNTED].copy()
        self._read_cpu()
        self._read_memory(now, readings)
        self._drop_lost()
        cpu_seconds, period_seconds = self._last[_COUNTED] - before
        cpu_cores = rates.cores_of_many(cpu_seconds, period_seconds, cpu_count)
        return np.stack([cpu_cores, self._last[_MEMORY_BYTES]], axis=1)

    def _arrange(self) -> None:
        """Arranges the files to read and the places of their values. Needed after any cgroup appears or disappears."""
        self._missing = [one for one in self._tracked if one.cgroup is None]
        there = {place: one.cgroup for place, one in enumerate(self._tracked) if one.cgroup is not None}
        charges = {place: cgroup.charge for place, cgroup in there.items() if cgroup.charge is not None}
        self._cgroups = there
        self._there, self._charged = (np.fromiter(places, np.intp) for places in (there, charges))
        cpu = [cgroup.cpu for cgroup in there.values()]
        batches = (cpu[first : first + FILES_AN_INSTANT] for first in range(0, len(cpu), FILES_AN_INSTANT))
        self._cpu = [HotFiles(batch, self._cpu_time) for batch in batches]
        self._charges = HotFiles(list(charges.values()), int)
        self._policies = Turns([cgroup.policies for cgroup in there.values()])

    def _read_cpu(self) -> None:
        cpu_time: list[float] = []
        at_seconds: list[float] = []
        for files in self._cpu:
            cpu_time += files.read()
            at_seconds += [self._monotonic()] * len(files)
        self._last[_CPU_SECONDS, self._there] = np.array(cpu_time, np.float64) * self._unit_seconds
        self._last[_AT_SECONDS, self._there] = at_seconds

    def _read_memory(self, now: float, readings: Readings) -> None:
        """Reads memory where the charge has moved, a turn is due, or the value is unknown."""
        charges, before = np.array(self._charges.read(), np.float64), self._last[_CHARGED_BYTES, self._charged]
        moved = ~(np.abs(charges - before) < np.maximum(MOVED_BYTES, before * MOVED_SHARE))  # also from or to a NaN
        self._last[_CHARGED_BYTES, self._charged[moved]] = charges[moved]
        due = set(self._there[self._policies.due(now)].tolist())
        unknown = self._there[np.isnan(self._last[_MEMORY_BYTES, self._there])]
        for place in due.union(unknown.tolist(), self._charged[moved].tolist()):
            try:
                self._last[_MEMORY_BYTES, place] = self._cgroups[place].read_memory(readings, policies=place in due)
            except (OSError, ValueError):
                self._last[_MEMORY_BYTES, place] = np.nan
        self._last[_MEMORY_BYTES, self._charged[np.isnan(charges)]] = np.nan

    def _drop_lost(self) -> None:
        """Drops all values of a cgroup with a failed read: its successor at that path is another cgroup."""
        unknown = np.isnan(self._last[_CPU_SECONDS] + self._last[_MEMORY_BYTES])
        lost = self._there[unknown[self._there]]
        if not lost.size:
            return
        self._last[:, lost] = np.nan
        for place in lost.tolist():
            self._tracked[place].close()
        self._arrange()
