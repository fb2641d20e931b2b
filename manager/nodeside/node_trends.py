"""What nodes used, requested, promised and offered in the last day, so that plots need not begin with their reader.

A node takes 6 kB, and beyond `MOST_NODES` only the sums over all of them are kept.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from manager.nodeside.noderesource import holdings
from manager.nodeside.noderesource.report import NodeReport, complete
from manager.pods import NodeRequests
from manager.trends import Sample, Trends
from shared import durations
from shared.api.core import Node
from shared.clock import Clock
from shared.names import Tier
from shared.quantity import Resources

MOST_NODES = 10_000
CLUSTER = ""  # the name of the sums over all nodes
MOST_SPARKLINES = 100  # of one answer, of some 200 kB at most
SPARKLINE_SAMPLES = 48  # of a plot of 72 pixels
_UNKNOWN = (np.nan, np.nan)


@dataclass(frozen=True)
class AmountSeries:
    """One amount over time; null where it was not known."""

    cpu_milli: list[int | None]
    memory_bytes: list[int | None]


@dataclass(frozen=True)
class NodeTrend:
    """One node, or all nodes together where `node` is empty; each series has a value for each of `times` (RFC 3339).

    Memory is exact to seven digits. A sum leaves out nodes of which the amount was not known.
    """

    node: str
    times: list[str]
    used: AmountSeries
    requested: AmountSeries
    predicted_peak: AmountSeries
    mid: AmountSeries
    prod_used: AmountSeries


@dataclass(frozen=True)
class Sparkline:
    """What one node used and was predicted to use at most."""

    used: AmountSeries
    predicted_peak: AmountSeries


@dataclass(frozen=True)
class Sparklines:
    """By node; each series has a value for each of `times` (RFC 3339). Memory is exact to seven digits."""

    times: list[str]
    nodes: dict[str, Sparkline]


class NodeAmounts(NamedTuple):
    """A node at one moment; None is what is not known."""

    used: Resources | None
    requested: Resources | None
    predicted_peak: Resources | None
    mid: Resources | None
    prod_used: Resources | None

    @classmethod
    def read(cls, node: Node, requested: NodeRequests, report: NodeReport | None) -> "NodeAmounts":
        mid = holdings.on_offer(node, Tier.MID) or Resources()
        if report is None:
            return cls(None, requested.total, None, mid, None)
        return cls(report.usage, requested.total, complete(report.peak), mid, report.prod_usage)


AMOUNTS = NodeAmounts._fields


class NodeTrends:
    """The trends of all nodes that there are: for each amount a row of cpu and one of memory."""

    def __init__(self, amounts: Callable[[], Mapping[str, NodeAmounts]], clock: Clock) -> None:
        self._amounts = amounts
        self._trends = Trends(2 * len(AMOUNTS), clock)

    def record(self) -> None:
        """Takes a sample, if the last one is long enough ago."""
        self._trends.record(lambda: _sample(self._amounts()))

    def answer(self, name: str = CLUSTER) -> NodeTrend:
        """The node's trend; without one, all is null."""
        times, values = self._trends.read(name)
        return NodeTrend(name, [durations.timestamp(time) for time in times], *amount_series(values))

    def sparklines(self, names: Iterable[str]) -> Sparklines:
        """The sparklines of these nodes in few samples, including the newest. A node without a trend is left out."""
        times, by_name = self._trends.read_some(names)
        step = -(-len(times) // SPARKLINE_SAMPLES) or 1
        kept = slice((len(times) - 1) % step, None, step)
        nodes = {}
        for name, values in by_name.items():
            series = dict(zip(AMOUNTS, amount_series([row[kept] for row in values]), strict=True))
            nodes[name] = Sparkline(series["used"], series["predicted_peak"])
        return Sparklines([durations.timestamp(time) for time in times[kept]], nodes)


def amount_series(rows: Sequence[Iterable[float]]) -> list[AmountSeries]:
    """Each pair of rows is cpu and memory of one amount."""
    pairs = zip(rows[::2], rows[1::2], strict=True)
    return [AmountSeries(_whole(cpu), _whole(memory)) for cpu, memory in pairs]


def _sample(nodes: Mapping[str, NodeAmounts]) -> dict[str, Sample]:
    values = [value for amounts in nodes.values() for amount in amounts for value in amount or _UNKNOWN]
    known = np.array(values, np.float64).reshape(-1, 2 * len(AMOUNTS))
    sums = np.where(np.isnan(known).all(axis=0), np.nan, np.nansum(known, axis=0))
    by_name = {CLUSTER: sums.astype(np.float32)}
    if len(nodes) <= MOST_NODES:
        by_name |= zip(nodes, known.astype(np.float32), strict=True)
    return by_name


def _whole(values: Iterable[float]) -> list[int | None]:
    return [None if np.isnan(value) else round(value) for value in values]
