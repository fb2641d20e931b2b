"""Trains the models, answers what can be reclaimed, and keeps the policy and the checkpoint."""

import logging
import math
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from prometheus_client import CollectorRegistry, Counter

from agent.metric_cache import series
from agent.metric_cache.cache import MetricCache
from agent.metric_cache.series import Usage
from agent.predict_server import compact, lenders, plugins, policy, reclaimable
from agent.predict_server.calibrated import NAME as PEAK_MIX
from agent.predict_server.checkpoint import CheckpointLog
from agent.predict_server.compact import CompactHistogram
from agent.predict_server.decay import Floats
from agent.predict_server.forgetting import Forgetting
from agent.predict_server.histories import Histories, History
from agent.predict_server.ledger import Kept, Ledger
from agent.predict_server.lenders import Lender, Requests
from agent.predict_server.models import NSigmaV1, NSigmaV2, Outcome, Situation
from agent.predict_server.plugins import Model
from agent.predict_server.policy import Policy
from agent.predict_server.reclaimable import Inputs, Reclaimable, in_integers, largest
from agent.predict_server.table import ModelTable
from agent.settings import AgentSettings
from agent.states_informer.informer import NodeState
from agent.states_informer.pods import NodePod
from shared.api.forgetting import NODE
from shared.api.predictionprior import Observed, Prior
from shared.clock import Clock
from shared.errors import InvalidInput
from shared.names import LENDING_CLASSES, PriorityClass
from shared.quantity import MILLI_PER_CORE, Resources

logger = logging.getLogger(__name__)

# Models beyond this are dropped early, the longest unused first, but never one of a present pod.
MOST_IDLE_MODELS = 4096
PUNCTUAL_SECONDS = 1.0  # a step that comes so much early must not cost its checkpoint
CLOCK_SET_SECONDS = 1.0  # wall time that runs away from what has passed by more was set


class Unclaimed(NamedTuple):
    """Why nothing is said to be reclaimable: a word in CamelCase, and a sentence."""

    reason: str
    message: str


PODS_UNKNOWN = Unclaimed("PodsUnknown", "it is not known which pods run here")
NODE_UNKNOWN = Unclaimed("NodeUnknown", "there is no Node object to say what is allocatable")
UNTRAINED = Unclaimed("InsufficientHistory", "too little is trained yet")

NOTHING_REQUESTED = Requests(Resources(), Resources())


class Promise(NamedTuple):
    """The peak for one horizon, and how the promises for it were kept in the last four weeks."""

    peak: Resources
    kept: Kept
    tails: tuple[Observed, Observed] | None = None  # of cpu and memory; None without outcomes


@dataclass(frozen=True)
class Prediction:
    """One answer, whole: `prod` is None while nothing is known, and then nothing is reclaimable: `unclaimed` says why.

    `confidence_percent` is how much of the cold-start period the prod history covers. `predictor_problem` says why
    the model's own answer is not used, where it is not. `n_sigma` are the peaks of v1 and v2, whatever the model is.
    """

    time: float
    model: str
    requests: Requests
    prod: History | None = None
    model_peak: Resources | None = None
    node_peak: Resources | None = None
    reclaimable: Reclaimable | None = None
    n_sigma: Mapping[str, Resources] = field(default_factory=dict)
    promises: tuple[Promise, ...] = ()
    target_violation_percent: float | None = None  # of models that have one
    prior: Prior | None = None  # the fleet's; None is the built-in one
    last_forgotten: tuple[str, float] | None = None  # a workload, or "" for all, and until when
    confidence_percent: int = 0
    policy_problem: str = ""
    predictor_problem: str = ""
    unclaimed: Unclaimed = UNTRAINED


class PredictServer:
    """Safe to use from any thread."""

    def __init__(self, settings: AgentSettings, cache: MetricCache, clock: Clock, *, registry: CollectorRegistry):
        """Raises InvalidInput for a predictor that is not there or cannot be made."""
        self._base = self._policy = policy.from_settings(settings)
        self._policy_problem = ""
        self._pod_seconds = settings.model_expiration_seconds
        self._workload_seconds = settings.workload_expiration_seconds
        self._checkpoint_seconds = settings.checkpoint_interval_seconds
        self._reach_seconds = settings.metric_retention_seconds - 60  # seconds fall off its end while we ask
        self._interval_seconds = min(math.ceil(settings.histogram_update_interval_seconds), self._reach_seconds)
        self._cache = cache
        self._clock = clock
        self._clocks = (clock.now(), clock.monotonic())  # when they were last looked at
        self._lock = threading.Lock()
        self._trained_until: int | None = None  # second of the cache
        self._saved_at: float | None = None
        self._table = ModelTable(
            cpu_half_life_seconds=self._policy.cpu_half_life_seconds,
            memory_half_life_seconds=self._policy.memory_half_life_seconds,
        )
        self._log = CheckpointLog(Path(settings.state_dir), settings.node_name)
        self._log.begin(self._table)
        self._steps = Counter("headroom_agent_training_steps", "Training steps", registry=registry)
        self._refused = Counter("headroom_agent_refused_policies", "Predict policies refused", registry=registry)
        self._failures = Counter(
            "headroom_agent_predictor_failures",
            "Times a predictor raised or answered nonsense",
            ["predictor"],
            registry=registry,
        )
        self._checkpoints = Counter(
            "headroom_agent_checkpoints", "Checkpoints by outcome", ["outcome"], registry=registry
        )
        self._model = self._made(self._policy, source="settings")
        self._ledger = Ledger([series.PROD_PEAK], self._policy.horizons_seconds)
        self._forgetting = Forgetting()

    @property
    def policy(self) -> Policy:
        return self._policy

    @property
    def model_count(self) -> int:
        return len(self._table.rows)

    def restore(self) -> None:
        """Takes over the checkpoint's models; to be called before anything is trained."""
        restored = self._log.restore(self._clock.now())
        if restored is None:
            return
        with self._lock:
            self._table = restored.table
            self._forgetting = Forgetting(restored.forgotten)
            self._trained_until = restored.trained_until if restored.trained_until >= 0 else None
            self._model.restore(restored.states)
            try:
                self._ledger.restore(restored.outcomes)
            except ValueError as error:
                logger.error("outcomes of predictions begin anew: %s", error)
            self._log.begin(self._table)
            self._follow_half_lives()
        logger.info("models restored", extra={"models": self.model_count})

    def apply(self, spec: dict[str, object] | None) -> None:
        """Puts a NodeMetric's policy in force (None: our own); a bad part is refused and its last good one stays."""
        new, problems = policy.followed(self._base, self._policy, spec or {})
        try:
            model = self._model if new == self._policy else self._made(new, source=policy.SOURCE)
        except InvalidInput as error:
            new, model, problems = self._policy, self._model, (*problems, error)
        for problem in problems:
            self._refused.inc()
            logger.error("policy refused: %s", problem)
        with self._lock:
            if model is not self._model:
                model.restore(self._model.states())  # whoever stays goes on with what it knows
            if new.horizons_seconds != self._policy.horizons_seconds:
                ledger = Ledger(self._ledger.nodes, new.horizons_seconds)
                ledger.restore(self._ledger.state())
                self._ledger = ledger
            self._policy, self._model, self._policy_problem = new, model, "; ".join(map(str, problems))
            self._follow_half_lives()

    def heed(self, annotations: Mapping[str, str]) -> None:
        """What the Node's annotations ask to be forgotten goes with the next training step, once."""
        self._forgetting.heed(annotations)

    def train(self, pods: Sequence[NodePod] | None) -> None:
        """Gives every model one aggregate of the samples it has not seen, each sample once; tidies, and saves when due.

        `pods` are those of the node, whose models never expire; None while they are not known.
        """
        second = self._cache.last_second
        unseen = self._unseen_seconds(second)
        usages = self._cache.usages(self._policy.training_aggregation, unseen, until=second) if unseen > 0 else {}
        if series.NON_POD in usages:
            usages[series.SYSTEM] = usages.pop(series.NON_POD)
        keys = list(usages)
        amounts = np.array(list(usages.values()), np.float64).reshape(-1, 2)
        with self._lock:
            now = self._now()
            if keys:
                self._table.train(keys, amounts, now)
                self._log.trained(keys, amounts, now)
                self._model.update(keys, amounts, now)
                if pods is not None:
                    self._model.observe(self._outcomes(keys, amounts, pods, now))
            if second >= 0:
                self._trained_until = second
            if pods is not None:
                self._forget({pod.uid for pod in pods}, now)
                self._forget_asked(pods, now)
        self._steps.inc()
        monotonic = self._clock.monotonic()
        if self._saved_at is None or monotonic - self._saved_at > self._checkpoint_seconds - PUNCTUAL_SECONDS:
            self.save()

    def _outcomes(self, keys: Sequence[str], amounts: Floats, pods: Sequence[NodePod], now: float) -> list[Outcome]:
        """What is known by these samples of earlier promises, which are about the lending pods and the system."""
        lending = {pod.uid for pod in pods if pod.lends} | {series.SYSTEM}
        places = [place for place, key in enumerate(keys) if key in lending]
        rows = [self._table.rows[keys[place]] for place in places]
        return self._ledger.observe(
            np.zeros(len(places), np.intp), amounts[places], self._table.first_observed[rows], now
        )

    def _now(self) -> float:
        """Wall time in Unix seconds. To be asked under the lock: when the clock was set, the models follow it.

        Otherwise a step forward would pass for history.
        """
        now, monotonic = self._clock.now(), self._clock.monotonic()
        step = (now - self._clocks[0]) - (monotonic - self._clocks[1])
        self._clocks = (now, monotonic)
        if abs(step) > CLOCK_SET_SECONDS:
            logger.warning("the clock was set", extra={"forward_seconds": step})
            self._table.set_clock(step)
            self._log.set_clock(step)
            self._ledger.set_clock(step)
            self._model.set_clock(step)
        return now

    def _unseen_seconds(self, second: int) -> int:
        """How many seconds of the cache up to `second` no model has seen yet.

        Without a checkpoint, or with one that speaks of another cache, those of one interval. What lies further back
        than single seconds are kept is left out.
        """
        if second < 0:
            return 0
        if self._trained_until is None or self._trained_until > second:
            return self._interval_seconds
        return min(second - self._trained_until, self._reach_seconds)

    def _forget(self, present: Collection[str], now: float) -> None:
        gone = list(self._forgettable(present, now))
        if gone:
            self._table.forget(gone)
            self._log.forgot(gone)

    def _forget_asked(self, pods: Sequence[NodePod], now: float) -> None:
        """Forgets all, or workloads and their pods, as annotations of the Node ask."""
        for of, until in self._forgetting.due(now).items():
            if of == NODE:
                keys = list(self._table.rows)
                self._model = self._made(self._policy, source="settings")
                self._ledger = Ledger(self._ledger.nodes, self._policy.horizons_seconds)
            else:
                own = [series.of_workload(of), *(pod.uid for pod in pods if pod.workload == of)]
                keys = [key for key in own if key in self._table.rows]
            self._table.forget(keys)
            self._log.forgot(keys)
            self._forgetting.done(of, until, len(keys))
            self._saved_at = None  # to be saved at once

    def _forgettable(self, present: Collection[str], now: float) -> Iterator[str]:
        """Models of pods that are gone and workloads that are not here, for too long or too many."""
        idle = []
        for key, row in self._table.rows.items():
            if key in present or key in series.NODE_ENTITIES:
                continue
            updated = float(self._table.last_updated[row])
            kind, _ = series.named(key)
            kept = self._workload_seconds if kind is series.Kind.WORKLOAD else self._pod_seconds
            if updated < now - kept:
                yield key
            elif updated < self._table.time:
                idle.append((updated, key))
        yield from (key for _, key in sorted(idle)[: max(0, len(idle) - MOST_IDLE_MODELS)])

    def save(self) -> None:
        """Writes a checkpoint; a failure is logged and counted, and does not keep anyone from predicting."""
        with self._lock:
            until = -1 if self._trained_until is None else self._trained_until
            content = self._log.next(
                self._table,
                trained_until=until,
                states=self._model.states(),
                outcomes=self._ledger.state(),
                forgotten=self._forgetting.forgotten,
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

    def predict(self, pods: Iterable[NodePod] | None, node: NodeState | None) -> Prediction:
        """What can be reclaimed now. There is no claim without trained models, a Node, or pods (None: not known)."""
        unclaimed = PODS_UNKNOWN if pods is None else NODE_UNKNOWN if node is None else UNTRAINED
        pods = list(pods or ())
        with self._lock:
            now = self._now()
            current, model = self._policy, self._model
            problem = "; ".join(filter(None, (self._policy_problem, self._forgetting.problem)))
            forgotten = self._forgetting.last
            lending = self._lending(pods, now)
            requests = lenders.requests(lending)
            if node is None or unclaimed is PODS_UNKNOWN or not self._is_known(current.warm_up_samples):
                return Prediction(
                    time=now,
                    model=model.name,
                    requests=requests,
                    policy_problem=problem,
                    predictor_problem=model.problem,
                    unclaimed=unclaimed,
                    last_forgotten=forgotten,
                )
            situation = self._prod(lending, now)
            prod = _history(situation.whole)
            found = model.peak(situation)
            if found is not None:
                self._ledger.promise(np.max(list(found.values()), axis=0), now)
            inputs = Inputs(
                allocatable=node.allocatable,
                requests=requests,
                history=prod,
                candidates=_safe(current, situation, requests) if found is None else in_integers(found),
                ratio_percent=current.reclaim_ratio_percent,
                now=now,
                lending=lending,
                parameters=(current.terms(0, model.names), current.terms(1, model.names)),
            )
            answer = reclaimable.compute(inputs) if found is None else model.reclaimable(situation, inputs)
            n_sigma = _n_sigma(current, situation)
            tails = model.tails(series.PROD_PEAK)
            promises = tuple(
                Promise(
                    largest(inputs.candidates if found is None else in_integers(found, place)),
                    kept,
                    tails.get(kept.horizon_seconds),
                )
                for place, kept in enumerate(self._ledger.kept())
            )
            node_situation = self._node(pods, now)
            whole = model.peak(node_situation)
            node_peak = _safe(current, node_situation, NOTHING_REQUESTED) if whole is None else in_integers(whole)
            predictor_problem = model.problem
        return Prediction(
            time=now,
            model=model.name,
            requests=requests,
            prod=prod,
            model_peak=inputs.model_peak,
            node_peak=largest(node_peak),
            reclaimable=answer,
            n_sigma=n_sigma,
            promises=promises,
            target_violation_percent=current.target_violation_percent if PEAK_MIX in model.names else None,
            prior=current.prior,
            last_forgotten=forgotten,
            confidence_percent=_confidence(now - prod.first_observed, current.cold_start_seconds),
            policy_problem=problem,
            predictor_problem=predictor_problem,
        )

    def peaks(self, pods: Iterable[NodePod]) -> dict[str, Resources]:
        """What every built-in model, and the one in force, makes of the prod pods and the system now.

        Empty until there is a model of everything.
        """
        with self._lock:
            now = self._now()
            current, model = self._policy, self._model
            if not self._is_known(current.warm_up_samples):
                return {}
            situation = self._prod(self._lending(pods, now), now)
            models = {name: plugins.load(name)(current.parameters) for name in plugins.built_in()}
            found = {name: one.peak(situation) for name, one in models.items()}
            in_force = model.peak(situation)
        if in_force is not None:
            found[model.name] = in_force
        return {name: largest(in_integers(candidates)) for name, candidates in found.items()}

    def history(self, key: str) -> History | None:
        """What is known of one entity, None for an unknown key."""
        with self._lock:
            return _history(Histories(self._table, [key])) if key in self._table.rows else None

    def cold(self, pod: NodePod) -> bool:
        """Whether too little is known of a pod to lend what it requested and does not use."""
        with self._lock:
            return any(lender.cold for lender in self._lending([pod], self._now()))

    def histograms(self, key: str) -> dict[str, CompactHistogram] | None:
        """The distributions of one model by resource, None for an unknown key."""
        with self._lock:
            row = self._table.rows.get(key)
            if row is None:
                return None
            return {"cpu": compact.save(self._table.cpu, row), "memory": compact.save(self._table.memory, row)}

    def _made(self, of: Policy, *, source: str) -> Model:
        def failed(name: str) -> None:
            self._failures.labels(name).inc()

        return Model(of.predictor, of.parameters, source=source, on_failure=failed)

    def _is_known(self, warm_up_samples: int) -> bool:
        """Whether there is a model of everything that an answer is made of."""
        least = max(1, warm_up_samples)
        return all(self._table.samples_of(key) >= least for key in series.NODE_ENTITIES)

    def _lending(self, pods: Iterable[NodePod], now: float) -> list[Lender]:
        return lenders.lenders(
            pods,
            lambda key: self._table.observed_since(key, now),
            self._table.samples_of,
            now,
            cold_start_seconds=self._policy.cold_start_seconds,
            warm_up_samples=self._policy.warm_up_samples,
        )

    def _prod(self, lending: Iterable[Lender], now: float) -> Situation:
        """Those that hold a request which may be lent, and the system."""
        return self._situation(
            series.PROD_PEAK, LENDING_CLASSES, [one for one in lending if one.pod.holds_request], now
        )

    def _node(self, pods: Iterable[NodePod], now: float) -> Situation:
        """Everything that runs here, however short its history."""
        running = [
            Lender(pod, cold=False, observed=True, young=False)
            for pod in pods
            if pod.running and self._table.samples_of(pod.uid)
        ]
        return self._situation(series.NODE, PriorityClass, running, now)

    def _situation(
        self, whole: str, classes: Iterable[PriorityClass], lending: Sequence[Lender], now: float
    ) -> Situation:
        heirs = [(place, one.workload) for place, one in enumerate(lending) if one.workload is not None]
        return Situation(
            time=now,
            whole=Histories(self._table, [whole]),
            classes=Histories(self._table, [*map(series.of_class, classes), series.SYSTEM]),
            system=Histories(self._table, [series.SYSTEM]),
            pods=Histories(self._table, [one.pod.uid for one in lending]),
            pod_nodes=np.zeros(len(lending), np.intp),
            requests=_amounts([one.pod.request for one in lending]),
            limits=_amounts([one.pod.limit for one in lending]),
            ages_seconds=np.array([one.age_seconds for one in lending]),
            cold=np.array([one.cold for one in lending], np.bool_),
            workloads=Histories(self._table, [workload for _, workload in heirs]),
            inherited=np.array([place for place, _ in heirs], np.intp),
            horizons_seconds=self._policy.horizons_seconds,
        )

    def _follow_half_lives(self) -> None:
        wanted = (self._policy.cpu_half_life_seconds, self._policy.memory_half_life_seconds)
        if wanted == tuple(bank.half_life_seconds for bank in self._table.banks):
            return
        now = self._now()
        self._table.change_half_lives(cpu_seconds=wanted[0], memory_seconds=wanted[1], time=now)
        self._log.changed_half_lives(self._table, now)


def _amounts(pairs: Sequence[tuple[float, float]]) -> Floats:
    """Milli-cores and bytes in cores and bytes; shape (pairs, 2)."""
    return np.array(pairs, np.float64).reshape(-1, 2) / [MILLI_PER_CORE, 1]


def _n_sigma(current: Policy, situation: Situation) -> dict[str, Resources]:
    """What v1 and v2 make of it: v1 is the first of v2's candidates."""
    candidates = in_integers(NSigmaV2(current.parameters).peak(situation))
    return {NSigmaV1.name: candidates[NSigmaV1.name], NSigmaV2.name: largest(candidates)}


def _safe(current: Policy, situation: Situation, requests: Requests) -> dict[str, Resources]:
    """In place of a model that did not answer: all that was requested, or n-sigma-v2's peak where usage is above it."""
    return in_integers(NSigmaV2(current.parameters).peak(situation)) | reclaimable.standing_in(requests)


def _history(one: Histories) -> History:
    return History(
        mean=Usage(*one.means[0].tolist()),
        stdev=Usage(*one.stdevs[0].tolist()),
        samples=int(one.samples[0]),
        first_observed=float(one.first_observed[0]),
    )


def _confidence(history_seconds: float, cold_start_seconds: float) -> int:
    covered_seconds = max(0.0, history_seconds)
    return 100 if covered_seconds >= cold_start_seconds else int(100 * covered_seconds / cold_start_seconds)
