"""Packs recorded series onto nodes of one size, with or without churn. Pure, and the same for the same seed.

Nodes are full by requests, so that lending nothing saves exactly 0 %. Random packing puts unrelated workloads side by
side: usage on real nodes, which are full of replicas, is more correlated.
"""

import numpy as np

from agent.backtest.recording import PodSchedule
from agent.predict_server.decay import Floats
from agent.predict_server.histogram import Rows

SHORTEST_LIFE_HOURS = 1.0


def first_fit(sizes: Floats, node_size: float, rng: np.random.Generator) -> Rows:
    """The node of each series, -1 for those without one; shape (series,).

    Series are placed in random order, each on the first node with room. Nodes less than half full are dropped, and a
    series larger than a node gets none.
    """
    free: list[float] = []
    node = np.full(len(sizes), -1, np.intp)
    for series in rng.permutation(len(sizes)).tolist():
        size = float(sizes[series])
        if size > node_size:
            continue
        found = next((index for index, room in enumerate(free) if room >= size), len(free))
        if found == len(free):
            free.append(node_size)
        free[found] -= size
        node[series] = found
    kept = np.array(free) <= node_size / 2
    renumbered = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1)
    return np.asarray(renumbered[node], np.intp)


def static(node: Rows, ticks: int) -> PodSchedule:
    """Every packed series runs as one pod, from the first tick to the last."""
    series = np.flatnonzero(node >= 0)
    series = series[np.argsort(node[series], kind="stable")]
    count = len(series)
    return PodSchedule(
        node[series], series, np.zeros(count, np.intp), np.full(count, ticks), int(node.max(initial=-1)) + 1
    )


def churned(
    node: Rows, sizes: Floats, ticks: int, *, mean_hours: float, ticks_per_hour: float, rng: np.random.Generator
) -> PodSchedule:
    """Each pod ends after an exponentially distributed time (at least an hour); another replaces it at once.

    The next pod replays another series of the same size, drawn at random, from the same tick on. If only one series has
    a size, that one is drawn again.
    """
    same_size = {size: np.flatnonzero(sizes == size) for size in np.unique(sizes).tolist()}
    start = static(node, ticks)
    rows: list[tuple[int, int, int, int]] = []
    for slot, initial in zip(start.node.tolist(), start.series.tolist(), strict=True):
        alike = same_size[float(sizes[initial])]
        series, first = initial, 0
        while first < ticks:
            hours = max(SHORTEST_LIFE_HOURS, rng.exponential(mean_hours))
            end = min(ticks, first + round(hours * ticks_per_hour))
            rows.append((slot, series, first, end))
            first = end
            others = alike[alike != series]
            series = int(rng.choice(others)) if len(others) else series
    columns = np.array(rows, np.intp).reshape(-1, 4)
    columns = columns[np.lexsort((columns[:, 2], columns[:, 0]))]
    return PodSchedule(columns[:, 0], columns[:, 1], columns[:, 2], columns[:, 3], start.nodes)
