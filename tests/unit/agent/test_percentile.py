"""In percentile mode the server answers as Koordinator would of the same histograms."""

from pathlib import Path

import numpy as np
import pytest

from agent.metric_cache.series import Usage
from agent.predict_server import histogram
from agent.predict_server.histogram import Buckets
from agent.states_informer.informer import LocalNode
from shared.quantity import Resources
from tests.unit.agent.models import Life, answer, entities
from tests.unit.agent.pods import pod

GIB = 2**30
DAY = 86400.0


def end(layout: Buckets, value: float) -> float:
    """What any percentile of a steady usage is: the end of its bucket."""
    return float(layout.starts[layout.find(np.array([value]))[0] + 1])


def steady(cores: float, memory: float) -> Resources:
    return Resources(int(end(histogram.CPU, cores) * 1000), int(end(histogram.MEMORY, memory)))


def times(amount: Resources, factor: float) -> Resources:
    return Resources(int(amount.cpu_milli * factor), int(amount.memory_bytes * factor))


@pytest.mark.parametrize("allocatable", [Resources(16000, 64 * GIB), Resources(2000, 3 * GIB)])
@pytest.mark.parametrize("margin", [None, 0.0, 25.0])
def test_reclaimable_is_the_lesser_of_the_pod_and_the_class_level(
    tmp_path: Path, allocatable: Resources, margin: float | None
) -> None:
    life = Life(tmp_path, predictor="percentile", safety_margin_percent=margin)
    life.node = LocalNode(allocatable)
    greedy = pod("greedy", cpu="200m", memory="128Mi")
    modest = pod("modest", cpu="4", memory="8Gi")
    leaving = pod("leaving", cpu="1", memory="1Gi", age_seconds=-DAY, terminating=True)
    usage, system = Usage(0.5, GIB), Usage(0.3, GIB / 2)
    for _ in range(27):
        life.learn(entities(system, greedy=usage, modest=usage), [greedy, modest], 3600)
    unseen = pod("unseen", cpu="2", memory="1Gi")
    found = answer(life.predict(greedy, modest, leaving, unseen))

    factor = 1 + (10 if margin is None else margin) / 100
    each = times(steady(*usage), factor)
    by_pod = modest.request.minus(each)  # the greedy one lends nothing, and takes nothing from the other
    unreclaimable = each.plus(each)
    together = times(
        steady(*system).plus(steady(2 * usage.cpu_cores, 2 * usage.memory_bytes)).plus(steady(0.0, 0.0)), factor
    )
    requested = greedy.request.plus(modest.request)  # an old pod that was never seen is not predicted, nor counted
    expected = (
        by_pod.least(allocatable.minus(unreclaimable))
        .least(requested.minus(together))
        .least(allocatable.minus(together))
    )
    assert found.result == expected.floored()
    # One on its way out still holds what it asked for while it is young.
    assert found.peak == unreclaimable.plus(leaving.request).plus(unseen.request).most(together)
