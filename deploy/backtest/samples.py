"""Samples as sources have them, and the regular grid of ticks for a replay. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from agent.predict_server.decay import Floats
from agent.predict_server.histogram import Rows
from shared.errors import InvalidInput

HOUR_SECONDS = 3600
MOST_SAMPLES = 2**31  # 16 GiB; larger grids come in parts, node by node


class Unit(NamedTuple):
    """The unit of a recorded number: cores or bytes, times `factor`; a share of a machine has no factor."""

    resource: str
    factor: float
    of_machine: bool = False


_CPU = {"cores": 1.0, "millicores": 1e-3}
_MEMORY = {"bytes": 1.0, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30}
UNITS = {
    **{f"cpu_{unit}": Unit("cpu", factor) for unit, factor in _CPU.items()},
    **{f"{name}_{unit}": Unit("memory", factor) for name in ("memory", "mem") for unit, factor in _MEMORY.items()},
    "cpu_e4": Unit("cpu", 1e-4, of_machine=True),
    "mem_e4": Unit("memory", 1e-4, of_machine=True),
}
AGGREGATES = ("mean", "max")
_NAMED = re.compile(rf"(?:^|[_\W])({'|'.join(UNITS)})$")


def unit_named(text: str) -> Unit | None:
    """The unit in the suffix of a column or file name, such as `usage_cpu_millicores`."""
    found = _NAMED.search(text.lower())
    return UNITS[found[1]] if found else None


@dataclass(frozen=True)
class Samples:
    """Usage of one resource in cores or bytes; sample k belongs to series `codes[k]` at `times[k]` (Unix seconds).

    `names` are the series; `nodes` says where each ran, `cores` and `memory_bytes` what it requested (NaN if unknown),
    and `workloads` which workload recreates its pods. These are empty if the source does not say.
    """

    source: str
    unit: Unit
    times: Floats
    codes: Rows
    values: Floats
    names: Sequence[str]
    nodes: Sequence[str] = ()
    cores: Floats = field(default_factory=lambda: np.zeros(0))
    memory_bytes: Floats = field(default_factory=lambda: np.zeros(0))
    workloads: Sequence[str] = ()
    aggregate: str = ""  # what a sample is of its interval: one of AGGREGATES, or empty if the source does not say

    def of(self, series: Rows) -> "Samples":
        """The names and nodes of some series, without their samples."""
        nothing = np.zeros(0)
        names = [self.names[one] for one in series]
        nodes = [self.nodes[one] for one in series] if self.nodes else ()
        return replace(self, times=nothing, codes=np.zeros(0, np.intp), values=nothing, names=names, nodes=nodes)


class Grid(NamedTuple):
    """`usage` has shape (series, ticks), NaN without a sample; `start` is the first tick in Unix seconds."""

    usage: Floats
    start: float
    interval_seconds: float


def on_grid(samples: Samples) -> Grid:
    """Every sample at the tick at or before it; of several samples in one tick the largest counts.

    The interval is the most frequent one between two times. Raises InvalidInput for samples that cannot be replayed.
    """

    def refuse(field_name: str, value: object, problem: str) -> InvalidInput:
        return InvalidInput(source=samples.source, field=field_name, value=value, problem=problem)

    distinct = np.unique(samples.times)
    if len(distinct) < 2:
        raise refuse("time", distinct.tolist(), "samples at two or more times are needed")
    steps, counts = np.unique(np.diff(distinct), return_counts=True)
    interval = float(steps[counts.argmax()])
    if HOUR_SECONDS % interval:
        raise refuse("time", f"{interval:g} s", "the time between two samples must divide an hour")
    ticks = int((distinct[-1] - distinct[0]) // interval) + 1
    if ticks * len(samples.names) > MOST_SAMPLES:
        size = f"{len(samples.names)} series x {ticks} times"
        raise refuse("time", size, f"more than {MOST_SAMPLES} samples; take fewer nodes or days at a time")
    usage = np.full(len(samples.names) * ticks, -1.0)
    places = ((samples.times - distinct[0]) // interval).astype(np.intp)
    np.maximum.at(usage, samples.codes * ticks + places, samples.values)
    usage[usage < 0] = np.nan
    return Grid(usage.reshape(len(samples.names), ticks), float(distinct[0]), interval)
