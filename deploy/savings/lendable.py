"""What could be lent: the calibrated model applied to a Prometheus' recorded usage, with pods where they ran."""

from typing import NamedTuple

import numpy as np

from agent.backtest import study
from agent.backtest.engine import RESOURCES
from agent.backtest.study import Trial
from agent.predict_server.calibrated import NAME as PEAK_MIX
from deploy.backtest import fleets, prometheus
from deploy.backtest.fleets import SeriesPlacement
from deploy.backtest.options import prediction_policy
from deploy.backtest.prometheus import Period, Prometheus
from deploy.backtest.server import Access
from deploy.savings.rows import LendableRow
from deploy.savings.usage import DAY_SECONDS
from shared.errors import HeadroomError
from shared.quantity import MILLI_PER_CORE

HORIZON_HOURS = 24
STEP_SECONDS = 300.0
LEAST_DAYS = 3.0  # a day of history, a day of promises, and a day to watch them
_LAST_HOURS = 24


class LendableAnswer(NamedTuple):
    """The answer by resource; `problem` says why there is none."""

    rows: tuple[LendableRow, ...]
    problem: str = ""


def ask(url: str, access: Access, now: float, days: float, target_percent: float) -> LendableAnswer:
    """The answer for the days before `now`, in Unix seconds. Raises InvalidInput for an invalid URL."""
    with Prometheus(url, access) as server:
        if days < LEAST_DAYS:
            return LendableAnswer((), f"{days:.1f} days are asked for, and predictions take {LEAST_DAYS:g}")
        period = Period(now - days * DAY_SECONDS, now, STEP_SECONDS)
        try:
            return LendableAnswer(tuple(_row(server, each, period, target_percent) for each in RESOURCES))
        except (HeadroomError, ValueError) as error:
            return LendableAnswer((), str(error))


def _row(server: Prometheus, resource: str, period: Period, target_percent: float) -> LendableRow:
    """One resource. Raises HeadroomError, and ValueError if the recording is too short to judge a promise."""
    samples = prometheus.samples(server, resource, period)
    fleet = fleets.fleet(samples, None, SeriesPlacement(recorded=True), lambda left_out: None)
    trial = Trial(RESOURCES.index(resource), (PEAK_MIX,), (target_percent,), (HORIZON_HOURS,), prediction_policy(None))
    played = study.play(fleet, trial)
    (result,) = study.results(samples.source, trial, played)
    (promised,) = played.promised.values()
    last = slice(-_LAST_HOURS, None)
    scale = MILLI_PER_CORE if resource == "cpu" else 1
    requested = played.requested[last]
    peaks = np.minimum(promised[last], requested)
    return LendableRow(
        resource=resource,
        model=PEAK_MIX,
        target_percent=target_percent,
        violation_percent=round(result.violation_percent, 3),
        horizon_hours=HORIZON_HOURS,
        requested=int(requested.sum(axis=1).mean() * scale),
        promised=int(np.ceil(peaks.sum(axis=1).mean() * scale)),
        nodes=fleet.schedule.nodes,
        days=round(fleet.recorded.ticks * fleet.recorded.interval_seconds / DAY_SECONDS, 2),
    )
