"""What the real kube-scheduler refuses: no node is launched where none helps, and none is launched a second time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shared.kube.resources import (
    CSIDRIVERS,
    DEVICECLASSES,
    PRIORITYCLASSES,
    RESOURCECLAIMS,
    RESOURCECLAIMTEMPLATES,
    RESOURCESLICES,
    STORAGECLASSES,
)
from tests.integration.manager.conftest import Cluster, StartManager
from tests.integration.manager.test_autoscaler import WEB, JumpingClock, Town, later_rounds, latest
from tests.integration.manager.test_scheduler_volumes import CLASSES, HOSTNAME, ROOMY, ZONE, Storage
from tests.support import eventually, kube_scheduler
from tests.support.apiserver import ApiServer

pytestmark = pytest.mark.real_only("kube-scheduler needs more of an API server than the embedded one has")

PATIENCE_SECONDS = 180.0  # three processes of the control plane beside a busy suite
ROUNDS = 20
ONE_NODE = {**WEB, "size": 1}
GPU, EXTENDED = "gpu.example.com", "example.com/gpu"
DISK = {"name": "disk", "iscsi": {"targetPortal": "10.0.0.1:3260", "iqn": "iqn.2026-01.com.example:disk", "lun": 0}}
RESTARTS_ALL = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [3]}}
FROM_TEMPLATE: dict[str, Any] = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]}


@pytest.fixture
def town(server: ApiServer, cluster: Cluster, tmp_path: Path, start_manager: StartManager) -> Iterator[Town]:
    """With the real scheduler."""
    town = Town(cluster, server.add_namespace(), tmp_path / "cloud.yaml", start_manager, schedules=False)
    with kube_scheduler.running({}, server.kubeconfig, tmp_path):
        yield town
        town.close()


@pytest.fixture
def storage(server: ApiServer, town: Town) -> Iterator[Storage]:
    made = Storage(server.client(), town.namespace)
    yield made
    made.clear()


def publish(town: Town, storage: Storage, count: int) -> None:
    """What a driver publishes for each new node: `count` devices."""
    known = {each["spec"]["nodeName"] for each in town.client.list(RESOURCESLICES).items}
    for node in town.nodes:
        name = node.metadata.name
        if name not in known:
            pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
            devices = [{"name": f"gpu-{number}"} for number in range(count)]
            spec = {"driver": GPU, "pool": pool, "nodeName": name, "devices": devices}
            storage.make(RESOURCESLICES, "ResourceSlice", name, spec=spec)


def device_class(storage: Storage) -> dict[str, Any]:
    """Makes it; returns what a claim of one of its devices requests."""
    selectors = [{"cel": {"expression": f'device.driver == "{GPU}"'}}]
    spec = {"selectors": selectors, "extendedResourceName": EXTENDED}
    storage.make(DEVICECLASSES, "DeviceClass", GPU, spec=spec)
    return {"devices": {"requests": [{"name": "one", "exactly": {"deviceClassName": GPU}}]}}


def asking_for_claims(town: Town) -> None:
    town.pods(3, "100m", **FROM_TEMPLATE)


def asking_for_amounts(town: Town) -> None:
    resources = {"requests": {"cpu": "100m", EXTENDED: "1"}, "limits": {EXTENDED: "1"}}
    town.pods(3, containers=[{"name": "c", "image": "none", "resources": resources}])


@pytest.mark.parametrize("asking", [asking_for_claims, asking_for_amounts])
def test_pods_get_a_node_with_devices_like_those_of_its_group(
    town: Town, storage: Storage, asking: Callable[[Town], None]
) -> None:
    storage.make(RESOURCECLAIMTEMPLATES, "ResourceClaimTemplate", "one", spec={"spec": device_class(storage)})
    town.offer(ONE_NODE)
    clock = JumpingClock()
    manager = town.manager("0:10:web", scale_down_enabled=False, clock=clock)
    eventually(lambda: town.nodes, PATIENCE_SECONDS)
    publish(town, storage, 2)
    asking(town)
    town.eventually_bound(2)
    clock.ahead += 120  # by then the node there is old enough to be the template of others
    eventually(lambda: len(town.nodes) == 2, PATIENCE_SECONDS)
    later_rounds(manager, ROUNDS)  # the driver is late
    publish(town, storage, 2)
    town.eventually_bound(3)
    later_rounds(manager)
    assert town.targets() == {"web": 2}
    assert latest(manager)["disagreements"] == []


def no_device(town: Town, storage: Storage) -> None:
    storage.make(RESOURCECLAIMTEMPLATES, "ResourceClaimTemplate", "one", spec={"spec": device_class(storage)})
    town.pods(3, "100m", **FROM_TEMPLATE)


def one_claim_for_all(town: Town, storage: Storage) -> None:
    """They have to share the node of the first one, which has room for one."""
    storage.make(RESOURCECLAIMS, "ResourceClaim", "shared", spec=device_class(storage))
    publish(town, storage, 1)
    town.pods(3, "3", resourceClaims=[{"name": "gpu", "resourceClaimName": "shared"}])


def no_volume(town: Town, storage: Storage) -> None:
    mounting(town, storage, "existing")


def no_storage_capacity(town: Town, storage: Storage) -> None:
    storage.make(CSIDRIVERS, "CSIDriver", ROOMY, spec={"storageCapacity": True})
    mounting(town, storage, "roomy")


def mounting(town: Town, storage: Storage, storage_class: str) -> None:
    storage.make(STORAGECLASSES, "StorageClass", storage_class, **CLASSES[storage_class])
    storage.claim("data", storage_class)
    town.pods(1, "100m", volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}])


def disk_in_use(town: Town, storage: Storage) -> None:
    town.pods(2, "100m", volumes=[DISK])


def feature_not_declared(town: Town, storage: Storage) -> None:
    container = {"name": "c", "image": "none", "restartPolicy": "Never", "restartPolicyRules": [RESTARTS_ALL]}
    town.pods(1, containers=[container])


def preempting(town: Town, storage: Storage) -> None:
    storage.make(PRIORITYCLASSES, "PriorityClass", "high", value=1000)
    town.pods(1, "3", prefix="victim")
    town.eventually_bound(1)
    town.pods(1, "3", priorityClassName="high")


def kept_away(town: Town, storage: Storage) -> None:
    """By the term of the pod that is there."""
    town.pods(1, "100m", prefix="lonely", affinity=apart(HOSTNAME))
    town.eventually_bound(1)
    town.pods(1, "100m")


def apart(key: str, **more: Any) -> dict[str, Any]:
    """Anti-affinity to every pod."""
    term = {"topologyKey": key, "labelSelector": {}, **more}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


@dataclass(frozen=True)
class Case:
    """What is done with one node there, how many nodes there are to be, and how many pods are bound and wait."""

    prepare: Callable[[Town, Storage], None]
    nodes: int
    bound: int
    waiting: int


CASES = (
    Case(no_device, 1, 0, 3),
    Case(one_claim_for_all, 1, 1, 2),
    Case(no_volume, 1, 0, 1),
    Case(no_storage_capacity, 1, 0, 1),
    Case(disk_in_use, 2, 2, 0),
    Case(feature_not_declared, 1, 0, 1),
    Case(preempting, 1, 1, 1),
    Case(kept_away, 2, 2, 0),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.prepare.__name__)
def test_only_a_node_that_helps_is_launched(town: Town, storage: Storage, case: Case) -> None:
    town.offer(ONE_NODE)
    manager = town.manager("0:10:web", scale_down_enabled=False)
    eventually(lambda: town.nodes, PATIENCE_SECONDS)
    case.prepare(town, storage)
    town.eventually_bound(case.bound)
    town.eventually_unschedulable(case.waiting)
    eventually(lambda: town.targets() == {"web": case.nodes}, PATIENCE_SECONDS)
    later_rounds(manager, ROUNDS)
    assert (town.targets(), len(town.bound)) == ({"web": case.nodes}, case.bound)
    assert latest(manager)["disagreements"] == []


def test_a_namespace_selector_that_kube_scheduler_misreads_costs_one_node(town: Town) -> None:
    """For it, one with NotIn matches every namespace (kubernetes#141526)."""
    town.offer(ONE_NODE)
    clock = JumpingClock()
    manager = town.manager("0:10:web", scale_down_enabled=False, clock=clock)
    own = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [town.namespace]}
    town.pods(2, "100m", affinity=apart(ZONE, namespaceSelector={"matchExpressions": [own]}))
    town.eventually_bound(1)
    town.eventually_unschedulable(1)
    later_rounds(manager)
    clock.ahead += 60  # by then a binding that was under way would have been seen
    eventually(lambda: len(town.nodes) == 2, PATIENCE_SECONDS)
    eventually(lambda: "0/2 " in town.refusals[0], PATIENCE_SECONDS)
    later_rounds(manager)
    clock.ahead += 60
    told: Any = eventually(lambda: [each for each in latest(manager)["disagreements"] if each["groups"]])
    assert told[0]["groups"] == ["web"]
    later_rounds(manager, ROUNDS)
    assert (town.targets(), len(town.bound)) == ({"web": 2}, 1)
