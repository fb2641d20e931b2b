"""Trains the models, answers what can be reclaimed, and keeps the policy and the checkpoint."""

import logging
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter

from agent.metric_cache import series
from agent.metric_cache.aggregate import Aggregation
from agent.metric_cache.cache import MetricCache
from agent.metric_cache.series import Usage
from agent.predict_server import checkpoint, compact, policy, reclaimable
from agent.predict_server.compact import CompactHistogram
from agent.predict_server.models import History
from agent.predict_server.policy import Policy
from agent.predict_server.reclaimable import Inputs, Reclaimable, Requests, rounded_up
from agent.predict_server.table import ModelTable
from agent.settings import AgentSettings
from agent.states_informer.informer import NodeState
from agent.states_informer.pods import NodePod
from shared.clock import Clock
from shared.errors import InvalidInput
from shared.quantity import Resources

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Prediction:
    """One answer, whole: `prod` is None while nothing is known, and then nothing is reclaimable.

    `confidence_percent` is how much of the cold-start period the prod history covers.
    """

    time: float
    model: str
    requests: Requests
    prod: History | None = None
    model_peak: Resources | None = None
    node_peak: Resources | None = None
    reclaimable: Reclaimable | None = None
    confidence_percent: int = 0
    policy_problem: str = ""


class PredictServer:
    """Safe to use from any thread."""

    def __init__(self, settings: AgentSettings, cache: MetricCache, clock: Clock, *, registry: CollectorRegistry):
        self._base = self._policy = policy.from_settings(settings)
        self._policy_problem = ""
        self._node_name = settings.node_name
        self._expiration_seconds = settings.model_expiration_seconds
        self._checkpoint_seconds = settings.checkpoint_interval_seconds
        self._path = Path(settings.state_dir) / checkpoint.FILE_NAME
        self._cache = cache
        self._clock = clock
        self._lock = threading.Lock()
        self._trained_until = -1  # second of the cache
        self._saved_at: float | None = None
        self._table = ModelTable(
            cpu_half_life_seconds=self._policy.cpu_half_life_seconds,
            memory_half_life_seconds=self._policy.memory_half_life_seconds,
        )
        self._steps = Counter("headroom_agent_training_steps", "Training steps", registry=registry)
        self._refused = Counter("headroom_agent_refused_policies", "Predict policies refused", registry=registry)
        self._checkpoints = Counter(
            "headroom_agent_checkpoints", "Checkpoints by outcome", ["outcome"], registry=registry
        )

    @property
    def policy(self) -> Policy:
        return self._policy

    @property
    def model_count(self) -> int:
        return len(self._table.rows)

    def restore(self) -> None:
        """Takes over the checkpoint's models; to be called before anything is trained."""
        table = checkpoint.load(self._path, node=self._node_name, now=self._clock.now())
        if table is None:
            return
        with self._lock:
            self._table = table
            self._follow_half_lives()
        logger.info("models restored", extra={"models": self.model_count})

    def apply(self, spec: dict[str, object] | None) -> None:
        """Puts a NodeMetric's policy in force (None: our own); a bad one is refused and the last good one stays."""
        try:
            new = policy.overridden(self._base, (spec or {}).get("predictPolicy"))
        except InvalidInput as error:
            self._refused.inc()
            self._policy_problem = str(error)
            logger.error("policy refused: %s", error)
            return
        with self._lock:
            self._policy, self._policy_problem = new, ""
            self._follow_half_lives()

    def train(self, pods: Iterable[NodePod] | None) -> None:
        """Gives every model the P90 of the samples it has not seen, each sample once; tidies, and saves when due.

        `pods` are those of the node, whose models never expire; None while they are not known.
        """
        second = self._cache.last_second
        usages = self._cache.aggregate(Aggregation.P90, second - self._trained_until, until=second)
        with self._lock:
            now = self._clock.now()
            self._table.train(usages, now)
            self._trained_until = second
            if pods is not None:
                present = series.NODE_ENTITIES.union(pod.uid for pod in pods)
                self._table.expire(present, now - self._expiration_seconds)
        self._steps.inc()
        monotonic = self._clock.monotonic()
        if self._saved_at is None or monotonic - self._saved_at >= self._checkpoint_seconds:
            self.save()

    def save(self) -> None:
        """Writes a checkpoint; a failure is logged and counted, and does not keep anyone from predicting."""
        self._saved_at = self._clock.monotonic()
        with self._lock:
            state = checkpoint.of(self._table, node=self._node_name, now=self._clock.now())
        try:
            checkpoint.save(self._path, state)
        except OSError as error:
            self._checkpoints.labels("failed").inc()
            logger.error("checkpoint not written: %s", error, extra={"path": str(self._path)})
            return
        self._checkpoints.labels("written").inc()

    def predict(self, pods: Iterable[NodePod], node: NodeState | None) -> Prediction:
        """What can be reclaimed now. Without a trained prod series or a Node there is no claim."""
        now = self._clock.now()
        with self._lock:
            current, problem = self._policy, self._policy_problem
            prod, whole = self._table.history(series.PROD_PEAK), self._table.history(series.NODE)
            requests = reclaimable.requests(
                pods, lambda uid: self._table.observed_since(uid, now), now, current.cold_start_seconds
            )
        model = current.model()
        claim = Prediction(time=now, model=model.name, requests=requests, policy_problem=problem)
        if prod is None or whole is None or node is None:
            return claim
        peak = model.peak(prod)
        inputs = Inputs(
            allocatable=node.allocatable,
            requests=requests,
            history=prod,
            sigma=Usage(current.sigma_cpu, current.sigma_memory),
            model_peak=peak,
            ratio_percent=current.reclaim_ratio_percent,
            now=now,
        )
        return Prediction(
            time=now,
            model=model.name,
            requests=requests,
            prod=prod,
            model_peak=rounded_up(peak),
            node_peak=rounded_up(model.peak(whole)),
            reclaimable=reclaimable.compute(inputs),
            confidence_percent=_confidence(now - prod.first_observed, current.cold_start_seconds),
            policy_problem=problem,
        )

    def histograms(self, key: str) -> dict[str, CompactHistogram] | None:
        """The distributions of one model by resource, None for an unknown key."""
        with self._lock:
            row = self._table.rows.get(key)
            if row is None:
                return None
            return {"cpu": compact.save(self._table.cpu, row), "memory": compact.save(self._table.memory, row)}

    def _follow_half_lives(self) -> None:
        self._table.change_half_lives(
            cpu_seconds=self._policy.cpu_half_life_seconds,
            memory_seconds=self._policy.memory_half_life_seconds,
            time=self._clock.now(),
        )


def _confidence(history_seconds: float, cold_start_seconds: float) -> int:
    if history_seconds >= cold_start_seconds:
        return 100
    return max(0, int(100 * history_seconds / cold_start_seconds))
