"""A node's present promises, and the outcomes of earlier ones."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from agent.metric_cache import series
from agent.metric_cache.series import Usage
from agent.predict_server import lenders, plugins, reclaimable, situations
from agent.predict_server.histories import Histories, History
from agent.predict_server.lenders import ProdPod, Requests
from agent.predict_server.models import Debt, NSigmaV1, NSigmaV2, Situation, Uses
from agent.predict_server.node_models import NodeModels
from agent.predict_server.percentile import Percentile
from agent.predict_server.policy import PredictionPolicy
from agent.predict_server.prediction import (
    NODE_UNKNOWN,
    PODS_UNKNOWN,
    UNTRAINED,
    HorizonPromise,
    NodePrediction,
    ShadowResult,
    covered_percent,
    recommended,
)
from agent.predict_server.reclaimable import Inputs, in_integers, largest, rounded_up
from agent.predict_server.records import PromiseRecord, WithdrawalRecord
from agent.states_informer.informer import LocalNode
from agent.states_informer.pods import NodePod
from shared import durations
from shared.explanation import Term
from shared.quantity import Resources

NOTHING_REQUESTED = Requests(Resources(), Resources())


def predict(models: NodeModels, pods: Sequence[NodePod] | None, node: LocalNode | None) -> NodePrediction:
    """The reclaimable amount now. There is no claim without trained models, a Node, or pods (None: unknown)."""
    now = models.now()
    models.capacity = models.capacity if node is None else node.capacity
    lending = find_lenders(models, pods or (), now)
    common = NodePrediction(
        time=models.time.wall(now),
        model=models.model.name,
        requests=lenders.requests(lending),
        policy_problem="; ".join(filter(None, (models.problem, models.forgetting.problem))),
        last_forgotten=models.forgetting.last,
        unclaimed=PODS_UNKNOWN if pods is None else NODE_UNKNOWN if node is None else UNTRAINED,
    )
    if pods is None or node is None or not models.is_trained():
        return dataclasses.replace(common, predictor_problem=models.model.problem)
    return _promise(models, common, pods, node, lending, now)


def _promise(
    models: NodeModels,
    common: NodePrediction,
    pods: Sequence[NodePod],
    node: LocalNode,
    lending: Sequence[ProdPod],
    now: float,
) -> NodePrediction:
    """Promises the peak, once an hour with the shadows', and lends what it leaves."""
    current, model, truth = models.policy, models.model, models.truth
    requests = common.requests
    at = situations.Moment(now, current.horizons_seconds, node.capacity)
    situation = situations.prod(models.table, lending, at)
    prod = _dated(models, situation.whole)
    found = model.peak(situation)
    if found is not None and truth.is_due(now):
        peaks = {**models.shadows.peaks(situation), models.active: np.max(list(found.values()), axis=0)[:, 0]}
        truth.promise(peaks, situations.amounts([requests.requested])[0], now)
    by_place = [_safe(current, situation, requests)]
    if found is not None:
        by_place = [in_integers(found, place) for place in range(len(current.horizons_seconds))]
    debts = _debts(models)
    first = debts.get(current.horizons_seconds[0])
    inputs = Inputs(
        allocatable=node.allocatable,
        requests=requests,
        history=prod,
        candidates=by_place[0],
        ratio_percent=current.reclaim_ratio_percent,
        now=common.time,
        lending=lending,
        parameters=(
            (*current.terms(0, model.names), *_owed(first, 0, common.time)),
            (*current.terms(1, model.names), *_owed(first, 1, common.time)),
        ),
        system_peak=situations.most(situation.system),
    )
    answer = reclaimable.compute(inputs) if found is None else model.reclaimable(situation, inputs)
    truth.lend(situations.amounts([answer.result])[0], now)
    promises = _promises(models, by_place, debts)
    shadows = tuple(ShadowResult(name, *_kept(models, key)) for key, name in models.shadows.names.items())
    learned_seconds = now - float(situation.whole.first_observed[0])
    return dataclasses.replace(
        common,
        prod=prod,
        model_peak=inputs.model_peak,
        node_peak=_node_peak(models, pods, at),
        reclaimable=answer,
        n_sigma=_n_sigma(current, situation),
        pod_peaks=Percentile(current.parameters).of_warm_pods(situation),
        promises=promises,
        shadows=shadows,
        withdrawn=_withdrawn(models),
        recommended=recommended(model.name, promises, shadows, current.target_violation_percent),
        target_violation_percent=current.target_violation_percent if Uses.TARGET in model.uses else None,
        history_percent=covered_percent(learned_seconds, current.cold_start_seconds),
        prior=current.prior,
        predictor_problem=model.problem,
    )


def _promises(
    models: NodeModels, by_place: Sequence[Mapping[str, Resources]], debts: Mapping[float, tuple[Debt, Debt]]
) -> tuple[HorizonPromise, ...]:
    """The promise for each horizon. `by_place` are the candidates for each of them, or one for all."""
    tails = models.model.tails(series.PROD_PEAK)
    learned = zip(
        _kept(models, models.active),
        models.truth.totals,
        *(map(of.get, models.policy.horizons_seconds) for of in (tails, debts)),
        strict=True,
    )
    return tuple(
        HorizonPromise(largest(by_place[min(place, len(by_place) - 1)]), *of_horizon)
        for place, of_horizon in enumerate(learned)
    )


def _node_peak(models: NodeModels, pods: Sequence[NodePod], at: situations.Moment) -> Resources:
    """The peak of all pods and the system."""
    everything = situations.node(models.table, pods, at)
    found = models.model.peak(everything)
    return largest(_safe(models.policy, everything, NOTHING_REQUESTED) if found is None else in_integers(found))


def _debts(models: NodeModels) -> dict[float, tuple[Debt, Debt]]:
    """Those of the model in force by its horizon, in times of the wall clock."""

    def told(debt: Debt) -> Debt:
        last = models.time.wall(debt.last) if debt.last else 0.0
        return debt._replace(seconds=models.time.wall(debt.seconds), last=last)

    return {
        seconds: (told(cpu), told(memory)) for seconds, (cpu, memory) in models.model.debts(series.PROD_PEAK).items()
    }


def _owed(first: tuple[Debt, Debt] | None, resource: int, now: float) -> Iterator[Term]:
    """What broken promises for the first horizon cost now, if anything."""
    if first is None or not first[resource].promises:
        return
    debt = first[resource]
    withheld = rounded_up(Usage(debt.withheld, debt.withheld))[resource]
    cause = f", {debt.cause.lower()}" if debt.cause else ""
    source = f"{debt.surprises} surprises in 28 days{cause}; paid by {durations.timestamp(now + debt.seconds)}"
    yield Term("withheldForSurprises", withheld, reclaimable.UNITS[resource], source)


def _n_sigma(policy: PredictionPolicy, situation: Situation) -> dict[str, Resources]:
    """The peaks of v1 and v2, by name, whichever model is active: v1 is the first of v2's candidates."""
    candidates = in_integers(NSigmaV2(policy.parameters).peak(situation))
    return {NSigmaV1.name: candidates[NSigmaV1.name], NSigmaV2.name: largest(candidates)}


def _safe(policy: PredictionPolicy, situation: Situation, requests: Requests) -> dict[str, Resources]:
    """Replaces the result of a failed model: all requests, or v2's peak where usage is above them."""
    return in_integers(NSigmaV2(policy.parameters).peak(situation)) | reclaimable.standing_in(requests)


def find_peaks(models: NodeModels, pods: Iterable[NodePod]) -> dict[str, Resources]:
    """The present peak of the prod pods and the system, from every built-in model and the active one.

    A candidate that has the model's name is its number, without the requests of cold pods that it may promise beside
    it: n-sigma-v1 is what a report calls by that name. Empty until every entity has a model.
    """
    now = models.now()
    current, model, shadows = models.policy, models.model, models.shadows
    if not models.is_trained():
        return {}
    at = situations.Moment(now, current.horizons_seconds, models.capacity)
    situation = situations.prod(models.table, find_lenders(models, pods, now), at)
    others = set(plugins.built_in()) - {model.name, *shadows.names.values()}
    found = {name: plugins.load(name)(current.parameters).peak(situation) for name in others}
    found |= {shadows.names[key]: candidates for key, candidates in shadows.candidates(situation).items()}
    in_force = model.peak(situation)
    if in_force is not None:
        found[model.name] = in_force
    peaks = {name: in_integers(candidates) for name, candidates in sorted(found.items())}
    return {name: of.get(name) or largest(of) for name, of in peaks.items()}


def find_lenders(models: NodeModels, pods: Iterable[NodePod], now: float) -> list[ProdPod]:
    """The pods of lending classes, and which of them are cold; their ages are in model time."""
    table, time = models.table, models.time

    def observed_since(key: str) -> float | None:
        since = table.observed_since(key, now)
        return None if since is None else time.wall(since)

    found = lenders.lenders(
        pods,
        observed_since,
        table.samples_of,
        time.wall(now),
        cold_start_seconds=time.wall(models.policy.cold_start_seconds),
        warm_up_samples=models.policy.warm_up_samples,
    )
    return [dataclasses.replace(one, age_seconds=time.of(one.age_seconds)) for one in found]


def find_history(models: NodeModels, key: str) -> History | None:
    """The history of one entity, None for an unknown key."""
    return _dated(models, Histories(models.table, [key])) if key in models.table.rows else None


def _dated(models: NodeModels, one: Histories) -> History:
    found = one.first()
    return found._replace(first_observed=models.time.wall(found.first_observed))


def _kept(models: NodeModels, model: str) -> tuple[PromiseRecord, ...]:
    return tuple(
        one._replace(horizon_seconds=_wall_seconds(models, one.horizon_seconds)) for one in models.truth.kept(model)
    )


def _withdrawn(models: NodeModels) -> tuple[WithdrawalRecord, ...]:
    return tuple(
        one._replace(window_seconds=_wall_seconds(models, one.window_seconds)) for one in models.truth.withdrawn()
    )


def _wall_seconds(models: NodeModels, seconds: float) -> int:
    return round(models.time.wall(seconds))
