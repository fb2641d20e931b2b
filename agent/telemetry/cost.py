"""The agent's own cost to the node."""

import os
import resource
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from agent.telemetry.node import PREFIX

_KIB = 1024


class CostCollector(Collector):
    """The usage of the whole process, from procfs, without the values that are unreadable there."""

    def __init__(self, process: Path = Path("/proc/self")) -> None:
        self._process = process

    def describe(self) -> Iterable[Metric]:
        """Empty, so that registration reads no file."""
        return ()

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(f"{PREFIX}cpu_seconds", "CPU time of the agent", value=time.process_time())
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        yield GaugeMetricFamily(f"{PREFIX}open_files_limit", "Files the agent may have open", value=soft)
        try:
            yield GaugeMetricFamily(
                f"{PREFIX}open_files", "Files the agent has open", value=len(os.listdir(self._process / "fd"))
            )
            yield _memory((self._process / "smaps_rollup").read_text("ascii"))
        except (OSError, ValueError):
            return


def _memory(smaps_rollup: str) -> Metric:
    """Raises ValueError for a text of another shape."""
    kib = {name: int(rest.split()[0]) for name, _, rest in map(_partition, smaps_rollup.splitlines()[1:]) if rest}
    private = sum(kib.get(f"Private_{kind}", 0) for kind in ("Clean", "Dirty", "Hugetlb"))
    anonymous = min(kib.get("Anonymous", 0), private)
    family = GaugeMetricFamily(
        f"{PREFIX}uss_bytes", "Memory that is the agent's alone, by what is behind it", labels=["backing"]
    )
    family.add_metric(["anonymous"], anonymous * _KIB)
    family.add_metric(["file"], (private - anonymous) * _KIB)
    return family


def _partition(line: str) -> tuple[str, str, str]:
    return line.partition(":")
