"""Trains the models from the metric cache, answers what they predict, and keeps the checkpoint."""

import logging
import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from agent.metric_cache.cache import MetricCache
from agent.predict_server import compact, predicting
from agent.predict_server.checkpoint import CheckpointLog
from agent.predict_server.compact import CompactHistogram
from agent.predict_server.histories import History
from agent.predict_server.node_models import NodeModels
from agent.predict_server.policy import PredictionPolicy
from agent.predict_server.prediction import NodePrediction
from agent.settings import AgentSettings
from agent.states_informer.informer import LocalNode
from agent.states_informer.pods import NodePod
from shared.clock import Clock
from shared.metric_families import CounterFamily
from shared.quantity import Resources

logger = logging.getLogger(__name__)

PUNCTUAL_SECONDS = 1.0  # a step that is this much early must not skip its checkpoint

_TRAINING_STEPS = CounterFamily("headroom_agent_training_steps", "Training steps of the prediction.")
_REFUSED_POLICIES = CounterFamily("headroom_agent_refused_policies", "Predict policies that the agent rejected.")
_PREDICTOR_FAILURES = CounterFamily(
    "headroom_agent_predictor_failures", "Failures and invalid results of predictors.", ("predictor",)
)
_CHECKPOINTS = CounterFamily("headroom_agent_checkpoints", "Checkpoints of the prediction, by outcome.", ("outcome",))


class PredictServer:
    """Safe to use from any thread."""

    def __init__(self, settings: AgentSettings, cache: MetricCache, clock: Clock, *, registry: CollectorRegistry):
        """Raises InvalidInput for a predictor that does not exist or cannot be created."""
        self._checkpoint_seconds = settings.checkpoint_interval_seconds
        self._reach_seconds = settings.metric_retention_seconds - 60  # margin for seconds that drop out while we read
        self._interval_seconds = min(math.ceil(settings.histogram_update_interval_seconds), self._reach_seconds)
        self._cache = cache
        self._clock = clock
        self._lock = threading.Lock()
        self._trained_until: int | None = None  # second of the cache
        self._saved_at: float | None = None
        self._log = CheckpointLog(Path(settings.state_dir), settings.node_name, settings.prediction_hour_seconds)
        self._steps = _TRAINING_STEPS.register(registry)
        self._refused = _REFUSED_POLICIES.register(registry)
        self._failures = _PREDICTOR_FAILURES.register(registry)
        self._checkpoints = _CHECKPOINTS.register(registry)
        self._models = NodeModels(settings, clock, self._log, lambda model: self._failures.labels(model).inc())

    @property
    def policy(self) -> PredictionPolicy:
        return self._models.policy

    @property
    def model_count(self) -> int:
        return len(self._models.table.rows)

    def restore(self) -> None:
        """Restores the checkpoint's models; call it before any training."""
        restored = self._log.restore(self._clock.now())
        if restored is None:
            return
        with self._lock:
            self._models.restore(restored)
            until = restored.last.trained_until
            self._trained_until = until if until >= 0 else None
        logger.info("models restored", extra={"models": self.model_count})

    def apply(self, spec: dict[str, object] | None) -> None:
        """Applies a NodeMetric's policy (None: our own); an invalid part is refused and its last good value stays."""
        wanted = self._models.prepare(spec or {})
        for problem in wanted.problems:
            self._refused.inc()
            logger.error("policy refused: %s", problem)
        with self._lock:
            self._models.follow(wanted)

    def heed(self, annotations: Mapping[str, str]) -> None:
        """The next training step forgets, once, what the Node's annotations ask for."""
        self._models.forgetting.heed(annotations)

    def train(self, pods: Sequence[NodePod] | None) -> None:
        """Gives every model one aggregate of its unseen samples, each sample once; expires models, and saves if due.

        `pods` are those of the node, whose models never expire; None while they are unknown.
        """
        second = self._cache.last_second
        unseen = self._unseen_seconds(second)
        usages = self._cache.usages(self.policy.training_aggregation, unseen, until=second) if unseen > 0 else {}
        amounts = np.array(list(usages.values()), np.float64).reshape(-1, 2)
        with self._lock:
            now = self._models.now()
            if usages:
                self._models.learn(list(usages), amounts, pods, now)
            if second >= 0:
                self._trained_until = second
            if pods is not None and self._models.forget(pods, now):
                self._saved_at = None  # saves at once
        self._steps.inc()
        monotonic = self._clock.monotonic()
        if self._saved_at is None or monotonic - self._saved_at > self._checkpoint_seconds - PUNCTUAL_SECONDS:
            self.save()

    def _unseen_seconds(self, second: int) -> int:
        """The number of seconds of the cache up to `second` that no model has seen yet.

        Without a checkpoint, or with one for another cache, one interval counts. Seconds beyond the cache's reach are
        left out.
        """
        if second < 0:
            return 0
        if self._trained_until is None or self._trained_until > second:
            return self._interval_seconds
        return min(second - self._trained_until, self._reach_seconds)

    def save(self) -> None:
        """Writes a checkpoint; a failure is logged and counted, and does not stop predictions."""
        models = self._models
        with self._lock:
            content = self._log.next(
                models.table,
                trained_until=-1 if self._trained_until is None else self._trained_until,
                states=models.states(),
                outcomes=models.truth.state(),
                forgotten=models.forgetting.forgotten,
            )
        if content is None:
            return
        self._saved_at = self._clock.monotonic()
        try:
            self._log.write(content)
        except OSError as error:
            self._checkpoints.labels("failed").inc()
            logger.error("checkpoint not written: %s", error)
            return
        self._checkpoints.labels("written").inc()

    def predict(self, pods: Iterable[NodePod] | None, node: LocalNode | None) -> NodePrediction:
        """The reclaimable amount now. There is no claim without trained models, a Node, or pods (None: unknown)."""
        with self._lock:
            return predicting.predict(self._models, None if pods is None else list(pods), node)

    def peaks(self, pods: Iterable[NodePod]) -> dict[str, Resources]:
        """The present peak of the prod pods and the system, from every built-in model and the active one.

        Empty until every entity has a model.
        """
        with self._lock:
            return predicting.find_peaks(self._models, pods)

    def history(self, key: str) -> History | None:
        """The history of one entity, None for an unknown key."""
        with self._lock:
            return predicting.find_history(self._models, key)

    def cold(self, pod: NodePod) -> bool:
        """Whether a pod's history is too short to lend its unused request."""
        with self._lock:
            lending = predicting.find_lenders(self._models, [pod], self._models.now())
        return any(lender.cold for lender in lending)

    def histograms(self, key: str) -> dict[str, CompactHistogram] | None:
        """The distributions of one model by resource, None for an unknown key."""
        with self._lock:
            table, time = self._models.table, self._models.time
            row = table.rows.get(key)
            if row is None:
                return None
            saved = [compact.save(bank, row) for bank in table.banks]
        dated = [replace(one, reference_timestamp=time.wall(one.reference_timestamp)) for one in saved]
        return dict(zip(("cpu", "memory"), dated, strict=True))
