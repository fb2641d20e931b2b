"""`peak-mix` as a predictor: the formula of `peak_mix`, and a margin for the policy's target, learned from the node.

Maxima and ages come from the bank. This module keeps, by node, horizon and resource, the mean of the last two weeks,
predictions and their outcomes, the debt of broken promises, and the peaks of the last hours, which stay promised.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

from agent.predict_server import calibration, ledger, peak_mix, states, surprises
from agent.predict_server.calibration import DRIFT_DAYS, DRIFT_HOURS, HOUR_SECONDS
from agent.predict_server.daily import DAY_SECONDS, Arrays, DailyMeans
from agent.predict_server.debts import Debts, violated
from agent.predict_server.decay import Floats
from agent.predict_server.histories import Candidates, Histories
from agent.predict_server.models import Debt, OpenPromises, Outcome, Parameters, Predictor, Situation, Uses
from agent.predict_server.outcomes import Outcomes
from agent.predict_server.peak_mix import NODE_DAYS, POD_DAYS, Forecast, Held, NodeArrays, PodArrays
from shared.api import predictionprior
from shared.api.predictionprior import ObservedTail, Prior

logger = logging.getLogger(__name__)

NAME = "peak-mix"
# An agent asks about two, the lending pods and all pods; a caller with ever new ones must not leak memory
MOST_FLEETS = 4
_Kept = TypeVar("_Kept")

STATE_VERSION = 3  # 1, without a number, had no debts; those of 2 were the withheld share
_RESOURCES = ("cpu", "memory")
_VERSION = "version"
_NODES = "of "  # in a checkpoint, followed by the node; and the key of its series
_EVER = -(2**31)
_DAY_HOURS = 24
_WEEK, _TWO_WEEKS = POD_DAYS - 1, NODE_DAYS - 1  # days before today


class PeakMix(Predictor):
    """In at most the target's percent of hours, and a debt that `debts` bounds, usage exceeds what was promised."""

    name = NAME
    uses = frozenset({Uses.TARGET})

    def __init__(self, parameters: Parameters) -> None:
        self._factor = parameters.with_margin(0)
        self._target_percent = parameters.target_violation_percent
        self._prior = parameters.prior
        self._fleets: dict[tuple[str, ...], _Fleet] = {}

    def update(self, keys: Sequence[str], usages: Floats, time: float) -> None:
        for fleet in self._fleets.values():
            fleet.update(keys, usages, time)

    def peak(self, situation: Situation) -> Candidates:
        fleet = self._fleet(situation.whole.keys)
        return {NAME: fleet.peaks(situation, self._target_percent, self._prior) * self._factor}

    def _fleet(self, nodes: tuple[str, ...]) -> "_Fleet":
        """The fleet of those nodes, now the last used; drops the least recently used fleets."""
        fleet = self._fleets.pop(nodes) if nodes in self._fleets else _Fleet(nodes)
        self._fleets[nodes] = fleet
        for oldest in list(self._fleets)[:-MOST_FLEETS]:
            del self._fleets[oldest]
        return fleet

    def tails(self, node: str) -> Mapping[float, tuple[ObservedTail, ObservedTail]]:
        fleet = next((one for nodes, one in self._fleets.items() if node in nodes), None)
        return {} if fleet is None else fleet.observed(fleet.nodes.index(node))

    def watch(self, promises: Sequence[OpenPromises]) -> None:
        for one in promises:
            if one.nodes in self._fleets:
                self._fleets[one.nodes].watch(one)

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            if outcome.nodes in self._fleets:
                self._fleets[outcome.nodes].observe(outcome, self._target_percent)

    def debts(self, node: str) -> Mapping[float, tuple[Debt, Debt]]:
        fleet = next((one for nodes, one in self._fleets.items() if node in nodes), None)
        return {} if fleet is None else fleet.debts(fleet.nodes.index(node), self._target_percent)

    def set_clock(self, seconds: float) -> None:
        for fleet in self._fleets.values():
            fleet.set_clock(seconds)

    def state(self) -> bytes:
        fleets = enumerate(self._fleets.values())
        parts = {f"{number} {part}": arrays for number, one in fleets for part, arrays in one.parts()}
        return states.encode({_VERSION: {"number": np.array([STATE_VERSION])}, **parts})

    def restore(self, state: bytes) -> None:
        by_fleet: dict[str, dict[str, Arrays]] = {}
        parts = states.decode(state)
        version = int(parts.pop(_VERSION, {"number": np.ones(1)})["number"][0])
        if version > STATE_VERSION:
            raise ValueError(f"a state of version {version}, where {STATE_VERSION} is the newest known one")
        for name, arrays in parts.items():
            number, _, part = name.partition(" ")
            by_fleet.setdefault(number, {})[part] = arrays
        fleets = [_Fleet.restored(parts) for parts in by_fleet.values()]
        self._fleets = {fleet.nodes: fleet for fleet in fleets}


class _Fleet:
    """Nodes of one request; an agent has one node. Arrays have the shape (nodes, ...)."""

    def __init__(self, nodes: tuple[str, ...]) -> None:
        self.nodes = nodes
        self._means = [DailyMeans(NODE_DAYS, len(nodes)) for _ in _RESOURCES]
        self._usage: Floats = np.zeros((len(nodes), 2))
        # Of the nodes among the keys of a training step, usually the same as in the last one
        self._rows: list[int] = []
        self._memory_from = np.full((len(nodes), 2), _EVER)  # days since 1970; earlier maxima are ignored
        self._outcomes: dict[int, list[Outcomes]] = {}  # by horizon in hours
        self._held: dict[int, list[Held]] = {}
        self._debts: dict[int, list[Debts]] = {}
        self._withheld: dict[int, Floats] = {}  # shape (nodes, 2)
        self._causes = np.zeros((2, len(nodes)), np.int64)  # why a promise would break now
        self._tails: dict[int, list[tuple[calibration.FittedTail, Floats]]] = {}  # until the next outcome

    def update(self, keys: Sequence[str], usages: Floats, time: float) -> None:
        if [keys[row] for row in self._rows if row < len(keys)] != list(self.nodes):
            places = {key: place for place, key in enumerate(keys)}
            self._rows = [places[node] for node in self.nodes if node in places]
        if len(self._rows) == len(self.nodes):
            self._usage = usages[self._rows]
            for means, samples in zip(self._means, self._usage.T, strict=True):
                means.observe(samples, time)

    def watch(self, promises: OpenPromises) -> None:
        broken = violated(promises.promised, promises.reached)
        for resource, debts in enumerate(self._debts.get(ledger.hours(promises.horizon_seconds), ())):
            of = broken[:, :, resource]
            debts.watch(promises.predicted_at, of, promises.time, self._causes[resource])

    def observe(self, outcome: Outcome, target_percent: float) -> None:
        hours = ledger.hours(outcome.horizon_seconds)
        time, broken = outcome.predicted_at + outcome.horizon_seconds, violated(outcome.promised, outcome.realised)
        for resource, debts in enumerate(self._debts.get(hours, ())):
            made, of = np.array([outcome.predicted_at]), broken[np.newaxis, :, resource]
            debts.watch(made, of, time, self._causes[resource])
            debts.settle(target_percent, of[0])
        for one, realised in zip(self._outcomes.get(hours, ()), outcome.realised.T, strict=False):
            one.settle(outcome.predicted_at, realised, time)
        self._tails.pop(hours, None)

    def peaks(self, situation: Situation, target_percent: float, prior: Prior | None) -> Floats:
        """Shape (horizons, nodes, 2); a longer horizon is never below a shorter one."""
        time = situation.time
        forecasts, ceilings = self._forecasts(situation)
        requested = situation.by_node(situation.requests)
        unbreakable = ceilings if situation.capacity is None else situation.capacity
        unbreakable = np.where(np.isfinite(unbreakable), unbreakable, ceilings)
        ceilings = np.minimum(ceilings, unbreakable)
        hours = [ledger.hours(seconds) for seconds in situation.horizons_seconds]
        promised: Floats = np.zeros((len(hours), len(self.nodes), 2))
        lowest: Floats = np.zeros((len(self.nodes), 2))
        for place in np.argsort(hours, kind="stable").tolist():
            horizon = hours[place]
            self._predict(horizon, forecasts, situation)
            held = self._held.setdefault(horizon, [Held(len(self.nodes)) for _ in _RESOURCES])
            priors = predictionprior.tails(prior, horizon * HOUR_SECONDS)
            withheld = self._withheld.setdefault(horizon, np.zeros_like(requested))
            facts = zip(forecasts, self._learned(horizon), priors, self._debts[horizon], strict=True)
            for resource, (forecast, (tail, days), start, debts) in enumerate(facts):
                margin = calibration.margins(tail, days, target_percent, start)
                share, ends_run = debts.withheld(), debts.ends_run(time)
                most = np.where((share >= 1) | ends_run, unbreakable[:, resource], ceilings[:, resource])
                usage, lendable = self._usage[:, resource], requested[:, resource]
                peaks = forecast.peaks(margin, share, usage, most)
                without = forecast.peaks(margin, np.minimum(share, 0.0), usage, most)
                held[resource].raise_to(peaks, time)
                peaks = np.where(ends_run, most, peaks)
                withheld[:, resource] = np.minimum(peaks, lendable) - np.minimum(without, lendable)
                lowest[:, resource] = np.maximum(lowest[:, resource], np.maximum(peaks, held[resource].peaks(most)))
            promised[place] = lowest
        return promised

    def observed(self, node: int) -> dict[float, tuple[ObservedTail, ObservedTail]]:
        """By horizon in seconds, the tail of one node's outcomes, where it has any; cpu and memory."""

        def of(learned: tuple[calibration.FittedTail, Floats]) -> ObservedTail:
            tail, days = learned
            return ObservedTail(
                predictionprior.Tail(float(tail.quantile[node]), float(tail.excess[node])), float(days[node])
            )

        found = {float(horizon * HOUR_SECONDS): self._learned(horizon) for horizon in self._outcomes}
        return {seconds: (of(cpu), of(memory)) for seconds, (cpu, memory) in found.items() if cpu[1][node] > 0}

    def debts(self, node: int, target_percent: float) -> dict[float, tuple[Debt, Debt]]:
        def of(horizon: int, resource: int) -> Debt:
            debts, withheld = self._debts[horizon][resource], self._withheld.get(horizon)
            promises = debts.promises_of(node)
            return Debt(
                surprises=debts.surprises_of(node),
                promises=promises,
                withheld=0.0 if withheld is None else float(withheld[node, resource]),
                seconds=promises * 100 / target_percent * HOUR_SECONDS,
                last=float(debts.last[node]),
                cause=surprises.CAUSES[int(debts.causes[node])],
            )

        return {float(horizon * HOUR_SECONDS): (of(horizon, 0), of(horizon, 1)) for horizon in self._debts}

    def _learned(self, horizon: int) -> list[tuple[calibration.FittedTail, Floats]]:
        """The tails of cpu and memory for a horizon in hours, computed again after each new outcome."""
        if horizon not in self._tails:
            self._tails[horizon] = [one.tails() for one in self._outcomes[horizon]]
        return self._tails[horizon]

    def _predict(self, horizon: int, forecasts: Sequence[Forecast], situation: Situation) -> None:
        """Records this hour's prediction, if it is not recorded yet; checks once a day whether a node has changed."""
        time = situation.time
        if horizon not in self._outcomes:
            self._outcomes[horizon] = [Outcomes(horizon, len(self.nodes)) for _ in _RESOURCES]
            self._debts[horizon] = [Debts(horizon, len(self.nodes)) for _ in _RESOURCES]
        outcomes = self._outcomes[horizon]
        if outcomes[0].predicted_in(time):
            return
        ages_days = (time - situation.whole.first_observed) / DAY_SECONDS
        for one, forecast in zip(outcomes, forecasts, strict=True):
            one.predict(forecast.base, forecast.scale, ages_days, time)
        self._causes = surprises.causes(situation.whole.daily_maxima(), [one.together for one in forecasts])
        if int(time // HOUR_SECONDS) % _DAY_HOURS == 0 and horizon == _DAY_HOURS:
            self._shorten_memory_after_drift(situation)
        self._tails.pop(horizon, None)

    def _shorten_memory_after_drift(self, situation: Situation) -> None:
        """Where usage has changed, forgets the node's earlier peaks, and says anew what was learned with them."""
        by_resource = self._outcomes[_DAY_HOURS]
        changed = [np.flatnonzero(outcomes.drifted()) for outcomes in by_resource]
        for resource, drifted in enumerate(changed):
            self._memory_from[drifted, resource] = int(situation.time // DAY_SECONDS) - DRIFT_DAYS + 1
        forecasts, _ = self._forecasts(situation) if any(map(len, changed)) else ([], None)
        for resource, (drifted, forecast) in enumerate(zip(changed, forecasts, strict=False)):
            if not len(drifted):
                continue
            by_resource[resource].forget(drifted, but_hours=DRIFT_HOURS)
            by_resource[resource].expect(drifted, forecast.base[drifted], forecast.scale[drifted])
            names = [self.nodes[place] for place in drifted.tolist()]
            known = {"of": names, "resource": _RESOURCES[resource]}
            logger.warning("usage has changed permanently; older history is dropped", extra=known)

    def _forecasts(self, situation: Situation) -> tuple[list[Forecast], Floats]:
        """For each resource; and the most that the pods may use, shape (nodes, 2). The system is a pod of its own."""
        own = situation.inheriting(lambda histories: histories.maxima(_WEEK))
        ages = situation.ages_seconds.copy()
        if len(situation.inherited):
            of_workloads = situation.time - situation.workloads.first_observed
            ages[situation.inherited] = np.maximum(ages[situation.inherited], of_workloads)
        system = situation.system.maxima(_WEEK)
        pods = np.where(np.isinf(situation.limits), np.maximum(situation.requests, own), situation.limits)
        ceilings = situation.by_node(pods) + system
        own, requests = np.concatenate([own, system]), np.concatenate([situation.requests, np.zeros(system.shape)])
        nodes = np.concatenate([situation.pod_nodes, np.arange(len(self.nodes))])
        system_ages = situation.time - situation.system.first_observed
        ages_days = np.maximum(np.concatenate([ages, system_ages]), 0.0) / DAY_SECONDS
        node_ages = (situation.time - situation.whole.first_observed) / DAY_SECONDS
        week = self._node_maxima(situation.whole, _WEEK, situation.time)
        two_weeks = self._node_maxima(situation.whole, _TWO_WEEKS, situation.time)
        unforgotten = situation.whole.maxima(_TWO_WEEKS)
        decayed = situation.whole.means

        def forecast(resource: int) -> Forecast:
            means = self._means[resource]
            mean = np.where(means.counts.sum(axis=1) > 0, means.means(), decayed[:, resource])
            return peak_mix.forecast(
                PodArrays(nodes, requests[:, resource], own[:, resource], ages_days),
                NodeArrays(week[:, resource], two_weeks[:, resource], unforgotten[:, resource], mean, node_ages),
            )

        return [forecast(resource) for resource in range(len(_RESOURCES))], ceilings

    def _node_maxima(self, whole: Histories, days: int, time: float) -> Floats:
        """The largest samples of today and the given number of days before, within the time to remember."""
        largest = whole.maxima(days)
        remembered = int(time // DAY_SECONDS) - self._memory_from
        for fewer in np.unique(remembered[(remembered >= 0) & (remembered < days)]).tolist():
            largest = np.where(remembered == fewer, whole.maxima(fewer), largest)
        return largest

    def set_clock(self, seconds: float) -> None:
        for one in self._of_all(self._outcomes):
            one.set_clock(seconds)
        for debts in self._of_all(self._debts):
            debts.set_clock(seconds)
        for held in self._of_all(self._held):
            held.hour += round(seconds / HOUR_SECONDS) if held.hour >= 0 else 0
        days = round(seconds / DAY_SECONDS)
        for means in self._means:
            means.day = None if means.day is None else means.day + days
        self._memory_from[self._memory_from != _EVER] += days
        self._tails.clear()

    def parts(self) -> Iterator[tuple[str, Arrays]]:
        """All of the state, for a checkpoint."""
        for key in self.nodes:
            yield f"{_NODES}{key}", {}
        yield "now", {"usage": self._usage, "memory_from": self._memory_from}
        for resource, means in zip(_RESOURCES, self._means, strict=True):
            yield f"{resource} means", means.arrays()
        for hours, outcomes in self._outcomes.items():
            for resource, one, held in zip(_RESOURCES, outcomes, self._held[hours], strict=True):
                yield f"{resource} outcomes {hours}", one.arrays()
                yield f"{resource} held {hours}", held.arrays()
            for resource, debts in zip(_RESOURCES, self._debts[hours], strict=True):
                yield f"{resource} debts {hours}", debts.arrays()

    @classmethod
    def restored(cls, parts: Mapping[str, Arrays]) -> "_Fleet":
        """Restores the result of `parts`. Raises KeyError and ValueError."""
        fleet = cls(tuple(part.removeprefix(_NODES) for part in parts if part.startswith(_NODES)))
        shape = (len(fleet.nodes), len(_RESOURCES))
        fleet._usage = np.array(parts["now"]["usage"], np.float64)
        fleet._memory_from = np.array(parts["now"]["memory_from"], np.int64)
        fleet._means = [DailyMeans.of_arrays(parts[f"{resource} means"]) for resource in _RESOURCES]
        for hours in [int(part.rpartition(" ")[2]) for part in parts if part.startswith("cpu outcomes ")]:
            fleet._outcomes[hours] = [Outcomes.of_arrays(parts[f"{each} outcomes {hours}"]) for each in _RESOURCES]
            fleet._held[hours] = [Held.of_arrays(parts[f"{each} held {hours}"]) for each in _RESOURCES]
            fleet._debts[hours] = [
                Debts.of_arrays(parts[name]) if (name := f"{each} debts {hours}") in parts else Debts(hours, shape[0])
                for each in _RESOURCES
            ]
            kept = [one.horizon_hours for one in fleet._outcomes[hours]]
            if {*kept, *(one.horizon_hours for one in fleet._debts[hours])} != {hours}:
                raise ValueError(f"outcomes of another horizon than {hours} h")
        rows = {len(means.sums) for means in fleet._means} | {len(one.hourly) for one in fleet._of_all(fleet._held)}
        rows |= {len(one.base) for one in fleet._of_all(fleet._outcomes)}
        rows |= {len(one.debt) for one in fleet._of_all(fleet._debts)}
        if fleet._usage.shape != shape or fleet._memory_from.shape != shape or rows != {len(fleet.nodes)}:
            raise ValueError(f"what is kept is not of the nodes {fleet.nodes}")
        return fleet

    @staticmethod
    def _of_all(by_horizon: Mapping[int, Sequence[_Kept]]) -> list[_Kept]:
        return [one for both in by_horizon.values() for one in both]
