"""The metrics about nodes that stay and go: ours, and Cluster Autoscaler's names.

Gauges come from the last iteration; counters count finished iterations.
"""

from collections import Counter as Tally
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily, Metric

from manager.autoscaler.iteration import ActionKind, Iteration
from manager.autoscaler.limits import CPU, MEMORY
from manager.autoscaler.reporting.node_status import is_soft_taint
from manager.autoscaler.scale_down.deletions_in_progress import DeletionProgress, DeletionStage
from manager.autoscaler.scale_down.removal_status import ScaleDownDecision, ScaleDownReason
from manager.autoscaler.scale_down.rules import UnremovableReason
from manager.autoscaler.utilization.decisions import ScanDecision as Scan

Family = Callable[..., GaugeMetricFamily]  # name without prefix, help text, labels

# Force-tainted nodes are separate, as in Escalator's own metrics.
_CLASSES: Mapping[str, Callable[[Scan], int]] = {
    "untainted": lambda scan: len(scan.classes.untainted),
    "tainted": lambda scan: len(scan.classes.tainted),
    "forceTainted": lambda scan: len(scan.classes.force_tainted),
    "cordoned": lambda scan: len(scan.classes.cordoned),
}


class EndedDeletions:
    """The nodes under deletion that have been counted: each ended deletion counts once."""

    def __init__(self) -> None:
        self._evicted: dict[str, int] = {}

    def ended(self, made: Iteration) -> Iterator[tuple[DeletionProgress, int]]:
        """The ended deletions, with the number of pods evicted from each node."""
        if made.scale_down is not None:
            self._evicted |= {each.node: len(each.evicted) for each in made.scale_down.removals}
        for each in made.leaving:
            if each.stage.is_over:
                pods = self._evicted.pop(each.node, 0)
                yield each, max(0, pods - len(each.waits_for))
        there = {each.node for each in made.leaving if not each.stage.is_over}
        begun = {
            node
            for action in made.actions
            if action.kind is ActionKind.REMOVE_NODES and action.done
            for node in action.nodes
        }
        self._evicted = {node: pods for node, pods in self._evicted.items() if node in there | begun}


class HeadroomNodeCounters:
    """Counters since the start."""

    def __init__(self, prefix: str, registry: CollectorRegistry) -> None:
        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"{prefix}_{name}", about, labels, registry=registry)

        self._removals = counter("node_removals", "Nodes that were drained and deleted", "kind", "result")
        self._evictions = counter("evicted_pods", "Pods that were evicted, or not, so that nodes go", "result")
        self._taints = counter("node_taints", "Taints of scans put on nodes and taken off", "group", "what", "result")
        self._scans = counter("scans", "Scans of groups that scale by utilization", "group", "result")
        self._ways = EndedDeletions()

    def note(self, made: Iteration) -> None:
        for going, evicted in self._ways.ended(made):
            self._removals.labels(going.kind.value, "done" if going.stage is DeletionStage.GONE else "failed").inc()
            self._evictions.labels("done").inc(evicted)
            self._evictions.labels("failed").inc(len(going.waits_for))
        for action in made.actions:
            if (
                action.kind in (ActionKind.TAINT, ActionKind.UNTAINT)
                and not is_soft_taint(action)
                and (action.done or action.error)
            ):
                self._taints.labels(action.group, action.kind.value, "done" if action.done else "failed").inc(
                    len(action.nodes)
                )
        for scan in made.scans:
            self._scans.labels(scan.group, "failed" if scan.error else "decided").inc()


def headroom_families(
    family: Family, made: Iteration, decided: ScaleDownDecision | None, scans: tuple[Scan, ...]
) -> Iterator[Metric]:
    """`decided` and `scans` are the last available ones."""
    if decided is not None:
        yield from _ours_of_verdicts(family, made, decided)
    leaving = family("leaving_nodes", "Nodes on their way out by how far they are", "stage")
    stages = Tally(each.stage for each in made.leaving)
    for stage in DeletionStage:
        if not stage.is_over:
            leaving.add_metric([stage.value], stages[stage])
    yield leaving
    if scans:
        yield from _ours_of_scans(family, scans)


def _ours_of_verdicts(family: Family, made: Iteration, decided: ScaleDownDecision) -> Iterator[Metric]:
    unneeded = family("unneeded_nodes", "Nodes that the cluster could do without", "group")
    found = Tally(decided.statuses[node].group for node in decided.unneeded)
    for group in sorted({*found, *made.state.groups}):
        unneeded.add_metric([group], found[group])
    yield unneeded
    yield _by_reason(family("unremovable_nodes", "Nodes that stay, by what keeps them", "reason"), decided)
    cooling = family("scale_down_in_cooldown", "1 while nothing is deleted for a while")
    cooling.add_metric([], bool(decided.cooldown))
    yield cooling
    prices = [made.cost.by_node.get(node) for node in decided.unneeded]
    savable = family("savable_cost_per_hour", "What the nodes cost that the cluster could do without, where known")
    savable.add_metric([], sum(price for price in prices if price is not None))
    yield savable


def _ours_of_scans(family: Family, scans: tuple[Scan, ...]) -> Iterator[Metric]:
    percent = family("scan_utilization_percent", "Demand on untainted nodes", "group", "resource")
    delta = family("scan_delta", "Nodes more, or fewer, that the last scan wanted", "group")
    nodes = family("scan_nodes", "Nodes of a group by what is on them", "group", "state")
    locked = family("scan_locked", "1 while a scale-up is under way", "group")
    breaker = family(
        "scan_breaker_open", "1 while the cloud is not asked for more, as the last times brought none", "group"
    )
    healthy = family("scan_healthy", "0 while too many new nodes of a group are unhealthy", "group")
    for scan in scans:
        used = scan.fullness.utilization
        if used is not None and not used.is_from_zero:
            percent.add_metric([scan.group, CPU], used.cpu_percent)
            percent.add_metric([scan.group, MEMORY], used.memory_percent)
        delta.add_metric([scan.group], scan.delta)
        for name, count in _CLASSES.items():
            nodes.add_metric([scan.group, name], count(scan))
        locked.add_metric([scan.group], scan.locked)
        breaker.add_metric([scan.group], scan.breaker.is_open)
        if scan.healthy is not None:
            healthy.add_metric([scan.group], scan.healthy)
    yield from (percent, delta, nodes, locked, breaker, healthy)


class ClusterAutoscalerNodeCounters:
    """Counters since the start, as Cluster Autoscaler counts."""

    def __init__(self, prefix: str, registry: CollectorRegistry) -> None:
        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"{prefix}_{name}", about, labels, registry=registry)

        self._removed = counter(
            "scaled_down_nodes", "Number of nodes removed by CA", "reason", "gpu_resource_name", "gpu_name"
        )
        self._evicted = counter("evicted_pods", "Number of pods evicted by CA", "eviction_result")
        self._ways = EndedDeletions()

    def note(self, made: Iteration) -> None:
        for going, evicted in self._ways.ended(made):
            if going.stage is DeletionStage.GONE:
                self._removed.labels(going.kind.value, "", "").inc()
            self._evicted.labels("succeeded").inc(evicted)
            self._evicted.labels("failed").inc(len(going.waits_for))
        ripe = {node.name for scan in made.scans for node in scan.deletions}
        for action in made.actions:
            if action.kind is ActionKind.DELETE_NODES and action.done and ripe.issuperset(action.nodes):
                self._removed.labels(ScaleDownReason.UNDERUTILIZED.value, "", "").inc(len(action.nodes))


def cluster_autoscaler_families(family: Family, made: Iteration, decided: ScaleDownDecision | None) -> Iterator[Metric]:
    """Cluster Autoscaler's gauges."""
    if decided is not None:
        unneeded = family("unneeded_nodes_count", "Number of nodes currently considered unneeded by CA")
        unneeded.add_metric([], len(decided.unneeded))
        yield unneeded
        yield _by_reason(
            family("unremovable_nodes_count", "Number of nodes currently considered unremovable by CA", "reason"),
            decided,
        )
        cooling = family("scale_down_in_cooldown", "Whether or not the scale down is in cooldown")
        cooling.add_metric([], bool(decided.cooldown))
        yield cooling
    pending = family("pending_node_deletions", "Number of nodes whose deletion is in progress")
    pending.add_metric([], sum(not each.stage.is_over for each in made.leaving))
    yield pending


def resources_below_limits(made: Iteration) -> frozenset[str]:
    """The resources in which the cluster would fall below its bounds without some node."""
    if made.scale_down is None:
        return frozenset()
    details = [
        each.detail for each in made.scale_down.statuses.values() if each.reason is UnremovableReason.BELOW_LIMIT
    ]
    return frozenset(resource for resource in (CPU, MEMORY) if any(_names(each, resource) for each in details))


def _names(detail: str, resource: str) -> bool:
    return resource in detail.replace(",", "").split()


def _by_reason(metric: GaugeMetricFamily, decided: ScaleDownDecision) -> GaugeMetricFamily:
    found = Tally(each.reason for each in decided.statuses.values() if each.reason is not None)
    for reason, count in sorted(found.items()):
        metric.add_metric([reason.value], count)
    return metric
