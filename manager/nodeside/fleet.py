"""The predictions of all nodes together: the prior for nodes with little history, and whether promises are kept.

An agent reports only on its own node, and may be wrong: a node has one vote in the prior, and at most four weeks of
outcomes in a rate.
"""

import heapq
import logging
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from manager.nodeside.noderesource.report import NodeReport
from manager.nodeside.promises import RESOURCES, KeptPromise, PooledWithdrawal, pool_withdrawals
from manager.nodeside.reports import PersistentProblems, ReportedProblem
from manager.pods import PodRecord
from shared.api import predictionprior
from shared.api.core import ConfigMap
from shared.api.nodemetric_spec import PredictionPrior
from shared.api.predictionprior import MOST_HORIZONS, ObservedTail, Prior
from shared.clock import Clock
from shared.errors import InvalidInput
from shared.kube.events import WARNING, EventReason, ObjectRef
from shared.names import LENDING_CLASSES
from shared.node_kind import NodeKind, node_kind
from shared.quantity import Resources

logger = logging.getLogger(__name__)

TURN_SECONDS = 60.0
DAY_SECONDS = 86400.0
FRESH_SECONDS = DAY_SECONDS  # older reports do not count
PRIOR_SECONDS = 3600.0  # between two priors
KIND_SECONDS = 3600.0  # between two looks at the pods of all nodes
AHEAD_SECONDS = 300.0  # a prior dated further ahead is ignored
LEAST_OUTCOMES = 1000  # violations come in runs: fewer outcomes prove little
MOST_NODES = 20  # of the worst ones
MISSED_BY = 2.0  # times the target
TARGET_MISSED = EventReason("PredictionTargetMissed", WARNING, "{alarm}")
_ABOUT = "predictions"


class PromiseRate(msgspec.Struct, frozen=True):
    """How the promises for one resource and horizon were kept, over all nodes with a target, weighted by outcomes."""

    resource: str
    horizon_seconds: int
    nodes: int
    outcomes: int
    violated_percent: float
    target_percent: float

    @property
    def is_missed(self) -> bool:
        return self.outcomes >= LEAST_OUTCOMES and self.violated_percent > self.target_percent

    @property
    def is_missed_by_far(self) -> bool:
        return self.is_missed and self.violated_percent > MISSED_BY * self.target_percent

    @property
    def key(self) -> tuple[str, int]:
        return self.resource, self.horizon_seconds


class NodeRate(msgspec.Struct, frozen=True):
    """How one node kept its promises for one resource and horizon."""

    node: str
    resource: str
    horizon_seconds: int
    outcomes: int
    violated_percent: float
    target_percent: float
    cause: str

    @property
    def times_the_target(self) -> float:
        return self.violated_percent / self.target_percent if self.target_percent else math.inf


def worst_nodes(reports: Iterable[NodeReport]) -> tuple[NodeRate, ...]:
    """The nodes that broke most promises for their target, each with its worst one; others are left out."""
    found = []
    for report in reports:
        broken = [
            NodeRate(
                report.name,
                one.resource,
                one.horizon_seconds,
                one.outcomes,
                one.violated_percent,
                one.target_percent,
                one.cause,
            )
            for one in report.promises
            if one.violated_percent and one.target_percent is not None
        ]
        if broken:
            found.append(max(broken, key=lambda one: one.times_the_target))
    return tuple(heapq.nsmallest(MOST_NODES, found, key=lambda one: (-one.times_the_target, one.node)))


def rates(reports: Iterable[NodeReport]) -> tuple[PromiseRate, ...]:
    """By resource and horizon; nodes without a target, or without an outcome yet, do not count."""
    return _rates(each for report in reports for each in report.promises)


def rates_by_kind(
    reports: Iterable[NodeReport], kinds: Mapping[tuple[str, str], NodeKind | None]
) -> dict[NodeKind, tuple[PromiseRate, ...]]:
    """The rates of nodes of each kind; `kinds` are by node and resource."""
    found: dict[NodeKind, list[KeptPromise]] = {kind: [] for kind in NodeKind}
    for report in reports:
        for one in report.promises:
            kind = kinds.get((report.name, one.resource))
            if kind is not None:
                found[kind].append(one)
    return {kind: _rates(promises) for kind, promises in found.items()}


def kinds_of(node: str, pods: Collection[PodRecord]) -> dict[tuple[str, str], NodeKind | None]:
    """The node's kind for each resource, by the pods whose unused requests are lent."""
    lending = [pod for pod in pods if pod.active and pod.priority_class in LENDING_CLASSES]
    return {
        (node, resource): node_kind((pod.requests[place], pod.workload) for pod in lending)
        for place, resource in enumerate(RESOURCES)
    }


def _rates(promises: Iterable[KeptPromise]) -> tuple[PromiseRate, ...]:
    found: defaultdict[tuple[str, int], list[tuple[int, float, float]]] = defaultdict(list)
    for one in promises:
        if one.outcomes and one.target_percent is not None and one.violated_percent is not None:
            key = (one.resource, one.horizon_seconds)
            found[key].append((one.outcomes, one.violated_percent, one.target_percent))
    return tuple(_rate(key, found[key]) for key in sorted(found))


def _rate(key: tuple[str, int], nodes: Sequence[tuple[int, float, float]]) -> PromiseRate:
    outcomes = sum(many for many, _, _ in nodes)
    violated, target = (sum(one[0] * one[part] for one in nodes) / outcomes for part in (1, 2))
    return PromiseRate(*key, len(nodes), outcomes, violated, target)


def pooled(reports: Iterable[NodeReport], before: Prior | None, now: float) -> Prior | None:
    """The prior from the present reports; a horizon without reports keeps its prior from `before`.

    None if there has never been an outcome.
    """
    observed: defaultdict[int, dict[str, list[ObservedTail]]] = defaultdict(lambda: {"cpu": [], "memory": []})
    nodes = 0
    for report in reports:
        told = [(one, one.tail) for one in report.promises if one.tail is not None]
        nodes += bool(told)
        for one, tail in told:
            observed[one.horizon_seconds][one.resource].append(tail)
    if not nodes:
        return before
    most = sorted(observed, key=lambda horizon: (-len(observed[horizon]["cpu"]), horizon))
    fresh = {
        horizon: (predictionprior.pooled(observed[horizon]["cpu"]), predictionprior.pooled(observed[horizon]["memory"]))
        for horizon in most[:MOST_HORIZONS]
    }
    kept = {} if before is None else before.by_horizon
    rest = [horizon for horizon in kept if horizon not in fresh][: MOST_HORIZONS - len(fresh)]
    return Prior(nodes, now, fresh | {horizon: kept[horizon] for horizon in rest})


def published(specs: Iterable[PredictionPrior], now: float) -> Prior | None:
    """The newest of the published priors; invalid ones, and ones dated ahead, are ignored."""
    found = []
    for wire in specs:
        try:
            found.append(predictionprior.of_wire(wire))
        except InvalidInput:
            continue
    return max((one for one in found if one.time <= now + AHEAD_SECONDS), key=lambda one: one.time, default=None)


def missed_since(
    before: Mapping[tuple[str, int], float], found: Iterable[PromiseRate], now: float
) -> dict[tuple[str, int], float]:
    """Since when, without a break, each target has been missed by far."""
    return {rate.key: before.get(rate.key, now) for rate in found if rate.is_missed_by_far}


def causes_of(reports: Iterable[NodeReport], missed: PromiseRate) -> Counter[str]:
    """How many of the nodes that miss their own target report each likely cause."""
    return Counter(
        one.cause.lower()
        for report in reports
        for one in report.promises
        if (one.resource, one.horizon_seconds) == missed.key
        and one.cause
        and one.target_percent is not None
        and (one.violated_percent or 0.0) > one.target_percent
    )


def said(rate: PromiseRate, causes: Counter[str]) -> str:
    """An alarm in a sentence."""
    likely = ", ".join(f"{cause} {nodes}" for cause, nodes in causes.most_common())
    return (
        f"promises of {rate.resource} for {rate.horizon_seconds / 3600:g} h were broken in "
        f"{rate.violated_percent:.2f} % of {rate.outcomes} outcomes of {rate.nodes} nodes, for more than a day; the "
        f"target is {rate.target_percent:.4g} %{'; likely causes, by number of nodes: ' * bool(likely)}{likely}"
    )


class ReportSources(Protocol):
    """The source of reports."""

    def unsynced(self) -> list[str]: ...
    def reports(self) -> list[NodeReport]: ...
    def pods(self, name: str) -> Collection[PodRecord]: ...
    def config_map(self) -> ConfigMap | None: ...


class FleetOverview:
    """The fleet's prior and rates, updated by `turn` once a minute. Safe to read from any thread.

    `changed` is called with the nodes whose NodeMetrics need a write, `forgot` with a node and what it has forgotten on
    request.
    """

    def __init__(
        self,
        cluster: ReportSources,
        clock: Clock,
        *,
        is_leader: Callable[[], bool],
        standing: PersistentProblems,
        changed: Callable[[Iterable[str]], None],
        forgot: Callable[[str, str], None] = lambda name, what: None,
    ) -> None:
        self.prior: Prior | None = None
        self.rates: tuple[PromiseRate, ...] = ()
        self.worst_nodes: tuple[NodeRate, ...] = ()
        self.rates_by_kind: Mapping[NodeKind, tuple[PromiseRate, ...]] = {}
        self.alarms: tuple[str, ...] = ()
        self.refused_nodes = 0
        self.withdrawal: PooledWithdrawal | None = None
        self._wire: PredictionPrior | None = None
        self._cluster = cluster
        self._clock = clock
        self._is_leader = is_leader
        self._standing = standing
        self._changed = changed
        self._forgot = forgot
        self._forgotten: dict[str, str] = {}  # by node, as of the last turn
        self._kinds: dict[tuple[str, str], NodeKind | None] = {}
        self._kinds_since = -math.inf
        self._missed_since: dict[tuple[str, int], float] = {}
        self._alarmed: frozenset[tuple[str, int]] = frozenset()

    def wire(self) -> PredictionPrior | None:
        """The prior in its wire form, for NodeMetrics."""
        return self._wire

    def refresh(self) -> None:
        """Reads all reports; does nothing before the caches are complete."""
        if self._cluster.unsynced():
            return
        now, reports = self._clock.now(), self._cluster.reports()
        fresh = [one for one in reports if one.update_time is not None and now - one.update_time <= FRESH_SECONDS]
        self.refused_nodes = sum(one.promises_problem is not None for one in fresh)
        self.rates, self.worst_nodes = rates(fresh), worst_nodes(fresh)
        if now - self._kinds_since >= KIND_SECONDS:
            of_nodes = (kinds_of(one.name, self._cluster.pods(one.name)) for one in reports)
            self._kinds = {key: kind for of_node in of_nodes for key, kind in of_node.items()}
            self._kinds_since = now
        self.rates_by_kind = rates_by_kind(fresh, self._kinds)
        self.withdrawal = pool_withdrawals((one.reclaimable or Resources(), one.kept) for one in fresh)
        self._publish(reports, fresh, now)
        self._judge(fresh, now)
        self._tell_forgotten(reports)

    def _publish(self, reports: Sequence[NodeReport], fresh: Sequence[NodeReport], now: float) -> None:
        """Continues with the newest published prior, from any replica; the leader publishes the next one when due."""
        sent = published({one.spec.prediction_prior for one in reports if one.spec.prediction_prior}, now)
        if sent is not None and (self.prior is None or sent.time > self.prior.time):
            self._adopt(sent)
        if not self._is_leader() or (self.prior is not None and now - self.prior.time < PRIOR_SECONDS):
            return
        found = pooled(fresh, self.prior, now)
        if found is not None and found.differs(self.prior):
            self._adopt(found)
            logger.info("the fleet's prior is sent to all nodes", extra={"nodes": found.nodes})
            self._changed([one.name for one in reports])

    def _tell_forgotten(self, reports: Sequence[NodeReport]) -> None:
        """Reports what nodes have forgotten since the last turn; earlier ones are not news."""
        known, self._forgotten = self._forgotten, {one.name: one.forgotten for one in reports}
        if self._is_leader():
            for name, what in self._forgotten.items():
                if what and known.get(name, what) != what:
                    self._forgot(name, what)

    def _adopt(self, prior: Prior) -> None:
        self.prior, self._wire = prior, predictionprior.to_wire(prior)

    def _judge(self, fresh: Sequence[NodeReport], now: float) -> None:
        """Raises an alarm, and reports its start and its end once each."""
        self._missed_since = missed_since(self._missed_since, self.rates, now)
        alarmed = [rate for rate in self.rates if now - self._missed_since.get(rate.key, now) >= DAY_SECONDS]
        self.alarms = tuple(said(rate, causes_of(fresh, rate)) for rate in alarmed)
        keys = frozenset(rate.key for rate in alarmed)
        if keys == self._alarmed:
            return
        self._alarmed = keys
        for alarm in self.alarms:
            logger.error("a prediction target is missed: %s", alarm)
        if not keys:
            logger.info("all prediction targets are kept again")
        config_map = self._cluster.config_map()
        if config_map is not None:
            meta = config_map.metadata
            regarding = ObjectRef("v1", "ConfigMap", meta.name, meta.namespace, meta.uid)
            self._standing.replace(_ABOUT, [ReportedProblem(regarding, TARGET_MISSED, alarm) for alarm in self.alarms])
