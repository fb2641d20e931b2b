"""What Prometheus is shown under the names of Koordinator's agent, in exactly its labels and units."""

from collections.abc import Mapping
from dataclasses import replace

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from agent.metric_cache import series
from agent.metric_cache.series import Kind, Metric, SeriesKey, Usage
from agent.predict_server.lenders import Requests
from agent.predict_server.prediction import NodePrediction
from agent.reporter.measurements import NumaAverages
from agent.states_informer.pods import NodePod, describe
from agent.telemetry.koordinator import Koordinator
from agent.telemetry.scrape import Scrape, ScrapeCollector
from shared.api.core import Container, ContainerStatus, Pod, PodSpec, PodStatus, Quantities, ResourceRequirements
from shared.api.meta import ObjectMeta
from shared.quantity import Resources

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]

STARTED = 1_700_000_000.0
USAGE = Usage(1.0, 2.0**30)
OF_POD = {"node": "n", "pod_uid": "uid-web", "pod_name": "web", "pod_namespace": "default"}
OF_CONTAINER = OF_POD | {"container_id": "containerd://1", "container_name": "c"}
AVG10 = {"psi_precision": "avg10"}


def web(requests: Quantities | None = None, limits: Quantities | None = None) -> NodePod:
    """A pod of a container that runs and one that has not been made yet."""
    resources = ResourceRequirements(requests, limits)
    return describe(
        Pod(
            ObjectMeta(name="web", namespace="default", uid="uid-web", creation_timestamp="2023-11-14T00:00:00Z"),
            PodSpec(containers=(Container(name="c", resources=resources), Container(name="late", resources=resources))),
            PodStatus(container_statuses=(ContainerStatus("c", "containerd://1"),)),
        )
    )


def scrape(
    *pods: NodePod, age_seconds: float = 100.0, readings: Mapping[SeriesKey, float] | None = None, known: bool = True
) -> Scrape:
    nothing = Requests(Resources(), Resources())
    return Scrape(
        node_name="n",
        started_at=STARTED,
        usages={series.NODE: USAGE} if known else {},
        numa=[NumaAverages(0, USAGE, None)] if known else [],
        host_applications=[],
        readings=lambda kind: {key: value for key, value in (readings or {}).items() if key.kind is kind},
        pods=pods,
        prediction=NodePrediction(STARTED + age_seconds, "n-sigma-v2", nothing),
        allocatable=None,
        models=0,
        series=0,
        metric_cache_bytes=0,
    )


class Page:
    """/metrics with nothing but these names on it."""

    def __init__(self, found: Scrape) -> None:
        self.found = found
        self._registry = CollectorRegistry()
        self._registry.register(ScrapeCollector(lambda: self.found, Koordinator().families))

    def samples(self, *names: str) -> Samples:
        families = text_string_to_metric_families(generate_latest(self._registry).decode())
        found = [one for family in families for one in family.samples if one.name in names]
        return {(one.name, frozenset(one.labels.items())): one.value for one in found}


def sample(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


REQUESTS, LIMITS = "koordlet_container_resource_requests", "koordlet_container_resource_limits"


def test_what_a_container_asks_of_lent_resources_is_told_once_it_is_made() -> None:
    mid: Quantities = {"kubernetes.io/mid-cpu": "1500", "kubernetes.io/mid-memory": "2Gi"}
    pod = web({"cpu": "1", "memory": "1Gi", "kubernetes.io/batch-cpu": "1k", "kubernetes.io/batch-memory": 4096}, mid)
    assert Page(scrape(pod)).samples(REQUESTS, LIMITS) == {
        sample(REQUESTS, **OF_CONTAINER, resource="kubernetes.io/batch-cpu", unit="integer"): 1000,
        sample(REQUESTS, **OF_CONTAINER, resource="kubernetes.io/batch-memory", unit="integer"): 4096,
        sample(LIMITS, **OF_CONTAINER, resource="kubernetes.io/mid-cpu", unit="byte"): 1500,
        sample(LIMITS, **OF_CONTAINER, resource="kubernetes.io/mid-memory", unit="byte"): 2 << 30,
    }


def test_a_limit_that_is_no_quantity_costs_itself_alone() -> None:
    name = "kubernetes.io/mid-cpu"
    found = Page(scrape(web({name: "1000"}, {name: "lots"}))).samples(REQUESTS, LIMITS)
    assert found == {sample(REQUESTS, **OF_CONTAINER, resource=name, unit="integer"): 1000}


def test_pressure_is_told_in_percent_and_a_full_that_the_kernel_does_not_know_is_not() -> None:
    readings = {
        SeriesKey(Kind.POD, "uid-web", Metric.PSI_CPU_SOME): 0.25,
        SeriesKey(Kind.POD, "uid-gone", Metric.PSI_CPU_SOME): 0.5,
        SeriesKey(Kind.CONTAINER, "uid-web/c", Metric.PSI_MEMORY_SOME): 0.5,
        SeriesKey(Kind.CONTAINER, "uid-web/c", Metric.PSI_MEMORY_FULL): 0.125,
        SeriesKey(Kind.CONTAINER, "uid-web/late", Metric.PSI_IO_SOME): 0.5,
    }
    cpu = AVG10 | {"psi_resource_type": "cpu", "cpu_full_supported": "false"}
    memory = AVG10 | {"psi_resource_type": "mem", "cpu_full_supported": "true"}
    assert Page(scrape(web(), readings=readings)).samples("koordlet_pod_psi", "koordlet_container_psi") == {
        sample("koordlet_pod_psi", **OF_POD, **cpu, psi_degree="some"): 25,
        sample("koordlet_container_psi", **OF_CONTAINER, **memory, psi_degree="some"): 50,
        sample("koordlet_container_psi", **OF_CONTAINER, **memory, psi_degree="full"): 12.5,
    }


CPU_STATUS, NUMA_STATUS = "koordlet_collect_node_cpu_info_status", "koordlet_collect_node_numa_info_status"


def test_scrapes_are_counted_by_whether_the_node_was_read_but_for_a_start() -> None:
    page = Page(scrape(age_seconds=1.0, known=False))

    def counted() -> list[float]:
        found = page.samples(CPU_STATUS, NUMA_STATUS)
        assert len(found) == 4
        return [
            found[sample(name, node="n", status=status)]
            for name in (CPU_STATUS, NUMA_STATUS)
            for status in ("succeeded", "failed")
        ]

    assert counted() == [0, 0, 0, 0]
    page.found = scrape(age_seconds=2.0)
    assert counted() == [1, 0, 1, 0]
    page.found = replace(scrape(), numa=[])
    assert counted() == [2, 0, 1, 1]
    page.found = scrape(known=False)
    assert counted() == [2, 1, 1, 2]
