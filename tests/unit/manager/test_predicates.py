"""What a new node refuses, in kube-scheduler's words, and in its order."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from manager.autoscaler.estimator import binpacking, problem
from manager.autoscaler.snapshot import cluster, equivalence_groups, predicates
from manager.autoscaler.snapshot.cluster import LABEL_HOSTNAME, NodeInfo, NodeTemplate
from manager.autoscaler.snapshot.equivalence_groups import EquivalenceGroup
from manager.autoscaler.snapshot.pod_info import NodeDemands, PodInfo, ReferencedObjects
from shared.api.core import NodeSelector, Pod, Taint

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
) -> list[str]:
    meta = {"name": "p", "namespace": "default", "labels": {"app": "a"}}
    asked = msgspec.convert({"metadata": meta, "spec": {"containers": [{"name": "c"}], **(spec or {})}}, Pod)
    classified = equivalence_groups.build_equivalence_groups([asked], ReferencedObjects())
    node = NodeInfo("new", labels or {ZONE: "a", "cores": "8"}, {}, taints, AMOUNTS, amounts or AMOUNTS)
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
