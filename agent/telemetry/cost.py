"""The agent's own cost to the node."""

import os
import resource
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from shared.metric_families import CounterFamily, GaugeFamily

_KIB = 1024

_USS_BYTES = GaugeFamily(
    "headroom_agent_uss_bytes", "Memory that only the agent uses, in bytes, by kind.", ("backing",)
)
_CPU_SECONDS = CounterFamily("headroom_agent_cpu_seconds", "CPU time of the agent in seconds.")
_OPEN_FILES_LIMIT = GaugeFamily("headroom_agent_open_files_limit", "Limit of open files of the agent.")
_OPEN_FILES = GaugeFamily("headroom_agent_open_files", "Number of open files of the agent.")


class CostCollector(Collector):
    """The usage of the whole process, from procfs, without the values that are unreadable there."""

    def __init__(self, process: Path = Path("/proc/self")) -> None:
        self._process = process

    def describe(self) -> Iterable[Metric]:
        """Empty, so that registration reads no file."""
        return ()

    def collect(self) -> Iterator[Metric]:
        yield _CPU_SECONDS.scraped(time.process_time())
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        yield _OPEN_FILES_LIMIT.scraped(soft)
        try:
            yield _OPEN_FILES.scraped(len(os.listdir(self._process / "fd")))
            yield _memory((self._process / "smaps_rollup").read_text("ascii"))
        except (OSError, ValueError):
            return


def _memory(smaps_rollup: str) -> Metric:
    """Raises ValueError for a text of another shape."""
    kib = {name: int(rest.split()[0]) for name, _, rest in map(_partition, smaps_rollup.splitlines()[1:]) if rest}
    private = sum(kib.get(f"Private_{kind}", 0) for kind in ("Clean", "Dirty", "Hugetlb"))
    anonymous = min(kib.get("Anonymous", 0), private)
    family = _USS_BYTES.scraped()
    family.add_metric(["anonymous"], anonymous * _KIB)
    family.add_metric(["file"], (private - anonymous) * _KIB)
    return family


def _partition(line: str) -> tuple[str, str, str]:
    return line.partition(":")
