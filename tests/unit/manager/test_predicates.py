"""What a new node refuses, in kube-scheduler's words, and in its order."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from manager.autoscaler.estimator import binpacking, problem
from manager.autoscaler.estimator.binpacking import Permissions
from manager.autoscaler.estimator.packing import Packing, refusals
from manager.autoscaler.snapshot import cluster, equivalence_groups, predicates
from manager.autoscaler.snapshot.cluster import LABEL_HOSTNAME, NodeInfo, NodeState, NodeTemplate
from manager.autoscaler.snapshot.equivalence_groups import EquivalenceGroup
from manager.autoscaler.snapshot.pod_info import NodeDemands, PodInfo
from manager.autoscaler.snapshot.referenced_objects import ReferencedObjects
from shared.api.core import Node, NodeSelector, Pod, Taint, Toleration

UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
AMOUNTS = {"cpu": 4000, "memory": 8 << 30, "pods": 10}
THERE = NodeInfo("there", {LABEL_HOSTNAME: "there", ZONE: "a"}, capacity=AMOUNTS, allocatable=AMOUNTS)


def reasons(
    spec: dict[str, Any] | None = None,
    *,
    taints: tuple[Taint, ...] = (),
    labels: dict[str, str] | None = None,
    amounts: dict[str, int] | None = None,
    placed: tuple[PodInfo, ...] = (),
    daemons: tuple[PodInfo, ...] = (),
    unschedulable: bool = False,
    features: tuple[str, ...] = (),
) -> list[str]:
    meta = {"name": "p", "namespace": "default", "labels": {"app": "a"}}
    asked = msgspec.convert({"metadata": meta, "spec": {"containers": [{"name": "c"}], **(spec or {})}}, Pod)
    classified = equivalence_groups.build_equivalence_groups([asked], ReferencedObjects())
    node = NodeInfo(
        "new",
        labels or {ZONE: "a", "cores": "8"},
        {},
        taints,
        AMOUNTS,
        amounts or AMOUNTS,
        features=frozenset(features),
    )
    if unschedulable:
        node = NodeInfo("new", unschedulable=True)
    template = NodeTemplate("g", node, daemons)
    taken = cluster.snapshot_of_nodes([THERE], [(0, kind) for kind in placed])
    fit = binpacking.fit_on_new_node(problem.packing_problem(taken, classified.classes, [template]), template)
    found = list(fit.reasons(0))
    assert bool(fit.flags[0]) == (not found)
    return found


def requesting(**requests: str) -> dict[str, Any]:
    return {"containers": [{"name": "c", "resources": {"requests": requests}}]}


def node_affinity(*requirements: tuple[str, str, list[str] | None], field: str = "matchExpressions") -> dict[str, Any]:
    listed = [{"key": key, "operator": operator, "values": values} for key, operator, values in requirements]
    required = {"nodeSelectorTerms": [{field: listed}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def pod_term(kind: str, app: str, key: str = ZONE) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


AFFINITY = "node(s) didn't match Pod's node affinity/selector"


def test_a_pod_that_asks_for_nothing_fits() -> None:
    assert reasons() == []


def test_every_resource_that_is_short_is_named() -> None:
    assert reasons(requesting(cpu="5", memory="1Gi")) == ["Insufficient cpu"]
    assert reasons(requesting(cpu="5", memory="9Gi", **{"nvidia.com/gpu": "1"})) == [
        "Insufficient cpu",
        "Insufficient memory",
        "Insufficient nvidia.com/gpu",
    ]
    assert reasons(requesting(**{"ephemeral-storage": "1Gi"})) == ["Insufficient ephemeral-storage"]
    assert reasons(amounts={"cpu": 4000, "pods": 1}, daemons=(PodInfo(),)) == ["Too many pods"]
    assert reasons(requesting(cpu="4"), daemons=(PodInfo(requests={"cpu": 1}),)) == ["Insufficient cpu"]


def test_a_taint_is_named_unless_it_is_tolerated() -> None:
    taint = Taint("team", "x", "NoSchedule")
    assert reasons(taints=(taint,)) == ["node(s) had untolerated taint(s)"]
    assert reasons({"tolerations": [{"key": "team", "value": "x"}]}, taints=(taint,)) == []
    assert reasons({"tolerations": [{"operator": "Exists"}]}, taints=(taint,)) == []
    assert reasons(taints=(Taint("team", "x", "PreferNoSchedule"),)) == []
    assert reasons(unschedulable=True) == ["node(s) were unschedulable"]


@pytest.mark.parametrize(
    ("requirement", "fits"),
    [
        ((ZONE, "In", ["a", "b"]), True),
        ((ZONE, "In", ["b"]), False),
        ((ZONE, "NotIn", ["a"]), False),
        (("absent", "NotIn", ["a"]), True),
        ((ZONE, "Exists", None), True),
        (("absent", "Exists", None), False),
        ((ZONE, "DoesNotExist", None), False),
        (("cores", "Gt", ["7"]), True),
        (("cores", "Gt", ["8"]), False),
        (("cores", "Lt", ["9"]), True),
        (("cores", "Lt", ["x"]), False),
        (("cores", "Lt", ["1_0"]), False),
        (("cores", "Lt", ["9223372036854775807"]), True),
        (("cores", "Lt", ["9223372036854775808"]), False),
    ],
)
def test_node_affinity_knows_all_operators(requirement: tuple[str, str, list[str] | None], fits: bool) -> None:
    assert reasons(node_affinity(requirement)) == ([] if fits else [AFFINITY])


def test_selectors_and_names_of_nodes_are_matched() -> None:
    assert reasons({"nodeSelector": {ZONE: "b"}}) == [AFFINITY]
    assert reasons({"nodeSelector": {ZONE: "a"}}) == []
    assert reasons(node_affinity(("metadata.name", "In", ["there"]), field="matchFields")) == [AFFINITY]


def test_a_port_that_a_new_nodes_own_pod_takes_is_not_free() -> None:
    spec = {"containers": [{"name": "c", "ports": [{"hostPort": 80}]}]}
    asked = msgspec.convert({"metadata": {"name": "d"}, "spec": spec}, Pod)
    daemon = equivalence_groups.build_equivalence_groups([asked], ReferencedObjects()).classes[0].facts
    assert reasons(spec, daemons=(daemon,)) == ["node(s) didn't have free ports for the requested pod ports"]
    assert reasons(spec, placed=(daemon,)) == []


EBS = {"awsElasticBlockStore": {"volumeID": "vol-1"}}
WRITTEN, READ = ({"gcePersistentDisk": {"pdName": "disk", "readOnly": read_only}} for read_only in (False, True))
ISCSI, ISCSI_READ = ({"iscsi": {"iqn": "iqn.2026-01.com:disk", "readOnly": read_only}} for read_only in (False, True))


def rbd(*monitors: str, **more: Any) -> dict[str, Any]:
    return {"rbd": {"monitors": list(monitors), "pool": "rbd", "image": "disk", **more}}


@pytest.mark.parametrize(
    ("there", "wanted", "conflicts"),
    [
        (EBS, EBS, True),
        (EBS, {"awsElasticBlockStore": {"volumeID": "vol-2"}}, False),
        (WRITTEN, WRITTEN, True),
        (WRITTEN, READ, True),
        (READ, READ, False),
        (ISCSI, ISCSI_READ, True),
        (ISCSI_READ, ISCSI_READ, False),
        (rbd("a", "b"), rbd("b", "c"), True),
        (rbd("a"), rbd("b"), False),
        (rbd("a"), rbd("a", pool="other"), False),
        (rbd("a", readOnly=True), rbd("a", readOnly=True), False),
        (EBS, {"gcePersistentDisk": {"pdName": "vol-1"}}, False),
        ({"emptyDir": {}}, {"emptyDir": {}}, False),
    ],
)
def test_a_disk_in_the_spec_is_used_once_per_node_unless_all_only_read_it(
    there: dict[str, Any], wanted: dict[str, Any], conflicts: bool
) -> None:
    container = {"containers": [{"name": "c"}]}

    def asking(volume: dict[str, Any], name: str) -> Pod:
        spec = {**container, "volumes": [{"name": "data", **volume}]}
        return msgspec.convert({"metadata": {"name": name, "namespace": "default"}, "spec": spec}, Pod)

    node = msgspec.convert({"metadata": {"name": "n"}, "status": {"allocatable": {"pods": "10"}}}, Node)
    placed = asking(there, "there")
    placed = msgspec.structs.replace(placed, spec=msgspec.structs.replace(placed.spec, node_name="n"))
    snapshot = cluster.take_snapshot([(node, NodeState.READY)], [placed])
    classes = equivalence_groups.build_equivalence_groups([asking(wanted, "p")], ReferencedObjects()).classes
    packing = Packing(problem.packing_problem(snapshot, classes))
    assert refusals(packing, 0, 0) == (["node(s) had no available disk"] if conflicts else [])
    assert packing.fill_one(0, 0, 1) == (not conflicts)


def test_pods_that_write_one_disk_in_their_spec_need_a_node_each() -> None:
    def nodes_of(volume: dict[str, Any]) -> int:
        spec = {"containers": [{"name": "c"}], "volumes": [{"name": "data", **volume}]}
        pods = [
            msgspec.convert({"metadata": {"name": name, "namespace": "default"}, "spec": spec}, Pod) for name in "abc"
        ]
        classes = equivalence_groups.build_equivalence_groups(pods, ReferencedObjects()).classes
        template = NodeTemplate("g", NodeInfo("new", {}, {}, (), AMOUNTS, AMOUNTS))
        asked = problem.packing_problem(cluster.snapshot_of_nodes([]), classes, [template])
        return binpacking.estimate(asked, template, range(len(classes)), Permissions()).node_count

    assert nodes_of(WRITTEN) == 3
    assert nodes_of(READ) == 1


def test_pod_affinity_needs_company_in_the_domain_or_a_pod_that_is_its_own() -> None:
    company = (PodInfo("default", {"app": "b"}),)
    assert reasons(pod_term("podAffinity", "b")) == ["node(s) didn't match pod affinity rules"]
    assert reasons(pod_term("podAffinity", "b"), placed=company) == []
    assert reasons(pod_term("podAffinity", "b"), placed=company, labels={ZONE: "b"}) == [
        "node(s) didn't match pod affinity rules"
    ]
    assert reasons(pod_term("podAffinity", "a")) == []
    assert reasons(pod_term("podAffinity", "a"), labels={"cores": "8"}) == ["node(s) didn't match pod affinity rules"]


def test_anti_affinity_keeps_away_on_both_sides() -> None:
    other = PodInfo("default", {"app": "b"})
    assert reasons(pod_term("podAntiAffinity", "b"), placed=(other,)) == [
        "node(s) didn't match pod anti-affinity rules"
    ]
    assert reasons(pod_term("podAntiAffinity", "b", LABEL_HOSTNAME), placed=(other,)) == []
    spec = {"containers": [{"name": "c"}], **pod_term("podAntiAffinity", "a")}
    asked = msgspec.convert({"metadata": {"name": "d", "namespace": "default"}, "spec": spec}, Pod)
    keeping_away = equivalence_groups.build_equivalence_groups([asked], ReferencedObjects()).classes[0].facts
    assert reasons(placed=(keeping_away,)) == ["node(s) didn't satisfy existing pods anti-affinity rules"]


def test_spread_counts_domains_and_needs_the_label() -> None:
    constraint = {"topologyKey": ZONE, "maxSkew": 1, "labelSelector": {"matchLabels": {"app": "a"}}}
    spec = {"topologySpreadConstraints": [constraint]}
    crowded = (PodInfo("default", {"app": "a"}),) * 2
    said = "node(s) didn't match pod topology spread constraints"
    assert reasons(spec, placed=crowded, labels={ZONE: "b"}) == []
    assert reasons(spec, labels={"cores": "8"}) == [f"{said} (missing required label)"]
    constraint["minDomains"] = 2
    assert reasons(spec, placed=crowded) == [said]
    assert reasons({"topologySpreadConstraints": [{**constraint, "whenUnsatisfiable": "ScheduleAnyway"}]}) == []


@pytest.mark.parametrize("selector", [{}, {"matchLabels": {}}, None])
@pytest.mark.parametrize("more", [{}, {"minDomains": 2}, {"matchLabelKeys": ["not-there"]}])
def test_spread_without_a_requirement_counts_no_pod_as_kube_scheduler_does(
    selector: dict[str, Any] | None, more: dict[str, Any]
) -> None:
    constraint = {"topologyKey": ZONE, "maxSkew": 1, "labelSelector": selector, **more}
    spec = {"topologySpreadConstraints": [constraint]}
    assert reasons(spec, placed=(PodInfo("default", {"app": "a"}),) * 2) == []
    missing = "node(s) didn't match pod topology spread constraints (missing required label)"
    assert reasons(spec, labels={"cores": "8"}) == [missing]


@pytest.mark.parametrize(
    ("labels", "zones", "fits"),
    [
        ({ZONE: "a"}, ("a", "b"), True),
        ({ZONE: "c"}, ("a", "b"), False),
        ({REGION: "r"}, ("a",), False),
        ({}, ("a",), True),  # a node that tells of no zone may be in any
    ],
)
def test_a_volume_is_reached_from_its_zones(labels: dict[str, str], zones: tuple[str, ...], fits: bool) -> None:
    for key in (ZONE, "failure-domain.beta.kubernetes.io/zone"):  # a node's label is also taken for the one of old
        demands = NodeDemands(zones=((key, zones),))
        said = predicates.volume_refusal(demands, NodeInfo("n", labels))
        assert said == (None if fits else "node(s) had no available volume zone")
        shapes = predicates.Shapes([NodeInfo("n", labels), NodeInfo("m", {ZONE: "a"})], [demands])
        assert shapes.admitting(demands).tolist() == [fits, True]


def test_a_volume_out_of_reach_is_said_so_after_resources() -> None:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["b"]}]}]}
    facts = PodInfo(demands=NodeDemands(volumes=(msgspec.convert(terms, NodeSelector),)))
    template = NodeTemplate("g", NodeInfo("new", {ZONE: "a"}, capacity=AMOUNTS, allocatable=AMOUNTS))
    for requests, said in (
        ({"cpu": 5000}, "Insufficient cpu"),
        ({}, "node(s) didn't match PersistentVolume's node affinity"),
    ):
        asking = EquivalenceGroup(replace(facts, requests=requests), ("d/p",))
        fit = binpacking.fit_on_new_node(
            problem.packing_problem(cluster.snapshot_of_nodes([]), [asking], [template]), template
        )
        assert fit.reasons(0) == (said,)
        assert not fit.flags[0]


@pytest.mark.parametrize(
    ("spec", "feature"),
    [
        (
            {"containers": [{"name": "c", "restartPolicyRules": [{"action": "RestartAllContainers"}]}]},
            "RestartAllContainersOnContainerExits",
        ),
        (
            {"initContainers": [{"name": "i", "restartPolicyRules": [{"action": "RestartAllContainers"}]}]},
            "RestartAllContainersOnContainerExits",
        ),
        ({"hostNetwork": True, "hostUsers": False}, "UserNamespacesHostNetworkSupport"),
        ({"containers": [{"name": "c", "restartPolicyRules": [{"action": "Restart"}]}]}, ""),
        ({"hostUsers": False}, ""),
        ({"hostNetwork": True}, ""),
    ],
)
def test_a_feature_that_a_pod_needs_is_declared_by_its_node(spec: dict[str, Any], feature: str) -> None:
    said = "node(s) didn't match Pod's required features"
    assert reasons(spec, features=("Other",)) == ([said] if feature else [])
    assert reasons(spec, features=("Other", feature)) == []


def test_a_cordoned_node_takes_the_pods_that_tolerate_its_taint_while_it_is_ready() -> None:
    tolerating = NodeDemands(tolerations=(Toleration("node.kubernetes.io/unschedulable", "Exists"),))
    for ready, takes in (("True", True), ("Unknown", False)):
        node = msgspec.convert(
            {
                "metadata": {"name": "n"},
                "spec": {"unschedulable": True, "taints": [{**UNSCHEDULABLE}]},
                "status": {"conditions": [{"type": "Ready", "status": ready}]},
            },
            Node,
        )
        taken = cluster.take_snapshot([(node, NodeState.CORDONED)], ())
        shapes = predicates.Shapes(taken.nodes, [tolerating, NodeDemands()])
        assert shapes.admitting(tolerating).tolist() == [takes]
        assert shapes.admitting(NodeDemands()).tolist() == [False]
