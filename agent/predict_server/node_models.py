"""What a node's models know: histograms by entity, the active model, its shadows, and the promises that are judged."""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from agent.metric_cache import series
from agent.predict_server import policy, situations
from agent.predict_server.calibration import LONGEST_GAP_SECONDS
from agent.predict_server.checkpoint import CheckpointLog, Restored
from agent.predict_server.decay import Floats
from agent.predict_server.forgetting import Forgetting
from agent.predict_server.model_time import ModelTime
from agent.predict_server.plugins import Model
from agent.predict_server.policy import PredictionPolicy
from agent.predict_server.shadows import Shadows
from agent.predict_server.table import ModelTable
from agent.predict_server.truth import NOTHING_JUDGED, Truth
from agent.settings import AgentSettings
from agent.states_informer.pods import NodePod
from shared.api.forgetting import NODE
from shared.clock import Clock
from shared.errors import InvalidInput
from shared.quantity import Resources

logger = logging.getLogger(__name__)

# Models beyond this number are dropped early, the longest unused first, but never one of a present pod.
MOST_IDLE_MODELS = 4096
POD_EXPIRATION_SECONDS = 1800.0
WORKLOAD_EXPIRATION_SECONDS = 604_800.0  # after the last pod of a workload on this node was deleted
MISSED_STEPS = 5  # of training; promises can still be judged after such a gap, however slow the steps


class PreparedPolicy(NamedTuple):
    """A policy with its models, and the refused parts, whose last good values stay."""

    policy: PredictionPolicy
    model: Model
    shadows: Shadows
    problems: tuple[InvalidInput, ...]


class NodeModels:
    """Not thread-safe. `log` keeps each change of the table for the checkpoint. Times are those of `time`."""

    def __init__(
        self, settings: AgentSettings, clock: Clock, log: CheckpointLog, on_failure: Callable[[str], None]
    ) -> None:
        """Raises InvalidInput for a predictor that does not exist or cannot be created."""
        self.policy = self._base = policy.from_settings(settings)
        self.problem = ""  # of the policy that was last followed
        self.time = ModelTime(clock, settings.prediction_hour_seconds)
        self.table = ModelTable(
            cpu_half_life_seconds=self.policy.cpu_half_life_seconds,
            memory_half_life_seconds=self.policy.memory_half_life_seconds,
        )
        self.forgetting = Forgetting()
        self.capacity = Resources()  # of the node when it was last known
        # How long the models of deleted pods and of workloads without a pod here are kept
        self._pod_seconds = self.time.of(POD_EXPIRATION_SECONDS)
        self._workload_seconds = self.time.of(WORKLOAD_EXPIRATION_SECONDS)
        self._log = log
        self._log.begin(self.table)
        self._on_failure = on_failure
        self._shadow_names = settings.shadow_predictors
        self._is_told = False  # whether the first NodeMetric has been followed
        steps_seconds = MISSED_STEPS * self.time.of(settings.histogram_update_interval_seconds)
        self._longest_gap_seconds = max(LONGEST_GAP_SECONDS, steps_seconds)
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Empty models, without promises. Raises InvalidInput for a predictor that cannot be created."""
        self.model = self._create(self.policy, source="settings")
        self.shadows = Shadows(self._shadow_names, self.policy, self._on_failure)
        self._restored: Mapping[str, bytes] = {}  # states of models that may be active once the NodeMetric is read
        self.truth = Truth(series.PROD_PEAK, self.policy.horizons_seconds, self._longest_gap_seconds)
        self._follow_models()

    def restore(self, restored: Restored) -> None:
        """Goes on from a checkpoint."""
        self.table = restored.table
        self.forgetting = Forgetting(restored.last.forgotten)
        self._restored = restored.last.states
        self.model.restore(self._restored)
        self.shadows.restore(self._restored)
        try:
            self.truth.restore(restored.last.outcomes)
        except ValueError as error:
            logger.error("outcomes of predictions cannot be read and start again: %s", error)
        self._follow_models()
        self._log.begin(self.table)
        self._follow_half_lives()

    def prepare(self, spec: dict[str, object]) -> PreparedPolicy:
        """Prepares the models for a NodeMetric's policy. It changes nothing, and creating models may take its time."""
        new, problems = policy.followed(self._base, self.policy, spec)
        try:
            if new != self.policy:
                shadows = Shadows(self._shadow_names, new, self._on_failure)
                return PreparedPolicy(new, self._create(new, source=policy.SOURCE), shadows, problems)
        except InvalidInput as error:
            problems = (*problems, error)
        return PreparedPolicy(self.policy, self.model, self.shadows, problems)

    def follow(self, wanted: PreparedPolicy) -> None:
        if wanted.policy != self.policy:
            known = self.states()
            wanted.model.restore(known)  # a model that stays, or was a shadow, keeps its knowledge
            wanted.shadows.restore(known)
            self.policy, self.model, self.shadows = wanted.policy, wanted.model, wanted.shadows
        self.problem = "; ".join(map(str, wanted.problems))
        self._is_told, self._restored = True, {}
        self._follow_models()
        self._follow_half_lives()

    def now(self) -> float:
        """The models' time. After a change of the clock it shifts the models' times: otherwise a step forward would
        count as history.
        """
        now, step = self.time.look()
        if step:
            logger.warning("the clock was set", extra={"forward_seconds": self.time.wall(step)})
            for part in (self.table, self._log, self.truth, self.model, self.shadows):
                part.set_clock(step)
        return now

    def learn(self, keys: Sequence[str], amounts: Floats, pods: Sequence[NodePod] | None, now: float) -> None:
        """Takes one aggregate of usage of each entity, shape (keys, 2); None for pods that are not known."""
        self.table.train(keys, amounts, now)
        self._log.trained(keys, amounts, now)
        self.model.update(keys, amounts, now)
        self.shadows.update(keys, amounts, now)
        if pods is not None:
            self._observe(keys, amounts, pods, now)

    def _observe(self, keys: Sequence[str], amounts: Floats, pods: Sequence[NodePod], now: float) -> None:
        """Gives models the outcomes of their promises, which cover lending pods and the system."""
        lending = {pod.uid for pod in pods if pod.lends} | {series.SYSTEM}
        places = [place for place, key in enumerate(keys) if key in lending]
        rows = [self.table.rows[keys[place]] for place in places]
        capacity = situations.capacities(self.capacity)[0].tolist()
        judged = self.truth.observe(amounts[places], self.table.first_observed[rows], now, capacity)
        self.model.observe(*judged.get(self.active, NOTHING_JUDGED))
        self.shadows.observe(judged)

    def forget(self, pods: Sequence[NodePod], now: float) -> bool:
        """Forgets models that expired, and what the Node's annotations ask for: everything, or workloads and their
        pods. Returns whether something was asked for.
        """
        self._drop(list(self._expired({pod.uid for pod in pods}, now)))
        asked = self.forgetting.due(self.time.wall(now))
        for of, until in asked.items():
            if of == NODE:
                keys = list(self.table.rows)
                self._begin_anew()
            else:
                own = [series.of_workload(of), *(pod.uid for pod in pods if pod.workload == of)]
                keys = [key for key in own if key in self.table.rows]
            self._drop(keys)
            self.forgetting.done(of, until, len(keys))
        return bool(asked)

    def _expired(self, present: Collection[str], now: float) -> Iterator[str]:
        """The keys of models that are idle for too long, or exceed the limit; never those of `present` pods."""
        idle = []
        for key, row in self.table.rows.items():
            if key in present or key in series.NODE_ENTITIES:
                continue
            updated = float(self.table.last_updated[row])
            is_workload = series.named(key)[0] is series.Kind.WORKLOAD
            if updated < now - (self._workload_seconds if is_workload else self._pod_seconds):
                yield key
            elif updated < self.table.time:
                idle.append((updated, key))
        yield from (key for _, key in sorted(idle)[: max(0, len(idle) - MOST_IDLE_MODELS)])

    def _drop(self, keys: Sequence[str]) -> None:
        if keys:
            self.table.forget(keys)
            self._log.forgot(keys)

    def states(self) -> dict[str, bytes]:
        """The models' states, by name."""
        return {**self._restored, **self.shadows.states(), **self.model.states()}

    def is_trained(self) -> bool:
        """Whether every entity of a result has a model."""
        least = max(1, self.policy.warm_up_samples)
        return all(self.table.samples_of(key) >= least for key in series.NODE_ENTITIES)

    def _create(self, wanted: PredictionPolicy, *, source: str) -> Model:
        return Model(wanted.predictor, wanted.parameters, source=source, on_failure=self._on_failure)

    def _follow_models(self) -> None:
        """Counts the promises of these models from now on. Until the NodeMetric is read, no promises are dropped."""
        self.active = self.policy.identity(self.model.names)
        horizons = self.policy.horizons_seconds
        self.truth.follow(self.active, self.shadows.names, horizons, keep_others=not self._is_told)

    def _follow_half_lives(self) -> None:
        wanted = (self.policy.cpu_half_life_seconds, self.policy.memory_half_life_seconds)
        if wanted == tuple(bank.half_life_seconds for bank in self.table.banks):
            return
        now = self.now()
        self.table.change_half_lives(cpu_seconds=wanted[0], memory_seconds=wanted[1], time=now)
        self._log.changed_half_lives(self.table, now)
