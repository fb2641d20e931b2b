"""The hourly Mid and Batch offers, and what pods held of them, from a Prometheus.

The offers are the manager's own metrics, the held amounts kube-state-metrics'.
"""

import math
from typing import NamedTuple

from deploy.backtest.prometheus import HOUR_SECONDS, Period, Prometheus
from deploy.backtest.server import Access
from deploy.savings.usage import DAY_SECONDS
from shared.errors import HeadroomError
from shared.quantity import MILLI_PER_CORE, Resources

# Overlapping offers of both tiers count once on each node, at the larger of the two.
_OFFERED = 'sum(max by (node) ({__name__=~"headroom_manager_node_(mid|batch)_%s"}))'
# Thousandths of a core, and bytes, under kube-state-metrics' names for extended resources.
_HELD = (
    "sum(max by (namespace, pod, container, resource) "
    '(kube_pod_container_resource_requests{resource=~"kubernetes_io_(mid|batch)_%s", node!=""})'
    " * on (namespace, pod) group_left max by (namespace, pod) "
    '(kube_pod_status_phase{phase="Running"} == 1))'
)


class LendingRecord(NamedTuple):
    """Sums over the `hours` since `start` (Unix seconds) with a known offer: thousandths of a core, and bytes, times
    hours. `held` is None without kube-state-metrics.
    """

    start: float
    hours: int
    offered: Resources
    held: Resources | None


class LendingRecordAnswer(NamedTuple):
    """The record; `problem` says why there is none, and is empty if there was never an offer."""

    record: LendingRecord | None
    problem: str = ""


def ask(url: str, access: Access, now: float, days: float) -> LendingRecordAnswer:
    """The record of the days before `now`, in Unix seconds. Raises InvalidInput for an invalid URL."""
    with Prometheus(url, access) as server:
        try:
            return LendingRecordAnswer(recorded(server, Period(now - days * DAY_SECONDS, now, HOUR_SECONDS)))
        except (HeadroomError, ValueError) as error:
            return LendingRecordAnswer(None, f"past offers are unknown: {error}")


def recorded(server: Prometheus, period: Period) -> LendingRecord | None:
    """The record. Raises HeadroomError, and ValueError for invalid numbers."""
    cores, memory = (_by_hour(server, _OFFERED % what, period) for what in ("cpu_cores", "memory_bytes"))
    hours = sorted(cores.keys() & memory.keys())
    if not hours:
        return None
    held_milli, held_bytes = (_by_hour(server, _HELD % what, period) for what in ("cpu", "memory"))
    held = None
    if held_milli or held_bytes or _tells_of_pods(server, period):
        held = Resources(*(int(sum(of.get(hour, 0.0) for hour in hours)) for of in (held_milli, held_bytes)))
    offered = Resources(
        int(sum(cores[hour] for hour in hours) * MILLI_PER_CORE), int(sum(memory[hour] for hour in hours))
    )
    return LendingRecord(hours[0], len(hours), offered, held)


def _tells_of_pods(server: Prometheus, period: Period) -> bool:
    """Whether the Prometheus has kube-state-metrics at all."""
    return bool(_by_hour(server, "count(kube_pod_status_phase)", period))


def _by_hour(server: Prometheus, query: str, period: Period) -> dict[float, float]:
    listed = [point for series in server.query_range(query, period) for point in series.values]
    return {time: float(value) for time, value in listed if math.isfinite(float(value))}
