"""The filter's answers and kube-scheduler's words, case by case."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.local.scheduler import filtering, scheduler, scoring
from shared.api import placement
from shared.api.core import (
    Affinity,
    Container,
    Node,
    NodeAffinity,
    NodeSelector,
    NodeSpec,
    NodeStatus,
    Pod,
    PodSpec,
    Quantities,
    ResourceRequirements,
    Taint,
    Toleration,
)
from shared.api.core import NodeSelectorRequirement as Requirement
from shared.api.core import NodeSelectorTerm as Term
from shared.api.meta import ObjectMeta

AMPLE: Quantities = {"cpu": "4", "memory": "8Gi", "pods": "110"}


def node(
    name: str = "n",
    *,
    labels: dict[str, str] | None = None,
    taints: tuple[Taint, ...] = (),
    unschedulable: bool = False,
    allocatable: Quantities | None = None,
) -> Node:
    return Node(
        ObjectMeta(name=name, labels=labels),
        NodeSpec(taints=taints, unschedulable=unschedulable),
        NodeStatus(allocatable=allocatable or AMPLE),
    )


def pod(
    *,
    requests: Quantities | None = None,
    name: str = "p",
    priority: int | None = None,
    node_name: str = "",
    scheduler_name: str = "",
    node_selector: dict[str, str] | None = None,
    affinity: Affinity | None = None,
    tolerations: tuple[Toleration, ...] | None = None,
) -> Pod:
    containers = (Container(name="c", resources=ResourceRequirements(requests=requests)),)
    spec = PodSpec(
        containers=containers,
        priority=priority,
        node_name=node_name,
        scheduler_name=scheduler_name,
        node_selector=node_selector,
        affinity=affinity,
        tolerations=tolerations,
    )
    return Pod(ObjectMeta(name=name, namespace="default"), spec)


def required(*terms: Term) -> Affinity:
    return Affinity(node_affinity=NodeAffinity(required=NodeSelector(terms)))


def reasons(candidate: Pod, target: Node, placed: tuple[Pod, ...] = ()) -> list[str]:
    _, refusals = filtering.fitting(candidate, [filtering.node_state(target, placed)])
    return refusals.get(target.metadata.name, [])


@pytest.mark.parametrize(
    ("requests", "placed", "expected"),
    [
        ({"cpu": "4"}, (), []),
        ({"cpu": "4001m"}, (), ["Insufficient cpu"]),
        ({"cpu": "2"}, (pod(requests={"cpu": "2001m"}),), ["Insufficient cpu"]),
        ({"cpu": "5", "memory": "9Gi"}, (), ["Insufficient cpu", "Insufficient memory"]),
        ({"kubernetes.io/mid-cpu": "1"}, (), ["Insufficient kubernetes.io/mid-cpu"]),
        ({"kubernetes.io/mid-cpu": "0"}, (), []),
        (None, (pod(requests={"cpu": "9"}),), []),
    ],
)
def test_a_pod_is_refused_for_every_resource_that_is_short(
    requests: Quantities | None, placed: tuple[Pod, ...], expected: list[str]
) -> None:
    assert reasons(pod(requests=requests), node(), placed) == expected


def test_extended_resources_are_counted_as_they_are_written() -> None:
    mid = node(allocatable=AMPLE | {"kubernetes.io/mid-cpu": "1500"})
    assert reasons(pod(requests={"kubernetes.io/mid-cpu": "1500"}), mid) == []
    assert reasons(pod(requests={"kubernetes.io/mid-cpu": "1501"}), mid) == ["Insufficient kubernetes.io/mid-cpu"]


def test_a_node_full_of_pods_refuses_one_more() -> None:
    assert reasons(pod(), node(allocatable=AMPLE | {"pods": "1"}), (pod(),)) == ["Too many pods"]


@pytest.mark.parametrize(
    ("taint", "toleration", "fits"),
    [
        (Taint("k", "v", "NoSchedule"), None, False),
        (Taint("k", "v", "NoExecute"), None, False),
        (Taint("k", "v", "PreferNoSchedule"), None, True),
        (Taint("k", "v", "NoSchedule"), Toleration(key="k", value="v"), True),
        (Taint("k", "v", "NoSchedule"), Toleration(key="k", value="other"), False),
        (Taint("k", "v", "NoSchedule"), Toleration(key="k", value="v", effect="NoExecute"), False),
        (Taint("k", "v", "NoSchedule"), Toleration(key="k", operator="Exists"), True),
        (Taint("k", "v", "NoSchedule"), Toleration(operator="Exists"), True),
        (Taint("k", "", "NoSchedule"), Toleration(operator="Equal"), False),
        (Taint("k", "v", "NoSchedule"), Toleration(key="k", value="v", operator="Unheard"), False),
    ],
)
def test_a_taint_keeps_the_intolerant_away(taint: Taint, toleration: Toleration | None, fits: bool) -> None:
    candidate = pod(tolerations=(toleration,) if toleration else None)
    expected = [] if fits else ["node(s) had untolerated taint(s)"]
    assert reasons(candidate, node(taints=(taint,))) == expected


def test_a_cordoned_node_takes_only_pods_that_tolerate_the_cordon() -> None:
    tolerant = pod(tolerations=(Toleration(key="node.kubernetes.io/unschedulable", operator="Exists"),))
    assert reasons(pod(), node(unschedulable=True)) == ["node(s) were unschedulable"]
    assert reasons(tolerant, node(unschedulable=True)) == []


@pytest.mark.parametrize(
    ("operator", "values", "labels", "fits"),
    [
        ("In", ("a", "b"), {"k": "b"}, True),
        ("In", ("a",), {}, False),
        ("NotIn", ("a",), {"k": "a"}, False),
        ("NotIn", ("a",), {}, True),
        ("Exists", None, {"k": ""}, True),
        ("Exists", None, {}, False),
        ("DoesNotExist", None, {}, True),
        ("DoesNotExist", None, {"k": "a"}, False),
        ("Gt", ("5",), {"k": "6"}, True),
        ("Gt", ("5",), {"k": "5"}, False),
        ("Lt", ("5",), {"k": "4"}, True),
        ("Gt", ("5",), {"k": "many"}, False),
        ("Gt", ("5", "6"), {"k": "7"}, False),
        ("Gt", ("5",), {}, False),
        ("Unheard", ("a",), {"k": "a"}, False),
    ],
)
def test_every_operator_of_node_affinity(
    operator: str, values: tuple[str, ...] | None, labels: dict[str, str], fits: bool
) -> None:
    candidate = pod(affinity=required(Term(match_expressions=(Requirement("k", operator, values),))))
    assert (reasons(candidate, node(labels=labels)) == []) is fits


@pytest.mark.parametrize(
    ("terms", "fits"),
    [
        ((), False),
        ((Term(),), False),
        ((Term(match_expressions=(Requirement("k", "Exists"), Requirement("gone", "Exists"))),), False),
        (
            (
                Term(match_expressions=(Requirement("gone", "Exists"),)),
                Term(match_expressions=(Requirement("k", "Exists"),)),
            ),
            True,
        ),
        ((Term(match_fields=(Requirement("metadata.name", "NotIn", ("n",)),)),), False),
        ((Term(match_fields=(Requirement("metadata.name", "In", ("n",)),)),), True),
    ],
)
def test_terms_are_alternatives_and_requirements_conditions(terms: tuple[Term, ...], fits: bool) -> None:
    assert (reasons(pod(affinity=required(*terms)), node(labels={"k": "v"})) == []) is fits


def test_a_node_selector_wants_every_label() -> None:
    labelled = node(labels={"a": "1", "b": "2"})
    assert reasons(pod(node_selector={"a": "1", "b": "2"}), labelled) == []
    assert reasons(pod(node_selector={"a": "1", "b": "3"}), labelled) == [placement.AFFINITY]


def test_nodes_outside_the_names_an_affinity_lists_are_refused_as_by_the_prefilter() -> None:
    candidate = pod(affinity=required(Term(match_fields=(Requirement("metadata.name", "In", ("other",)),))))
    assert reasons(candidate, node()) == ["node(s) didn't match Pod's node affinity/selector"]


def test_the_message_counts_and_sorts_as_kube_scheduler_does() -> None:
    nodes = [
        node("small", allocatable={"cpu": "1", "memory": "1Gi", "pods": "9"}),
        node("tainted", taints=(Taint("k", "v", "NoSchedule"),)),
        node("tainted-too", taints=(Taint("k", "v", "NoSchedule"),)),
        node("cordoned", unschedulable=True),
    ]
    candidate = pod(requests={"cpu": "2", "memory": "2Gi"})
    fits, refusals = filtering.fitting(candidate, [filtering.node_state(each, ()) for each in nodes])
    assert fits == []
    assert filtering.fit_error(refusals) == (
        "0/4 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 1 node(s) were unschedulable, "
        "2 node(s) had untolerated taint(s)."
    )


def test_without_nodes_the_message_is_kube_schedulers_too() -> None:
    assert filtering.fit_error({}) == "no nodes available to schedule pods"


def test_the_emptiest_node_is_best_and_equals_go_by_name() -> None:
    busy = filtering.node_state(node("a"), (pod(requests={"cpu": "2", "memory": "1Gi"}),))
    idle, twin = (filtering.node_state(node(name), ()) for name in ("c", "b"))
    assert scoring.best({"cpu": 1000}, [busy, idle, twin]).name == "b"


@given(
    requested=st.lists(st.integers(0, 3000), max_size=6),
    asked=st.integers(0, 6000),
)
def test_a_score_stays_in_bounds_and_falls_as_the_node_fills(requested: list[int], asked: int) -> None:
    scores = []
    for count in range(len(requested) + 1):
        placed = [pod(requests={"cpu": f"{milli}m"}) for milli in requested[:count]]
        scores.append(scoring.least_requested({"cpu": asked}, filtering.node_state(node(), placed)))
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= scoring.MAX_SCORE for score in scores)


@given(milli=st.lists(st.integers(1, 2500), min_size=1, max_size=12))
def test_no_sequence_of_placements_overfills_a_node(milli: list[int]) -> None:
    cluster = scheduler.cluster_of([node("a"), node("b")], [])
    for index, amount in enumerate(milli):
        candidate = pod(name=f"p{index}", requests={"cpu": f"{amount}m"})
        fits, _ = filtering.fitting(candidate, cluster.states.values())
        if fits:
            cluster.place(candidate, scoring.best({"cpu": amount}, fits).name)
    assert all(state.free("cpu") >= 0 for state in cluster.states.values())


def test_waiting_pods_come_by_priority_and_others_are_left_alone() -> None:
    low, high = pod(name="low", priority=1), pod(name="high", priority=9000)
    foreign = pod(name="foreign", scheduler_name="other")
    bound = pod(name="bound", node_name="n")
    assert [each.metadata.name for each in scheduler.waiting([low, foreign, bound, high])] == ["high", "low"]
