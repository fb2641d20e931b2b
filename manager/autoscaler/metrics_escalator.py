"""Escalator's own metrics of groups that scale by utilization, for dashboards and alerts that exist already.

Some are counters there whose names do not end as such, which this library's own cannot be. Cpu is in thousandths of a
core, memory in bytes; `node_group_unhealthy_nodes` is 1 while a group is healthy, as in Escalator.
"""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from manager.autoscaler.rounds import Round
from manager.autoscaler.state import GroupStatus
from manager.autoscaler.utilization.arithmetic import Utilization
from manager.autoscaler.utilization.classes import Classes
from manager.autoscaler.utilization.decisions import Decision as Scan
from manager.autoscaler.utilization.observation import GroupNode

PREFIX = "escalator"

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
_OF_CLOUD: Mapping[str, Callable[[GroupStatus], int]] = {
    "min_size": lambda group: group.group.min_size,
    "max_size": lambda group: group.group.max_size,
    "target_size": lambda group: group.group.target_size,
    "size": lambda group: len(group.nodes),
}


@dataclass(frozen=True)
class Named:
    """The cloud, and by name of a group its id there."""

    provider: str = ""
    groups: Mapping[str, str] = field(default_factory=dict)


class Escalators(Collector):
    """Counts scans as rounds are over; `last` tells the round and the scans that the gauges show."""

    def __init__(
        self, registry: CollectorRegistry, named: Named, last: Callable[[], tuple[Round | None, tuple[Scan, ...]]]
    ) -> None:
        self._named = named
        self._last = last
        self._runs = 0
        self._counts: dict[str, Tally[str]] = {name: Tally() for name in _COUNTED}
        registry.register(self)

    def note(self, made: Round) -> None:
        """A round that is over, with the scans that were made in it."""
        self._runs += bool(made.scans)
        for scan in made.scans:
            for name, count in _COUNTED.items():
                self._counts[name][scan.group] += count(scan)

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that registering computes nothing."""
        return []

    def collect(self) -> Iterator[Metric]:
        made, scans = self._last()
        yield GaugeMetricFamily(f"{PREFIX}_run_count", "Number of times the scan has run", value=self._runs)
        for name, value in _OF_SCAN.items():
            family = _family(f"node_group_{name}", "node_group")
            for scan in scans:
                family.add_metric([scan.group], value(scan))
            yield family
        for name in _COUNTED:
            family = _family(f"node_group_{name}", "node_group")
            for scan in scans:
                family.add_metric([scan.group], self._counts[name][scan.group])
            yield family
        groups = {} if made is None else made.state.groups
        for name, size in _OF_CLOUD.items():
            family = _family(f"cloud_provider_{name}", "cloud_provider", "id", "node_group")
            for group, identity in self._named.groups.items():
                if identity in groups:
                    family.add_metric([self._named.provider, identity, group], size(groups[identity]))
            yield family


def _nodes(of: Classes) -> tuple[tuple[GroupNode, ...], ...]:
    return of.untainted, of.tainted, of.force_tainted, of.cordoned


def _percent(scan: Scan, of: Callable[[Utilization], float]) -> float:
    used = scan.fullness.utilization
    return 0.0 if used is None or used.is_from_zero else of(used)


def _family(name: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{PREFIX}_{name}", f"As Escalator's {name.replace('_', ' ')}", labels=labels)
