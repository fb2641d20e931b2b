"""Groups of real Cluster API, on a real API server, with the rights that the chart gives."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from deploy.local.scheduler.scheduler import Scheduler
from manager.autoscaler.cloudprovider.clusterapi import annotations
from manager.autoscaler.cloudprovider.contract import ErrorClass, GroupSpec, NodeRef
from manager.autoscaler.cloudprovider.errors import Later, Refused
from manager.autoscaler.cloudprovider.guard import Guard
from manager.autoscaler.cloudprovider.ownership import DEFAULT_PREFIX, Ownership
from shared import names
from shared.clock import SystemClock
from shared.kube.errors import NotFound
from shared.kube.events import Recorder
from shared.kube.resources import PODS
from shared.telemetry import Loops
from tests.apiserver import clusterapi_build
from tests.integration.manager.cloud_rights import grant
from tests.integration.manager.conftest import Cluster, StartManager
from tests.support import eventually
from tests.support.apiserver import ApiServer
from tests.support.clusterapi import (
    CLUSTER,
    DEPLOYMENTS,
    GROUP,
    INFRA_MACHINES,
    INFRA_TEMPLATES,
    MAX,
    MIN,
    SIZE,
    TEMPLATES,
    ClusterApi,
)
from tests.support.foreign_controller import require_built
from tests.support.observing import guarded

pytestmark = pytest.mark.real_only("Cluster API asks for a real API server")

PATIENT_SECONDS = 120.0
SIZED = {f"{annotations.CAPACITY}{key}": SIZE[key] for key in ("cpu", "memory")}


@pytest.fixture(scope="module")
def capi(process: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterApi]:
    built = require_built(clusterapi_build.built_cluster_api)
    capi = ClusterApi(process, built, tmp_path_factory.mktemp("cluster-api"))
    grant(chosen(capi), process, "clusterapi")
    yield capi
    capi.close()
    grant({}, process, "simulated")


def chosen(capi: ClusterApi) -> dict[str, Any]:
    """The configuration, by which the manager may act in this one namespace."""
    selector = {"namespace": capi.namespace, "cluster_name": CLUSTER}
    return {"discover": [selector], "infrastructure_templates": [TEMPLATES]}


@pytest.fixture
def file(capi: ClusterApi, cluster: Cluster, tmp_path: Path) -> Iterator[Path]:
    file = tmp_path / "cluster-api.yaml"
    file.write_text(yaml.safe_dump(chosen(capi)))
    yield file
    capi.clear()


@pytest.fixture
def guard(file: Path, server: ApiServer) -> Iterator[Guard]:
    with begun(file, server) as guard:
        yield guard


@contextlib.contextmanager
def begun(file: Path, server: ApiServer) -> Iterator[Guard]:
    """A provider with its guard, and no manager: what is decided is for the test to say."""
    client = server.client(server.manager_connection())
    guard = guarded("clusterapi", file, Ownership(opted_in=True), client=client, clock=SystemClock())
    yield guard
    guard.close()
    client.close()


@contextlib.contextmanager
def creating(
    capi: ClusterApi, file: Path, server: ApiServer, process: ApiServer, cluster: str, **way: Any
) -> Iterator[Guard]:
    """One that may also create groups of a cluster, with the rights that the chart gives for that."""
    found = chosen(capi) | {
        "discover": [{"namespace": capi.namespace, "cluster_name": cluster}],
        "machine_types": [{"name": "c-4", "allocatable": {"cpu": "4", "memory": "8Gi"}, "price": 0.2}],
        "autoprovisioning": {"namespace": capi.namespace, **way},
    }
    file.write_text(yaml.safe_dump(found))
    grant(found, process, "clusterapi")
    try:
        with begun(file, server) as guard:
            guard.observe()
            yield guard
    finally:
        grant(chosen(capi), process, "clusterapi")


def states(guard: Guard, group: str) -> list[str]:
    return sorted(each.state.value for each in guard.observe().groups[group].instances)


def test_machines_become_nodes_and_exactly_the_named_one_goes(capi: ClusterApi, guard: Guard) -> None:
    capi.add_group("web", 1, {MIN: "1", MAX: "4"})
    capi.add_group("plain", 1, {})
    web = f"MachineDeployment/{capi.namespace}/web"
    eventually(lambda: states(guard, web) == ["Running"], PATIENT_SECONDS)
    assert list(guard.observed.groups) == [web]
    guard.increase(web, 2)
    eventually(lambda: states(guard, web) == ["Running"] * 3, PATIENT_SECONDS)
    refs = [NodeRef.from_node(node) for node in capi.nodes()]
    placed = guard.observe(refs).group_of_node
    assert set(placed.values()) == {web}
    assert len(placed) == 3  # and that of the other group is nobody's
    victim = next(each for each in refs if each.name == sorted(placed)[1])
    guard.delete_nodes(web, [victim])
    assert sorted(each.state.value for each in guard.observed.groups[web].instances) == ["Deleting", *["Running"] * 2]
    eventually(lambda: len(states(guard, web)) == 2, PATIENT_SECONDS)
    left = {node.metadata.name for node in capi.nodes()}
    assert left == {each.name for each in refs} - {victim.name}
    assert capi.replicas("web") == 2
    assert capi.replicas("plain") == 1


def test_the_next_node_is_as_the_infrastructure_provider_says(capi: ClusterApi, guard: Guard) -> None:
    capi.add_group("empty", 0, {MAX: "2"}, said={"capacity": SIZE, "nodeInfo": {"architecture": "arm64"}})
    group = f"MachineDeployment/{capi.namespace}/empty"
    guard.observe()
    node = guard.template(group)
    assert node.status.allocatable == SIZE
    assert (node.metadata.labels or {})["kubernetes.io/arch"] == "arm64"


def test_a_machine_that_cannot_be_made_is_a_failure_and_goes_when_it_is_given_up(
    capi: ClusterApi, guard: Guard
) -> None:
    capi.add_group("web", 0, {MAX: "2"} | SIZED)
    web = f"MachineDeployment/{capi.namespace}/web"
    eventually(lambda: web in guard.observe().groups)
    capi.broken = True
    guard.increase(web, 1)
    (failed,) = eventually(
        lambda: [each for each in guard.observe().groups[web].instances if each.error], PATIENT_SECONDS
    )
    assert failed.error is not None
    assert (failed.error.kind, failed.error.code) == (ErrorClass.OUT_OF_RESOURCES, "InsufficientResources")
    guard.delete_nodes(web, [NodeRef("", failed.provider_id)])
    eventually(lambda: not states(guard, web), PATIENT_SECONDS)
    assert capi.replicas("web") == 0


def test_a_manager_buys_a_machine_for_a_pod_from_nothing_and_gives_it_back(
    capi: ClusterApi, cluster: Cluster, file: Path, start_manager: StartManager
) -> None:
    capi.add_group("web", 0, {MIN: "0", MAX: "2"} | SIZED)
    loops = Loops(CollectorRegistry())
    Scheduler(cluster.client, Recorder(cluster.client, "scheduler", "town")).start(loops)
    try:
        container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "3"}}}
        spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
        cluster.client.create(
            PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": spec}, capi.namespace
        )
        start_manager(
            cloud_provider="clusterapi",
            cloud_config=str(file),
            expander="least-waste",
            scan_interval_seconds=0.3,
            scale_down_unneeded_time_seconds=0.5,
            scale_down_delay_after_add_seconds=0.0,
            node_delete_delay_after_taint_seconds=0.2,
        )
        node = eventually(
            lambda: cluster.client.get(PODS, "one", capi.namespace)["spec"].get("nodeName"), PATIENT_SECONDS
        )
        assert capi.replicas("web") == 1
        assert [each.metadata.name for each in capi.nodes()] == [node]
        cluster.client.delete(PODS, "one", capi.namespace, grace_period_seconds=0)
        eventually(lambda: not capi.machines() and not capi.nodes(), PATIENT_SECONDS)
        assert capi.replicas("web") == 0
    finally:
        with contextlib.suppress(NotFound):
            cluster.client.delete(PODS, "one", capi.namespace, grace_period_seconds=0)
        loops.close()


def test_a_cloned_group_makes_a_node_of_its_machine_type_and_goes_with_its_template(
    capi: ClusterApi, file: Path, server: ApiServer, process: ApiServer
) -> None:
    capi.add_group("web", 0, {})
    copied = {"resource": TEMPLATES, "machine_type": "spec.template.spec.size"}
    clone = {"machine_deployment": "web", "templates": [copied]}
    label = f"node.{GROUP}/pool"
    with creating(capi, file, server, process, CLUSTER, clone=clone) as guard:
        created = guard.create_group(GroupSpec("c-4", DEFAULT_PREFIX, {label: "new"})).main
        guard.increase(created.id, 1)
        eventually(lambda: states(guard, created.id) == ["Running"], PATIENT_SECONDS)
        (machine,) = capi.client.list(INFRA_MACHINES, capi.namespace).items
        assert machine["spec"]["size"] == "c-4"
        (node,) = eventually(
            lambda: [each for each in capi.nodes() if label in (each.metadata.labels or {})], PATIENT_SECONDS
        )
        with pytest.raises(Refused, match="not empty"):
            guard.delete_group(created.id)
        guard.observe()
        guard.delete_nodes(created.id, [NodeRef.from_node(node)])
        eventually(lambda: not states(guard, created.id), PATIENT_SECONDS)
        eventually(lambda: deletes(guard, created.id), PATIENT_SECONDS)
        eventually(lambda: created.id not in guard.observe().groups and templates_of(capi) == ["web"], PATIENT_SECONDS)
    assert capi.replicas("web") == 0


def deletes(guard: Guard, group: str) -> bool:
    """Cluster API writes the status of what is seen to be empty."""
    try:
        guard.observe()
        guard.delete_group(group)
    except Later:
        return False
    return True


def templates_of(capi: ClusterApi) -> list[str]:
    return [each["metadata"]["name"] for each in capi.client.list(INFRA_TEMPLATES, capi.namespace).items]


def test_an_entry_of_a_topology_becomes_a_group_of_its_machine_type_and_goes(
    capi: ClusterApi, file: Path, server: ApiServer, process: ApiServer
) -> None:
    capi.add_managed_cluster("city")
    topology = {"cluster": "city", "class": "worker", "machine_type": "size"}
    try:
        with creating(capi, file, server, process, "city", topology=topology) as guard:
            created = guard.create_group(GroupSpec("c-4", DEFAULT_PREFIX, {f"node.{GROUP}/pool": "new"})).main
            eventually(lambda: deployments_of(capi, created.id), PATIENT_SECONDS)
            # On a busy machine that takes longer than the creation of a group waits.
            eventually(lambda: created.id in guard.observe().groups, PATIENT_SECONDS)
            guard.increase(created.id, 1)
            (deployment,) = deployments_of(capi, created.id)
            assert deployment["spec"]["replicas"] == 1
            name = deployment["spec"]["template"]["spec"]["infrastructureRef"]["name"]
            assert capi.client.get(INFRA_TEMPLATES, name, capi.namespace)["spec"]["template"]["spec"]["size"] == "c-4"
            assert deployment["spec"]["template"]["metadata"]["labels"][f"node.{GROUP}/pool"] == "new"
            guard.decrease_target(created.id, 1)  # no bootstrap provider is here, so no machine comes
            eventually(lambda: deletes(guard, created.id), PATIENT_SECONDS)
            eventually(lambda: not deployments_of(capi, created.id), PATIENT_SECONDS)
            assert created.id not in guard.observe().groups
    finally:
        capi.remove_managed_cluster("city")


def deployments_of(capi: ClusterApi, group: str) -> list[dict[str, Any]]:
    selector = f"{names.LABEL_NODE_GROUP}={group.rpartition('/')[2]}"
    return capi.client.list(DEPLOYMENTS, capi.namespace, label_selector=selector).items
