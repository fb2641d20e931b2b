"""Run it with `pytest` where Headroom is installed."""

import numpy as np
from recent_maximum import RecentMaximum

from headroom_api.predictors import PROD_PEAK, SYSTEM, Histories, ModelTable, Parameters, Situation

GIB = 2.0**30
NOW = 1_700_000_000.0


def node_with_one_pod(usages: list[list[float]]) -> Situation:
    """A node whose only pod has used so much, (cpu cores, memory bytes) hour by hour."""
    table = ModelTable(cpu_half_life_seconds=43200, memory_half_life_seconds=86400)
    keys = ["pod", PROD_PEAK, SYSTEM]
    for hour, usage in enumerate(usages):
        table.train(keys, np.array([usage, usage, [0.0, 0.0]]), NOW + 3600 * hour)
    return Situation(
        time=table.time,
        whole=Histories(table, [PROD_PEAK]),
        classes=Histories(table, []),
        system=Histories(table, [SYSTEM]),
        pods=Histories(table, ["pod"]),
        pod_nodes=np.zeros(1, np.intp),
        requests=np.array([[8.0, 16 * GIB]]),
        limits=np.full((1, 2), np.inf),
        ages_seconds=np.array([7 * 86400.0]),
        cold=np.array([False]),
        workloads=Histories(table, []),
        inherited=np.array([], np.intp),
    )


def test_the_peak_is_the_largest_usage_and_a_tenth() -> None:
    situation = node_with_one_pod([[1.0, GIB], [3.0, 2 * GIB], [2.0, GIB]])
    peak = RecentMaximum(Parameters()).peak(situation)["recent-maximum"]
    assert np.allclose(peak, [[3.3, 2.2 * GIB]], rtol=0.01)


def test_the_policys_margin_comes_before_its_own() -> None:
    situation = node_with_one_pod([[1.0, GIB]])
    peak = RecentMaximum(Parameters(safety_margin_percent=50.0)).peak(situation)["recent-maximum"]
    assert np.allclose(peak, [[1.5, 1.5 * GIB]], rtol=0.01)
