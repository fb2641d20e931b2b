"""Escalator's own metrics of groups that scale by utilization, for existing dashboards and alerts.

Some are counters there without the suffix that this library requires of its counters. Cpu is in thousandths of a core,
memory in bytes; `node_group_unhealthy_nodes` is 1 while a group is healthy, as in Escalator.
"""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import Metric

from manager.autoscaler.cluster_state.actions import ActionKind
from manager.autoscaler.iteration import GroupScan, ScanResult
from manager.autoscaler.reporting.gauges import Values, gauge
from manager.autoscaler.utilization import arithmetic, observation
from manager.autoscaler.utilization.arithmetic import GroupUtilization, Largest
from manager.autoscaler.utilization.decisions import ScanDecision

PREFIX = "escalator"
_SECONDS = tuple(float(60 * minutes) for minutes in range(1, 30))


@dataclass(frozen=True)
class EscalatorNames:
    """The cloud, and the groups' ids there, by group name."""

    provider: str = ""
    groups: Mapping[str, str] = field(default_factory=dict)


_OF_SCAN: Mapping[str, Callable[[ScanDecision], float]] = {
    "untainted_nodes": lambda scan: len(scan.classes.untainted),
    "tainted_nodes": lambda scan: len(scan.classes.tainted),
    "force_tainted_nodes": lambda scan: len(scan.classes.force_tainted),
    "cordoned_nodes": lambda scan: len(scan.classes.cordoned),
    "nodes": lambda scan: len(scan.classes.all),
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
_COUNTED: Mapping[str, Callable[[ScanDecision], int]] = {
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


class EscalatorMetrics:
    """Counts scans, and shows the last one."""

    def __init__(self, registry: CollectorRegistry, named: EscalatorNames) -> None:
        self._named = named
        self._runs = 0
        self._last: dict[str, GroupScan] = {}
        self._counts: Tally[tuple[str, str]] = Tally()  # by name and group
        self._delete_errors: Tally[tuple[str, ...]] = Tally()

        def histogram(name: str) -> Histogram:
            full = f"{PREFIX}_node_group_{name}"
            return Histogram(full, _about(f"node_group_{name}"), ["node_group"], registry=registry, buckets=_SECONDS)

        self._held_seconds = histogram("scale_lock_duration")
        self._lags = histogram("node_registration_lag")

    def note(self, scanned: ScanResult) -> None:
        """Counts one scan of all groups."""
        self._runs += 1
        for each in scanned.groups:
            group = each.decision.group
            self._last[group] = each
            self._counts.update({(name, group): count(each.decision) for name, count in _COUNTED.items()})
            if each.held_seconds is not None:
                self._held_seconds.labels(group).observe(each.held_seconds)
            for lag in each.lags:
                self._lags.labels(group).observe(lag)
            for action in each.actions:
                if action.kind is ActionKind.DELETE_NODES and action.error:  # its node, as long as it is one
                    self._delete_errors[group, action.nodes[0] if len(action.nodes) == 1 else ""] += 1

    def gauges(self, standing: Iterable[ScanDecision]) -> Iterator[Metric]:
        """The last scans of the groups for which one is still valid."""
        last = {each.group: self._last[each.group] for each in standing if each.group in self._last}
        scans = {group: each.decision for group, each in last.items()}
        yield gauge(f"{PREFIX}_run_count", "Number of times the scan has run", self._runs)
        for name, value in _OF_SCAN.items():
            yield _of_groups(name, {group: value(scan) for group, scan in scans.items()})
        for name in _COUNTED:
            yield _of_groups(name, {group: self._counts[name, group] for group in last})
        yield _of_groups("pods", {group: len(each.seen.pods) for group, each in last.items()})
        yield from _largest("request_largest_pending", {group: _pending(each) for group, each in last.items()})
        yield from _largest("capacity_largest_available", {group: _available(each) for group, each in last.items()})
        yield _gauge("node_delete_errors", self._delete_errors.items(), "node_group", "node")
        listed = {
            (self._named.provider, self._named.groups[group], group): each
            for group, each in last.items()
            if group in self._named.groups and not each.seen.unlisted
        }
        for name, size in _OF_CLOUD.items():
            sizes = ((labels, size(each)) for labels, each in listed.items())
            yield _gauge(f"cloud_provider_{name}", sizes, "cloud_provider", "id", "node_group")


def _pending(each: GroupScan) -> Largest:
    return arithmetic.largest(pod.requests for pod in each.seen.pods if pod.is_pending)


def _available(each: GroupScan) -> Largest:
    return arithmetic.largest(observation.free(each.decision.classes.untainted, each.seen.pods))


def _largest(name: str, found: Mapping[str, Largest]) -> Iterator[Metric]:
    """For the pod, or node, that has most of one resource: how much of the other it has."""
    for by, amounts in (
        ("cpu", {group: each.of_cpu for group, each in found.items()}),
        ("mem", {group: each.of_memory for group, each in found.items()}),
    ):
        yield _of_groups(f"cpu_{name}_{by}", {group: each.cpu_milli for group, each in amounts.items()})
        yield _of_groups(f"mem_{name}_{by}", {group: each.memory_bytes for group, each in amounts.items()})


def _of_groups(name: str, values: Mapping[str, float]) -> Metric:
    return _gauge(f"node_group_{name}", values.items(), "node_group")


def _gauge(name: str, values: Values, *labels: str) -> Metric:
    return gauge(f"{PREFIX}_{name}", _about(name), values, *labels)


def _percent(scan: ScanDecision, of: Callable[[GroupUtilization], float]) -> float:
    used = scan.fullness.utilization
    return 0.0 if used is None or used.is_from_zero else of(used)


def _about(name: str) -> str:
    return f"As Escalator's {name.replace('_', ' ')}"
