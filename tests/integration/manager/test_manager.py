"""The manager does its job on a real API server, and bad input or another writer costs nothing but itself."""

import contextlib
import copy
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from shared import names
from shared.kube.errors import Invalid
from shared.kube.resources import CONFIGMAPS, NODEMETRICS, NODES, PODS
from shared.quantity import Resources
from tests.integration.manager.conftest import Cluster, StartManager, SteppedClock, counted, explained, fetch, seen
from tests.support import eventually
from tests.support.apiserver import ApiServer, rule
from tests.support.custom_kinds import CRDS

ours = pytest.mark.own_decision("the manager decides by what it has read, whichever API server it came from")

GIB = 1 << 30
OFFERED = Resources(1500, GIB)


def test_a_node_metric_lives_as_long_as_its_node(cluster: Cluster, start_manager: StartManager) -> None:
    orphan, ghost = (
        {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": name}}
        for name in ("gone", "ghost")
    )
    adopted = {**orphan, "metadata": {"name": "n1"}, "spec": {"metricCollectPolicy": {"reportIntervalSeconds": 7}}}
    for each in (orphan, adopted):
        cluster.client.create(NODEMETRICS, each)
    uid = cluster.client.get(NODEMETRICS, "n1")["metadata"]["uid"]
    cluster.add_node("n1")
    cluster.configure(metricReportIntervalSeconds=30, nodePredictPolicy={"predictor": "n-sigma-v1"})
    start_manager()

    def policy() -> object:
        return cluster.client.get(NODEMETRICS, "n1")["spec"].get("predictPolicy")

    eventually(lambda: not cluster.has_metric("gone"))
    assert eventually(policy) == {"predictor": "n-sigma-v1"}
    metric = cluster.client.get(NODEMETRICS, "n1")
    assert metric["metadata"]["uid"] == uid
    assert metric["spec"]["metricCollectPolicy"]["reportIntervalSeconds"] == 30
    assert metric["spec"]["midPolicy"]["midFormula"] == "seed"

    cluster.client.create(NODEMETRICS, ghost)
    eventually(lambda: not cluster.has_metric("ghost"))
    cluster.client.delete(NODEMETRICS, "n1")
    eventually(lambda: cluster.has_metric("n1"))
    cluster.client.delete(NODES, "n1")
    eventually(lambda: not cluster.has_metric("n1"))


def test_mid_follows_reports_and_goes_when_time_alone_makes_the_last_one_stale(
    cluster: Cluster, start_manager: StartManager
) -> None:
    clock = SteppedClock()
    cluster.configure(midCPUThresholdPercent=50)
    manager = start_manager(clock)
    cluster.add_reporting_node("n1", at=clock.now())
    eventually(lambda: cluster.mid("n1") == OFFERED)
    cluster.report("n1", at=clock.now(), cpu="3", memory="0")
    eventually(lambda: cluster.mid("n1") == Resources(2000, 0))
    clock.advance(15 * 60)
    assert cluster.mid("n1") == Resources(2000, 0)

    def is_withdrawn() -> bool:
        clock.advance(1)  # again and again, for a wait may begin just after a step and would miss it
        return cluster.mid("n1") is None

    eventually(is_withdrawn)
    eventually(lambda: seen(manager, "n1") == Resources())
    eventually(lambda: explained(manager, "n1")["last_write"]["cpu_milli"] is None)
    assert explained(manager, "n1")["resources"]["cpu"]["bound"] == "stale"
    events = eventually(lambda: cluster.events("MidResourceReset"))
    assert "degradedByMidResource" in events[0]["message"]
    assert events[0]["type"] == "Warning"


def test_disabling_colocation_takes_mid_away_and_leaves_the_rest(cluster: Cluster, start_manager: StartManager) -> None:
    cluster.configure()
    manager = start_manager()
    cluster.add_reporting_node("n1", at=time.time())
    cluster.client.patch(NODES, "n1", {"status": {"allocatable": {"example.com/gpu": "2"}}}, subresource="status")
    eventually(lambda: cluster.mid("n1") == OFFERED)
    cluster.configure(enable=False)
    eventually(lambda: cluster.mid("n1") is None)
    allocatable = cluster.client.get(NODES, "n1")["status"]["allocatable"]
    assert allocatable == {"cpu": "4", "memory": "8Gi", "example.com/gpu": "2"}
    assert fetch(manager, "/api/v1/status").json()["colocation_enabled"] is False
    cluster.configure()
    eventually(lambda: cluster.mid("n1") == OFFERED)
    cluster.client.delete(CONFIGMAPS, names.CONFIG_MAP, cluster.namespace)
    eventually(lambda: cluster.mid("n1") is None)


def test_a_broken_configuration_leaves_the_last_good_one_and_is_reported(
    cluster: Cluster, start_manager: StartManager
) -> None:
    cluster.configure(midCPUThresholdPercent=25)
    manager = start_manager()
    cluster.add_reporting_node("n1", at=time.time())
    eventually(lambda: cluster.mid("n1") == Resources(1000, GIB))
    cluster.configure(midCPUThresholdPercent=101)
    eventually(lambda: counted(manager, "config_last_reload_success") == 0)
    named = "midCPUThresholdPercent: 101"
    assert named in fetch(manager, "/api/v1/status").json()["config_problem"]
    (event,) = eventually(lambda: cluster.events("ColocationCfgUnmarshalFailed"))
    assert named in event["message"]
    assert event["metadata"]["namespace"] == cluster.namespace
    cluster.add_reporting_node("n2", at=time.time())
    eventually(lambda: cluster.mid("n2") == Resources(1000, GIB))
    assert cluster.mid("n1") == Resources(1000, GIB)
    cluster.configure()
    eventually(lambda: cluster.mid("n1") == OFFERED)
    assert counted(manager, "config_last_reload_success") == 1


@ours
def test_a_broken_node_config_is_counted_and_leaves_its_nodes_with_the_clusters_policy(
    cluster: Cluster, start_manager: StartManager
) -> None:
    broken = {"nodeSelector": {"matchLabels": {"pool": "a"}}, "midCPUThresholdPercent": 500}
    cluster.configure(midCPUThresholdPercent=25, nodeConfigs=[broken])
    manager = start_manager()
    cluster.add_reporting_node("n1", at=time.time(), labels={"pool": "a"})
    eventually(lambda: cluster.mid("n1") == Resources(1000, GIB))
    assert counted(manager, "config_node_configs_passed_over") == 1
    assert counted(manager, "config_last_reload_success") == 1
    cluster.configure(midCPUThresholdPercent=25)
    eventually(lambda: counted(manager, "config_node_configs_passed_over") == 0)


@ours
def test_a_report_that_contradicts_the_nodes_pods_is_bounded_and_said_on_the_node(
    cluster: Cluster, start_manager: StartManager
) -> None:
    cluster.configure()
    manager = start_manager()
    cluster.add_node("n1", lends=("1", "1Gi"))
    cluster.wait_for_metric("n1")
    cluster.report("n1", at=time.time() - 1, cpu="1000000", memory="1Gi")
    eventually(lambda: cluster.mid("n1") == Resources(1000, GIB))
    assert counted(manager, "node_metric_contradictions") == 0
    cluster.report("n1", at=time.time(), cpu="1000000", memory="1Gi")
    eventually(lambda: counted(manager, "node_metric_contradictions") == 1)
    (event,) = eventually(lambda: cluster.events("NodeMetricContradiction"))
    assert "cpu: 1000000 is said to be reclaimable, but pods above Mid request 1" in event["message"]
    conditions = cluster.client.get(NODES, "n1")["status"]["conditions"]
    (own,) = (each for each in conditions if each["type"] == names.CONDITION_CONTRADICTION)
    assert own["status"] == "True"
    cpu = explained(manager, "n1")["resources"]["cpu"]
    assert (cpu["bound"], cpu["result"]) == ("reclaimable_limit", 1000)


@contextlib.contextmanager
def schema(cluster: Cluster, change: Callable[[dict[str, Any]], None], probe: dict[str, object]) -> Iterator[None]:
    """NodeMetrics with their schema's properties changed, by which the spec `probe` is kept where it was not before, or
    the other way round.
    """
    name = f"{NODEMETRICS.plural}.{NODEMETRICS.group}"
    ours = cluster.client.get(CRDS, name)

    def install(versions: list[dict[str, Any]]) -> None:
        cluster.client.patch(CRDS, name, {"spec": {"versions": versions}})

    def keeps() -> bool:
        metric = {"apiVersion": NODEMETRICS.api_version, "kind": "NodeMetric", "metadata": {"name": "probe"}}
        try:
            cluster.client.create(NODEMETRICS, {**metric, "spec": probe})
        except Invalid:
            return False
        kept = cluster.client.get(NODEMETRICS, "probe").get("spec") == probe
        cluster.client.delete(NODEMETRICS, "probe")
        return kept

    before = keeps()
    changed = copy.deepcopy(ours["spec"]["versions"])
    for version in changed:
        change(version["schema"]["openAPIV3Schema"]["properties"])
    install(changed)
    eventually(lambda: keeps() is not before)
    yield
    install(ours["spec"]["versions"])
    eventually(lambda: keeps() is before)


@pytest.fixture
def upstreams_schema(cluster: Cluster) -> Iterator[None]:
    """NodeMetrics as Koordinator's own schema has them, which keeps nothing of what is added to the spec."""

    def prune(properties: dict[str, Any]) -> None:
        del properties["spec"]["properties"]["midPolicy"], properties["spec"]["properties"]["predictPolicy"]

    with schema(cluster, prune, {"midPolicy": {"midBuffer": "off"}}):
        yield


@pytest.fixture
def no_schema(cluster: Cluster) -> Iterator[None]:
    """NodeMetrics of which nothing is checked."""

    def loosen(properties: dict[str, Any]) -> None:
        for part in ("spec", "status"):
            properties[part] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}

    with schema(cluster, loosen, {"predictPolicy": {"sigmaCPU": -3}}):
        yield


@pytest.mark.usefixtures("no_schema")
def test_a_spec_that_means_nothing_is_written_anew_and_reports_count_beside_it(
    cluster: Cluster, start_manager: StartManager
) -> None:
    cluster.configure(nodePredictPolicy={"predictor": "n-sigma-v1"})
    manager = start_manager()
    cluster.add_reporting_node("n1", at=time.time())
    cluster.client.patch(NODEMETRICS, "n1", {"spec": {"predictPolicy": {"sigmaCPU": -3}}})
    eventually(lambda: cluster.client.get(NODEMETRICS, "n1")["spec"]["predictPolicy"] == {"predictor": "n-sigma-v1"})
    manager.close()
    cluster.configure("{")
    cluster.client.patch(NODEMETRICS, "n1", {"spec": {"predictPolicy": {"sigmaCPU": -3}}})
    cluster.report("n1", at=time.time(), cpu="100m")
    again = start_manager()
    eventually(lambda: explained(again, "n1").get("pending"))  # it has looked, and has no policy
    assert cluster.client.get(NODEMETRICS, "n1")["spec"]["predictPolicy"]["sigmaCPU"] == -3
    cluster.configure()
    eventually(lambda: cluster.mid("n1") == Resources(100, GIB))
    eventually(lambda: "predictPolicy" not in cluster.client.get(NODEMETRICS, "n1")["spec"])


@pytest.mark.usefixtures("no_schema")
def test_a_node_metric_that_cannot_be_read_is_not_created_again_and_goes_with_its_node(
    cluster: Cluster, start_manager: StartManager
) -> None:
    cluster.configure()
    for name in ("gone", "n1"):
        meta = {"apiVersion": NODEMETRICS.api_version, "kind": "NodeMetric", "metadata": {"name": name}}
        cluster.client.create(NODEMETRICS, meta)
        cluster.client.patch(NODEMETRICS, name, {"status": {"updateTime": 5}}, subresource="status")
    cluster.add_node("n1")
    manager = start_manager()
    eventually(lambda: not cluster.has_metric("gone"))
    cluster.add_reporting_node("n2", at=time.time())
    eventually(lambda: cluster.mid("n2") == OFFERED)
    assert counted(manager, 'node_metric_writes_total{verb="create"}') == 1
    cluster.client.delete(NODES, "n1")
    eventually(lambda: not cluster.has_metric("n1"))


@pytest.mark.usefixtures("upstreams_schema")
def test_what_a_server_keeps_nothing_of_is_asked_for_once(cluster: Cluster, start_manager: StartManager) -> None:
    cluster.configure(midBuffer="off")
    manager = start_manager()
    cluster.add_reporting_node("n1", at=time.time())

    def updates() -> float:
        return counted(manager, 'node_metric_writes_total{verb="update"}')

    def has(cpu: int) -> bool:
        return cluster.mid("n1") == Resources(cpu, GIB)

    eventually(updates)
    for cpu in range(1500, 100, -150):
        cluster.report("n1", at=time.time(), cpu=f"{cpu}m")
        eventually(partial(has, cpu))
    # One that is kept comes after all that was due before it.
    cluster.configure(midBuffer="off", metricReportIntervalSeconds=30)
    eventually(
        lambda: cluster.client.get(NODEMETRICS, "n1")["spec"]["metricCollectPolicy"]["reportIntervalSeconds"] == 30
    )
    eventually(lambda: updates() == 2)


@ours
def test_a_bad_annotation_concerns_its_node_alone(cluster: Cluster, start_manager: StartManager) -> None:
    cluster.configure()
    start_manager()
    bad = {names.ANNOTATION_COLOCATION_STRATEGY: '{"midCPUThresholdPercent": 900}'}
    good = {names.ANNOTATION_COLOCATION_STRATEGY: '{"midCPUThresholdPercent": 10}'}
    cluster.add_reporting_node("n1", at=time.time(), annotations=bad)
    cluster.add_reporting_node("n2", at=time.time(), annotations=good)
    eventually(lambda: (cluster.mid("n1"), cluster.mid("n2")) == (OFFERED, Resources(400, GIB)))
    events = eventually(lambda: cluster.events("ColocationStrategyInvalid"))
    assert [event["involvedObject"]["name"] for event in events] == ["n1"]
    assert "midCPUThresholdPercent: 900" in events[0]["message"]


def test_a_conflict_is_decided_again_on_the_node_as_it_is(
    server: ApiServer, cluster: Cluster, start_manager: StartManager
) -> None:
    cluster.configure()
    manager = start_manager()
    cluster.add_node("n1")
    eventually(lambda: cluster.has_metric("n1"))
    server.fault(rule("status", "^/api/v1/nodes/n1/status", method="PATCH", status=409, reason="Conflict", times=2))
    cluster.report("n1", at=time.time())
    eventually(lambda: cluster.mid("n1") == OFFERED)
    assert counted(manager, "node_write_conflicts_total") >= 2
    eventually(lambda: counted(manager, 'node_writes_total{reason="difference"}') == 1)


def test_a_node_that_vanishes_while_it_is_written_is_no_error(
    server: ApiServer, cluster: Cluster, start_manager: StartManager
) -> None:
    cluster.configure()
    manager = start_manager()
    for name in ("n1", "n2"):
        cluster.add_node(name)
        cluster.wait_for_metric(name)
    server.fault(rule("delay", "^/api/v1/nodes/n1/status", method="PATCH", seconds=0.5))
    cluster.report("n1", at=time.time())
    eventually(lambda: fetch(manager, "/api/v1/nodes/n1").json()["resources"]["cpu"]["result"] == 1500)
    cluster.client.delete(NODES, "n1")
    cluster.report("n2", at=time.time())
    eventually(lambda: cluster.mid("n2") == OFFERED)
    eventually(lambda: not cluster.has_metric("n1"))
    assert fetch(manager, "/api/v1/nodes/n1").status_code == 404
    assert "headroom_manager_failures_total{" not in fetch(manager, "/metrics").text


def test_the_manager_outlives_the_api_server(server: ApiServer, cluster: Cluster, start_manager: StartManager) -> None:
    cluster.configure()
    manager = start_manager()
    cluster.add_reporting_node("n1", at=time.time())
    eventually(lambda: cluster.mid("n1") == OFFERED)
    eventually(lambda: seen(manager, "n1") == OFFERED)
    server.kill()
    assert seen(manager, "n1") == OFFERED
    server.start()
    assert cluster.mid("n1") == OFFERED
    cluster.report("n1", at=time.time(), cpu="500m")
    eventually(lambda: cluster.mid("n1") == Resources(500, GIB))
    cluster.add_node("n2")
    eventually(lambda: cluster.has_metric("n2"))


def test_requests_of_pods_are_summed_by_node(cluster: Cluster, start_manager: StartManager) -> None:
    cluster.configure(midFormula="seed-mixed")
    manager = start_manager(write_rule="upstream")
    cluster.add_reporting_node("n1", at=time.time(), lends=None)
    cluster.report("n1", at=time.time(), cpu="500m")
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "2Gi"}}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p1"}}
    spec = {"nodeName": "n1", "containers": [container]}
    cluster.client.create(PODS, {**pod, "spec": spec}, cluster.namespace)
    eventually(lambda: cluster.mid("n1") == Resources(3500, 7 * GIB))
    assert fetch(manager, "/api/v1/nodes").json()["nodes"][0]["requested"] == {
        "cpu_milli": 1000,
        "memory_bytes": 2 << 30,
    }
    (workload,) = fetch(manager, f"/api/v1/workloads?text={cluster.namespace}").json()["workloads"]
    assert (workload["kind"], workload["name"], workload["tiers"], workload["used"]) == ("Pod", "p1", ["prod"], None)
    assert workload["requested"] == {"cpu_milli": 1000, "memory_bytes": 2 * GIB}
    peak = {"predictedPeak": {"cpu": "1200m", "memory": "3Gi"}}
    reported = {"name": "p1", "namespace": cluster.namespace, "podUsage": {"resources": {}}, "extensions": peak}
    cluster.client.patch(NODEMETRICS, "n1", {"status": {"podsMetric": [reported]}}, subresource="status")
    pods = fetch(manager, f"/api/v1/workloads/{cluster.namespace}/Pod/p1").json()["pods"]
    assert [(pod["name"], pod["node"]) for pod in pods] == [("p1", "n1")]
    assert pods[0]["predicted_peak"] == {"cpu_milli": 1200, "memory_bytes": 3 * GIB}
    eventually(lambda: fetch(manager, f"/api/v1/workloads/{cluster.namespace}/Pod/p1/history").json()["times"])
    cluster.client.delete(PODS, "p1", cluster.namespace, grace_period_seconds=0)
    eventually(lambda: cluster.mid("n1") == Resources(4000, 8 * GIB))
