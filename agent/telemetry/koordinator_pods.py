"""Containers' requests, and the pressure on them and their pods, under the names of Koordinator's agent."""

from collections.abc import Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family

from agent.metric_cache.series import Kind, Metric, SeriesKey
from agent.telemetry.scrape import RESOURCE_LABELS, Scrape
from shared import names, quantity
from shared.api.core import Quantities
from shared.quantity import QuantityError

_OF_POD = ("node", "pod_uid", "pod_name", "pod_namespace")
_OF_CONTAINER = (*_OF_POD, "container_id", "container_name")
_OF_PRESSURE = ("psi_resource_type", "psi_precision", "psi_degree", "cpu_full_supported")

_PRESSURES = {  # some and full, by Koordinator's name of the resource
    "cpu": (Metric.PSI_CPU_SOME, Metric.PSI_CPU_FULL),
    "mem": (Metric.PSI_MEMORY_SOME, Metric.PSI_MEMORY_FULL),
    "io": (Metric.PSI_IO_SOME, Metric.PSI_IO_FULL),
}
_PERCENT = 100  # the kernel's unit of pressure

# Koordinator shows only requests for lent resources. The units are its own: any request is a number, any limit bytes.
_LENT = (names.BATCH_CPU, names.BATCH_MEMORY, names.MID_CPU, names.MID_MEMORY)
_REQUESTS_UNIT, _LIMITS_UNIT = "integer", "byte"


def families(scrape: Scrape) -> Iterator[Family]:
    """The metrics of all created containers except init and sidecar ones."""
    of_container = (*_OF_CONTAINER, *RESOURCE_LABELS)
    requests = GaugeMetricFamily("koordlet_container_resource_requests", "Lent resources requested", None, of_container)
    limits = GaugeMetricFamily("koordlet_container_resource_limits", "Limits of lent resources", None, of_container)
    containers = _Pressure("koordlet_container_psi", "Percent of the time that a container stalls", _OF_CONTAINER)
    pods = _Pressure("koordlet_pod_psi", "Percent of the time that a pod stalls", _OF_POD)
    of_pods, of_containers = scrape.readings(Kind.POD), scrape.readings(Kind.CONTAINER)
    for pod in scrape.pods:
        metadata = pod.pod.metadata
        labels = (scrape.node_name, pod.uid, metadata.name, metadata.namespace)
        pods.add(of_pods, Kind.POD, pod.uid, labels)
        specified = {one.name: one.resources for one in pod.pod.spec.containers}
        for status in pod.pod.status.container_statuses or ():
            own = (*labels, status.container_id, status.name)
            containers.add(of_containers, Kind.CONTAINER, f"{pod.uid}/{status.name}", own)
            if status.name in specified:
                _add(requests, own, _REQUESTS_UNIT, specified[status.name].requests)
                _add(limits, own, _LIMITS_UNIT, specified[status.name].limits)
    yield from (requests, limits, containers.family, pods.family)


class _Pressure:
    """Shares of the last ten seconds."""

    def __init__(self, name: str, help_text: str, labels: tuple[str, ...]) -> None:
        self.family = GaugeMetricFamily(name, help_text, labels=(*labels, *_OF_PRESSURE))

    def add(self, readings: Mapping[SeriesKey, float], kind: Kind, entity: str, labels: tuple[str, ...]) -> None:
        """Adds no sample for unknown values; kernels before 5.13 have no full of cpu."""
        for resource, (some_metric, full_metric) in _PRESSURES.items():
            some, full = (readings.get(SeriesKey(kind, entity, metric)) for metric in (some_metric, full_metric))
            has_full = "false" if full is None else "true"
            for degree, ratio in (("some", some), ("full", full)):
                if ratio is not None:
                    self.family.add_metric((*labels, resource, "avg10", degree, has_full), ratio * _PERCENT)


def _add(family: GaugeMetricFamily, labels: tuple[str, ...], unit: str, asked: Quantities | None) -> None:
    for resource in _LENT:
        if asked is not None and resource in asked:
            try:
                value = quantity.whole(asked[resource])
            except QuantityError:
                continue  # the informer already refuses a pod with an invalid request
            family.add_metric((*labels, resource, unit), value)
