"""The agents of all nodes of a replay as one: their own bank, predictors and policy, on the recording's clock.

All recorded pods hold a request that may be lent, and a node has only those: no system, one priority class.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agent.backtest.recording import PodSchedule
from agent.backtest.replay import ReplayTick
from agent.predict_server import debts, plugins
from agent.predict_server.decay import Floats
from agent.predict_server.histogram import Rows
from agent.predict_server.histories import Histories
from agent.predict_server.ledger import Ledger
from agent.predict_server.models import OpenPromises, Outcome, Situation, Uses
from agent.predict_server.plugins import Model
from agent.predict_server.policy import PredictionPolicy
from agent.predict_server.table import ModelTable
from shared.errors import HeadroomError

HOUR_SECONDS = 3600.0
RESOURCES = ("cpu", "memory")  # in cores, and in bytes
_NO_SYSTEM = "system"  # never trained, so that it has a history of zeros


class BacktestPromise(NamedTuple):
    """The owner of a peak; a model without a target of its own has None."""

    model: str
    target_percent: float | None
    horizon_hours: int


class Open(NamedTuple):
    """The promises of a horizon without an outcome: when they were made, and the most that was used by now; shapes
    (promises,) and (promises, nodes, 2).
    """

    horizon_seconds: float
    made: Floats
    reached: Floats


class TrainingStep(NamedTuple):
    """A training step: a sample for each key, shape (keys, 2), and the outcomes of promises and those that are open."""

    keys: Sequence[str]
    usages: Floats
    outcomes: Sequence[Outcome]
    open: Sequence[Open]
    nodes: tuple[str, ...]
    time: float


class FleetModel:
    """One predictor (or `max(a,b)` of several) as the agents of all nodes run it.

    Raises InvalidInput for an unknown name, and HeadroomError for predictor failures that an agent would record.
    """

    def __init__(
        self,
        name: str,
        resource: int,
        horizons_hours: Sequence[int],
        policy: PredictionPolicy,
        target_percent: float | None,
    ) -> None:
        self.name, self.target_percent, self._resource = name, target_percent, resource
        self._horizons_hours = tuple(horizons_hours)
        parameters = policy.parameters
        if target_percent is not None:
            parameters = replace(parameters, target_violation_percent=target_percent)
        self._model = Model(name, parameters, source="--model", on_failure=lambda _: None)
        self._learns = Uses.TARGET in self._model.uses  # only such a model heeds broken promises before their outcome
        self._promised: dict[tuple[float, float], Floats] = {}  # by horizon and time in seconds; shape (nodes, 2)

    def train(self, samples: TrainingStep) -> None:
        """One training step, with the outcomes of this model's promises."""
        self._model.update(samples.keys, samples.usages, samples.time)
        outcomes = [
            replace(outcome, promised=self._promised.pop((outcome.horizon_seconds, outcome.predicted_at)))
            for outcome in samples.outcomes
        ]
        self._model.observe(outcomes, self._broken(samples) if self._learns else ())
        self._raise_problem()

    def _broken(self, samples: TrainingStep) -> list[OpenPromises]:
        """The open promises of each horizon of which one is broken."""
        found = []
        for seconds, made, reached in samples.open:
            if len(made):
                promised = np.stack([self._promised[seconds, one] for one in made.tolist()])
                if debts.violated(promised, reached).any():
                    found.append(OpenPromises(samples.nodes, seconds, made, promised, reached, samples.time))
        return found

    def peaks(self, situation: Situation) -> Mapping[BacktestPromise, Floats]:
        """The present promises, each of shape (nodes,)."""
        candidates = self._model.peak(situation)
        self._raise_problem()
        largest = np.maximum.reduce(list((candidates or {}).values()))
        for seconds, peaks in zip(situation.horizons_seconds, largest, strict=True):
            self._promised[seconds, situation.time] = peaks
        return {
            BacktestPromise(self.name, self.target_percent, hours): peaks[:, self._resource]
            for hours, peaks in zip(self._horizons_hours, largest, strict=True)
        }

    def _raise_problem(self) -> None:
        if self._model.problem:
            raise HeadroomError(self._model.problem)


def fleet_models(
    names: Sequence[str],
    resource: int,
    horizons_hours: Sequence[int],
    policy: PredictionPolicy,
    target_percents: Sequence[float],
) -> list[FleetModel]:
    """Each model once, or once per target if it has targets. Raises InvalidInput for an unknown name."""

    def targets(name: str) -> Sequence[float | None]:
        return target_percents if Uses.TARGET in plugins.uses(plugins.members(name, source="--model")) else [None]

    return [FleetModel(name, resource, horizons_hours, policy, target) for name in names for target in targets(name)]


class FleetBank:
    """The knowledge of all nodes' agents, in one table: a row for each pod and for each node."""

    def __init__(
        self, schedule: PodSchedule, resource: int, horizons_hours: Sequence[int], policy: PredictionPolicy
    ) -> None:
        self._resource, self._policy = resource, policy
        self._horizons_seconds = tuple(hours * HOUR_SECONDS for hours in horizons_hours)
        self._table = ModelTable(
            cpu_half_life_seconds=policy.cpu_half_life_seconds, memory_half_life_seconds=policy.memory_half_life_seconds
        )
        self._names = np.array([f"pod-{pod}" for pod in range(len(schedule.node))], object)
        self._node_keys = [f"node-{node}" for node in range(schedule.nodes)]
        self._ledger = Ledger(self._node_keys, self._horizons_seconds)
        self._pods: Rows = np.zeros(0, np.intp)
        self._pod_keys: list[str] = []
        self._owned: Rows = np.zeros(0, np.intp)  # places of pods that a workload replaces
        self._workload_of: Rows = np.zeros(0, np.intp)  # for each of these, the place of its workload
        self._workload_keys: list[str] = []

    def train(self, tick: ReplayTick) -> TrainingStep:
        """One training step of every node."""
        if tick.pods is not self._pods:
            self._table.forget(self._names[np.setdiff1d(self._pods, tick.pods, assume_unique=True)].tolist())
            self._pods, self._pod_keys = tick.pods, self._names[tick.pods].tolist()
            self._own(tick)
        keys = self._pod_keys + self._node_keys + self._workload_keys
        usages = np.zeros((len(keys), 2))
        of_nodes = np.bincount(tick.node, tick.usage, len(self._node_keys))
        pods_of = np.bincount(self._workload_of, minlength=len(self._workload_keys))
        of_workloads = np.bincount(self._workload_of, tick.usage[self._owned], len(self._workload_keys)) / pods_of
        usages[:, self._resource] = np.concatenate([tick.usage, of_nodes, of_workloads])
        self._table.train(keys, usages, tick.time)
        since = tick.time - tick.age_seconds
        outcomes = self._ledger.observe(tick.node, usages[: len(tick.pods)], since, tick.time)
        opened = [Open(seconds, *self._ledger.open(seconds)) for seconds in self._horizons_seconds]
        return TrainingStep(keys, usages, outcomes, opened, self._ledger.nodes, tick.time)

    def _own(self, tick: ReplayTick) -> None:
        """Records the workloads of a tick's pods; a workload's history covers one node."""
        self._owned = np.flatnonzero(tick.workload >= 0)
        pairs = np.stack([tick.node[self._owned], tick.workload[self._owned]], axis=1)
        known, self._workload_of = np.unique(pairs, axis=0, return_inverse=True)
        self._workload_of = self._workload_of.reshape(-1)
        self._workload_keys = [f"node-{node} workload-{workload}" for node, workload in known.tolist()]

    def promise(self, situation: Situation) -> None:
        """Records that models are asked now, to give them the outcome later; each model keeps its own promise."""
        self._ledger.begin(situation.time)

    def situation(self, tick: ReplayTick) -> Situation:
        """The agents' present input to their predictors."""
        whole = Histories(self._table, self._node_keys)
        requests = np.zeros((len(tick.pods), 2))
        requests[:, self._resource] = tick.limits
        pods = Histories(self._table, self._pod_keys)
        too_short = tick.age_seconds <= self._policy.cold_start_seconds
        heirs = self._heirs(tick.time, too_short & (pods.samples >= self._policy.warm_up_samples))
        too_short[self._owned[heirs]] = False
        keys = [self._workload_keys[place] for place in self._workload_of[heirs].tolist()]
        return Situation(
            time=tick.time,
            whole=whole,
            classes=whole,
            system=Histories(self._table, [_NO_SYSTEM] * len(self._node_keys)),
            pods=pods,
            pod_nodes=tick.node,
            requests=requests,
            limits=requests,
            ages_seconds=tick.age_seconds,
            cold=too_short | (pods.samples < self._policy.warm_up_samples),
            workloads=Histories(self._table, keys),
            inherited=self._owned[heirs],
            horizons_seconds=self._horizons_seconds,
        )

    def _heirs(self, time: float, young: NDArray[np.bool_]) -> Rows:
        """Which of the owned pods also use their workload's history, as in an agent."""
        of = Histories(self._table, self._workload_keys)
        known = time - of.first_observed > self._policy.cold_start_seconds
        known &= of.samples >= self._policy.warm_up_samples
        return np.flatnonzero(young[self._owned] & known[self._workload_of])
