"""What debts of broken promises cost an agent: an hour of 250 pods on a node that breaks every promise.

Times are process CPU time; the baseline is the agent's own sampling of the same pods, where cgroups can be made.
"""

import tracemalloc
from collections.abc import Iterator
from functools import partial

import numpy as np

from agent.metric_cache import series
from agent.predict_server.debts import Debts
from agent.predict_server.models import HORIZONS_SECONDS, Parameters
from agent.predict_server.plugins import Model
from agent.predict_server.truth import NOTHING_JUDGED, Truth
from shared.clock import ManualClock
from tests.bench.agent import NOW, PODS, cpu_seconds, sampling_of
from tests.bench.row import Measure, Row
from tests.bench.shadows import CHECK_SECONDS, HOUR_SECONDS, STEP_SECONDS, situation_of_pods
from tests.unit.agent.models import model_table

IN_FORCE = "in force"
FLEETS, RESOURCES = 2, 2  # an agent asks about lending pods and about all pods


def measures() -> tuple[Measure, ...]:
    return cpu, memory


def cpu() -> Iterator[Row]:
    sampled = sum(tick.value for tick in sampling_of(PODS)) * HOUR_SECONDS
    if not sampled:
        return
    asked = situation_of_pods(model_table())
    model = Model("peak-mix", Parameters(), source="bench", on_failure=lambda _: None)
    truth = Truth(series.PROD_PEAK, HORIZONS_SECONDS)
    truth.follow(IN_FORCE, (), HORIZONS_SECONDS)
    usages, since = np.tile([0.5, 2.0**30], (PODS + 1, 1)), np.zeros(PODS + 1)
    clock = ManualClock(NOW)

    def hour(*, debts: bool) -> None:
        model.peak(asked)
        truth.promise({IN_FORCE: np.full((2, 2), 1.0)}, np.full(2, 2.0**31), clock.now())
        for second in range(0, HOUR_SECONDS, CHECK_SECONDS // 2):
            clock.advance(CHECK_SECONDS // 2)
            if second % STEP_SECONDS == 0:
                outcomes, broken = truth.observe(usages, since, clock.now()).get(IN_FORCE, NOTHING_JUDGED)
                model.observe(outcomes, broken if debts else ())
            if debts and second % CHECK_SECONDS == 0:
                model.debts(series.PROD_PEAK)

    for _ in range(26):  # until as many promises wait as ever do
        hour(debts=True)
    with_debts, without = (cpu_seconds(partial(hour, debts=debts), rounds=3) for debts in (True, False))
    yield Row(
        figure=f"debts of a node that breaks every promise, an hour of {PODS} pods",
        value=(with_debts - without) * 1e3,
        unit="ms CPU",
        target=0.01 * sampled,
        baseline="an hour of sampling",
        baseline_value=sampled,
        note="all open promises looked at in every training step, and what they cost told with every check",
    )


def memory() -> Iterator[Row]:
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept = [Debts(int(seconds // HOUR_SECONDS)) for seconds in HORIZONS_SECONDS for _ in range(FLEETS * RESOURCES)]
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    yield Row(
        figure="debts of one node",
        value=held / 1e6,
        unit="MB",
        target=2.0,
        baseline="their part of a checkpoint",
        baseline_value=sum(array.nbytes for one in kept for array in one.arrays().values()) / 1e6,
    )
