"""What it costs an agent to hold promises against what comes, and to run models in the shadow: an hour of 250 pods.

Times are process CPU time; the baseline is the agent's own sampling of the same pods, where cgroups can be made.
"""

import tracemalloc
from collections.abc import Iterator

import numpy as np

from agent.metric_cache.series import Usage
from agent.predict_server import policy, situations
from agent.predict_server.lenders import lenders
from agent.predict_server.models import Situation
from agent.predict_server.shadows import Shadows
from agent.predict_server.table import ModelTable
from agent.predict_server.truth import Truth
from agent.settings import AgentSettings
from shared.clock import ManualClock
from shared.quantity import Resources
from tests.bench.agent import NOW, PODS, cpu_seconds, sampling_of
from tests.bench.row import Measure, Row
from tests.unit.agent.models import entities, model_table, train
from tests.unit.agent.pods import pod

HOUR_SECONDS, STEP_SECONDS, CHECK_SECONDS = 3600, 30, 20
DAYS = 28
SETTINGS = AgentSettings(node_name="n", warm_up_samples=1, cold_start_seconds=0)
_PODS = [pod(f"uid-{number}", cpu="2", memory="4Gi", age_seconds=10**7) for number in range(PODS)]
_USAGES = entities(Usage(0.25, 2.0**30), **{one.uid: Usage(0.5, 2.0**30) for one in _PODS})


def measures() -> tuple[Measure, ...]:
    return cpu, memory


def cpu() -> Iterator[Row]:
    sampled = sum(tick.value for tick in sampling_of(PODS)) * HOUR_SECONDS
    if not sampled:
        return
    asked = situation_of_pods(model_table())
    truth, shadows, active = _followed()
    usages, since = np.tile([0.5, 2.0**30], (PODS + 1, 1)), np.zeros(PODS + 1)
    clock = ManualClock(NOW)

    def hour() -> None:
        """All that comes with truth and shadows, besides the model in force."""
        peaks = shadows.peaks(asked)
        truth.promise({**peaks, active: np.full((2, 2), 2.0**30)}, np.full(2, 2.0**31), clock.now())
        for second in range(0, HOUR_SECONDS, CHECK_SECONDS // 2):
            clock.advance(CHECK_SECONDS // 2)
            if second % STEP_SECONDS == 0:
                shadows.update([], np.zeros((0, 2)), clock.now())
                shadows.observe(truth.observe(usages, since, clock.now()))
            if second % CHECK_SECONDS == 0:
                truth.lend(np.full(2, 2.0**30), clock.now())
                truth.withdrawn()
                for one in (active, *shadows.names):
                    truth.kept(one)

    for _ in range(26):  # until as many promises wait as ever do
        hour()
    ours = cpu_seconds(hour, rounds=2)
    yield Row(
        figure=f"truth and {len(shadows.names)} shadows, an hour of {PODS} pods",
        value=ours * 1e3,
        unit="ms CPU",
        target=0.01 * sampled,
        baseline="an hour of sampling",
        baseline_value=sampled,
        note="sums of what pods use together since each promise at every training step, shadows' peaks once an hour",
    )


def memory() -> Iterator[Row]:
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    truth, shadows, active = _followed()
    usages, since = np.tile([0.5, 2.0**30], (PODS + 1, 1)), np.zeros(PODS + 1)
    for hour in range(DAYS * 24):
        for quarter in range(4):
            truth.observe(usages, since, NOW + HOUR_SECONDS * (hour + quarter / 4))
        peak = np.full((2, 2), 2.0**30)
        promises = dict.fromkeys((active, *shadows.names), peak)
        truth.promise(promises, np.full(2, 2.0**31), NOW + HOUR_SECONDS * hour)
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    yield Row(
        figure=f"truth and {len(shadows.names)} shadows after {DAYS} days",
        value=held / 1e6,
        unit="MB",
        target=2.0,
        baseline="their part of a checkpoint",
        baseline_value=len(truth.state()) / 1e6,
    )


def _followed() -> tuple[Truth, Shadows, str]:
    current = policy.from_settings(SETTINGS)
    shadows = Shadows(("n-sigma-v2", "percentile", "peak-mix"), current, lambda _: None)
    truth, active = Truth("n", current.horizons_seconds), "in force"
    truth.follow(active, shadows.names, current.horizons_seconds)
    return truth, shadows, active


def situation_of_pods(table: ModelTable) -> Situation:
    train(table, _USAGES, NOW)
    lending = lenders(_PODS, lambda _: NOW - 10**6, lambda _: 9, NOW, cold_start_seconds=0, warm_up_samples=1)
    at = situations.Moment(NOW, policy.from_settings(SETTINGS).horizons_seconds, Resources())
    return situations.prod(table, lending, at)
