"""A free PersistentVolume serves one claim: the pods of one simulation do not count on it twice."""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manager.autoscaler.estimator import binpacking, problem
from manager.autoscaler.estimator.binpacking import Permissions
from manager.autoscaler.estimator.packing import Packing, holdings, refusals
from manager.autoscaler.snapshot import cluster, equivalence_groups
from manager.autoscaler.snapshot.cluster import LABEL_HOSTNAME, NodeInfo, NodeState, NodeTemplate
from manager.autoscaler.snapshot.equivalence_groups import EquivalenceGroup
from manager.autoscaler.snapshot.referenced_objects import ReferencedObjects
from shared.api.core import Node, PersistentVolume, PersistentVolumeClaim, Pod
from shared.api.storage import NO_PROVISIONER, WAIT_FOR_FIRST_CONSUMER, StorageClass
from tests.support.properties import examples

ZONE = "topology.kubernetes.io/zone"
AMOUNTS = {"cpu": 4000, "memory": 8 << 30, "pods": 20}
EMPTY: Mapping[str, str] = MappingProxyType({})
LOCAL = StorageClass(provisioner=NO_PROVISIONER, volume_binding_mode=WAIT_FOR_FIRST_CONSUMER)


def machine(name: str, zone: str = "a") -> NodeInfo:
    return NodeInfo(name, {LABEL_HOSTNAME: name, ZONE: zone}, capacity=AMOUNTS, allocatable=AMOUNTS)


def volume(name: str, size: int, key: str, value: str) -> PersistentVolume:
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    spec = {
        "capacity": {"storage": f"{size}Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "local",
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, PersistentVolume)


def claim(name: str, size: int, bound_to: str = "") -> PersistentVolumeClaim:
    spec = {
        "volumeName": bound_to,
        "storageClassName": "local",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": f"{size}Gi"}},
    }
    return msgspec.convert({"metadata": {"name": name, "namespace": "ns"}, "spec": spec}, PersistentVolumeClaim)


def pod(name: str, *claims: str, spec: Mapping[str, str] = EMPTY, status: Mapping[str, str] = EMPTY) -> Pod:
    mounted = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]
    of_all = {"containers": [{"name": "c"}], "volumes": mounted}
    metadata = {"name": name, "namespace": "ns"}
    return msgspec.convert({"metadata": metadata, "spec": {**of_all, **spec}, "status": status}, Pod)


def classes(
    pods: list[Pod],
    claims: list[PersistentVolumeClaim],
    volumes: list[PersistentVolume],
    storage_class: StorageClass = LOCAL,
) -> tuple[EquivalenceGroup, ...]:
    found = equivalence_groups.build_equivalence_groups(pods, surroundings(claims, volumes, storage_class))
    assert not found.refused
    return found.classes


def surroundings(
    claims: list[PersistentVolumeClaim], volumes: list[PersistentVolume], storage_class: StorageClass = LOCAL
) -> ReferencedObjects:
    return ReferencedObjects(
        claims={each.metadata.key: each for each in claims},
        volumes={each.metadata.name: each for each in volumes},
        storage_classes={"local": storage_class},
    )


def packed(nodes: list[NodeInfo], listed: tuple[EquivalenceGroup, ...]) -> Packing:
    return binpacking.pack_on_existing_nodes(problem.packing_problem(cluster.snapshot_of_nodes(nodes), listed))


def test_of_two_pods_that_count_on_one_local_volume_one_fits() -> None:
    nodes = [machine("n1"), machine("n2")]
    claims = [claim("c1", 1), claim("c2", 1)]
    given_pods = [pod("p1", "c1"), pod("p2", "c2")]
    volumes = [volume("v", 1, LABEL_HOSTNAME, "n1")]
    found = packed(nodes, classes(given_pods, claims, volumes))
    assert found.pending.tolist() == [0, 1]
    (reason,) = refusals(found, 1, 0)
    assert reason.startswith("node(s) didn't find available persistent volumes to bind")
    assert reason.endswith('for claim "c2": other pods take those that it reaches')
    more = [*volumes, volume("w", 1, LABEL_HOSTNAME, "n2")]
    assert packed(nodes, classes(given_pods, claims, more)).pending.tolist() == [0, 0]


def test_pods_that_share_a_claim_share_its_volume() -> None:
    volumes = [volume("v", 1, LABEL_HOSTNAME, "n1"), volume("w", 1, LABEL_HOSTNAME, "n2")]
    found = packed([machine("n1"), machine("n2")], classes([pod("p1", "c"), pod("p2", "c")], [claim("c", 1)], volumes))
    assert found.pending.tolist() == [0]
    assert len({node for placed in found.placements for node in placed.nodes.tolist()}) == 1


def test_a_pod_with_two_claims_needs_two_volumes_and_leaves_the_larger_for_the_larger_claim() -> None:
    claims = [claim("large", 5), claim("small", 1)]
    both = [pod("p", "large", "small")]
    one, other = (volume(name, size, LABEL_HOSTNAME, "n1") for name, size in (("v", 5), ("w", 9)))
    nodes = [machine("n1")]
    assert packed(nodes, classes(both, claims, [one])).pending.tolist() == [1]
    assert packed(nodes, classes(both, claims, [one, other])).pending.tolist() == [0]


def test_new_nodes_share_the_free_volumes_of_their_zone() -> None:
    claims = [claim(f"c{number}", 1) for number in range(4)]
    given_pods = [pod(f"p{number}", f"c{number}") for number in range(4)]
    listed = classes(given_pods, claims, [volume("v", 1, ZONE, "a"), volume("w", 1, ZONE, "a")])
    in_a, in_b = (NodeTemplate(zone, machine(f"template-{zone}", zone)) for zone in "ab")
    asked = problem.packing_problem(cluster.snapshot_of_nodes([]), listed, [in_a, in_b])
    found = binpacking.estimate(asked, in_a, range(4), Permissions())
    assert (found.pod_count, found.node_count) == (2, 1)
    assert not binpacking.fit_on_new_node(asked, in_b).flags.any()


def test_a_volume_of_a_pod_that_was_placed_in_the_same_iteration_is_not_free() -> None:
    listed = classes([pod("p1", "c1"), pod("p2", "c2")], [claim("c1", 1), claim("c2", 1)], [volume("v", 1, ZONE, "a")])
    first = packed([machine("n1")], listed[:1])
    after = cluster.extend(cluster.snapshot_of_nodes([machine("n1")]), [machine("n2")], holdings(first))
    template = NodeTemplate("g", machine("template"))
    asked = problem.packing_problem(after, listed[1:], [template])
    assert binpacking.pack_on_existing_nodes(asked).pending.tolist() == [1]
    assert not binpacking.fit_on_new_node(asked, template).flags.any()


@pytest.mark.parametrize("placed", [{"spec": {"nodeName": "n1"}}, {"status": {"nominatedNodeName": "n1"}}])
def test_a_volume_that_is_being_bound_to_a_pod_on_its_node_is_not_free(placed: dict[str, dict[str, str]]) -> None:
    """kube-scheduler nominates the node before it binds the volume, and the watches of both are not in step."""
    claims = [claim("c0", 1, bound_to="w"), claim("c1", 1), claim("c2", 1)]
    volumes = [volume("v", 1, ZONE, "a")]
    seen = [pod("p0", "c0", **placed), pod("p1", "c1", **placed)]
    n1 = msgspec.convert(
        {"metadata": {"name": "n1", "labels": {ZONE: "a"}}, "status": {"allocatable": {"cpu": "4", "pods": "20"}}}, Node
    )
    snapshot = cluster.take_snapshot([(n1, NodeState.READY)], seen, surroundings=surroundings(claims, volumes))
    template = NodeTemplate("g", machine("template"))
    asked = problem.packing_problem(snapshot, classes([pod("p2", "c2")], claims, volumes), [template])
    assert binpacking.pack_on_existing_nodes(asked).pending.tolist() == [1]
    assert not binpacking.fit_on_new_node(asked, template).flags.any()


def test_a_claim_gets_a_new_volume_where_the_free_ones_are_taken_and_its_class_provisions() -> None:
    terms = [{"matchLabelExpressions": [{"key": ZONE, "values": ["a"]}]}]
    made = {"provisioner": "disks.example.com", "volumeBindingMode": WAIT_FOR_FIRST_CONSUMER}
    provisions = msgspec.convert({**made, "allowedTopologies": terms}, StorageClass)
    given_pods, claims = [pod("p1", "c1"), pod("p2", "c2")], [claim("c1", 1), claim("c2", 1)]
    volumes = [volume("v", 1, ZONE, "b")]
    listed = classes(given_pods, claims, volumes, provisions)
    assert packed([machine("n", "a")], listed).pending.tolist() == [0, 0]
    assert packed([machine("n", "b")], listed).pending.tolist() == [0, 1]


@examples(150)
@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2)), max_size=6),
    st.lists(st.integers(1, 3), max_size=4, min_size=1),
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=2, unique=True), min_size=1, max_size=4),
)
def test_volumes_suffice_for_the_pods_that_are_placed_and_those_that_are_left_fit_nowhere(
    sizes: list[tuple[int, int]], wanted: list[int], mounts: list[list[int]]
) -> None:
    volumes = [volume(f"v{number}", size, LABEL_HOSTNAME, f"n{on}") for number, (size, on) in enumerate(sizes)]
    claims = [claim(f"c{number}", size) for number, size in enumerate(wanted)]
    given_pods = [
        pod(f"p{number}", *(f"c{each % len(wanted)}" for each in dict.fromkeys(at % len(wanted) for at in mounted)))
        for number, mounted in enumerate(mounts)
    ]
    nodes = [machine(f"n{number}") for number in range(3)]
    found = packed(nodes, classes(given_pods, claims, volumes))
    listed = found.problem.classes
    on: dict[str, int] = {}
    for placed in found.placements:
        for node in placed.nodes.tolist():
            for each in listed[placed.position].facts.demands.unbound:
                assert on.setdefault(each.claim, node) == node, "pods that share a local volume share its node"
    for node in range(3):
        asked = sorted((wanted[int(name[1:])] for name, row in on.items() if row == node), reverse=True)
        there = sorted((size for size, row in sizes if row == node), reverse=True)
        assert len(asked) <= len(there)
        assert all(size >= need for need, size in zip(asked, there, strict=False))
    for position, left in enumerate(found.pending.tolist()):
        assert not left or all(refusals(found, position, node) for node in range(3))
    found.take_back(0)
    again = packed(nodes, listed)
    for placed in again.placements:
        for node, count in zip(placed.nodes.tolist(), placed.counts.tolist(), strict=True):
            assert found.fill_one(placed.position, node, count) == count, "all volumes were given back"
