"""Trains the models, computes the reclaimable amount, and manages the policy and the checkpoint."""

import dataclasses
import logging
import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, Counter

from agent.metric_cache import series
from agent.metric_cache.cache import MetricCache
from agent.predict_server import compact, expiry, lenders, n_sigma, plugins, policy, reclaimable, situations
from agent.predict_server.calibration import LONGEST_GAP_SECONDS
from agent.predict_server.checkpoint import CheckpointLog
from agent.predict_server.compact import CompactHistogram
from agent.predict_server.decay import Floats
from agent.predict_server.expiry import Lifetimes
from agent.predict_server.forgetting import Forgetting
from agent.predict_server.histories import Histories, History
from agent.predict_server.lenders import ProdPod, Requests
from agent.predict_server.model_time import ModelTime
from agent.predict_server.models import Uses
from agent.predict_server.plugins import Model
from agent.predict_server.policy import PredictionPolicy
from agent.predict_server.prediction import (
    NODE_UNKNOWN,
    PODS_UNKNOWN,
    UNTRAINED,
    HorizonPromise,
    NodePrediction,
    ShadowResult,
    recommended,
)
from agent.predict_server.reclaimable import Inputs, in_integers, largest
from agent.predict_server.records import PromiseRecord
from agent.predict_server.shadows import Shadows
from agent.predict_server.table import ModelTable
from agent.predict_server.truth import Truth
from agent.settings import AgentSettings
from agent.states_informer.informer import LocalNode
from agent.states_informer.pods import NodePod
from shared.api.forgetting import NODE
from shared.api.predictionprior import ObservedTail
from shared.clock import Clock
from shared.errors import InvalidInput
from shared.quantity import Resources

logger = logging.getLogger(__name__)

PUNCTUAL_SECONDS = 1.0  # a step that is this much early must not skip its checkpoint
MISSED_STEPS = 5  # of training; promises can still be judged after such a gap, however slow the steps

NOTHING_REQUESTED = Requests(Resources(), Resources())


class PredictServer:
    """Safe to use from any thread."""

    def __init__(self, settings: AgentSettings, cache: MetricCache, clock: Clock, *, registry: CollectorRegistry):
        """Raises InvalidInput for a predictor that does not exist or cannot be created."""
        self._base = self._policy = policy.from_settings(settings)
        self._policy_problem = ""
        self._time = ModelTime(clock, settings.prediction_hour_seconds)
        lifetimes = settings.model_expiration_seconds, settings.workload_expiration_seconds
        self._lifetimes = Lifetimes(*map(self._time.of, lifetimes))
        self._checkpoint_seconds = settings.checkpoint_interval_seconds
        self._reach_seconds = settings.metric_retention_seconds - 60  # margin for seconds that drop out while we read
        self._interval_seconds = min(math.ceil(settings.histogram_update_interval_seconds), self._reach_seconds)
        self._cache = cache
        self._clock = clock
        self._lock = threading.Lock()
        self._trained_until: int | None = None  # second of the cache
        self._saved_at: float | None = None
        self._table = ModelTable(
            cpu_half_life_seconds=self._policy.cpu_half_life_seconds,
            memory_half_life_seconds=self._policy.memory_half_life_seconds,
        )
        self._log = CheckpointLog(Path(settings.state_dir), settings.node_name, settings.prediction_hour_seconds)
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
        self._shadow_names = settings.shadow_predictors
        self._told = False  # whether the first NodeMetric has been applied
        steps_seconds = MISSED_STEPS * self._time.of(settings.histogram_update_interval_seconds)
        self._longest_gap_seconds = max(LONGEST_GAP_SECONDS, steps_seconds)
        self._forgetting = Forgetting()
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Empty models, without promises. Raises InvalidInput for a predictor that cannot be created."""
        self._model = self._made(self._policy, source="settings")
        self._shadows = Shadows(self._shadow_names, self._policy, self._failed)
        self._restored: dict[str, bytes] = {}  # states of models that may be active once the NodeMetric is read
        self._truth = Truth(series.PROD_PEAK, self._policy.horizons_seconds, self._longest_gap_seconds)
        self._follow_models()

    @property
    def policy(self) -> PredictionPolicy:
        return self._policy

    @property
    def model_count(self) -> int:
        return len(self._table.rows)

    def restore(self) -> None:
        """Restores the checkpoint's models; call it before any training."""
        restored = self._log.restore(self._clock.now())
        if restored is None:
            return
        with self._lock:
            self._table = restored.table
            self._forgetting = Forgetting(restored.forgotten)
            self._trained_until = restored.trained_until if restored.trained_until >= 0 else None
            self._restored = dict(restored.states)
            self._model.restore(restored.states)
            self._shadows.restore(restored.states)
            try:
                self._truth.restore(restored.outcomes)
            except ValueError as error:
                logger.error("outcomes of predictions begin anew: %s", error)
            self._follow_models()
            self._log.begin(self._table)
            self._follow_half_lives()
        logger.info("models restored", extra={"models": self.model_count})

    def apply(self, spec: dict[str, object] | None) -> None:
        """Applies a NodeMetric's policy (None: our own); an invalid part is refused and its last good value stays."""
        new, problems = policy.followed(self._base, self._policy, spec or {})
        changed, model, shadows = new != self._policy, self._model, self._shadows
        try:
            if changed:
                model, shadows = self._made(new, source=policy.SOURCE), Shadows(self._shadow_names, new, self._failed)
        except InvalidInput as error:
            new, changed, problems = self._policy, False, (*problems, error)
        for problem in problems:
            self._refused.inc()
            logger.error("policy refused: %s", problem)
        with self._lock:
            if changed:
                known = self._states()
                model.restore(known)  # a model that stays, or was a shadow, keeps its knowledge
                shadows.restore(known)
            self._policy, self._model, self._shadows = new, model, shadows
            self._policy_problem = "; ".join(map(str, problems))
            self._told, self._restored = True, {}
            self._follow_models()
            self._follow_half_lives()

    def _states(self) -> dict[str, bytes]:
        """The models' states, by name."""
        return {**self._restored, **self._shadows.states(), **self._model.states()}

    def _follow_models(self) -> None:
        """Counts the promises of these models from now on. Until the NodeMetric is read, no promises are dropped."""
        current = self._policy
        self._active = current.identity(self._model.names)
        self._truth.follow(self._active, self._shadows.names, current.horizons_seconds, keep_others=not self._told)

    def heed(self, annotations: Mapping[str, str]) -> None:
        """The next training step forgets, once, what the Node's annotations ask for."""
        self._forgetting.heed(annotations)

    def train(self, pods: Sequence[NodePod] | None) -> None:
        """Gives every model one aggregate of its unseen samples, each sample once; expires models, and saves if due.

        `pods` are those of the node, whose models never expire; None while they are unknown.
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
                self._shadows.update(keys, amounts, now)
                if pods is not None:
                    self._observe(keys, amounts, pods, now)
            if second >= 0:
                self._trained_until = second
            if pods is not None:
                self._drop(list(expiry.expired(self._table, {pod.uid for pod in pods}, self._lifetimes, now)))
                self._forget_asked(pods, now)
        self._steps.inc()
        monotonic = self._clock.monotonic()
        if self._saved_at is None or monotonic - self._saved_at > self._checkpoint_seconds - PUNCTUAL_SECONDS:
            self.save()

    def _observe(self, keys: Sequence[str], amounts: Floats, pods: Sequence[NodePod], now: float) -> None:
        """Gives models the outcomes of their promises, which cover lending pods and the system."""
        lending = {pod.uid for pod in pods if pod.lends} | {series.SYSTEM}
        places = [place for place, key in enumerate(keys) if key in lending]
        rows = [self._table.rows[keys[place]] for place in places]
        outcomes = self._truth.observe(amounts[places], self._table.first_observed[rows], now)
        self._model.observe(outcomes.get(self._active, ()))
        self._shadows.observe(outcomes)

    def _now(self) -> float:
        """The models' time. Call it under the lock: after a change of the clock it shifts the models' times.

        Otherwise a step forward would count as history.
        """
        now, step = self._time.look()
        if step:
            logger.warning("the clock was set", extra={"forward_seconds": self._time.wall(step)})
            self._table.set_clock(step)
            self._log.set_clock(step)
            self._truth.set_clock(step)
            self._model.set_clock(step)
            self._shadows.set_clock(step)
        return now

    def _unseen_seconds(self, second: int) -> int:
        """How many seconds of the cache up to `second` no model has seen yet.

        Without a checkpoint, or with one for another cache, those of one interval. Seconds beyond the cache's reach are
        left out.
        """
        if second < 0:
            return 0
        if self._trained_until is None or self._trained_until > second:
            return self._interval_seconds
        return min(second - self._trained_until, self._reach_seconds)

    def _drop(self, keys: Sequence[str]) -> None:
        if keys:
            self._table.forget(keys)
            self._log.forgot(keys)

    def _forget_asked(self, pods: Sequence[NodePod], now: float) -> None:
        """Forgets everything, or workloads and their pods, as the Node's annotations ask."""
        for of, until in self._forgetting.due(self._time.wall(now)).items():
            if of == NODE:
                keys = list(self._table.rows)
                self._begin_anew()
            else:
                own = [series.of_workload(of), *(pod.uid for pod in pods if pod.workload == of)]
                keys = [key for key in own if key in self._table.rows]
            self._drop(keys)
            self._forgetting.done(of, until, len(keys))
            self._saved_at = None  # saves at once

    def save(self) -> None:
        """Writes a checkpoint; a failure is logged and counted, and does not stop predictions."""
        with self._lock:
            until = -1 if self._trained_until is None else self._trained_until
            content = self._log.next(
                self._table,
                trained_until=until,
                states=self._states(),
                outcomes=self._truth.state(),
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

    def predict(self, pods: Iterable[NodePod] | None, node: LocalNode | None) -> NodePrediction:
        """The reclaimable amount now. There is no claim without trained models, a Node, or pods (None: unknown)."""
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
                return NodePrediction(
                    time=self._time.wall(now),
                    model=model.name,
                    requests=requests,
                    policy_problem=problem,
                    predictor_problem=model.problem,
                    unclaimed=unclaimed,
                    last_forgotten=forgotten,
                )
            situation = situations.prod(self._table, lending, now, current.horizons_seconds)
            prod = self._history(situation.whole)
            found = model.peak(situation)
            if found is not None and self._truth.is_due(now):
                peaks = {**self._shadows.peaks(situation), self._active: np.max(list(found.values()), axis=0)[:, 0]}
                self._truth.promise(peaks, situations.amounts([requests.requested])[0], now)
            inputs = Inputs(
                allocatable=node.allocatable,
                requests=requests,
                history=prod,
                candidates=n_sigma.safe(current, situation, requests) if found is None else in_integers(found),
                ratio_percent=current.reclaim_ratio_percent,
                now=self._time.wall(now),
                lending=lending,
                parameters=(current.terms(0, model.names), current.terms(1, model.names)),
                system_peak=situations.most(situation.system),
            )
            answer = reclaimable.compute(inputs) if found is None else model.reclaimable(situation, inputs)
            n_sigma_peaks = n_sigma.peaks(current, situation)
            self._truth.lend(situations.amounts([answer.result])[0], now)
            learned = zip(self._kept(self._active), self._truth.totals, self._tails(model), strict=True)
            promises = tuple(
                HorizonPromise(largest(inputs.candidates if found is None else in_integers(found, place)), *of_horizon)
                for place, of_horizon in enumerate(learned)
            )
            shadows = tuple(ShadowResult(name, *self._kept(key)) for key, name in self._shadows.names.items())
            withdrawn = self._truth.withdrawn()
            everything = situations.node(self._table, pods, now, current.horizons_seconds)
            whole = model.peak(everything)
            node_peak = n_sigma.safe(current, everything, NOTHING_REQUESTED) if whole is None else in_integers(whole)
            predictor_problem = model.problem
            learned_seconds = now - float(situation.whole.first_observed[0])
        return NodePrediction(
            time=inputs.now,
            model=model.name,
            requests=requests,
            prod=prod,
            model_peak=inputs.model_peak,
            node_peak=largest(node_peak),
            reclaimable=answer,
            n_sigma=n_sigma_peaks,
            promises=promises,
            shadows=shadows,
            withdrawn=tuple(one._replace(window_seconds=self._shown(one.window_seconds)) for one in withdrawn),
            recommended=recommended(model.name, promises, shadows, current.target_violation_percent),
            target_violation_percent=current.target_violation_percent if Uses.TARGET in model.uses else None,
            history_percent=_covered_percent(learned_seconds, current.cold_start_seconds),
            prior=current.prior,
            last_forgotten=forgotten,
            policy_problem=problem,
            predictor_problem=predictor_problem,
        )

    def peaks(self, pods: Iterable[NodePod]) -> dict[str, Resources]:
        """The present peak of the prod pods and the system, from every built-in model and the active one.

        Empty until every entity has a model.
        """
        with self._lock:
            now = self._now()
            current, model = self._policy, self._model
            if not self._is_known(current.warm_up_samples):
                return {}
            situation = situations.prod(self._table, self._lending(pods, now), now, current.horizons_seconds)
            names = self._shadows.names
            others = set(plugins.built_in()) - {model.name, *names.values()}
            found = {name: plugins.load(name)(current.parameters).peak(situation) for name in others}
            found |= {names[key]: {names[key]: peaks} for key, peaks in self._shadows.peaks(situation).items()}
            in_force = model.peak(situation)
        if in_force is not None:
            found[model.name] = in_force
        return {name: largest(in_integers(candidates)) for name, candidates in sorted(found.items())}

    def history(self, key: str) -> History | None:
        """The history of one entity, None for an unknown key."""
        with self._lock:
            return self._history(Histories(self._table, [key])) if key in self._table.rows else None

    def cold(self, pod: NodePod) -> bool:
        """Whether a pod's history is too short to lend its unused request."""
        with self._lock:
            return any(lender.cold for lender in self._lending([pod], self._now()))

    def histograms(self, key: str) -> dict[str, CompactHistogram] | None:
        """The distributions of one model by resource, None for an unknown key."""
        with self._lock:
            row = self._table.rows.get(key)
            if row is None:
                return None
            saved = [compact.save(bank, row) for bank in self._table.banks]
            dated = [replace(one, reference_timestamp=self._time.wall(one.reference_timestamp)) for one in saved]
            return dict(zip(("cpu", "memory"), dated, strict=True))

    def _made(self, of: PredictionPolicy, *, source: str) -> Model:
        return Model(of.predictor, of.parameters, source=source, on_failure=self._failed)

    def _failed(self, name: str) -> None:
        self._failures.labels(name).inc()

    def _is_known(self, warm_up_samples: int) -> bool:
        """Whether every entity of a result has a model."""
        least = max(1, warm_up_samples)
        return all(self._table.samples_of(key) >= least for key in series.NODE_ENTITIES)

    def _lending(self, pods: Iterable[NodePod], now: float) -> list[ProdPod]:
        def observed_since(key: str) -> float | None:
            since = self._table.observed_since(key, now)
            return None if since is None else self._time.wall(since)

        found = lenders.lenders(
            pods,
            observed_since,
            self._table.samples_of,
            self._time.wall(now),
            cold_start_seconds=self._time.wall(self._policy.cold_start_seconds),
            warm_up_samples=self._policy.warm_up_samples,
        )
        return [dataclasses.replace(one, age_seconds=self._time.of(one.age_seconds)) for one in found]

    def _tails(self, model: Model) -> list[tuple[ObservedTail, ObservedTail] | None]:
        """The tails of this node's outcomes, by horizon."""
        found = model.tails(series.PROD_PEAK)
        return [found.get(seconds) for seconds in self._policy.horizons_seconds]

    def _kept(self, model: str) -> tuple[PromiseRecord, ...]:
        return tuple(one._replace(horizon_seconds=self._shown(one.horizon_seconds)) for one in self._truth.kept(model))

    def _shown(self, seconds: float) -> int:
        """A model duration in wall clock time."""
        return round(self._time.wall(seconds))

    def _history(self, one: Histories) -> History:
        found = one.first()
        return found._replace(first_observed=self._time.wall(found.first_observed))

    def _follow_half_lives(self) -> None:
        wanted = (self._policy.cpu_half_life_seconds, self._policy.memory_half_life_seconds)
        if wanted == tuple(bank.half_life_seconds for bank in self._table.banks):
            return
        now = self._now()
        self._table.change_half_lives(cpu_seconds=wanted[0], memory_seconds=wanted[1], time=now)
        self._log.changed_half_lives(self._table, now)


def _covered_percent(history_seconds: float, cold_start_seconds: float) -> int:
    covered_seconds = max(0.0, history_seconds)
    return 100 if covered_seconds >= cold_start_seconds else int(100 * covered_seconds / cold_start_seconds)
