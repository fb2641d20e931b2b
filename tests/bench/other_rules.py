"""Rules that agents do not have, to find out why a measurement of another program differs from theirs.

`windowed` rules look at the last 24 hours alone. `BEFORE` is what agents answered once: a cold pod was counted twice,
by its usage in the node's series and by its request; a pod was not capped at its limit; percentiles lent by
Koordinator's rule, by which no pod lends less than nothing; and the histogram of what is idle answered the end of its
first bucket.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from agent.backtest import metrics, oracle, replay
from agent.backtest.engine import FleetBank
from agent.backtest.metrics import Scores
from agent.backtest.study import RecordedFleet
from agent.predict_server import histogram
from agent.predict_server.decay import Floats
from agent.predict_server.histogram import Rows
from agent.predict_server.histories import Histories
from agent.predict_server.models import Parameters, Situation
from agent.predict_server.percentile import Percentile
from agent.predict_server.policy import PredictionPolicy
from shared.quantity import MILLI_PER_CORE

DAY_TICKS = 288
WARM_UP_TICKS = 24
SIGMA, PERCENT = 5.0, 99.0
IDLE = np.array([histogram.CPU.starts[1], histogram.MEMORY.starts[1]])
_PER_UNIT = np.array([MILLI_PER_CORE, 1.0])
Rule = Callable[[Situation, Parameters], Floats]


class Judged(NamedTuple):
    """Promises by rule, and what came and was requested; shape (evaluations, nodes)."""

    promised: Mapping[str, Floats]
    came: Floats
    requested: Floats

    def scores(self, rule: str, nodes: slice | Rows = slice(None)) -> Scores:
        came, requested = self.came[:, nodes], self.requested[:, nodes]
        return metrics.scores(np.minimum(self.promised[rule][:, nodes], requested), came, requested)


def windowed(of: RecordedFleet, at: Rows) -> Judged:
    """N-sigma of the node, the larger of it and of the pods' sum, and the pods' percentiles, at those ticks."""
    recorded, schedule = of.recorded, of.schedule
    nodes = np.zeros((schedule.nodes, recorded.ticks))
    for node, series, first, end in zip(schedule.node, schedule.series, schedule.first, schedule.end, strict=True):
        nodes[node, first:end] += recorded.usage[series, first:end]
    promised: dict[str, list[Floats]] = {"n-sigma-v1": [], "n-sigma-v2": [], "resource-central": []}
    requested = []
    for tick in at.tolist():
        pods = schedule.present(tick)
        limits = recorded.limits[schedule.series[pods]]
        first = max(0, tick + 1 - DAY_TICKS)
        seen = recorded.usage[schedule.series[pods], first : tick + 1].copy()
        seen[np.arange(first, tick + 1) < schedule.first[pods][:, np.newaxis]] = np.nan
        cold = np.count_nonzero(~np.isnan(seen), axis=1) < WARM_UP_TICKS
        requested.append(schedule.sums(pods, limits))

        def of_pods(peaks: Floats, pods: Rows = pods, limits: Floats = limits, cold: Rows = cold) -> Floats:
            return schedule.sums(pods, np.where(cold, limits, np.minimum(peaks, limits)))

        whole = nodes[:, first : tick + 1]
        by_node = whole.mean(axis=1) + SIGMA * whole.std(axis=1)
        by_pod = of_pods(np.nanmean(seen, axis=1) + SIGMA * np.nanstd(seen, axis=1))
        promised["n-sigma-v1"].append(by_node)
        promised["n-sigma-v2"].append(np.maximum(by_node, by_pod))
        promised["resource-central"].append(of_pods(_percentiles(seen)))
    return Judged({name: np.array(peaks) for name, peaks in promised.items()}, _came(of, at), np.array(requested))


def _percentiles(seen: Floats) -> Floats:
    """Of each row without its NaN, by linear interpolation; `numpy.nanpercentile` takes a hundred times as long."""
    ordered = np.sort(seen, axis=1)
    places = PERCENT / 100 * (np.count_nonzero(~np.isnan(seen), axis=1) - 1)
    low, rows = np.floor(places).astype(np.intp), np.arange(len(seen))
    below, above = ordered[rows, low], ordered[rows, np.ceil(places).astype(np.intp)]
    found: Floats = below + (places - low) * (above - below)
    return found


def before(of: RecordedFleet, resource: int, policy: PredictionPolicy, at: Rows) -> Judged:
    """What agents answered at those ticks."""
    bank = FleetBank(of.schedule, resource, (24,), policy)
    promised: dict[str, list[Floats]] = {name: [] for name in BEFORE}
    requested, wanted = [], set(at.tolist())
    for tick in replay.ticks(of.recorded, of.schedule):
        bank.train(tick)
        if tick.index in wanted:
            situation = bank.situation(tick)
            requested.append(of.schedule.sums(tick.pods, tick.limits))
            for name, rule in BEFORE.items():
                promised[name].append(rule(situation, policy.parameters)[:, resource])
    return Judged({name: np.array(peaks) for name, peaks in promised.items()}, _came(of, at), np.array(requested))


def _came(of: RecordedFleet, at: Rows) -> Floats:
    came: Floats = oracle.future_peaks(of.recorded, of.schedule, at, [DAY_TICKS])[0]
    return came


def _warm(situation: Situation, judged: Floats) -> Floats:
    return situation.by_node(np.where(situation.cold[:, np.newaxis], 0.0, judged))


def _cold(situation: Situation) -> Floats:
    return situation.by_node(np.where(situation.cold[:, np.newaxis], situation.requests, 0.0))


def _n_sigma(histories: Histories, parameters: Parameters) -> Floats:
    return histories.means + parameters.sigma * histories.stdevs


def _n_sigma_v1(situation: Situation, parameters: Parameters) -> Floats:
    return _n_sigma(situation.whole, parameters) + _cold(situation)


def _n_sigma_v2(situation: Situation, parameters: Parameters) -> Floats:
    warm = _warm(situation, _n_sigma(situation.pods, parameters))
    peaks: Floats = np.maximum(_n_sigma(situation.whole, parameters), warm) + _cold(situation)
    return peaks


def _resource_central(situation: Situation, parameters: Parameters) -> Floats:
    peaks: Floats = _warm(situation, situation.pods.percentiles(parameters.percentiles)) + _cold(situation) + IDLE
    return peaks


def _percentile(situation: Situation, parameters: Parameters) -> Floats:
    model = Percentile(parameters)
    by_pod = np.minimum(model.by_pod(situation) / _PER_UNIT, situation.requests)
    by_class = model.by_class(situation) / _PER_UNIT + 2 * parameters.with_margin(10) * IDLE
    peaks: Floats = np.maximum(_warm(situation, by_pod) + _cold(situation), by_class)
    return peaks


BEFORE: Mapping[str, Rule] = {
    "n-sigma-v2": _n_sigma_v2,
    "n-sigma-v1": _n_sigma_v1,
    "percentile": _percentile,
    "resource-central": _resource_central,
}
