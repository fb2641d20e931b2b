"""CapacityQuotas: what they say, what they leave, and that nothing is bought beyond them."""

from typing import Any

import msgspec
import pytest

from manager.autoscaler.cloudprovider.contract import Group, Instance, InstanceState
from manager.autoscaler.cluster_state.actions import ActionKind
from manager.autoscaler.cluster_state.registry import Registry, add_request
from manager.autoscaler.cluster_state.state import Increase
from manager.autoscaler.planning.autoscaler_cache import AutoscalerCache
from manager.autoscaler.reporting import object_status
from manager.autoscaler.reporting.object_status import ObjectStatusWriter
from manager.autoscaler.scale_up import capacity_quotas
from manager.autoscaler.scale_up.capacity_quotas import CapacityLimits
from manager.autoscaler.scale_up.groups import QuotaUsage
from manager.autoscaler.snapshot.cluster import NodeInfo
from shared import durations
from shared.api.capacityquota import CapacityQuota, CapacityQuotaStatus
from shared.api.core import Node
from shared.api.meta import ObjectMeta
from shared.api.selectors import LabelSelector
from shared.clock import ManualClock
from shared.errors import InvalidInput
from shared.kube.client import Client
from shared.kube.config import Connection
from shared.kube.resources import CAPACITYQUOTAS, Resource
from tests.unit.manager.objects import NOW
from tests.unit.manager.test_planning import Cloud, actions, config, node, planned, pod, reasons

GIB = 1 << 30


def quota(name: str = "q", selector: Any = None, **resources: Any) -> CapacityQuota:
    spec = {"limits": {"resources": resources}, **({} if selector is None else {"selector": selector})}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, CapacityQuota)


@pytest.mark.parametrize(
    ("written", "most"),
    [
        ({"cpu": 64, "memory": "256Gi"}, {"cpu": 64, "memory": 256 * GIB}),
        ({"cpu": "2k", "nodes": "10"}, {"cpu": 2000, "nodes": 10}),
        ({"cpu": "500m"}, {"cpu": 1}),
        ({"memory": "0.5", "cpu": 1.5}, {"memory": 1, "cpu": 2}),
        ({"nvidia.com/gpu": 8, "nodes": 0}, {"nvidia.com/gpu": 8, "nodes": 0}),
        ({}, {}),
    ],
)
def test_limits_are_whole_and_fractions_are_rounded_up(written: dict[str, Any], most: dict[str, int]) -> None:
    assert capacity_quotas.read_quota(quota(**written)) == CapacityLimits("CapacityQuota/q", most)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (quota(cpu="much"), "CapacityQuota q: spec.limits.resources.cpu: 'much': "),
        (quota(cpu=-1), "CapacityQuota q: spec.limits.resources.cpu: -1: it is negative"),
        (quota(nodes="-2"), "CapacityQuota q: spec.limits.resources.nodes: '-2': it is negative"),
        (quota("q", None, **{"n" * 64: 1}), "CapacityQuota q: spec.limits.resources: "),
        (quota("q", None, **{f"r{number}": 1 for number in range(21)}), "21 resources, more than 20"),
        (
            quota(selector={"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}),
            "CapacityQuota q: spec.selector: ",
        ),
        (msgspec.convert({"metadata": {"name": "q"}}, CapacityQuota), "spec.limits.resources: None: it is missing"),
    ],
)
def test_a_quota_that_means_nothing_is_refused_by_name_and_field(given: CapacityQuota, problem: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        capacity_quotas.read_quota(given)
    assert problem in str(refused.value)


def test_of_a_quota_that_is_refused_the_last_good_one_holds_until_it_is_gone() -> None:
    good, refused = capacity_quotas.read_quotas([quota("a", cpu=4), quota("b", cpu=5)], {})
    assert not refused
    kept, refused = capacity_quotas.read_quotas([quota("a", cpu="?"), quota("b", cpu=6), quota("c", cpu="?")], good)
    assert {name: each.most for name, each in kept.items()} == {"a": {"cpu": 4}, "b": {"cpu": 6}}
    assert list(refused) == ["CapacityQuota a", "CapacityQuota c"]
    assert capacity_quotas.read_quotas([], kept) == ({}, {})


X, NOT_X = {"matchLabels": {"pool": "x"}}, {"matchExpressions": [{"key": "pool", "operator": "NotIn", "values": ["x"]}]}


@pytest.mark.parametrize(
    ("selector", "left"),
    [
        (X, {"cpu": 6, "nodes": 9}),
        (NOT_X, {"cpu": 7, "nodes": 8}),
        (None, {"cpu": 3, "nodes": 7}),
        ({}, {"cpu": 3, "nodes": 7}),
    ],
)
def test_only_nodes_that_it_selects_count(selector: dict[str, Any] | None, left: dict[str, int]) -> None:
    nodes = [
        NodeInfo("a", {"pool": "x"}, capacity={"cpu": 3500}),
        NodeInfo("b", {"pool": "y"}, capacity={"cpu": 1000}),
        NodeInfo("c", {}, capacity={"cpu": 2000}),
        NodeInfo("virtual", {"pool": "x", "type": "virtual-kubelet"}, capacity={"cpu": 9000}),
    ]
    limits = capacity_quotas.read_quota(quota(selector=selector, cpu=10, nodes=10))
    assert limits.remaining_quota(nodes, {}, QuotaUsage()).left == left


def test_gpus_of_a_node_whose_driver_is_not_ready_are_those_of_its_template() -> None:
    resource, label = "nvidia.com/gpu", {"gpu": "t4"}
    template = NodeInfo("t", label, capacity={resource: 2}, allocatable={resource: 2})
    starting = NodeInfo("a", label)
    limits = CapacityLimits("q", {resource: 5}, LabelSelector(label))
    assert limits.remaining_quota([starting, template], {"a": template}, QuotaUsage("gpu")).left == {resource: 1}


def in_pool(name: str, pool: str) -> Node:
    made = node(name)
    labels = {**(made.metadata.labels or {}), "pool": pool}
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, labels=labels))


def test_groups_whose_nodes_a_quota_selects_do_not_grow_beyond_it_and_others_do() -> None:
    nodes = (in_pool("a", "x"), in_pool("b", "y"))
    cloud = Cloud(Group("x", 0, 10, 1), Group("y", 0, 10, 1))
    cloud.has("x", nodes[0])
    cloud.has("y", nodes[1])
    pods = tuple(pod(f"p{number}", {"cpu": "4"}, nodeSelector={"pool": "x"}) for number in range(3))
    objects: dict[str, Any] = {"nodes": nodes, "pods": pods}
    assert actions(planned(cloud, config("x", "y"), **objects)) == [(ActionKind.INCREASE, "x", 3)]
    found = planned(cloud, config("x", "y"), capacity_quotas=(quota(selector=X, cpu=8),), **objects)
    assert actions(found) == [(ActionKind.INCREASE, "x", 2)]
    full = planned(cloud, config("x", "y"), capacity_quotas=(quota("small", X, cpu=7), quota("big", cpu=99)), **objects)
    assert (actions(full), reasons(full)) == ([], {"x": 'exceeded quota: "CapacityQuota/small", resources: cpu'})
    other = planned(cloud, config("x", "y"), capacity_quotas=(quota(selector=NOT_X, nodes=0),), **objects)
    assert actions(other) == [(ActionKind.INCREASE, "x", 3)]


def test_nodes_on_their_way_count_towards_a_quota() -> None:
    one = in_pool("a", "x")
    cloud = Cloud(Group("x", 0, 10, 2))
    cloud.has("x", one)
    cloud.members["x"].append(Instance("id:b", InstanceState.CREATING))
    under_way = add_request(Registry(), Increase("x", 1, 2, 10), NOW - 10, 900)
    objects: dict[str, Any] = {"nodes": (one,), "pods": tuple(pod(f"p{number}", {"cpu": "4"}) for number in range(9))}
    found = planned(cloud, config("x"), under_way, capacity_quotas=(quota(selector=X, nodes=3),), **objects)
    assert actions(found) == [(ActionKind.INCREASE, "x", 3)]


def test_an_invalid_quota_is_told_of_and_its_last_good_version_limits() -> None:
    one = in_pool("a", "x")
    cloud = Cloud(Group("x", 0, 10, 1))
    cloud.has("x", one)
    chosen = config("x")
    cache = AutoscalerCache(chosen)
    objects: dict[str, Any] = {"nodes": (one,), "pods": (pod("p", {"cpu": "4"}), pod("q", {"cpu": "4"}))}
    before = planned(cloud, chosen, cache=cache, capacity_quotas=(quota(nodes=1),), **objects)
    assert actions(before) == []
    after = planned(cloud, chosen, cache=cache, capacity_quotas=(quota(nodes="one"),), **objects)
    assert (actions(after), list(after.iteration.invalid_objects)) == ([], ["CapacityQuota q"])
    assert "spec.limits.resources.nodes: 'one'" in str(after.iteration.invalid_objects["CapacityQuota q"])
    gone = planned(cloud, chosen, cache=cache, **objects)
    assert actions(gone) == [(ActionKind.INCREASE, "x", 2)]


def with_status(of: CapacityQuota, **status: Any) -> CapacityQuota:
    meta = msgspec.structs.replace(of.metadata, generation=2, resource_version="7")
    return msgspec.structs.replace(of, metadata=meta, status=msgspec.convert(status, CapacityQuotaStatus))


def test_a_status_is_written_where_it_says_something_else_and_only_over_what_was_read() -> None:
    others = {"type": "Reconciled", "status": "True", "reason": "ReconciliationSucceeded"}
    before = with_status(quota(cpu=8, memory="4Gi"), conditions=[others], used={"resources": {"cpu": 8, "nodes": 1}})
    wanted = object_status.quota_patch(before, None, {"cpu": 5, "memory": 2 * GIB}, NOW)
    assert wanted is not None
    ours = {
        "type": "cluster-autoscaler.kubernetes.io/valid",
        "status": "True",
        "reason": "Valid",
        "message": "the quota is in effect",
        "observedGeneration": 2,
        "lastTransitionTime": durations.timestamp(NOW),
    }
    assert wanted == {
        "metadata": {"resourceVersion": "7"},
        "status": {
            "conditions": [others, ours],
            "observedGeneration": 2,
            "used": {"resources": {"cpu": "5", "memory": "2Gi", "nodes": None}},
        },
    }
    used = {"resources": {"cpu": "5", "memory": "2Gi"}}
    after = with_status(quota(cpu=8), conditions=[others, ours], used=used, observedGeneration=2)
    assert object_status.quota_patch(after, None, {"cpu": 5, "memory": 2 * GIB}, NOW + 60) is None


@pytest.mark.parametrize(("used", "adds"), [(None, ""), ({"cpu": 1}, "; the last valid version stays in effect")])
def test_a_status_says_what_is_wrong_and_whether_an_earlier_version_holds(
    used: dict[str, int] | None, adds: str
) -> None:
    given = with_status(quota(cpu="?"))
    _, refused = capacity_quotas.read_quotas([given], {})
    wanted: Any = object_status.quota_patch(given, refused["CapacityQuota q"], used, NOW)
    (ours,) = wanted["status"]["conditions"]
    assert (ours["status"], ours["message"]) == ("False", str(refused["CapacityQuota q"]) + adds)
    assert ("used" in wanted["status"]) == (used is not None)


def test_a_status_is_written_by_the_leader_alone_seldom_and_a_few_in_one_round() -> None:
    written: list[str] = []

    class Patching(Client):
        def single_attempt(self, timeout_seconds: float | None = None) -> "Patching":
            return self

        def patch(self, resource: Resource, name: str, patch: object, *_: Any, **__: Any) -> ObjectMeta:
            written.append(name)
            return ObjectMeta()

    clock, leads = ManualClock(), [False]
    client = Patching(Connection("http://127.0.0.1:1"), "test")
    told = ObjectStatusWriter(client, CAPACITYQUOTAS, object_status.QUOTA_SECONDS, lambda: leads[0], clock)
    quotas = [with_status(quota(f"q{number:02d}", nodes=1)) for number in range(object_status.MOST_AT_ONCE + 2)]
    holds, refused = capacity_quotas.read_quotas(quotas, {})

    def tell() -> list[str]:
        written.clear()
        told.write(object_status.quota_patches(quotas, holds, refused, [], QuotaUsage()))
        return list(written)

    assert tell() == []
    leads[0] = True
    assert tell() == [f"q{number:02d}" for number in range(object_status.MOST_AT_ONCE)]
    assert tell() == ["q10", "q11"]
    assert tell() == []
    clock.advance(object_status.QUOTA_SECONDS)
    assert len(tell()) == object_status.MOST_AT_ONCE
