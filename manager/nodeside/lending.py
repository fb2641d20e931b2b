"""What nodes will lend shortly, for the autoscaler, so that nothing is bought in its place."""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from manager.node_peaks import NodePeaks
from manager.nodeside.noderesource import explain
from manager.nodeside.noderesource.explain import Decision, Known
from manager.nodeside.noderesource.report import NodeReport, complete
from manager.nodeside.policy import ClusterPolicy
from manager.settings import ManagerSettings
from shared import durations, quantity
from shared.api.colocation import DEFAULTS
from shared.api.core import Node, Quantities
from shared.api.nodemetric_spec import NodeMetricSpec
from shared.clock import Clock
from shared.names import TIER_RESOURCES, PriorityClass, Tier
from shared.quantity import Amounts, QuantityError, Resources

# After so many reporting intervals since its creation a node has reported, or never will.
_FIRST_REPORTS = 3.0
# A prediction with less history than this does not count; the default of the load-aware scheduler.
TRUSTED_PERCENT = 50


class NodeCaches(Protocol):
    """The cached state of nodes. `caches.Caches` is one."""

    @property
    def policy(self) -> ClusterPolicy: ...
    def report(self, name: str) -> NodeReport | None: ...


class Lending:
    """Safe for any thread. If nothing is written, nothing is expected."""

    def __init__(
        self,
        caches: NodeCaches,
        decision: Callable[[str], Decision | None],
        settings: ManagerSettings,
        clock: Clock,
    ) -> None:
        self._caches = caches
        self._decision = decision
        self._tiers = settings.tiers
        self._writes = not settings.dry_run
        self._clock = clock

    def expected(self, nodes: Iterable[Node]) -> Mapping[str, Amounts]:
        """By node, the amounts that will add to the present offers of these Nodes; negative for a reduction.

        The Nodes are the caller's snapshot, so that each offer counts there exactly once.
        """
        found = {}
        for node in nodes if self._writes else ():
            change = self._change(node)
            if change:
                found[node.metadata.name] = change
        return found

    def offered_by(self, node: Node) -> Amounts:
        """What a new Node like this one will offer once its agent has reported, still without pods."""
        strategy = self._caches.policy.strategy(node)
        if strategy is None or not self._writes:
            return {}
        now = self._clock.now()
        idle = NodeReport(
            node.metadata.name,
            "",
            "",
            NodeMetricSpec(),
            update_time=now,
            updated=durations.timestamp(now),
            usage=Resources(),
            system_usage=Resources(),
        )
        return _amounts(explain.decide(node, idle, Known(), strategy, now, tiers=self._tiers), self._tiers)

    def peaks(self, nodes: Iterable[Node]) -> Mapping[str, NodePeaks] | None:
        """The predicted peaks of these nodes, for those with a fresh report on enough history that lacks no resource.

        None if no node reports at all.
        """
        found: dict[str, NodePeaks] = {}
        is_any = False
        for node in nodes:
            report = self._caches.report(node.metadata.name)
            if report is None or (report.update_time is None and report.problem is None):
                continue
            is_any = True
            peak, mid = complete(report.peak), _of_mid(report)
            if peak is None or mid is None or report.update_time is None or not self._is_trusted(report, node):
                continue
            found[node.metadata.name] = NodePeaks(peak, mid, report.update_time)
        return found if is_any else None

    def _is_trusted(self, report: NodeReport, node: Node) -> bool:
        if report.update_time is None or report.update_time < node.metadata.created_at:
            return False
        strategy = self._caches.policy.strategy(node)
        seconds = (strategy.strategy if strategy is not None else DEFAULTS).degrade_seconds
        stale = explain.why_stale(report.update_time, degrade_seconds=seconds, now=self._clock.now())
        return stale is None and report.history_percent >= TRUSTED_PERCENT

    def _change(self, node: Node) -> dict[str, int]:
        decision = self._decision(node.metadata.name)
        if decision is None or decision.hold:
            return {}
        wanted = _amounts(decision, self._tiers)
        if self._awaits_first_report(node):
            wanted = dict(self.offered_by(node))
        there = node.status.allocatable or {}
        change = {name: wanted.get(name, 0) - _whole(there, name) for name in _names(self._tiers)}
        return {name: amount for name, amount in change.items() if amount}

    def _awaits_first_report(self, node: Node) -> bool:
        """Whether its agent may still be starting."""
        name = node.metadata.name
        report = self._caches.report(name)
        if report is not None and report.update_time is not None:
            return False
        strategy = self._caches.policy.strategy(node)
        if strategy is None:
            return False
        age = self._clock.now() - node.metadata.created_at
        return age < _FIRST_REPORTS * strategy.strategy.metric_report_interval_seconds


def _of_mid(report: NodeReport) -> Resources | None:
    """The usage of the Mid pods; None if some of it is not reported."""
    pods = [each for each in report.pods.values() if each.priority_class == PriorityClass.MID]
    return None if any(None in each.parts for each in pods) else quantity.total([each.usage for each in pods])


def _amounts(decision: Decision, tiers: Iterable[Tier]) -> dict[str, int]:
    found: dict[str, int] = {}
    for tier in tiers:
        offer = decision.offers.get(tier)
        if offer is not None and offer.lent is not None:
            found |= dict(zip(TIER_RESOURCES[tier], offer.lent, strict=True))
    return {name: amount for name, amount in found.items() if amount}


def _names(tiers: Iterable[Tier]) -> list[str]:
    return [name for tier in tiers for name in TIER_RESOURCES[tier]]


def _whole(listed: Quantities, name: str) -> int:
    try:
        return quantity.whole(listed.get(name, 0))
    except QuantityError:
        return 0
