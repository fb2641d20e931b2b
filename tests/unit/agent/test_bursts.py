"""A program of the node that is busy for seconds, as a control plane that starts, is in the peak, and is told."""

from pathlib import Path

import pytest

from agent.metric_cache.series import Usage
from agent.predict_server.prediction import NodePrediction
from agent.reporter import conditions
from agent.reporter.conditions import Circumstances
from agent.states_informer.informer import LocalNode
from shared.quantity import Resources
from tests.unit.agent.models import Life, answer, entities
from tests.unit.agent.pods import NOW, pod

GIB = 2**30
BUSY_SECONDS = 10
NODE = LocalNode(Resources(1900, 8 * GIB))  # of two cores
LENDER = pod("idle", cpu="1200m")


def after_a_burst(directory: Path, interval_seconds: int) -> NodePrediction:
    """Half an hour with the system at 1.6 cores for ten seconds in the middle of it."""
    life = Life(directory, histogram_update_interval_seconds=interval_seconds)
    life.node = NODE
    for second in range(1800):
        system = Usage(1.6 if 900 <= second < 900 + BUSY_SECONDS else 0.15, GIB / 2)
        life.sample(entities(system, idle=Usage(0.05, GIB / 4)))
        if second % interval_seconds == interval_seconds - 1:
            life.server.train([LENDER])
    return life.predict(LENDER)


@pytest.mark.parametrize(("interval_seconds", "counts"), [(30, True), (300, False)])
def test_a_busy_moment_counts_from_a_tenth_of_a_training_interval_on_and_has_a_term(
    tmp_path: Path, interval_seconds: int, counts: bool
) -> None:
    found = after_a_burst(tmp_path, interval_seconds)
    explained = answer(found).explanation.cpu
    terms = {term.name: term for term in explained.terms}
    assert terms["systemPeak"].value == pytest.approx(1600 if counts else 150, abs=1)
    assert (explained.result == 0, explained.bound == "peak") == (counts, counts)
    ready = next(
        each for each in conditions.conditions(found, Circumstances(), (), NOW) if each.type == conditions.MODEL_READY
    )
    assert ready.status == "True"
    assert ("systemPeak 1600m" in ready.message) == counts
