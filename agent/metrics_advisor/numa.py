"""The usage of each NUMA node."""

from collections.abc import Mapping
from pathlib import Path

from agent.metric_cache.series import Kind, Metric, SeriesKey
from agent.metrics_advisor import formats, rates
from agent.metrics_advisor.cgroup import Readings
from agent.metrics_advisor.files import read_once
from agent.metrics_advisor.rates import CounterReading, Monotonic


def system_entity(node: int) -> str:
    """The entity of the system's memory on a NUMA node; the node's number is the entity of all its memory."""
    return f"{node}/system"


class NumaNodes:
    """Per NUMA node: CPU summed over its CPUs, memory that is neither free nor reclaimable."""

    def __init__(self, proc_root: Path, sys_root: Path, monotonic: Monotonic) -> None:
        self._monotonic = monotonic
        self._stat = f"{proc_root}/stat"
        self._nodes = sys_root / "devices/system/node"
        self._before: dict[int, CounterReading] = {}  # by CPU

    @property
    def only(self) -> int | None:
        """The machine's only NUMA node, None if it has several."""
        try:
            numbers = list(self._directories())
        except ValueError:
            return None
        return numbers[0] if len(numbers) == 1 else None

    def sample(self, pods_bytes: Mapping[int, int], readings: Readings) -> None:
        """`pods_bytes` is the memory of pods on each node. Machines that lack or hide NUMA have no readings."""
        try:
            busy = formats.busy_seconds_by_cpu(read_once(self._stat))
            at = self._monotonic()
            nodes = self._directories()
        except (OSError, ValueError):
            return
        used = self._cores({cpu: CounterReading(seconds, at) for cpu, seconds in busy.items()})
        for number, path in sorted(nodes.items()):
            try:
                cpus = formats.cpu_list(read_once(f"{path}/cpulist"))
                memory_bytes = formats.numa_used_bytes(read_once(f"{path}/meminfo"))
            except (OSError, ValueError):
                continue
            entity = str(number)
            if cpus & used.keys() or (used and not cpus):
                readings[SeriesKey(Kind.NUMA, entity, Metric.CPU)] = sum(used[cpu] for cpu in cpus & used.keys())
            readings[SeriesKey(Kind.NUMA, entity, Metric.MEMORY)] = memory_bytes
            system_bytes = max(0, memory_bytes - pods_bytes.get(number, 0))
            readings[SeriesKey(Kind.NUMA, system_entity(number), Metric.MEMORY)] = system_bytes

    def _directories(self) -> dict[int, Path]:
        """The node directories by number. Raises ValueError."""
        return {int(path.name.removeprefix("node")): path for path in self._nodes.glob("node[0-9]*")}

    def _cores(self, now: dict[int, CounterReading]) -> dict[int, float]:
        """Cores used by CPU since the last turn, without CPUs that came online meanwhile or whose counter fell."""
        before, self._before = self._before, now
        used = {cpu: rates.cores(before[cpu], reading, 1) for cpu, reading in now.items() if cpu in before}
        return {cpu: cores for cpu, cores in used.items() if cores is not None}
