"""`headroom plan -f` for pods with volumes: where kube-scheduler would place them, and nothing that cannot help."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit.local.test_plan_command import changes, dumped, node, planned, pod

ZONE = "topology.kubernetes.io/zone"
DRIVER = "ebs.csi.aws.com"


def storage_class(name: str = "fast", provisioner: str = DRIVER, **more: Any) -> dict[str, Any]:
    mode = {"volumeBindingMode": "WaitForFirstConsumer"}
    return {"kind": "StorageClass", "metadata": {"name": name}, "provisioner": provisioner, **mode, **more}


def in_zones(*zones: str) -> dict[str, Any]:
    return {"allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": list(zones)}]}]}


def claim(name: str, volume: str = "", storage_class: str = "fast", size: str = "1Gi") -> dict[str, Any]:
    spec: dict[str, Any] = {
        "storageClassName": storage_class,
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": size}},
    }
    if volume:
        spec["volumeName"] = volume
    return {"kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "shop"}, "spec": spec}


def volume(name: str, storage_class: str = "fast", size: str = "1Gi", **spec: Any) -> dict[str, Any]:
    given = {"storageClassName": storage_class, "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], **spec}
    return {
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": given,
        "status": {"phase": "Available"},
    }


def of_driver(name: str, **spec: Any) -> dict[str, Any]:
    return volume(name, csi={"driver": DRIVER, "volumeHandle": f"vol-{name}"}, **spec)


def csi_node(name: str, count: int | None = 2, driver: str = DRIVER) -> dict[str, Any]:
    allocatable = {} if count is None else {"allocatable": {"count": count}}
    drivers = [{"name": driver, "nodeID": name, **allocatable}]
    return {"kind": "CSINode", "metadata": {"name": name}, "spec": {"drivers": drivers}}


def using(name: str, *claims: str, on: str | None = None, cpu: str = "100m", **spec: Any) -> dict[str, Any]:
    volumes = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]
    return pod(name, cpu, on, volumes=volumes, **spec)


def told(answer: Any) -> str:
    """Why pods without a place have none."""
    return " | ".join(reason for left in answer["unplaced"] for each in left["reasons"] for reason in each["reasons"])


TWO_ATTACHED = (
    node("a1", "a"),
    csi_node("a1"),
    storage_class(),
    *(of_driver(f"v{each}") for each in range(4)),
    *(claim(f"c{each}", f"v{each}") for each in range(4)),
    using("first", "c0", on="a1"),
    using("second", "c1", on="a1"),
)


def test_a_volume_beyond_the_attach_limit_buys_a_node(tmp_path: Path) -> None:
    assert changes(planned(dumped(tmp_path, *TWO_ATTACHED, using("third", "c2")))) == {"a": (1, 2)}
    assert changes(planned(dumped(tmp_path, *TWO_ATTACHED, *(using(f"p{n}", f"c{n}") for n in (2, 3))))) == {
        "a": (1, 2)
    }


def test_a_volume_that_the_node_has_already_counts_once(tmp_path: Path) -> None:
    assert changes(planned(dumped(tmp_path, *TWO_ATTACHED, using("third", "c0")))) == {}


def test_claims_that_are_not_bound_yet_count_by_the_provisioner_of_their_class(tmp_path: Path) -> None:
    waiting = [claim(f"w{each}") for each in range(3)]
    pods = [using(f"p{each}", f"w{each}") for each in range(3)]
    assert changes(planned(dumped(tmp_path, *TWO_ATTACHED, *waiting, *pods))) == {"a": (1, 3)}


def test_a_driver_without_a_limit_and_a_node_without_a_csinode_take_any_number(tmp_path: Path) -> None:
    free = [each for each in TWO_ATTACHED if each["kind"] != "CSINode"]
    third = using("third", "c2")
    assert changes(planned(dumped(tmp_path, *free, third))) == {}
    assert changes(planned(dumped(tmp_path, *free, csi_node("a1", None), third))) == {}
    assert changes(planned(dumped(tmp_path, *free, csi_node("a1", 2, "other.example.com"), third))) == {}
    assert changes(planned(dumped(tmp_path, *free, csi_node("another"), third))) == {}


def test_an_attachment_without_a_pod_counts(tmp_path: Path) -> None:
    attached = {
        "kind": "VolumeAttachment",
        "metadata": {"name": "left-behind"},
        "spec": {"attacher": DRIVER, "nodeName": "a1", "source": {"persistentVolumeName": "v3"}},
    }
    given = [each for each in TWO_ATTACHED if each["metadata"]["name"] != "second"]
    assert changes(planned(dumped(tmp_path, *given, using("third", "c2")))) == {}
    assert changes(planned(dumped(tmp_path, *given, attached, using("third", "c2")))) == {"a": (1, 2)}
    assert changes(planned(dumped(tmp_path, *given, attached, using("third", "c3")))) == {}, "it is there already"


@pytest.mark.parametrize(
    ("disk", "driver"),
    [
        ({"awsElasticBlockStore": {"volumeID": "aws://eu-1a/vol-9"}}, DRIVER),
        ({"gcePersistentDisk": {"pdName": "disk-9"}}, "pd.csi.storage.gke.io"),
        ({"azureDisk": {"diskName": "d", "diskURI": "/subscriptions/d"}}, "disk.csi.azure.com"),
        ({"cinder": {"volumeID": "9"}}, "cinder.csi.openstack.org"),
    ],
)
def test_inline_disks_count_by_the_driver_that_they_have_migrated_to(
    tmp_path: Path, disk: dict[str, Any], driver: str
) -> None:
    there = (node("a1", "a"), csi_node("a1", 1, driver))
    first = pod("first", "100m", "a1", volumes=[{"name": "d", **disk}])
    (kind,) = disk
    other = {kind: {key: f"{value}-other" for key, value in disk[kind].items()}}
    second = pod("second", "100m", volumes=[{"name": "d", **other}])
    assert changes(planned(dumped(tmp_path, *there, first, second))) == {"a": (1, 2)}
    assert changes(planned(dumped(tmp_path, *there, second))) == {}
    same = pod("same", "100m", volumes=[{"name": "d", **disk}])
    keeps_apart = kind in ("awsElasticBlockStore", "gcePersistentDisk")  # kube-scheduler's VolumeRestrictions
    assert changes(planned(dumped(tmp_path, *there, first, same))) == ({"a": (1, 2)} if keeps_apart else {})
    inline = pod("inline", "100m", volumes=[{"name": "d", "csi": {"driver": driver}}])
    assert changes(planned(dumped(tmp_path, *there, first, inline))) == {}, "the scheduler does not count it"


def test_more_volumes_than_any_node_takes_buy_nothing_and_the_sentence_names_the_driver(tmp_path: Path) -> None:
    answer = planned(
        dumped(tmp_path, *TWO_ATTACHED, *(claim(f"w{n}") for n in range(3)), using("big", "w0", "w1", "w2"))
    )
    assert changes(answer) == {}
    assert told(answer) == (
        f"node(s) exceed max volume count: 2 more of driver {DRIVER} can be attached, and the pod needs 3"
    )


def test_a_driver_that_keeps_pods_from_nodes_without_it_is_minded(tmp_path: Path) -> None:
    strict = {"kind": "CSIDriver", "metadata": {"name": DRIVER}, "spec": {"preventPodSchedulingIfMissing": True}}
    without = [each for each in TWO_ATTACHED if each["kind"] != "CSINode"]
    there = (*without, csi_node("a1", 9, "other.example.com"), using("third", "c2"))
    answer = planned(dumped(tmp_path, *there, strict))
    assert changes(answer) == {}
    assert told(answer) == f"{DRIVER} CSI driver is not installed on the node"
    assert changes(planned(dumped(tmp_path, *there))) == {}


def two_zones(**classed: Any) -> tuple[dict[str, Any], ...]:
    zones: dict[str, dict[str, Any]] = {each: node(each, each) for each in ("a", "b")}
    for name, each in zones.items():
        each["metadata"]["labels"][ZONE] = f"zone-{name}"
    full = (pod(f"full-{name}", "4", name) for name in zones)
    return (*zones.values(), *full, storage_class(**classed), claim("data"), using("app", "data"))


def test_a_claim_that_waits_for_its_pod_gets_a_node_in_an_allowed_zone(tmp_path: Path) -> None:
    assert changes(planned(dumped(tmp_path, *two_zones(**in_zones("zone-b"))))) == {"b": (1, 2)}
    assert changes(planned(dumped(tmp_path, *two_zones(**in_zones("zone-a"))))) == {"a": (1, 2)}
    answer = planned(dumped(tmp_path, *two_zones(**in_zones("zone-c"))))
    assert changes(answer) == {}
    of_claim = 'for claim "data" of storage class "fast"'
    assert told(answer) == f"node(s) didn't find available persistent volumes to bind {of_claim}"


def test_without_a_provisioner_a_volume_has_to_exist_and_its_nodes_are_the_pods(tmp_path: Path) -> None:
    local = {"provisioner": "kubernetes.io/no-provisioner"}
    terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["zone-b"]}]}]
    affinity: dict[str, Any] = {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}
    there = two_zones(**local)
    assert changes(planned(dumped(tmp_path, *there, volume("v", **affinity)))) == {"b": (1, 2)}
    for unfit in (
        volume("v", size="512Mi", **affinity),
        volume("v", storage_class="slow", **affinity),
        volume("v", claimRef={"namespace": "shop", "name": "another"}, **affinity),
        volume("v", volumeMode="Block", **affinity),
    ):
        assert changes(planned(dumped(tmp_path, *there, unfit))) == {}
    mine = volume("v", claimRef={"namespace": "shop", "name": "data"}, **affinity)
    assert changes(planned(dumped(tmp_path, *there, mine))) == {"b": (1, 2)}


def test_a_driver_that_publishes_storage_has_to_have_enough_where_the_node_is(tmp_path: Path) -> None:
    publishes = {"kind": "CSIDriver", "metadata": {"name": DRIVER}, "spec": {"storageCapacity": True}}

    def capacity(zone: str, amount: str, **more: Any) -> dict[str, Any]:
        topology = {"nodeTopology": {"matchLabels": {ZONE: zone}}}
        meta = {"name": f"in-{zone}", "namespace": "kube-system"}
        return {
            "kind": "CSIStorageCapacity",
            "metadata": meta,
            "storageClassName": "fast",
            "capacity": amount,
            **topology,
            **more,
        }

    there = (*two_zones(), publishes)
    answer = planned(dumped(tmp_path, *there, capacity("zone-a", "1Mi")))
    assert changes(answer) == {}
    assert told(answer) == 'node(s) did not have enough free storage for claim "data" of storage class "fast"'
    assert changes(planned(dumped(tmp_path, *there, capacity("zone-a", "1Mi"), capacity("zone-b", "2Gi")))) == {
        "b": (1, 2)
    }
    small = capacity("zone-b", "9Gi", maximumVolumeSize="1Mi")
    assert changes(planned(dumped(tmp_path, *there, small))) == {}


def test_a_claim_whose_node_is_chosen_keeps_to_it(tmp_path: Path) -> None:
    chosen = claim("data")
    chosen["metadata"]["annotations"] = {"volume.kubernetes.io/selected-node": "a"}
    given = [each for each in two_zones() if each["kind"] != "PersistentVolumeClaim"]
    assert changes(planned(dumped(tmp_path, *given, chosen))) == {}
    empty = [each for each in given if each["metadata"]["name"] != "full-a"]
    (pending,) = planned(dumped(tmp_path, *empty, chosen))["pending"]
    assert pending["on_nodes"] == 1


def test_a_claim_that_should_be_bound_already_buys_nothing(tmp_path: Path) -> None:
    answer = planned(dumped(tmp_path, *two_zones(volumeBindingMode="Immediate")))
    assert changes(answer) == {}
    (problem,) = answer["invalid_objects"]
    assert problem["object"] == "shop/app"
    assert 'unbound immediate PersistentVolumeClaims: "data" of storage class "fast"' in problem["problem"]


def test_kinds_that_the_dump_lacks_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def missing(*objects: dict[str, Any]) -> list[str]:
        planned(dumped(tmp_path, *objects))
        words = [line.partition("there is no ")[2].split() for line in capsys.readouterr().err.splitlines()]
        return [each[0] for each in words if each and each[0] not in ("Pod", "Node")]

    app, here = using("app", "data"), node("a1", "a")
    assert missing(here, app) == ["PersistentVolumeClaim"]
    assert missing(here, app, claim("data")) == ["StorageClass", "CSINode"]
    assert missing(here, app, claim("data"), storage_class()) == ["CSINode"]
    assert missing(here, app, claim("data"), storage_class(), csi_node("a1")) == []
    local = storage_class(provisioner="kubernetes.io/no-provisioner")
    assert missing(here, app, claim("data"), local, csi_node("a1")) == ["PersistentVolume"]
    assert missing(here, app, claim("data", "v"), csi_node("a1")) == ["PersistentVolume"]
    assert missing(here, pod("plain")) == []
