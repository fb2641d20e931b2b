"""Nodes that are bought for pods with volumes get these pods by the real kube-scheduler, and none is bought twice."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.api.core import PersistentVolumeClaim
from shared.kube.resources import PERSISTENTVOLUMECLAIMS, STORAGECLASSES
from tests.integration.manager.conftest import Cluster, StartManager
from tests.integration.manager.test_autoscaler import Town, later_rounds, latest
from tests.integration.manager.test_scheduler_volumes import CLASSES, EBS, ZONE, Storage, phases
from tests.support import eventually, kube_scheduler
from tests.support.apiserver import ApiServer

pytestmark = pytest.mark.real_only("kube-scheduler needs more of an API server than the embedded one has")

PATIENCE_SECONDS = 120.0
ROUNDS = 20
SELECTED_NODE = "volume.kubernetes.io/selected-node"
ONE_DISK = {"name": "one-disk", "capacity": {"cpu": "4", "memory": "16Gi", f"attachable-volumes-csi-{EBS}": "1"}}


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
    for name in ("anywhere", "zonal", "existing"):
        made.make(STORAGECLASSES, "StorageClass", name, **CLASSES[name])
    yield made
    made.clear()


def group(zone: str, **more: Any) -> dict[str, Any]:
    return {"name": zone, "machine_type": "n1-standard-4", "max": 10, "zone": f"zone-{zone}", **more}


def mounting(town: Town, name: str, claim: str, cpu: str = "100m") -> None:
    town.pods(1, cpu, name, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": claim}}])


def in_zone(zone: str) -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}]
    return {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}


def test_pods_beyond_the_attach_limit_of_a_node_get_a_node_each(town: Town, storage: Storage) -> None:
    storage.disk("disk-0")
    storage.disk("disk-1")
    eventually(lambda: phases(storage) == {"Bound"}, PATIENCE_SECONDS)
    # Not ready at once: a node whose CSINode the scheduler does not know yet has no limit for it.
    town.offer(
        group("a", machine_type="one-disk", price=0.2, ready_seconds=1), machine_types=[{**ONE_DISK, "price": 0.2}]
    )
    manager = town.manager("0:10:a", scale_down_enabled=False)
    for number in range(2):
        mounting(town, f"p{number}-", f"disk-{number}")
    bound = town.eventually_bound(2)
    assert len(set(bound.values())) == 2
    later_rounds(manager, ROUNDS)
    assert town.targets() == {"a": 2}
    assert latest(manager)["disagreements"] == []


def test_a_claim_that_waits_for_its_pod_gets_a_node_in_a_zone_of_its_class(town: Town, storage: Storage) -> None:
    storage.claim("zonal-0", "zonal")
    town.offer(group("a", price=0.1), group("b", price=0.3))
    manager = town.manager("0:10:a", "0:10:b", scale_down_enabled=False)
    mounting(town, "p", "zonal-0")

    def is_selected() -> bool:
        claim = storage.client.get(PERSISTENTVOLUMECLAIMS, "zonal-0", town.namespace, into=PersistentVolumeClaim)
        return bool(claim.metadata.annotation(SELECTED_NODE))

    eventually(is_selected, PATIENCE_SECONDS)
    source: dict[str, Any] = {"csi": {"driver": EBS, "volumeHandle": "vol-made"}}  # made as its driver would
    reference: dict[str, Any] = {"claimRef": {"namespace": town.namespace, "name": "zonal-0"}}
    storage.volume("made", storageClassName="zonal", **source, **reference, **in_zone("zone-b"))
    town.eventually_bound(1)
    later_rounds(manager, ROUNDS)
    assert town.targets() == {"a": 0, "b": 1}


def test_of_two_pods_that_count_on_one_free_volume_one_gets_a_node(town: Town, storage: Storage) -> None:
    storage.volume("free", storageClassName="existing", local={"path": "/disk"}, **in_zone("zone-a"))
    eventually(lambda: phases(storage) == {"Available"}, PATIENCE_SECONDS)
    town.offer(group("a"))
    manager = town.manager("0:10:a", scale_down_enabled=False)
    for number in range(2):
        storage.claim(f"existing-{number}", "existing")
        mounting(town, f"p{number}-", f"existing-{number}", cpu="3")
    town.eventually_bound(1)
    later_rounds(manager, ROUNDS)
    assert town.targets() == {"a": 1}
    assert len(town.bound) == 1
