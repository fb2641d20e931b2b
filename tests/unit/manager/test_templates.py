"""What a new node of a group is expected to be, and which groups are as good as the same."""

from typing import Any

import msgspec
import pytest

from manager.autoscaler.scale_up import balancing
from manager.autoscaler.settings.estimates import SimilarityRules, TaintRules
from manager.autoscaler.snapshot import taints, templates
from manager.autoscaler.snapshot.cluster import (
    LABEL_HOSTNAME,
    PODS,
    TAINT_TO_BE_DELETED,
    NodeInfo,
    NodeState,
    NodeTemplate,
)
from manager.autoscaler.snapshot.pod_info import PodInfo
from manager.autoscaler.snapshot.referenced_objects import ReferencedObjects
from manager.autoscaler.snapshot.templates import Daemon, LiveNode, TemplateCache
from shared import names
from shared.api.core import DaemonSet, Node, Pod
from shared.errors import InvalidInput

NOW = 1_000_000.0


def node(name: str = "n", cpu: str = "4", taints: tuple[str, ...] = (), **labels: str) -> Node:
    amounts = {"cpu": cpu, "memory": "8Gi", "pods": "110"}
    spec = {"taints": [{"key": key, "effect": "NoSchedule"} for key in taints], "unschedulable": False}
    meta = {"name": name, "labels": {LABEL_HOSTNAME: name, **labels}}
    return msgspec.convert(
        {"metadata": meta, "spec": spec, "status": {"capacity": amounts, "allocatable": amounts}}, Node
    )


def daemon_set(name: str, cpu: str = "100m", **spec: Any) -> DaemonSet:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    made = {"spec": {"containers": [container], **spec}}
    return msgspec.convert({"metadata": {"name": name, "uid": name}, "spec": {"template": made}}, DaemonSet)


def daemons(*daemon_sets: DaemonSet) -> tuple[Daemon, ...]:
    found, refused = templates.read_daemons(daemon_sets, ReferencedObjects())
    assert not refused
    return found


def pod(name: str, owner: str = "", kind: str = "DaemonSet", cpu: str = "100m", **meta: Any) -> Pod:
    owners = [{"kind": kind, "uid": owner, "controller": True}] if owner else []
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    return msgspec.convert(
        {
            "metadata": {"name": name, "ownerReferences": owners, **meta},
            "spec": {"containers": [container]},
            "status": {"phase": "Running"},
        },
        Pod,
    )


def of_group(
    live: list[LiveNode],
    provided: Node | None = None,
    known: tuple[Daemon, ...] = (),
    keeper: TemplateCache | None = None,
) -> NodeTemplate:
    found = (keeper or TemplateCache()).of_group("g", live, lambda: provided, known, NOW)
    assert found is not None
    return found


def test_a_template_of_a_live_node_sheds_what_is_the_nodes_own() -> None:
    own = (
        TAINT_TO_BE_DELETED,
        templates.TAINT_DELETION_CANDIDATE,
        taints.TO_BE_REMOVED,
        taints.FORCE,
        "node.kubernetes.io/not-ready",
        "startup-taint.cluster-autoscaler.kubernetes.io/x",
        "status-taint.cluster-autoscaler.kubernetes.io/x",
        "ignore-taint.cluster-autoscaler.kubernetes.io/x",
        "ours",
    )
    rules = TaintRules(startup_taint=("ours",))
    found = of_group([LiveNode(node("n", taints=(*own, "team")), NodeState.READY)], keeper=TemplateCache(rules)).node
    assert [taint.key for taint in found.taints] == ["team"]
    assert found.name == found.labels[LABEL_HOSTNAME] == "template-node-for-g"
    assert found.labels[templates.LABEL_TEMPLATE] == "true"


def test_only_daemons_and_mirror_pods_stay_and_those_on_their_way_out_go() -> None:
    on_node = (
        pod("ds", "agent"),
        pod("mirror", annotations={names.ANNOTATION_MIRROR: "x"}, cpu="250m"),
        pod("web", "rs", "ReplicaSet"),
        pod("old", "gone", deletionTimestamp="2024-01-01T00:00:00Z"),
    )
    found = of_group([LiveNode(node(), NodeState.READY, on_node)])
    assert found.overhead == {"cpu": 350, PODS: 2}


def test_a_daemon_that_does_not_run_counts_only_when_it_is_node_critical_or_forced() -> None:
    known = daemons(
        daemon_set("agent"), daemon_set("slow"), daemon_set("critical", priorityClassName="system-node-critical")
    )
    live = [LiveNode(node(), NodeState.READY, (pod("ds", "agent"),))]
    assert of_group(live, known=known).overhead == {"cpu": 200, PODS: 2}
    assert of_group(live, known=known, keeper=TemplateCache(force_daemons=True)).overhead == {"cpu": 300, PODS: 3}


def test_what_a_provider_has_said_holds_while_it_says_nothing_and_there_is_no_good_node() -> None:
    keeper = TemplateCache()
    starting = LiveNode(node("n", "8"), NodeState.NOT_STARTED)
    known = daemons(daemon_set("everywhere"))

    def cpu_at(seconds: float, provided: Node | None, *live: LiveNode) -> int | None:
        found = keeper.of_group("g", live, lambda: provided, known, NOW + seconds)
        assert found is None or live or found.overhead == {"cpu": 100, PODS: 1}
        return None if found is None else found.node.allocatable["cpu"]

    assert cpu_at(0, node("given", "2")) == 2000
    assert (cpu_at(1, None), cpu_at(59, None, starting)) == (2000, 2000)
    assert cpu_at(2, node("given", "3")) == 3000
    assert keeper.groups == {"g"}
    assert cpu_at(61, None, starting) == 3000
    assert cpu_at(64, None, LiveNode(node("n", "16"), NodeState.READY)) == 16000
    keeper.forget(["g"])
    assert (keeper.groups, cpu_at(65, None)) == (frozenset(), None)


def test_a_group_without_nodes_is_as_remembered_and_else_as_its_provider_says() -> None:
    keeper = TemplateCache()
    known = daemons(daemon_set("everywhere"), daemon_set("elsewhere", nodeSelector={"zone": "b"}))
    assert of_group([], node("given", "2"), known, keeper).node.allocatable["cpu"] == 2000
    assert of_group([], node("given", "2"), known, keeper).overhead == {"cpu": 100, PODS: 1}
    of_group([LiveNode(node("n", "8"), NodeState.READY)], keeper=keeper)
    assert of_group([], node("given", "2"), keeper=keeper).node.allocatable["cpu"] == 8000
    keeper.forget(["g"])
    assert of_group([], node("given", "2"), keeper=keeper).node.allocatable["cpu"] == 2000
    assert TemplateCache().of_group("g", [], lambda: None, (), NOW) is None


@pytest.mark.parametrize("mark", [taints.TO_BE_REMOVED, taints.FORCE])
def test_a_group_that_went_to_zero_is_remembered_without_the_marks_its_nodes_left_with(mark: str) -> None:
    keeper = TemplateCache()
    of_group([LiveNode(node("n", "8", taints=(mark,)), NodeState.READY)], keeper=keeper)
    found = of_group([], keeper=keeper).node
    assert (found.allocatable["cpu"], found.taints) == (8000, ())
    assert of_group([], node("given", taints=(mark,))).node.taints == ()


def test_a_node_that_is_not_good_is_the_last_resort() -> None:
    for live in (LiveNode(node("n", "8"), NodeState.UNREADY), LiveNode(node("n", "8"), NodeState.READY, (), NOW - 30)):
        assert of_group([live], node("given", "2")).node.allocatable["cpu"] == 2000
        assert of_group([live]).node.allocatable["cpu"] == 8000


@pytest.mark.parametrize("amount", ["0", "many", None])
@pytest.mark.parametrize("resource", ["cpu", "memory", "pods"])
def test_a_node_without_a_capacity_stands_for_its_group_only_if_there_is_nothing_else(
    resource: str, amount: str | None
) -> None:
    bad = node("a", "8")
    rest = {name: value for name, value in (bad.status.allocatable or {}).items() if name != resource}
    status = msgspec.structs.replace(bad.status, allocatable=rest | ({} if amount is None else {resource: amount}))
    bad = msgspec.structs.replace(bad, status=status)
    live = [LiveNode(bad, NodeState.READY), LiveNode(node("b", "4"), NodeState.READY)]
    keeper = TemplateCache()
    assert of_group(live, node("given", "2"), keeper=keeper).node.allocatable["cpu"] == 4000
    assert of_group(live[:1], node("given", "2"), keeper=keeper).node.allocatable["cpu"] == 4000
    assert of_group(live[:1], node("given", "2")).node.allocatable["cpu"] == 2000
    young = [live[0], LiveNode(node("b", "4"), NodeState.READY, (), NOW - 30)]
    assert of_group(young).node.allocatable["cpu"] == 4000
    if amount == "many":
        with pytest.raises(InvalidInput, match="many"):
            of_group(live[:1])
    else:
        assert of_group(live[:1]).node.allocatable.get(resource, 0) == 0


def test_a_daemon_set_tolerates_what_its_controller_adds_and_a_bad_one_is_refused_alone() -> None:
    found, refused = templates.read_daemons([daemon_set("a"), daemon_set("bad", cpu="lots")], ReferencedObjects())
    assert [each.uid for each in found] == ["a"]
    assert list(refused) == ["bad"]
    keys = {toleration.key for toleration in found[0].facts.demands.tolerations}
    assert {"node.kubernetes.io/not-ready", "node.kubernetes.io/unschedulable"} <= keys


def template(
    daemon: PodInfo | None = None,
    labels: dict[str, str] | None = None,
    cpu: int = 4000,
    memory: int = 1000,
    gpus: int = 0,
) -> NodeTemplate:
    capacity = {"cpu": cpu, "memory": memory} | ({"nvidia.com/gpu": gpus} if gpus else {})
    found = NodeInfo("n", labels or {}, capacity=capacity, allocatable=capacity)
    return NodeTemplate("g", found, (daemon,) if daemon else ())


def test_groups_differ_by_any_resource_or_label_that_is_not_ignored() -> None:
    similarity = SimilarityRules()
    assert balancing.are_similar(template(), template(memory=985), similarity)
    assert not balancing.are_similar(template(), template(memory=984), similarity)
    assert not balancing.are_similar(template(), template(cpu=4001), similarity)
    assert not balancing.are_similar(template(), template(gpus=1), similarity)
    assert not balancing.are_similar(template(), template(PodInfo(requests={"cpu": 500})), similarity)
    assert balancing.are_similar(template(labels={"topology.kubernetes.io/zone": "a"}), template(), similarity)
    assert not balancing.are_similar(template(labels={"pool": "a"}), template(), similarity)


def test_with_labels_to_compare_nothing_else_counts() -> None:
    similarity = SimilarityRules(balancing_label=("pool",))
    assert balancing.are_similar(template(labels={"pool": "a"}), template(labels={"pool": "a"}, cpu=1), similarity)
    assert not balancing.are_similar(template(labels={"pool": "a"}), template(labels={"pool": "b"}), similarity)
    assert not balancing.are_similar(template(), template(), similarity)


def test_a_similar_group_shares_an_option_only_when_it_takes_all_its_classes() -> None:
    takers = {"all": {1, 2, 3}, "some": {1}, "none": set[int]()}
    assert balancing.similar_for_option({1, 2}, takers) == ["all"]
    assert balancing.similar_for_option(set[int](), takers) == []
    assert balancing.similar_for_option({1}, takers, balance_similar=False) == []
    assert balancing.similar_for_option({1}, takers, is_zero_or_max=True) == []
