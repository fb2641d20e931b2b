"""Groups that the Cluster API provider creates, on an API server where the test says what Cluster API does."""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from deploy.local.scheduler.scheduler import Scheduler
from manager.autoscaler.cloudprovider.contract import GroupSpec
from manager.autoscaler.cloudprovider.errors import Later, ProviderError, Refused, Unavailable, Unsupported
from manager.autoscaler.cloudprovider.guard import Guard
from manager.autoscaler.cloudprovider.ownership import DEFAULT_PREFIX
from shared import durations, names
from shared.api.core import Taint
from shared.clock import ManualClock
from shared.kube.errors import AlreadyExists, ApiError, NotFound
from shared.kube.events import Recorder
from shared.kube.resources import PODS, Resource
from shared.telemetry import Loops
from tests.integration.manager.cluster_api_fleet import DEPLOYMENTS, GROUP, MACHINES, SETS, Fleet
from tests.integration.manager.conftest import Cluster, StartManager
from tests.support import eventually
from tests.support.apiserver import ApiServer, rule
from tests.support.clusterapi import definition
from tests.support.custom_kinds import CRDS

BOXES = Resource("infra.example.com", "v1", "boxtemplates", namespaced=True)
BOOTS = Resource("boot.example.com", "v1", "boottemplates", namespaced=True)
CLUSTERS = Resource(GROUP, "v1beta1", "clusters", namespaced=True)
COPIES = (BOXES, BOOTS, DEPLOYMENTS)
KINDS = {BOXES: "BoxTemplate", BOOTS: "BootTemplate", DEPLOYMENTS: "MachineDeployment"}
TOPOLOGY_NAME = f"topology.{GROUP}/deployment-name"
SPEC = GroupSpec("c-4", DEFAULT_PREFIX, {"team": "web", "tier": "x"}, (Taint("dedicated", "web", "NoSchedule"),))
MACHINE_TYPE = {"name": "c-4", "allocatable": {"cpu": "4", "memory": "8Gi"}, "price": 0.2, "zones": ["zone-a"]}


class HastyClock(ManualClock):
    """Waits end at once, and Cluster API works meanwhile."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__()
        self._work = work

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self._work()
        self.advance(seconds)
        return event.is_set()


class Nursery:
    """A fleet in which groups may be created."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.client = fleet.client
        self.namespace = fleet.namespace
        self.busy = True  # Cluster API renders topologies
        for kind, resource in {"BoxTemplate": BOXES, "BootTemplate": BOOTS, "Cluster": CLUSTERS}.items():
            with contextlib.suppress(AlreadyExists):
                self.client.create(CRDS, definition(kind, resource))
            eventually(functools.partial(self._knows, resource))
        inner = {"template": {"spec": {"size": "c-2", "labels": "a=b", "image": "x"}}}
        for kind, resource in {"BoxTemplate": BOXES, "BootTemplate": BOOTS}.items():
            self.add(resource, kind, "source", inner)
        refs = {
            "infrastructureRef": {"apiVersion": BOXES.api_version, "kind": "BoxTemplate", "name": "source"},
            "bootstrap": {"configRef": {"apiVersion": BOOTS.api_version, "kind": "BootTemplate", "name": "source"}},
        }
        fleet.add("MachineDeployment", "source", template={"metadata": {"labels": {}}, "spec": refs})
        topology = {"class": "town", "workers": {"machineDeployments": [{"class": "worker", "name": "theirs"}]}}
        self.add(CLUSTERS, "Cluster", "prod", {"topology": topology})

    def clone(self, **more: Any) -> dict[str, Any]:
        templates = [
            {"resource": str(BOXES), "machine_type": "spec.template.spec.size"},
            {
                "resource": str(BOOTS),
                "labels": "spec.template.spec.labels",
                "taints": "spec.template.spec.taints",
            },
        ]
        return self.created_by(clone={"machine_deployment": "source", "templates": templates}, **more)

    def topology(self) -> dict[str, Any]:
        variables = {"machine_type": "size", "labels": "labels", "taints": "taints"}
        return self.created_by(topology={"cluster": "prod", "class": "worker", **variables})

    def created_by(self, **way: Any) -> dict[str, Any]:
        found = {"namespace": self.namespace, "synced_labels": ["team"], "max": 5, **way}
        return {"machine_types": [MACHINE_TYPE], "autoprovisioning": found}

    def begin(self, way: dict[str, Any], *, writes: bool = True) -> Guard:
        """A process that begins, and tries nothing twice by itself."""
        guard = self.fleet.begin(self.client.single_attempt(), writes=writes, **way)
        guard.observe()
        return guard

    def add(self, resource: Resource, kind: str, name: str, spec: dict[str, Any]) -> None:
        body = {"apiVersion": resource.api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}
        self.client.create(resource, body, self.namespace)

    def made(self, resource: Resource) -> list[dict[str, Any]]:
        found = self.client.list(resource, self.namespace).items
        return [each for each in found if names.LABEL_NODE_GROUP in each["metadata"].get("labels", {})]

    def names_made(self) -> list[list[str]]:
        return [[each["metadata"]["name"] for each in self.made(resource)] for resource in COPIES]

    def entries(self) -> list[dict[str, Any]]:
        topology = self.client.get(CLUSTERS, "prod", self.namespace)["spec"]["topology"]
        return list(topology.get("workers", {}).get("machineDeployments", ()))

    def render(self) -> None:
        """What Cluster API does of the topology: a MachineDeployment for each entry, and none without one.

        It says how many replicas one has at the next look.
        """
        wanted = {each["name"]: each for each in self.entries()} if self.busy else {}
        there = self.client.list(DEPLOYMENTS, self.namespace, label_selector=TOPOLOGY_NAME).items
        for each in there:
            if self.busy and each["metadata"]["labels"][TOPOLOGY_NAME] not in wanted:
                self.client.delete(DEPLOYMENTS, each["metadata"]["name"], self.namespace)
            elif "replicas" not in each["spec"]:
                self.client.patch(DEPLOYMENTS, each["metadata"]["name"], {"spec": {"replicas": 0}}, self.namespace)
        known = {each["metadata"]["labels"][TOPOLOGY_NAME] for each in there}
        for name, entry in wanted.items():
            if name not in known:
                given = entry.get("metadata", {})
                labels = given.get("labels", {}) | {TOPOLOGY_NAME: name}
                meta = {"name": f"prod-{name}-x7k", "labels": labels, "annotations": given.get("annotations", {})}
                spec = {"clusterName": "prod", "template": {"metadata": {"labels": labels}}}
                body = {"apiVersion": DEPLOYMENTS.api_version, "kind": "MachineDeployment", "metadata": meta}
                self.client.create(DEPLOYMENTS, body | {"spec": spec}, self.namespace)

    def _knows(self, resource: Resource) -> bool:
        try:
            self.client.list(resource)
        except ApiError:
            return False
        return True


@pytest.fixture
def nursery(server: ApiServer, tmp_path: Path) -> Iterator[Nursery]:
    fleet = Fleet(server, tmp_path / "cloud.yaml")
    nursery = Nursery(fleet)
    fleet.clock = HastyClock(nursery.render)
    yield nursery
    fleet.close()


def test_a_group_is_cloned_with_its_templates_and_grows_and_goes_with_them(nursery: Nursery) -> None:
    guard = nursery.begin(nursery.clone())
    promised = guard.theoretical(SPEC)
    created = guard.create_group(SPEC).main
    assert (promised.id, promised.max_size) == (created.id, created.max_size)
    assert promised.template == guard.template(created.id)
    name = created.id.rpartition("/")[2]
    assert created.id == f"MachineDeployment/{nursery.namespace}/{name}"
    assert nursery.names_made() == [[name]] * 3
    (box,), (boot,), (deployment,) = map(nursery.made, COPIES)
    assert box["spec"]["template"]["spec"] == {"size": "c-4", "labels": "a=b", "image": "x"}
    taints = [{"key": "dedicated", "value": "web", "effect": "NoSchedule"}]
    assert boot["spec"]["template"]["spec"] == {"size": "c-2", "labels": "a=b,tier=x", "image": "x", "taints": taints}
    machine = deployment["spec"]["template"]
    assert deployment["spec"]["replicas"] == 0
    assert machine["spec"]["infrastructureRef"]["name"] == machine["spec"]["bootstrap"]["configRef"]["name"] == name
    assert machine["spec"]["failureDomain"] == "zone-a"
    assert machine["metadata"]["labels"]["team"] == "web"
    labels = guard.template(created.id).metadata.labels or {}
    assert labels.items() >= {"team": "web", "tier": "x", "node.kubernetes.io/instance-type": "c-4"}.items()
    guard.increase(created.id, 2)
    group = guard.observe().groups[created.id].group
    assert (group.target_size, group.max_size, group.autoprovisioned) == (2, 5, True)
    with pytest.raises(Refused, match="not empty"):
        guard.delete_group(created.id)
    guard.decrease_target(created.id, 2)
    guard.delete_group(created.id)
    assert nursery.names_made() == [[name], [name], []]
    assert created.id not in guard.observe().groups
    assert nursery.names_made() == [[], [], []]
    assert nursery.client.get(BOXES, "source", nursery.namespace)


@pytest.mark.parametrize("resource", COPIES, ids=str)
@pytest.mark.parametrize("fault", ["status", "truncate"])
def test_a_creation_that_ends_at_any_write_goes_on_with_the_same_objects(
    nursery: Nursery, resource: Resource, fault: str
) -> None:
    """The write fails, or takes effect and its answer is lost; then the process dies."""
    guard = nursery.begin(nursery.clone())
    more = {"status": 500} if fault == "status" else {}
    nursery.fleet.server.fault(rule(fault, f"/{resource.plural}", method="POST", times=1, **more))
    with pytest.raises(Unavailable):
        guard.create_group(SPEC)
    assert nursery.fleet.server.faults_left() == 0
    done = COPIES.index(resource) + (fault == "truncate")
    assert [len(each) for each in nursery.names_made()] == [1] * done + [0] * (3 - done)
    again = nursery.begin(nursery.clone())
    if done == len(COPIES):  # all of it is there, and is a group like others
        (name,) = nursery.names_made()[-1]
        assert again.observed.groups[f"MachineDeployment/{nursery.namespace}/{name}"].group.autoprovisioned
    else:
        name = again.create_group(SPEC).main.id.rpartition("/")[2]
    assert nursery.names_made() == [[name]] * 3


@pytest.mark.parametrize("resource", COPIES, ids=str)
def test_what_has_the_name_and_is_not_ours_stays_and_is_not_used(nursery: Nursery, resource: Resource) -> None:
    guard = nursery.begin(nursery.clone())
    name = guard.create_group(SPEC).main.id.rpartition("/")[2]
    for each in COPIES:
        nursery.client.delete(each, name, nursery.namespace)
    theirs = {"template": {"spec": {}}, "clusterName": "prod", "replicas": 0}
    nursery.add(resource, KINDS[resource], name, theirs)
    before = nursery.client.get(resource, name, nursery.namespace)
    again = nursery.begin(nursery.clone())
    with pytest.raises(
        Refused, match=f"{resource} {nursery.namespace}/{name} exists already and was not created by Headroom"
    ):
        again.create_group(SPEC)
    assert nursery.client.get(resource, name, nursery.namespace) == before


def test_templates_that_a_process_left_go_once_no_creation_can_be_under_way(nursery: Nursery) -> None:
    guard = nursery.begin(nursery.clone())
    nursery.fleet.server.fault(rule("status", "/machinedeployments", method="POST", times=1, status=403))
    with pytest.raises(Refused, match="the copies could not be created"):
        guard.create_group(SPEC)
    again = nursery.begin(nursery.clone())
    assert [len(each) for each in nursery.names_made()] == [1, 1, 0]
    last_made = nursery.made(BOOTS)[0]  # on a busy machine a second or more after the first copy
    nursery.fleet.clock.jump(seconds_until(last_made, nursery.fleet.clock) + 601)
    again.observe()
    assert nursery.names_made() == [[], [], []]
    assert nursery.client.get(BOOTS, "source", nursery.namespace)


def seconds_until(made: dict[str, Any], clock: ManualClock) -> float:
    return durations.instant(made["metadata"]["creationTimestamp"]) - clock.now()


def test_a_group_that_has_changed_since_it_was_seen_empty_stays(nursery: Nursery) -> None:
    guard = nursery.begin(nursery.clone())
    created = guard.create_group(SPEC).main
    nursery.fleet.server.fault(rule("status", "/machinedeployments/", method="DELETE", times=1, status=409))
    with pytest.raises(Later, match="changed since it was empty"):
        guard.delete_group(created.id)
    name = created.id.rpartition("/")[2]
    nursery.fleet.scale(3)
    nursery.client.patch(DEPLOYMENTS, name, {"spec": {"replicas": 1}}, nursery.namespace)
    with pytest.raises(Refused, match="not empty: 1 replicas"):
        guard.delete_group(created.id)
    assert nursery.names_made() == [[name]] * 3


def test_without_something_to_copy_nothing_is_created_and_groups_go_on(nursery: Nursery) -> None:
    nursery.client.delete(DEPLOYMENTS, "source", nursery.namespace)
    guard = nursery.begin(nursery.clone())
    with pytest.raises(Refused, match=f"MachineDeployment {nursery.namespace}/source, the source of copies"):
        guard.create_group(SPEC)
    guard.increase(nursery.fleet.web, 1)


@pytest.mark.parametrize("writes", [True, False])
def test_who_may_not_create_does_not(nursery: Nursery, writes: bool) -> None:
    guard = nursery.begin({} if writes else nursery.clone(), writes=writes)
    with pytest.raises(ProviderError, match="no autoprovisioning" if writes else "only read") as raised:
        guard.create_group(SPEC)
    assert isinstance(raised.value, Unsupported if writes else Refused)
    assert nursery.names_made() == [[], [], []]


def test_a_created_group_is_one_like_others_where_none_may_be_created(nursery: Nursery) -> None:
    created = nursery.begin(nursery.clone()).create_group(SPEC).main
    plain = nursery.begin({})
    assert not plain.observed.groups[created.id].group.autoprovisioned
    plain.increase(created.id, 1)


def test_a_group_is_an_entry_of_the_topology_and_goes_as_such(nursery: Nursery) -> None:
    guard = nursery.begin(nursery.topology())
    created = guard.create_group(SPEC).main
    name = created.id.rpartition("/")[2]
    assert created.id == f"Cluster/{nursery.namespace}/prod/{name}"
    theirs, entry = nursery.entries()
    assert theirs == {"class": "worker", "name": "theirs"}
    assert "replicas" not in entry
    assert entry["variables"]["overrides"][0] == {"name": "size", "value": "c-4"}
    guard.increase(created.id, 2)
    assert [each["spec"]["replicas"] for each in nursery.made(DEPLOYMENTS)] == [2]
    group = guard.observe().groups[created.id].group
    assert (group.target_size, group.autoprovisioned) == (2, True)
    labels = guard.template(created.id).metadata.labels or {}
    assert labels.items() >= {"team": "web", "tier": "x", "topology.kubernetes.io/zone": "zone-a"}.items()
    guard.decrease_target(created.id, 2)
    guard.delete_group(created.id)
    assert nursery.entries() == [theirs]
    nursery.render()
    assert created.id not in guard.observe().groups


def test_an_entry_that_cluster_api_has_not_rendered_is_an_empty_group_that_grows_later(nursery: Nursery) -> None:
    nursery.busy = False
    guard = nursery.begin(nursery.topology())
    created = guard.create_group(SPEC).main
    with pytest.raises(Later, match="has not created its MachineDeployment yet"):
        guard.increase(created.id, 1)
    again = nursery.begin(nursery.topology())
    assert again.observed.groups[created.id].group.target_size == 0
    nursery.busy = True
    nursery.render()
    assert "no number of replicas" in str(again.observe().refused)
    nursery.render()
    again.observe()
    again.increase(created.id, 1)
    nursery.busy = False
    other = GroupSpec("c-4", DEFAULT_PREFIX)
    unrendered = again.create_group(other).main
    again.delete_group(unrendered.id)
    assert len(nursery.entries()) == 2


@pytest.mark.parametrize("pools", [[], [{"class": "pool", "name": "pool"}]])
def test_the_last_entry_leaves_nothing_empty_behind_which_cluster_api_would_refuse(
    nursery: Nursery, pools: list[dict[str, str]]
) -> None:
    others = {"machinePools": pools} if pools else None
    topology = {"class": "town", "workers": None}
    nursery.client.patch(CLUSTERS, "prod", {"spec": {"topology": topology}}, nursery.namespace)
    nursery.client.patch(CLUSTERS, "prod", {"spec": {"topology": {"workers": others}}}, nursery.namespace)
    guard = nursery.begin(nursery.topology())
    created = guard.create_group(SPEC).main
    assert len(nursery.entries()) == 1
    guard.delete_group(created.id)
    found = nursery.client.get(CLUSTERS, "prod", nursery.namespace)["spec"]["topology"]
    assert found.get("workers") == others


@pytest.mark.parametrize("fault", ["status", "truncate"])
def test_a_change_of_the_topology_that_ends_in_doubt_is_made_once(nursery: Nursery, fault: str) -> None:
    guard = nursery.begin(nursery.topology())
    more = {"status": 500} if fault == "status" else {}
    nursery.fleet.server.fault(rule(fault, "/clusters/prod", method="PATCH", times=1, **more))
    with pytest.raises(Unavailable):
        guard.create_group(SPEC)
    again = nursery.begin(nursery.topology())
    if fault == "status":
        again.create_group(SPEC)
    assert len(nursery.entries()) == 2


def test_the_topology_is_changed_only_as_it_was_read(nursery: Nursery) -> None:
    guard = nursery.begin(nursery.topology())
    nursery.fleet.server.fault(rule("status", "/clusters/prod", method="PATCH", times=2, status=409))
    guard.create_group(SPEC)
    assert nursery.fleet.server.faults_left() == 0
    assert len(nursery.entries()) == 2
    nursery.fleet.server.fault(rule("status", "/clusters/prod", method="PATCH", times=0, status=409))
    with pytest.raises(Later, match="Cluster prod is changed by another client all the time"):
        guard.create_group(GroupSpec("c-4", DEFAULT_PREFIX))


def test_an_entry_of_others_with_the_name_stays_and_is_not_used(nursery: Nursery) -> None:
    guard = nursery.begin(nursery.topology())
    name = guard.create_group(SPEC).main.id.rpartition("/")[2]
    theirs = [{"class": "worker", "name": name}]
    patch = {"spec": {"topology": {"workers": {"machineDeployments": theirs}}}}
    nursery.client.patch(CLUSTERS, "prod", patch, nursery.namespace)
    nursery.client.delete(DEPLOYMENTS, f"prod-{name}-x7k", nursery.namespace)
    again = nursery.begin(nursery.topology())
    with pytest.raises(Refused, match="has an entry of this name that Headroom did not create"):
        again.create_group(SPEC)
    assert nursery.entries() == theirs


def test_a_cluster_without_a_topology_gets_none(nursery: Nursery) -> None:
    nursery.client.patch(CLUSTERS, "prod", {"spec": {"topology": None}}, nursery.namespace)
    guard = nursery.begin(nursery.topology())
    with pytest.raises(Refused, match="it has no topology: see autoprovisioning"):
        guard.create_group(SPEC)


def test_a_group_with_machines_that_still_go_stays(nursery: Nursery) -> None:
    guard = nursery.begin(nursery.clone())
    created = guard.create_group(SPEC).main
    name = created.id.rpartition("/")[2]
    nursery.fleet.add("MachineSet", f"{name}-1", owner=("MachineDeployment", name), replicas=0)
    nursery.fleet.add_machine("late", owner=("MachineSet", f"{name}-1"))
    with pytest.raises(Refused, match="not empty: 0 replicas, 1 machines"):
        guard.delete_group(created.id)
    nursery.client.delete(MACHINES, "late", nursery.namespace)
    nursery.client.delete(SETS, f"{name}-1", nursery.namespace)
    guard.observe()
    guard.delete_group(created.id)


@pytest.mark.own_decision("manager and provider decide; test_cluster_api creates with the rights of the chart alone")
def test_a_manager_creates_a_group_for_a_pod_that_none_helps_and_deletes_it_with_the_pod(
    nursery: Nursery, cluster: Cluster, start_manager: StartManager
) -> None:
    """No machine ever comes, as Cluster API does nothing here."""
    nursery.fleet.configure(**nursery.clone())
    loops = Loops(CollectorRegistry())
    Scheduler(cluster.client, Recorder(cluster.client, "scheduler", "fleet")).start(loops)
    try:
        container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "3"}}}
        spec = {"containers": [container], "nodeSelector": {"team": "web"}, "terminationGracePeriodSeconds": 0}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": spec}
        cluster.client.create(PODS, pod, nursery.namespace)
        start_manager(
            cloud_provider="clusterapi",
            cloud_config=str(nursery.fleet.file),
            node_autoprovisioning=True,
            expander="price",
            scan_interval_seconds=0.3,
            max_node_provision_time_seconds=4.0,
            scale_down_unneeded_time_seconds=0.5,
        )
        eventually(lambda: [each["spec"]["replicas"] for each in nursery.made(DEPLOYMENTS)] == [1])
        assert nursery.made(DEPLOYMENTS)[0]["spec"]["template"]["metadata"]["labels"]["team"] == "web"
        assert [len(each) for each in nursery.names_made()] == [1, 1, 1]
        cluster.client.delete(PODS, "one", nursery.namespace, grace_period_seconds=0)
        eventually(lambda: nursery.names_made() == [[], [], []], 60.0)
    finally:
        with contextlib.suppress(NotFound):
            cluster.client.delete(PODS, "one", nursery.namespace, grace_period_seconds=0)
        loops.close()
