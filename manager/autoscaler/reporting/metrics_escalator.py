"""Escalator's own metrics of groups that scale by utilization, for existing dashboards and alerts.

Some are counters there without the suffix that this library requires of its counters. Cpu is in thousandths of a core,
memory in bytes; `node_group_unhealthy_nodes` is 1 while a group is healthy, as in Escalator.
"""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from manager.autoscaler.iteration import Action, ActionKind, GroupScan, ScanResult
from manager.autoscaler.utilization import arithmetic, observation
from manager.autoscaler.utilization.arithmetic import GroupUtilization, Largest
from manager.autoscaler.utilization.classes import Classes
from manager.autoscaler.utilization.decisions import ScanDecision as Scan
from manager.autoscaler.utilization.observation import GroupNode
from shared.quantity import Resources

PREFIX = "escalator"
_SECONDS = tuple(float(60 * minutes) for minutes in range(1, 30))

_OF_SCAN: Mapping[str, Callable[[Scan], float]] = {
    "untainted_nodes": lambda scan: len(scan.classes.untainted),
    "tainted_nodes": lambda scan: len(scan.classes.tainted),
    "force_tainted_nodes": lambda scan: len(scan.classes.force_tainted),
    "cordoned_nodes": lambda scan: len(scan.classes.cordoned),
    "nodes": lambda scan: sum(map(len, _nodes(scan.classes))),
    "unhealthy_nodes": lambda scan: scan.healthy is not False,
    "cpu_percent": lambda scan: _percent(scan, lambda used: used.cpu_percent),
    "mem_percent": lambda scan: _percent(scan, lambda used: used.memory_percent),
    "cpu_request": lambda scan: scan.fullness.requested.cpu_milli,
    "mem_request": lambda scan: scan.fullness.requested.memory_bytes,
    "cpu_capacity": lambda scan: scan.fullness.capacity.cpu_milli,
    "mem_capacity": lambda scan: scan.fullness.capacity.memory_bytes,
    "scale_lock": lambda scan: scan.locked,
    "scale_delta": lambda scan: scan.delta,
}
_COUNTED: Mapping[str, Callable[[Scan], int]] = {
    "taint_event": lambda scan: scan.taint.count,
    "untaint_event": lambda scan: scan.untaint.count,
    "pods_evicted": lambda scan: scan.forced.pods_evicted + scan.reaped.pods_evicted,
    "scale_lock_check_was_locked": lambda scan: scan.locked,
}
_OF_CLOUD: Mapping[str, Callable[[GroupScan], int]] = {
    "min_size": lambda each: each.seen.cloud.min_size,
    "max_size": lambda each: each.seen.cloud.max_size,
    "target_size": lambda each: each.seen.cloud.target_size,
    "size": lambda each: each.instances,
}
# For the pod, or node, that has most of one resource: how much of the other it has.
_OF_LARGEST: Mapping[str, Callable[[Largest], Resources]] = {
    "cpu": lambda largest: largest.of_cpu,
    "mem": lambda largest: largest.of_memory,
}
_AMOUNTS: Mapping[str, Callable[[Resources], int]] = {
    "cpu": lambda amount: amount.cpu_milli,
    "mem": lambda amount: amount.memory_bytes,
}


@dataclass(frozen=True)
class EscalatorNames:
    """The cloud, and the groups' ids there, by group name."""

    provider: str = ""
    groups: Mapping[str, str] = field(default_factory=dict)


class Escalators(Collector):
    """Counts scans, and shows the last one; `standing` returns the groups for which it is still valid."""

    def __init__(
        self, registry: CollectorRegistry, named: EscalatorNames, standing: Callable[[], Iterable[Scan]]
    ) -> None:
        self._named = named
        self._standing = standing
        self._runs = 0
        self._last: dict[str, GroupScan] = {}
        self._counts: dict[str, Tally[str]] = {name: Tally() for name in _COUNTED}
        self._delete_errors: Tally[tuple[str, str]] = Tally()

        def histogram(name: str) -> Histogram:
            full = f"{PREFIX}_node_group_{name}"
            return Histogram(full, _about(f"node_group_{name}"), ["node_group"], registry=registry, buckets=_SECONDS)

        self._held_seconds = histogram("scale_lock_duration")
        self._lags = histogram("node_registration_lag")
        registry.register(self)

    def note(self, scanned: ScanResult) -> None:
        """Counts one scan of all groups."""
        self._runs += 1
        for each in scanned.groups:
            group = each.decision.group
            self._last[group] = each
            for name, count in _COUNTED.items():
                self._counts[name][group] += count(each.decision)
            if each.held_seconds is not None:
                self._held_seconds.labels(group).observe(each.held_seconds)
            for lag in each.lags:
                self._lags.labels(group).observe(lag)
            self._delete_errors.update((group, node) for node in _not_deleted(each.actions))

    def describe(self) -> Iterable[Metric]:
        """Empty, so that registration computes nothing."""
        return []

    def collect(self) -> Iterator[Metric]:
        last = [self._last[each.group] for each in self._standing() if each.group in self._last]
        scans = [each.decision for each in last]
        yield GaugeMetricFamily(f"{PREFIX}_run_count", "Number of times the scan has run", value=self._runs)
        for name, value in _OF_SCAN.items():
            yield _of_groups(name, {scan.group: value(scan) for scan in scans})
        for name, counts in self._counts.items():
            yield _of_groups(name, {scan.group: counts[scan.group] for scan in scans})
        yield _of_groups("pods", {each.decision.group: len(each.seen.pods) for each in last})
        yield from _largest("request_largest_pending", {each.decision.group: _pending(each) for each in last})
        yield from _largest("capacity_largest_available", {each.decision.group: _available(each) for each in last})
        errors = _family("node_delete_errors", "node_group", "node")
        for (group, node), count in self._delete_errors.items():
            errors.add_metric([group, node], count)
        yield errors
        for name, size in _OF_CLOUD.items():
            family = _family(f"cloud_provider_{name}", "cloud_provider", "id", "node_group")
            for each in last:
                identity = self._named.groups.get(each.decision.group)
                if identity is not None and not each.seen.unlisted:
                    family.add_metric([self._named.provider, identity, each.decision.group], size(each))
            yield family


def _not_deleted(actions: Iterable[Action]) -> Iterator[str]:
    """By error the node that it is about, as long as it is one."""
    for action in actions:
        if action.kind is ActionKind.DELETE_NODES and action.error:
            yield action.nodes[0] if len(action.nodes) == 1 else ""


def _pending(each: GroupScan) -> Largest:
    return arithmetic.largest(pod.requests for pod in each.seen.pods if pod.is_pending)


def _available(each: GroupScan) -> Largest:
    return arithmetic.largest(observation.free(each.decision.classes.untainted, each.seen.pods))


def _largest(name: str, found: Mapping[str, Largest]) -> Iterator[Metric]:
    for what, amount in _AMOUNTS.items():
        for by, of in _OF_LARGEST.items():
            yield _of_groups(f"{what}_{name}_{by}", {group: amount(of(largest)) for group, largest in found.items()})


def _of_groups(name: str, values: Mapping[str, float]) -> Metric:
    family = _family(f"node_group_{name}", "node_group")
    for group, value in values.items():
        family.add_metric([group], value)
    return family


def _nodes(of: Classes) -> tuple[tuple[GroupNode, ...], ...]:
    return of.untainted, of.tainted, of.force_tainted, of.cordoned


def _percent(scan: Scan, of: Callable[[GroupUtilization], float]) -> float:
    used = scan.fullness.utilization
    return 0.0 if used is None or used.is_from_zero else of(used)


def _family(name: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{PREFIX}_{name}", _about(name), labels=labels)


def _about(name: str) -> str:
    return f"As Escalator's {name.replace('_', ' ')}"
