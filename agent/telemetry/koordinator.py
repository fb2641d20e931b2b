"""The same facts under the metric names of Koordinator's agent, for dashboards and alerts made for it.

Its metrics of suppression and eviction, which this agent does not do, and of CPI (perf events) and resctrl, which need
a privileged agent, have no counterpart: `koordlet_be_suppress_*`, `_pod_eviction`, `_container_cpi`, `_resctrl_*`.
"""

import threading
from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, UntypedMetricFamily
from prometheus_client.metrics_core import Metric

from agent.metric_cache import series
from agent.predict_server.percentile import BY_CLASS, BY_POD
from agent.predict_server.reclaimable import Reclaimable
from agent.telemetry import koordinator_pods
from agent.telemetry.scrape import ResourceGauge, Scrape, in_cores
from shared.names import PriorityClass
from shared.quantity import Resources

PREFIX = "koordlet_"

# Only Koordinator's own model has these two levels; the result is its minPredictor's.
_LEVELS = {BY_POD: "podReclaimablePredictor", BY_CLASS: "priorityReclaimablePredictor"}
_BOTH = "minPredictor"

_SUCCEEDED, _FAILED = "succeeded", "failed"
_START_SECONDS = 30.0  # a younger agent may not have read everything yet


class Koordinator:
    """The state at a scrape, and counts of scrapes that found CPUs and NUMA nodes readable. One for each registry."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._looks: Counter[tuple[str, str]] = Counter()

    def families(self, scrape: Scrape) -> Iterator[Metric]:
        yield from _node(scrape)
        yield from koordinator_pods.families(scrape)
        yield self._status("collect_node_cpu_info_status", scrape, read=series.NODE in scrape.usages)
        yield self._status("collect_node_numa_info_status", scrape, read=bool(scrape.numa))

    def _status(self, name: str, scrape: Scrape, *, read: bool) -> Metric:
        # A counter would get the suffix *_total, which Koordinator's name does not have.
        family = UntypedMetricFamily(f"{PREFIX}{name}", "Scrapes by whether it was read", labels=["node", "status"])
        with self._lock:
            if read or scrape.prediction.time - scrape.started_at >= _START_SECONDS:
                self._looks[name, _SUCCEEDED if read else _FAILED] += 1
            for status in (_SUCCEEDED, _FAILED):
                family.add_metric([scrape.node_name, status], self._looks[name, status])
        return family


def _node(scrape: Scrape) -> Iterator[Metric]:
    node, system = scrape.usages.get(series.NODE), scrape.usages.get(series.SYSTEM)
    name = scrape.node_name
    yield _single("start_time", "When the agent started, in Unix seconds", name, scrape.started_at)
    if node is not None:
        yield _single("node_used_cpu_cores", "Cores in use", name, node.cpu_cores)
        yield _single("node_used_memory_bytes", "Bytes in use", name, node.memory_bytes)
    yield _resources("node_metric_node_usage", "Usage of the node").add(node, name).family
    yield _resources("node_metric_system_usage", "Usage beyond the pods").add(system, name).family
    yield from _numa(scrape)
    allocatable = in_cores(scrape.allocatable)
    yield _resources("node_resource_allocatable", "Allocatable of the Node").add(allocatable, name).family
    yield from _prediction(scrape)
    of_application = ("host_application_name", "priority_class", "qos")
    applications = _resources("host_application_resource_usage", "Usage of a host application", *of_application)
    for application, usage in scrape.host_applications:
        applications.add(usage, name, application.name, application.priority, application.qos)
    yield applications.family


def _numa(scrape: Scrape) -> Iterator[Metric]:
    nodes = _resources("node_metric_numa_node_usage", "Usage of a NUMA node", "numa_node_id")
    systems = _resources("node_metric_numa_system_usage", "Usage of a NUMA node beyond the pods", "numa_node_id")
    for one in scrape.numa:
        nodes.add(one.node, scrape.node_name, str(one.number))
        systems.add(one.system, scrape.node_name, str(one.number))
    yield nodes.family
    yield systems.family


def _prediction(scrape: Scrape) -> Iterator[Metric]:
    answer, name = scrape.prediction.reclaimable, scrape.node_name
    reclaimable = _resources("node_predicted_resource_reclaimable", "Requests that can be lent", "predictor")
    peak = _resources("node_predicted_resource_peak", "Predicted peak of prod pods and system", "predictor")
    if answer is not None:
        reclaimable.add(in_cores(answer.result), name, _BOTH)
        peak.add(in_cores(answer.peak), name, _BOTH)
        for level, predictor in _LEVELS.items():
            reclaimable.add(in_cores(_of_level(answer, level)), name, predictor)
    yield reclaimable.family
    yield peak.family
    by_priority = _resources("node_priority_resource_reclaimable", "Requests of a class that can be lent", "priority")
    offered = answer.result if answer else Resources()
    yield by_priority.add(in_cores(offered), name, PriorityClass.PROD).family
    status = GaugeMetricFamily(
        f"{PREFIX}node_resource_priority_reclaimable_status", "1 without a prediction", labels=["node", "priority"]
    )
    status.add_metric([name, PriorityClass.PROD], answer is None)
    yield status


def _of_level(answer: Reclaimable, level: str) -> Resources | None:
    """The amount one level lends: its reclaimable, bounded by the node's room above its peak."""
    explanation = answer.explanation
    found = [
        [term.value for term in one.terms if term.name in (f"reclaimable {level}", f"room above {level}")]
        for one in (explanation.cpu, explanation.memory)
    ]
    return Resources(*map(min, found)) if all(found) else None


def _single(name: str, help_text: str, node_name: str, value: float) -> Metric:
    family = GaugeMetricFamily(f"{PREFIX}{name}", help_text, labels=["node"])
    family.add_metric([node_name], value)
    return family


def _resources(name: str, help_text: str, *labels: str) -> ResourceGauge:
    return ResourceGauge(f"{PREFIX}{name}", help_text, ["node", *labels])
