"""The simulated cloud on a real API server: Nodes come and go as asked, take pods, and its state stays right."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from deploy.local.scheduler.scheduler import Scheduler
from manager.autoscaler.cloudprovider.contract import ErrorClass, GroupSpec, NodeRef
from manager.autoscaler.cloudprovider.errors import Refused, Unavailable
from manager.autoscaler.cloudprovider.guard import CloudObservation, Guard
from manager.autoscaler.cloudprovider.ownership import DEFAULT_PREFIX, Ownership
from manager.autoscaler.cloudprovider.simulated import fake_nodes, state_store
from manager.autoscaler.snapshot import volumes
from shared.api.core import ConfigMap, Node
from shared.api.storage import CSINode
from shared.clock import SystemClock
from shared.kube.client import Client
from shared.kube.errors import NotFound
from shared.kube.events import Recorder
from shared.kube.node_heartbeat import LEASE_NAMESPACE
from shared.kube.resources import CONFIGMAPS, CSINODES, LEASES, NODES, PODS
from shared.telemetry import Loops
from tests.integration.manager.conftest import Cluster
from tests.support import certain, eventually
from tests.support.apiserver import ApiServer
from tests.support.observing import guarded

ours = pytest.mark.own_decision("the cloud is simulated by the product, whichever API server keeps its state")

GROUP: dict[str, Any] = {"name": "web", "machine_type": "n1-standard-4", "max": 10, "labels": {"team": "web"}}


class Cloud:
    """What a person sees of it: the file, and the cluster."""

    def __init__(self, client: Client, namespace: str, file: Path) -> None:
        self.client = client
        self.file = file
        self._namespace = namespace
        self._loops: list[Loops] = []
        self._guards: list[Guard] = []

    def offer(self, *groups: dict[str, Any], **more: Any) -> None:
        self.file.write_text(yaml.safe_dump({"groups": list(groups), **more}))

    def start(self) -> Guard:
        """A manager's own, from the beginning."""
        loops = Loops(CollectorRegistry())
        self._loops.append(loops)
        given: dict[str, Any] = {"client": self.client, "namespace": self._namespace, "clock": SystemClock()}
        self._guards.append(guarded("simulated", self.file, Ownership({"web": None}), loops=loops, **given))
        return self._guards[-1]

    def stop(self) -> None:
        """As a manager that is killed: nothing is told to anybody."""
        while self._loops:
            self._loops.pop().close()

    def close(self) -> None:
        self.stop()
        for guard in self._guards:
            guard.close()

    @property
    def nodes(self) -> list[Node]:
        listed = self.client.list(NODES, into=Node, label_selector=f"{fake_nodes.LABEL_CLOUD}=true").items
        return sorted(listed, key=lambda node: node.metadata.name)

    def csi_node(self, name: str) -> CSINode | None:
        with suppress(NotFound):
            return self.client.get(CSINODES, name, into=CSINode)
        return None

    def is_ready(self, count: int) -> bool:
        """So many Nodes, Ready and free for all."""
        ready = [node for node in self.nodes if fake_nodes.is_ready(node) and not node.spec.taints]
        return len(ready) == len(self.nodes) == count


@pytest.fixture
def cloud(cluster: Cluster, tmp_path: Path) -> Iterator[Cloud]:
    cloud = Cloud(cluster.client, cluster.namespace, tmp_path / "cloud.yaml")
    yield cloud
    cloud.close()


def states(observed: CloudObservation, group: str = "web") -> list[str]:
    return sorted(each.state.value for each in observed.groups[group].instances)


def refs(nodes: list[Node]) -> list[NodeRef]:
    return [NodeRef.from_node(node) for node in nodes]


def observes(guard: Guard, expected: list[str]) -> Callable[[], bool]:
    return lambda: states(guard.observe()) == expected


def test_an_increase_makes_nodes_that_pods_are_bound_to(cloud: Cloud, server: ApiServer) -> None:
    cloud.offer(GROUP)
    guard = cloud.start()
    assert guard.observe().groups["web"].group.target_size == 0
    namespace = server.add_namespace()
    loops = Loops(CollectorRegistry())
    Scheduler(cloud.client, Recorder(cloud.client, "scheduler", "test")).start(loops)
    for number in range(4):  # two fit on a node
        container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "1900m"}}}
        spec = {"containers": [container], "nodeSelector": {"team": "web"}}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{number}"}, "spec": spec}
        cloud.client.create(PODS, body, namespace)
    try:
        guard.increase("web", 2)
        eventually(lambda: all(pod["spec"].get("nodeName") for pod in cloud.client.list(PODS, namespace).items), 60)
    finally:
        loops.close()
    on = {pod["spec"]["nodeName"] for pod in cloud.client.list(PODS, namespace).items}
    assert on == {node.metadata.name for node in cloud.nodes}
    eventually(lambda: states(guard.observe(refs(cloud.nodes))) == ["Running", "Running"])  # Nodes precede the state
    assert set(guard.observed.group_of_node) == on
    for pod in cloud.client.list(PODS, namespace).items:
        cloud.client.delete(PODS, pod["metadata"]["name"], namespace, grace_period_seconds=0)


def test_nodes_are_what_the_template_said_and_carry_kwoks_annotations(cloud: Cloud) -> None:
    cloud.offer(GROUP | {"size": 1, "zone": "us-central1-a"}, taint=True)
    guard = cloud.start()
    guard.observe()
    template = guard.template("web")
    (node,) = eventually(lambda: cloud.nodes)
    assert node.status.capacity == template.status.capacity
    assert node.status.allocatable == template.status.allocatable
    labels = {**(node.metadata.labels or {}), "kubernetes.io/hostname": "template-web"}
    assert labels == template.metadata.labels
    assert fake_nodes.TAINT in (node.spec.taints or ())
    annotations = node.metadata.annotations or {}
    prefix = "cluster-autoscaler.kwok.nodegroup/"
    assert annotations.items() >= {
        (f"{prefix}name", "web"),
        (f"{prefix}min-count", "0"),
        (f"{prefix}max-count", "10"),
        (f"{prefix}desired-count", "1"),
        ("kwok.x-k8s.io/node", "fake"),
    }
    assert node.spec.provider_id == f"kwok:{node.metadata.name}"
    # Of 4 cores 80m are kept; of 15 GiB a quarter of the first 4000 MiB, a fifth, a tenth, and 100 MiB for eviction.
    kept_mib = 1000 + 800 + 736 + 100
    assert (node.allocatable.cpu_milli, node.allocatable.memory_bytes >> 20) == (3920, 15360 - kept_mib)


@ours
def test_nodes_boot_then_get_ready_and_beat(cloud: Cloud) -> None:
    cloud.offer(GROUP | {"boot_seconds": 3600})
    guard = cloud.start()
    guard.observe()
    guard.increase("web", 1)
    cloud.offer(GROUP | {"ready_seconds": 3600})
    guard.observe()
    guard.increase("web", 1)
    (node,) = eventually(lambda: cloud.nodes)
    assert not fake_nodes.is_ready(node)
    assert fake_nodes.NOT_READY in (node.spec.taints or ())
    eventually(observes(guard, ["Creating", "Running"]))
    cloud.offer(GROUP | {"ready_seconds": 1})
    guard.observe()
    guard.increase("web", 1)
    ready = eventually(lambda: [each for each in cloud.nodes if fake_nodes.is_ready(each) and not each.spec.taints])
    assert node.metadata.name not in [each.metadata.name for each in ready]
    eventually(lambda: _lease_holder(cloud.client, node.metadata.name) == node.metadata.name)


def _lease_holder(client: Client, node: str) -> str:
    try:
        return str(client.get(LEASES, node, LEASE_NAMESPACE)["spec"]["holderIdentity"])
    except NotFound:
        return ""


@ours
def test_deleted_nodes_go_slowly_and_the_target_falls_at_once(cloud: Cloud) -> None:
    cloud.offer(GROUP | {"size": 3, "delete_seconds": 3600})
    guard = cloud.start()
    eventually(observes(guard, ["Running"] * 3))
    slow, quick, _ = refs(cloud.nodes)
    guard.delete_nodes("web", [slow])
    observed = guard.observe()
    assert observed.groups["web"].group.target_size == 2
    assert states(observed) == ["Deleting", "Running", "Running"]
    cloud.offer(GROUP)
    guard.observe()
    guard.delete_nodes("web", [quick])
    eventually(observes(guard, ["Deleting", "Running"]))
    assert guard.observed.groups["web"].group.target_size == 1
    left = {node.metadata.name for node in cloud.nodes}
    assert slow.name in left
    assert quick.name not in left
    with pytest.raises(Refused, match="is not in it"):
        guard.delete_nodes("web", [quick])


@ours
def test_a_stockout_shows_as_failed_instances_which_can_be_given_up(cloud: Cloud) -> None:
    cloud.offer(GROUP | {"min": 1, "size": 1, "faults": {"stock": 2}})
    guard = cloud.start()
    guard.observe()
    guard.increase("web", 3)
    eventually(observes(guard, ["Creating", "Creating", "Running", "Running"]))
    failed = [each for each in guard.observed.groups["web"].instances if each.error]
    assert [(each.error.kind, each.error.code) for each in failed if each.error] == [
        (ErrorClass.OUT_OF_RESOURCES, "RESOURCE_POOL_EXHAUSTED")
    ] * 2
    guard.delete_nodes("web", [NodeRef("", each.provider_id) for each in failed])
    eventually(observes(guard, ["Running", "Running"]))
    assert guard.observed.groups["web"].group.target_size == 2


@ours
def test_what_is_never_made_can_be_taken_back_and_nothing_else(cloud: Cloud) -> None:
    cloud.offer(GROUP | {"faults": {"fulfil": 1}})
    guard = cloud.start()
    guard.observe()
    guard.increase("web", 3)
    eventually(observes(guard, ["Running"]))
    assert guard.observed.groups["web"].group.target_size == 3
    with pytest.raises(Refused, match="below its 1 instances"):
        guard.decrease_target("web", 3)
    guard.decrease_target("web", 2)
    assert guard.observe().groups["web"].group.target_size == 1
    eventually(lambda: cloud.is_ready(1))


@ours
def test_its_state_outlives_the_process_wherever_it_was_killed(cloud: Cloud) -> None:
    cloud.offer(GROUP)
    guard = cloud.start()
    guard.observe()
    cloud.stop()
    guard.increase("web", 2)
    assert not cloud.nodes
    guard = cloud.start()
    assert guard.observe().groups["web"].group.target_size == 2
    eventually(lambda: cloud.is_ready(2))
    eventually(observes(guard, ["Running", "Running"]))


@ours
def test_the_state_of_an_earlier_version_is_read_under_its_key_and_written_under_the_new_one(
    cloud: Cloud, cluster: Cluster
) -> None:
    cloud.offer(GROUP)
    guard = cloud.start()
    guard.observe()
    guard.increase("web", 1)
    cloud.stop()

    def stored() -> dict[str, str]:
        return cloud.client.get(CONFIGMAPS, state_store.CONFIG_MAP, cluster.namespace, into=ConfigMap).data or {}

    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": state_store.CONFIG_MAP},
        "data": {state_store.FORMER_KEY: stored()[state_store.KEY]},
    }
    cloud.client.replace(CONFIGMAPS, state_store.CONFIG_MAP, body, cluster.namespace)
    guard = cloud.start()
    assert guard.observe().groups["web"].group.target_size == 1
    guard.increase("web", 1)
    assert stored().keys() == {state_store.KEY}
    assert guard.observe().groups["web"].group.target_size == 2


@ours
def test_without_a_stored_state_the_nodes_are_recounted(cloud: Cloud, cluster: Cluster) -> None:
    cloud.offer(GROUP | {"size": 2})
    cloud.start().observe()
    eventually(lambda: cloud.is_ready(2))
    cloud.stop()
    cloud.client.delete(CONFIGMAPS, state_store.CONFIG_MAP, cluster.namespace)
    observed = cloud.start().observe()
    assert observed.groups["web"].group.target_size == 2
    assert states(observed) == ["Running", "Running"]


@ours
def test_a_node_that_somebody_deletes_is_not_owed_any_more(cloud: Cloud) -> None:
    cloud.offer(GROUP | {"size": 2})
    guard = cloud.start()
    guard.observe()
    eventually(observes(guard, ["Running", "Running"]))
    cloud.client.delete(NODES, cloud.nodes[0].metadata.name)
    eventually(observes(guard, ["Running"]))
    assert guard.observed.groups["web"].group.target_size == 1


@ours
def test_a_group_made_on_demand_is_one_in_each_zone_until_it_is_empty_and_deleted(cloud: Cloud) -> None:
    cloud.offer(
        GROUP, autoprovisioning={"zones": ["us-central1-a", "us-central1-b"], "machine_types": ["n1-highmem-4"]}
    )
    guard = cloud.start()
    guard.observe()
    assert guard.machine_types() == ("n1-highmem-4",)
    spec = GroupSpec("n1-highmem-4", DEFAULT_PREFIX, {"team": "batch"})
    theory = guard.theoretical(spec)
    created = guard.create_group(spec)
    assert created.main.id.startswith("nodeautoprovisioning-n1-highmem-4-")
    (extra,) = created.extras
    observed = guard.observe()
    assert {created.main.id, extra.id} <= observed.groups.keys()
    assert theory.id not in observed.groups
    guard.increase(created.main.id, 1)
    eventually(lambda: cloud.is_ready(1))
    (node,) = cloud.nodes
    assert node.status.capacity == theory.template.status.capacity
    assert (node.metadata.labels or {})["team"] == "batch"
    with pytest.raises(Refused, match="not empty"):
        guard.delete_group(created.main.id)
    cloud.stop()
    guard = cloud.start()
    eventually(lambda: states(guard.observe(), created.main.id) == ["Running"])
    assert guard.observed.groups[created.main.id].group.autoprovisioned
    guard.delete_nodes(created.main.id, refs(cloud.nodes))
    eventually(lambda: states(guard.observe(), created.main.id) == [])
    guard.delete_group(created.main.id)
    assert created.main.id not in guard.observe().groups


def test_a_machine_whose_node_the_api_does_not_take_has_failed(cloud: Cloud) -> None:
    cloud.offer(GROUP | {"labels": {"not a label": "x"}})
    guard = cloud.start()
    guard.observe()
    guard.increase("web", 1)
    failed = eventually(lambda: [each for each in guard.observe().groups["web"].instances if each.error])
    assert [(each.error.kind, each.error.code) for each in failed if each.error] == [(ErrorClass.OTHER, "INVALID")]
    assert "not a label" in str(failed[0].error)


def test_a_node_of_the_same_name_that_is_somebody_elses_stays(cloud: Cloud, cluster: Cluster) -> None:
    cloud.offer(GROUP)
    guard = cloud.start()
    guard.observe()
    cloud.stop()
    guard.increase("web", 1)
    (machine,) = guard.observe().groups["web"].instances
    name = machine.provider_id.removeprefix("kwok:")
    cluster.add_node(name, lends=None)
    guard = cloud.start()
    failed = eventually(lambda: [each for each in guard.observe().groups["web"].instances if each.error])
    guard.delete_nodes("web", [NodeRef(name, each.provider_id) for each in failed])
    eventually(observes(guard, []))
    assert cluster.client.get(NODES, name, into=Node).status.capacity == {"cpu": "4", "memory": "8Gi"}


@ours
def test_refusals_outages_and_hangs_leave_the_state_right(cloud: Cloud) -> None:
    cloud.offer(GROUP | {"faults": {"refuse": "quota exceeded"}})
    guard = cloud.start()
    guard.observe()
    with pytest.raises(Refused, match="web: quota exceeded"):
        guard.increase("web", 1)
    assert guard.observe().groups["web"].group.target_size == 0
    cloud.offer(GROUP, outage="maintenance")
    with pytest.raises(Unavailable, match="maintenance"):
        guard.observe()
    with pytest.raises(Unavailable, match="not observed"):
        guard.increase("web", 1)
    cloud.offer(GROUP)
    guard.observe()
    guard.increase("web", 1)
    eventually(observes(guard, ["Running"]))


def test_two_managers_keep_the_same_state(cloud: Cloud) -> None:
    cloud.offer(GROUP)
    first, second = cloud.start(), cloud.start()
    first.observe()
    second.observe()
    first.increase("web", 2)
    second.increase("web", 3)
    eventually(observes(first, ["Running"] * 5), 60)
    assert first.observed.groups["web"].group.target_size == 5
    eventually(lambda: cloud.is_ready(5))


@pytest.mark.real_only("the embedded API server has no CSINodes")
def test_machines_state_the_volumes_that_they_attach(cloud: Cloud) -> None:
    machine = {"name": "disks", "capacity": {"cpu": "4", "memory": "8Gi", "attachable-volumes-csi-disk.example": "3"}}
    cloud.offer({**GROUP, "machine_type": "disks"}, machine_types=[{**machine, "price": 1}])
    guard = cloud.start()
    guard.observe()
    guard.increase("web", 1)
    eventually(lambda: cloud.is_ready(1))
    (node,) = cloud.nodes
    found = certain(eventually(lambda: cloud.csi_node(node.metadata.name)))
    assert volumes.volume_limits(found, {}) == {"disk.example": 3}
    assert [(each.kind, each.uid) for each in found.metadata.owner_references or ()] == [("Node", node.metadata.uid)]
