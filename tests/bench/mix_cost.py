"""What the autoscaler buys for small sets of pods, against the exact optimum: the mean of how much dearer it is.

For each preset of the rank. That of the seed prefers machines whose size suits the cluster, `least-cost` prefers none.
"""

import random
import statistics
from collections.abc import Iterator
from itertools import islice

from manager.autoscaler.expander.ranking import CLUSTER_AUTOSCALER, LEAST_COST, SEED, Preset
from tests.bench.row import Measure, Row
from tests.support.cheapest_nodes import TYPES, Pods, cost_of_decisions, instances, least_cost

INSTANCES, SHAPES = 40, 4
TARGET = 1.05


def measures() -> Iterator[Measure]:
    """All presets on the same instances."""
    yield _rows


def _rows() -> Iterator[Row]:
    drawn = list(islice(instances(random.Random(7), SHAPES), INSTANCES))
    optima = [least_cost(each) for each in drawn]
    for preset in (LEAST_COST, SEED, CLUSTER_AUTOSCALER):
        yield _row(preset, drawn, optima)


def _row(preset: Preset, drawn: list[list[Pods]], optima: list[float]) -> Row:
    costs = [cost_of_decisions(each, preset) for each in drawn]
    ratios = [cost / optimum for cost, optimum in zip(costs, optima, strict=True)]
    return Row(
        figure=f"cost of new nodes, up to {SHAPES} shapes of pods x {len(TYPES)} machine types, preset {preset.name}",
        value=statistics.fmean(ratios),
        unit="of the optimum, mean",
        target=TARGET if preset is LEAST_COST else None,
        baseline="the exact optimum, by HiGHS",
        baseline_value=1.0,
        note=f"{INSTANCES} sets: median {statistics.median(ratios):.3f}, worst {max(ratios):.2f}",
    )
