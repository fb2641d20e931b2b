"""Pods taken together, nodes and pods as arrays, and what of bad input is refused."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from manager.autoscaler.snapshot import cluster, equivalence_groups, pod_info
from manager.autoscaler.snapshot.cluster import NodeInfo, NodeState, NodeTemplate, StateRules
from manager.autoscaler.snapshot.pod_info import HostPort, PodInfo
from manager.autoscaler.snapshot.referenced_objects import ReferencedObjects
from shared import durations, names
from shared.api.core import Node, PersistentVolume, PersistentVolumeClaim, Pod, PodStatus
from shared.errors import InvalidInput

NOW = 1_700_000_000.0


def pod(
    name: str, *, owner: str = "rs", kind: str = "ReplicaSet", meta: dict[str, Any] | None = None, **spec: Any
) -> Pod:
    owners = [{"kind": kind, "name": owner, "uid": owner, "controller": True}] if owner else []
    metadata = {"name": name, "namespace": "default", "ownerReferences": owners, **(meta or {})}
    return msgspec.convert({"metadata": metadata, "spec": {"containers": [{"name": "c"}], **spec}}, Pod)


def asking(cpu: str, **container: Any) -> list[dict[str, Any]]:
    return [{"name": "c", "resources": {"requests": {"cpu": cpu}}, **container}]


def groups(*pods: Pod) -> list[tuple[str, ...]]:
    return [tuple(key.removeprefix("default/") for key in each.pods) for each in classes(*pods)]


def classes(*pods: Pod) -> tuple[equivalence_groups.EquivalenceGroup, ...]:
    return equivalence_groups.build_equivalence_groups(pods, ReferencedObjects()).classes


def test_pods_of_one_controller_with_equal_labels_and_spec_are_one_class() -> None:
    assert groups(pod("b"), pod("a")) == [("a", "b")]
    assert groups(pod("a"), pod("b", owner="other")) == [("a",), ("b",)]
    assert groups(pod("a"), pod("b", meta={"labels": {"x": "1"}})) == [("a",), ("b",)]
    assert groups(pod("a"), pod("b", containers=asking("1"))) == [("a",), ("b",)]


def test_projected_volumes_make_no_difference_and_others_do() -> None:
    projected = [pod(name, volumes=[{"name": f"token-{name}", "projected": {"sources": []}}]) for name in "ab"]
    assert groups(*projected, pod("c")) == [("a", "b", "c")]
    assert groups(*(pod(name, volumes=[{"name": f"v-{name}", "hostPath": {"path": "/"}}]) for name in "ab")) == [
        ("a",),
        ("b",),
    ]


def test_a_pod_being_resized_is_of_another_class_than_those_its_controller_made_with_it() -> None:
    status = {"name": "c", "resources": {"requests": {"cpu": "4"}}}
    small = pod("a", containers=asking("1"))
    grown = replace(
        pod("b", containers=asking("1")), status=msgspec.convert({"containerStatuses": [status]}, PodStatus)
    )
    assert groups(small, grown) == [("a",), ("b",)]
    assert equivalence_groups.group_placed([small, grown]) == [[small], [grown]]


def test_equal_pods_without_a_controller_are_one_class_and_others_are_not() -> None:
    assert groups(pod("b", owner=""), pod("a", owner=""), pod("c")) == [("a", "b"), ("c",)]
    assert groups(pod("a", owner=""), pod("b", owner="", meta={"labels": {"x": "1"}})) == [("a",), ("b",)]
    assert groups(pod("a", owner=""), pod("b", owner="", containers=asking("1"))) == [("a",), ("b",)]
    assert groups(pod("a", owner=""), pod("b", owner="", meta={"namespace": "z"})) == [("a",), ("z/b",)]
    many = [pod(f"p{index:02d}", owner="", meta={"labels": {"kind": str(index % 12)}}) for index in range(24)]
    assert [len(each) for each in groups(*many)] == [2] * 12  # as many classes as there are
    huge = [{"name": "c", "resources": {"requests": {"cpu": 1 << 70}}}]
    whole = [pod(name, owner="", containers=huge) for name in ("a", "b")]
    assert groups(*whole) == [("a",), ("b",)]  # no encoding to compare them by


def test_a_mirror_pod_is_of_another_kind_than_an_equal_pod_that_may_move() -> None:
    mirror = pod("a", owner="", meta={"annotations": {names.ANNOTATION_MIRROR: "x"}})
    assert equivalence_groups.group_placed([mirror, pod("b", owner=""), pod("c", owner="")]) == [
        [mirror],
        [pod("b", owner=""), pod("c", owner="")],
    ]


def test_pods_of_daemon_sets_stand_alone() -> None:
    assert len(groups(pod("a", kind="DaemonSet"), pod("b", kind="DaemonSet"))) == 2
    annotated = {"annotations": {equivalence_groups.ANNOTATION_DAEMON_SET_POD: "true"}}
    assert len(groups(pod("a", meta=annotated), pod("b", meta=annotated))) == 2


@given(st.permutations(range(24)))
def test_beyond_ten_classes_pods_of_a_controller_stand_alone_whatever_the_order(order: list[int]) -> None:
    made = [pod(f"p{index:02d}", meta={"labels": {"kind": str(index % 12)}}) for index in order]
    found = groups(*made)
    assert [len(each) for each in found] == [2] * 10 + [1] * 4
    assert found[0] == ("p00", "p12")


def test_pods_whose_ephemeral_volumes_may_be_anywhere_stand_alone() -> None:
    claim = {"name": "data", "ephemeral": {"volumeClaimTemplate": {}}}
    made = [pod(name, owner="x", volumes=[claim]) for name in ("a", "b")]
    assert groups(*made) == [("a",), ("b",)] == groups(*reversed(made))


def test_a_pod_that_cannot_be_read_is_refused_alone_and_says_why() -> None:
    bad = pod("bad", owner="x", containers=asking("much"))
    found = equivalence_groups.build_equivalence_groups([bad, pod("good")], ReferencedObjects())
    assert [each.pods for each in found.classes] == [("default/good",)]
    assert "default/bad" in str(found.refused["default/bad"])
    assert "much" in str(found.refused["default/bad"])


REFUSED: list[dict[str, Any]] = [
    {"containers": asking("-1")},
    {"topologySpreadConstraints": [{"topologyKey": ""}]},
    {"topologySpreadConstraints": [{"topologyKey": "zone", "maxSkew": 0}]},
    {"topologySpreadConstraints": [{"topologyKey": "zone", "minDomains": 0}]},
    {"topologySpreadConstraints": [{"topologyKey": "zone", "nodeTaintsPolicy": "Maybe"}]},
    {
        "topologySpreadConstraints": [
            {"topologyKey": "zone", "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}
        ]
    },
    {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": ""}]}}},
]


@pytest.mark.parametrize("spec", REFUSED)
def test_a_spec_that_means_nothing_is_refused_by_field(spec: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="Pod default/p: spec"):
        pod_info.read_pending(pod("p", **spec), ReferencedObjects())


def test_requests_count_sidecars_init_containers_and_overhead_and_have_a_bound() -> None:
    sidecar = {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}}
    setup = {"name": "i", "resources": {"requests": {"cpu": "3"}}}
    facts = pod_info.read_pending(
        pod("p", containers=asking("1"), initContainers=[sidecar, setup], overhead={"cpu": "50m"}), ReferencedObjects()
    )
    assert facts.requests == {"cpu": 3150}
    huge = pod_info.read_pending(pod("p", containers=asking("8E")), ReferencedObjects())
    assert huge.requests == {"cpu": pod_info.MOST_AMOUNT}


def test_host_ports_conflict_by_address_and_protocol() -> None:
    any_tcp = HostPort("0.0.0.0", "TCP", 80)
    assert any_tcp.conflicts(HostPort("10.0.0.1", "TCP", 80))
    assert not any_tcp.conflicts(HostPort("0.0.0.0", "UDP", 80))
    assert not HostPort("10.0.0.1", "TCP", 80).conflicts(HostPort("10.0.0.2", "TCP", 80))


def test_a_pod_on_its_nodes_network_takes_every_port_it_names() -> None:
    containers = [{"name": "c", "ports": [{"containerPort": 9100}, {"containerPort": 1, "hostPort": 2}]}]

    def numbers(**spec: Any) -> list[int]:
        return [
            each.port
            for each in pod_info.read_pending(pod("p", containers=containers, **spec), ReferencedObjects()).ports
        ]

    assert numbers() == [2]
    assert numbers(hostNetwork=True) == [9100, 2]


def test_a_term_without_namespaces_means_the_pods_own_and_a_selector_adds_to_those_named() -> None:
    def namespaces(**more: Any) -> frozenset[str] | None:
        term = {"topologyKey": "zone", "labelSelector": {}, **more}
        affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        known = ReferencedObjects(namespaces={"one": {"team": "x"}, "two": {"team": "y"}})
        return pod_info.read_pending(pod("p", affinity=affinity), known).affinity[0].namespaces

    assert namespaces() == frozenset({"default"})
    assert namespaces(namespaces=["a"], namespaceSelector={"matchLabels": {"team": "x"}}) == frozenset({"a", "one"})
    assert namespaces(namespaceSelector={"matchLabels": {"team": "none"}}) == frozenset()
    assert namespaces(namespaceSelector={}) is None


def test_match_label_keys_demand_the_pods_own_values() -> None:
    selector = {"matchLabels": {"app": "a"}}
    spread = {"topologyKey": "zone", "labelSelector": selector, "matchLabelKeys": ["hash", "absent"]}
    term = (
        pod_info.read_pending(
            pod("p", meta={"labels": {"app": "a", "hash": "1"}}, topologySpreadConstraints=[spread]),
            ReferencedObjects(),
        )
        .spread[0]
        .term
    )
    assert term.matches(PodInfo("default", {"app": "a", "hash": "1"}))
    assert not term.matches(PodInfo("default", {"app": "a", "hash": "2"}))
    assert not term.matches(PodInfo("elsewhere", {"app": "a", "hash": "1"}))


def test_a_bound_volume_demands_its_nodes_and_a_claim_that_is_not_there_refuses_the_pod() -> None:
    requirement = {"key": "zone", "operator": "In", "values": ["a"]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}}
    volume = msgspec.convert({"metadata": {"name": "v"}, "spec": {"nodeAffinity": affinity}}, PersistentVolume)
    claim = msgspec.convert({"metadata": {"name": "c"}, "spec": {"volumeName": "v"}}, PersistentVolumeClaim)
    asked = pod("p", volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}])
    assert (
        len(pod_info.read_pending(asked, ReferencedObjects({}, {"default/c": claim}, {"v": volume})).demands.volumes)
        == 1
    )
    assert pod_info.read_pending(asked, ReferencedObjects()).demands.volumes == ()
    labels = {"topology.kubernetes.io/zone": "a__b", "app": "x"}
    zonal = msgspec.convert({"metadata": {"name": "v", "labels": labels}}, PersistentVolume)
    demands = pod_info.read_pending(asked, ReferencedObjects({}, {"default/c": claim}, {"v": zonal})).demands
    assert (demands.volumes, demands.zones) == ((), (("topology.kubernetes.io/zone", ("a", "b")),))
    with pytest.raises(InvalidInput, match='persistentvolumeclaim "c" not found'):
        pod_info.read_pending(asked, ReferencedObjects({}, {}, {}))
    leaving = {"metadata": {"name": "c", "deletionTimestamp": durations.timestamp(NOW)}, "spec": {"volumeName": "v"}}
    going = msgspec.convert(leaving, PersistentVolumeClaim)
    with pytest.raises(InvalidInput, match='persistentvolumeclaim "c" is being deleted'):
        pod_info.read_pending(asked, ReferencedObjects({}, {"default/c": going}, {"v": volume}))
    with pytest.raises(InvalidInput, match='persistentvolume "v" does not exist'):
        pod_info.read_pending(asked, ReferencedObjects({}, {"default/c": claim}, {}))
    assert pod_info.read_pending(asked, ReferencedObjects({}, {"default/c": claim})).demands.volumes == (), (
        "where it is, is not known"
    )


def test_gates_and_priorities_say_who_waits_and_who_is_expendable() -> None:
    assert equivalence_groups.scheduling_gate_reason(pod("p")) == ""
    gated = pod("p", schedulingGates=[{"name": "a"}, {"name": "b"}])
    assert equivalence_groups.scheduling_gate_reason(gated) == "waiting for scheduling gates: [a b]"
    assert equivalence_groups.is_expendable(pod("p", priority=-11))
    assert not equivalence_groups.is_expendable(pod("p", priority=-10))
    assert not equivalence_groups.is_expendable(pod("p"))


def node(name: str = "n", **more: Any) -> Node:
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    status = {"allocatable": amounts, "capacity": amounts, **more.pop("status", {})}
    meta = {"name": name, "creationTimestamp": durations.timestamp(NOW - 300), **more.pop("meta", {})}
    return msgspec.convert({"metadata": meta, "spec": more, "status": status}, Node)


def unready(seconds_after_creation: float) -> dict[str, Any]:
    turned = durations.timestamp(NOW - 300 + seconds_after_creation)
    return {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": turned}]}


OLD = {"creationTimestamp": durations.timestamp(NOW - 9000)}
UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
READY: dict[str, Any] = {"conditions": [{"type": "Ready", "status": "True"}]}


@pytest.mark.parametrize(
    ("given_node", "state"),
    [
        (node(status=READY), NodeState.READY),
        (node(status=READY, unschedulable=True), NodeState.CORDONED),
        (node(status=READY, taints=[{"key": cluster.TAINT_TO_BE_DELETED}]), NodeState.TO_BE_DELETED),
        (node(status=unready(10)), NodeState.NOT_STARTED),
        (node(status={}), NodeState.NOT_STARTED),
        (node(status=unready(200)), NodeState.UNREADY),
        (node(status=unready(10), meta=OLD), NodeState.UNREADY),
        (node(status=READY, taints=[{"key": "startup/x"}]), NodeState.NOT_STARTED),
        (node(status=READY, taints=[{"key": "startup/x"}], meta=OLD), NodeState.UNREADY),
        (node(status=READY, taints=[{"key": "warming"}]), NodeState.NOT_STARTED),
        (node(status=READY, taints=[{"key": "warming-up"}]), NodeState.READY),
        (node(status=READY, taints=[{"key": "node.kubernetes.io/not-ready"}]), NodeState.NOT_STARTED),
        (node(status=READY, taints=[{"key": "node.kubernetes.io/not-ready"}], meta=OLD), NodeState.UNREADY),
        (node(status=READY, taints=[{"key": "node.kubernetes.io/unreachable"}], meta=OLD), NodeState.UNREADY),
        (node(status=READY, taints=[{"key": UNINITIALIZED}]), NodeState.NOT_STARTED),
        (node(status=READY, meta={"labels": {"accelerator": "t4"}}), NodeState.NOT_STARTED),
        (node(status=READY, meta={"labels": {"accelerator": "t4"}, **OLD}), NodeState.UNREADY),
    ],
)
def test_a_node_is_in_one_state(given_node: Node, state: NodeState) -> None:
    rules = StateRules(
        NOW,
        startup_taints=frozenset({"warming"}),
        startup_taint_prefixes=("startup/",),
        gpu_label="accelerator",
        gpu_resources=("nvidia.com/gpu",),
    )
    assert cluster.node_state(given_node, rules) == state


def test_a_snapshot_knows_what_is_free_and_leaves_out_what_cannot_be_read() -> None:
    bad = node("bad", status={"allocatable": {"cpu": "lots"}})
    placed = [
        pod("a", containers=asking("1"), nodeName="n"),
        pod("b", containers=asking("1"), nodeName="n"),
        pod("broken", owner="x", containers=asking("much"), nodeName="n"),
        pod("elsewhere", containers=asking("1"), nodeName="gone"),
    ]
    nominated = msgspec.structs.replace(
        pod("soon", containers=asking("500m")),
        status=msgspec.convert({"nominatedNodeName": "n"}, type(placed[0].status)),
    )
    found = cluster.take_snapshot(
        [(node(), NodeState.READY), (bad, NodeState.READY), (node("new"), NodeState.NOT_STARTED)], [*placed, nominated]
    )
    assert [each.name for each in found.nodes] == ["n"]
    assert found.free_of("cpu").tolist() == [1500]
    assert found.free_of("pods").tolist() == [7]
    assert found.free_of("example.com/none").tolist() == [0]
    assert sorted(found.refused) == ["bad", "default/broken"]


def test_a_pod_on_a_node_holds_what_it_requests_whatever_else_cannot_be_read_of_it() -> None:
    nowhere = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": ""}]}}
    placed = pod("odd", containers=asking("3"), nodeName="n", affinity=nowhere)
    found = cluster.take_snapshot([(node(), NodeState.READY)], [placed])
    assert (found.free_of("cpu").tolist(), found.free_of("pods").tolist()) == ([1000], [9])
    assert list(found.refused) == ["default/odd"]


def test_a_snapshot_takes_further_nodes_and_pods_and_stays_as_it_was() -> None:
    there, gpu = PodInfo(requests={"cpu": 1000}), PodInfo(requests={"gpu": 1})
    nodes = [NodeInfo(name, allocatable={"cpu": 4000, "pods": 10}) for name in "ab"]
    before = cluster.snapshot_of_nodes(nodes, [(0, there)])
    new = NodeInfo("c", allocatable={"cpu": 8000, "pods": 10, "gpu": 2})
    after = cluster.extend(before, [new], [(0, there, 2), (2, gpu, 1)])
    assert [node.name for node in after.nodes] == ["a", "b", "c"]
    assert after.free_of("cpu").tolist() == [1000, 4000, 8000]
    assert after.free_of("pods").tolist() == [7, 10, 9]
    assert after.free_of("gpu").tolist() == [0, 0, 1]
    assert after.kinds == (there, gpu)
    assert (after.placed_kind.tolist(), after.placed_count.tolist()) == ([0, 0, 1], [1, 2, 1])
    assert (len(before.nodes), before.free_of("cpu").tolist(), len(before.kinds)) == (2, [3000, 4000], 1)


def test_upcoming_nodes_are_copies_of_the_template_with_its_own_pods() -> None:
    amounts = {"cpu": 4000, "pods": 10}
    template = NodeTemplate(
        "g",
        NodeInfo("t", {"zone": "a"}, capacity=amounts, allocatable=amounts),
        (PodInfo(requests={"cpu": 100}), PodInfo(requests={"cpu": 200})),
    )
    found = cluster.take_snapshot([], [], upcoming=[(template, 2)])
    assert [each.name for each in found.nodes] == ["t-upcoming-0", "t-upcoming-1"]
    assert {each.state for each in found.nodes} == {NodeState.UPCOMING}
    assert found.free_of("cpu").tolist() == [3700, 3700]
    assert found.free_of("pods").tolist() == [8, 8]
    assert template.overhead == {"cpu": 300, "pods": 2}
    assert template.free == {"cpu": 3700, "pods": 8}
