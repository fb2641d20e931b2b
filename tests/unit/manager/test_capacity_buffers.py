"""CapacityBuffers: what they ask for, and where their chunks find room."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from manager.autoscaler.cloudprovider.contract import Group, Instance, InstanceState
from manager.autoscaler.cluster_state.actions import ActionKind
from manager.autoscaler.cluster_state.registry import Registry, add_request
from manager.autoscaler.cluster_state.state import Increase
from manager.autoscaler.estimator.limits import ResourceBounds
from manager.autoscaler.planning.autoscaler_cache import AutoscalerCache
from manager.autoscaler.planning.iteration_plan import PlannedIteration
from manager.autoscaler.pod_injection import buffer_planning, buffer_reading, chunk_sources, resource_quotas
from manager.autoscaler.pod_injection.buffer_planning import BufferState
from manager.autoscaler.pod_injection.buffer_reading import BufferSources
from manager.autoscaler.scale_down.removal_status import NodeStanding
from manager.autoscaler.settings.modes import Mode
from shared.api.capacitybuffer import CapacityBuffer, ChunkSource, ChunkSourceRef
from shared.api.core import Node, Pod
from shared.api.resourcequota import ResourceQuota
from shared.names import MID_CPU, MID_MEMORY
from tests.unit.manager.buffers import DEPLOYMENT, TEMPLATE, buffer, deployment, template
from tests.unit.manager.objects import NOW
from tests.unit.manager.test_planning import Cloud, actions, config, node, planned, pod

KEY = "CapacityBuffer ns/b"


def count(of: CapacityBuffer, source: ChunkSource, ref: ChunkSourceRef = TEMPLATE) -> int:
    found, refused = buffer_reading.read_buffers([of], BufferSources({ref: source}), {})
    assert not refused
    return found["ns/b"].count


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"replicas": 4}, 4),
        ({"replicas": 0}, 0),
        ({"limits": {"cpu": "10"}}, 3),
        ({"limits": {"cpu": 10, "memory": "5Gi"}}, 2),
        ({"limits": {"cpu": "1", "nvidia.com/gpu": "1"}}, 0),
        ({"replicas": 9, "limits": {"memory": "4Gi"}}, 2),
        ({"replicas": 1, "limits": {"memory": "4Gi"}}, 1),
        ({"replicas": 4, "percentage": 50}, 4),  # a template has no replicas that it could be a part of
    ],
)
def test_a_buffer_has_as_many_chunks_as_it_says_and_its_limits_allow(spec: dict[str, Any], expected: int) -> None:
    assert count(buffer(**spec), template({"cpu": "3", "memory": "2Gi"})) == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"percentage": 20}, 2),
        ({"percentage": 21}, 3),
        ({"percentage": 0}, 0),
        ({"percentage": 300}, 30),
        ({"percentage": 20, "replicas": 1}, 2),
        ({"percentage": 20, "replicas": 5}, 5),
        ({"percentage": 20, "replicas": 5, "limits": {"cpu": "9"}}, 3),
    ],
)
def test_a_share_of_a_workload_is_that_of_its_pods_rounded_up(spec: dict[str, Any], expected: int) -> None:
    assert count(buffer(of=DEPLOYMENT, **spec), deployment(10), DEPLOYMENT) == expected


@pytest.mark.parametrize(("parallelism", "expected"), [({"parallelism": 4}, 2), ({}, 1)])
def test_a_share_of_a_job_is_that_of_its_parallelism(parallelism: dict[str, int], expected: int) -> None:
    ref = ChunkSourceRef("batch", "Job", "ns", "sum")
    raw = {"spec": {**parallelism, "template": msgspec.to_builtins(template())["template"]}}
    assert count(buffer(of=ref, percentage=50), msgspec.convert(raw, ChunkSource), ref) == expected


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (buffer(), "spec.replicas: None: replicas, percentage (of a scalableRef) or limits is required"),
        (buffer(percentage=50), "spec.replicas: None: replicas, percentage"),
        (buffer(replicas=-1), "spec.replicas: -1: it is negative"),
        (buffer(of=DEPLOYMENT, percentage=-5), "spec.percentage: -5: it is negative"),
        (buffer(limits={"cpu": "many"}), "spec.limits.cpu: 'many': "),
        (buffer(limits={"cpu": "-1"}), "spec.limits.cpu: '-1': it is negative"),
        (buffer(limits={"nvidia.com/gpu": 1}), "a chunk requests nothing of what is limited"),
        (buffer(limits={}), "a chunk requests nothing of what is limited"),
        (buffer(replicas=10_001), "spec.replicas: 10001: more than 10000 chunks"),
        (buffer(limits={"cpu": "1000000"}), "more than 10000 chunks"),
        (buffer(replicas=1, scalableRef={"kind": "Deployment", "name": "web"}), "exactly one of podTemplateRef and"),
        (buffer(replicas=1, podTemplateRef=None), "exactly one of podTemplateRef and"),
        (
            buffer(replicas=1, of=ChunkSourceRef("", "PodTemplate", "ns", "")),
            "spec.podTemplateRef.name: '': it is empty",
        ),
        (
            buffer(replicas=1, of=ChunkSourceRef("", "PodTemplate", "ns", "gone")),
            "'PodTemplate ns/gone': there is none",
        ),
        (
            buffer(replicas=1, of=ChunkSourceRef("", "PodTemplate", "ns", "shut")),
            "'PodTemplate ns/shut': 403 Forbidden",
        ),
        (buffer(replicas=1, of=ChunkSourceRef("", "PodTemplate", "ns", "bare")), "it has no pod template"),
        (buffer(replicas=1, of=ChunkSourceRef("", "PodTemplate", "ns", "bad")), "'PodTemplate ns/bad': \"Pod ns/b: "),
        (
            buffer(replicas=1, of=ChunkSourceRef("x.io", "Set", "ns", "a")),
            "spec.scalableRef.kind: 'Set.x.io': it is none",
        ),
        (
            buffer(replicas=1, of=ChunkSourceRef("apps", "Deployment", "ns", "")),
            "spec.scalableRef.name: '': it is empty",
        ),
        (buffer(replicas=1, on_mid="yes"), "metadata.annotations[headroom.io/buffer-on-mid]: 'yes': it is neither"),
    ],
)
def test_a_buffer_that_means_nothing_is_refused_by_name_and_field(given: CapacityBuffer, problem: str) -> None:
    sources: dict[ChunkSourceRef, ChunkSource | str] = {
        TEMPLATE: template(),
        DEPLOYMENT: deployment(1),
        TEMPLATE._replace(name="bare"): ChunkSource(),
        TEMPLATE._replace(name="bad"): template({"cpu": "lots"}),
        TEMPLATE._replace(name="shut"): "403 Forbidden: not for you",
    }
    found, refused = buffer_reading.read_buffers([given, buffer("good", replicas=1)], BufferSources(sources), {})
    assert list(found) == ["ns/good"]
    assert str(refused[KEY]).startswith(f"{KEY}: ")
    assert problem.replace('"Pod', "Pod") in str(refused[KEY]).replace('"Pod', "Pod")


def test_a_buffer_of_another_strategy_is_left_alone() -> None:
    others = [buffer(replicas=1, provisioningStrategy="example.com/warm-machines")]
    assert buffer_reading.read_buffers(others, BufferSources({TEMPLATE: template()}), {}) == ({}, {})
    assert chunk_sources.named(others) == []
    for ours in ("", "buffer.x-k8s.io/active-capacity"):
        assert count(buffer(replicas=1, provisioningStrategy=ours), template()) == 1


def test_of_a_refused_buffer_the_last_good_version_holds_until_its_template_is_gone() -> None:
    sources = BufferSources({TEMPLATE: template()})
    good, _ = buffer_reading.read_buffers([buffer(replicas=2)], sources, {})
    kept, refused = buffer_reading.read_buffers([buffer(replicas=-2)], sources, good)
    assert (kept, list(refused)) == (good, [KEY])
    assert (
        buffer_reading.read_buffers([buffer(replicas=2)], BufferSources({TEMPLATE: "403 Forbidden"}), good)[0] == good
    )
    assert buffer_reading.read_buffers([buffer(replicas=2)], BufferSources({}), good)[0] == {}
    assert buffer_reading.read_buffers([], sources, good) == ({}, {})


def of_web(name: str, at: float, requests: dict[str, str], **status: Any) -> Pod:
    made = pod(name, requests, at=at, nodeName="elsewhere", priority=5)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-abc", "uid": "u", "controller": True}
    raw = msgspec.to_builtins(made)
    raw["metadata"] |= {"ownerReferences": [owner], "labels": {"pod-template-hash": "abc", "tier": "mid"}}
    return msgspec.convert({**raw, "status": status}, Pod)


def test_the_chunks_of_a_workload_look_like_its_newest_pod_that_lives() -> None:
    pods = [
        of_web("old", NOW - 90, {"cpu": "1"}),
        of_web("new", NOW - 60, {MID_CPU: "500"}),
        of_web("dead", NOW - 30, {"cpu": "2"}, phase="Failed"),
        pod("stranger", at=NOW),
    ]
    sources: dict[ChunkSourceRef, ChunkSource | str] = {DEPLOYMENT: deployment(2, {"cpu": "3"})}
    found, _ = buffer_reading.read_buffers([buffer(of=DEPLOYMENT, replicas=1)], BufferSources(sources, pods), {})
    facts = found["ns/b"].facts
    assert (facts.requests, facts.labels["tier"], facts.priority) == (
        {MID_CPU: 500},
        "mid",
        buffer_reading.LOWEST_PRIORITY,
    )
    alone, _ = buffer_reading.read_buffers([buffer(of=DEPLOYMENT, replicas=1)], BufferSources(sources), {})
    assert (alone["ns/b"].facts.requests, alone["ns/b"].facts.labels) == ({"cpu": 3000}, {"app": "web"})


# Where they find room.


def round_of(cloud: Cloud, buffers: Sequence[CapacityBuffer], *args: Any, **more: Any) -> PlannedIteration:
    sources = more.pop("chunk_sources", {TEMPLATE: template(), DEPLOYMENT: deployment(10)})
    chosen = more.pop("chosen", config("a"))
    return planned(cloud, chosen, *args, capacity_buffers=tuple(buffers), chunk_sources=sources, **more)


def state(of: PlannedIteration, key: str = "ns/b") -> BufferState:
    assert of.iteration.buffers is not None
    (found,) = [each for each in of.iteration.buffers.buffers if each.key == key]
    return found


def room(of: BufferState) -> tuple[int, int, int, int]:
    return of.on_nodes, of.on_mid, of.triggered, of.unplaced


def test_nodes_are_bought_for_chunks_that_have_no_room_and_for_no_others() -> None:
    cloud = Cloud(Group("a", 0, 5, 0))
    found = round_of(cloud, [buffer(replicas=3)], nodes=(node("n"),))
    assert actions(found) == [(ActionKind.INCREASE, "a", 2)]
    assert found.iteration.actions[0].reason == "2 buffer chunks"
    assert room(state(found)) == (1, 0, 2, 0)
    assert found.iteration.decision is not None
    assert found.iteration.decision.demands == ()  # they are no pods
    enough = round_of(cloud, [buffer(replicas=3)], nodes=(node("n"), node("o"), node("p")))
    assert (actions(enough), room(state(enough))) == ([], (3, 0, 0, 0))
    assert actions(round_of(cloud, [buffer(replicas=0)])) == []


def test_nodes_on_their_way_are_room_and_are_not_bought_again() -> None:
    cloud = Cloud(Group("a", 0, 5, 2))
    cloud.members["a"] += [Instance(f"id:a-{number}", InstanceState.CREATING) for number in range(2)]
    under_way = add_request(Registry(), Increase("a", 0, 2, 5), NOW - 10, 900)
    found = round_of(cloud, [buffer(replicas=2)], under_way)
    assert (actions(found), room(state(found))) == ([], (2, 0, 0, 0))


def test_a_pod_takes_the_room_of_a_chunk_which_is_bought_anew() -> None:
    found = round_of(Cloud(Group("a", 0, 5, 0)), [buffer(replicas=1)], nodes=(node("n"),), pods=(pod("p"),))
    assert actions(found) == [(ActionKind.INCREASE, "a", 1)]
    assert found.iteration.actions[0].reason == "1 buffer chunk"
    assert found.iteration.decision is not None
    assert [(each.pods, each.schedulable) for each in found.iteration.decision.demands] == [(("ns/p",), 1)]


def test_pods_and_chunks_that_both_need_nodes_get_them_in_one_round_and_share_what_is_left() -> None:
    cloud = Cloud(Group("a", 0, 9, 0))
    sources = {TEMPLATE: template({"cpu": "1"})}
    found = round_of(cloud, [buffer(replicas=2)], pods=(pod("p"), pod("q")), chunk_sources=sources)
    assert actions(found) == [(ActionKind.INCREASE, "a", 2)]  # beside each pod is room for one chunk
    assert found.iteration.actions[0].reason == "2 pending pods"
    assert room(state(found)) == (2, 0, 0, 0)
    more = round_of(cloud, [buffer(replicas=3)], pods=(pod("p"), pod("q")), chunk_sources=sources)
    assert actions(more) == [(ActionKind.INCREASE, "a", 3)]
    assert more.iteration.actions[0].reason == "2 pending pods, 1 buffer chunk"


@pytest.mark.parametrize("limit", [{"max_nodes_total": 2}, {"bounds": {"cpu": ResourceBounds(high=8)}}])
def test_where_limits_leave_too_little_pods_come_first(limit: dict[str, Any]) -> None:
    chosen = config("a", decides=limit)
    found = round_of(Cloud(Group("a", 0, 5, 0)), [buffer(replicas=4)], pods=(pod("p"),), chosen=chosen)
    assert actions(found) == [(ActionKind.INCREASE, "a", 2)]
    assert found.iteration.decision is not None
    assert found.iteration.decision.triggered == ("ns/p",)
    assert room(state(found)) == (0, 0, 1, 3)
    assert state(found).reasons


class TwoMachines(Cloud):
    """One whose groups have different machines."""

    def __init__(self, of_group: dict[str, Node]) -> None:
        super().__init__(*(Group(group, 0, 5, 0) for group in of_group))
        self.of_group = of_group

    def template(self, group: str) -> Node:
        return self.of_group[group]


def test_while_pods_wait_for_a_later_round_nothing_is_bought_for_chunks() -> None:
    ssd, hdd = (node("template", more={f"example.com/{disk}": "1"}) for disk in ("ssd", "hdd"))
    cloud = TwoMachines({"a": ssd, "b": hdd})
    pods = tuple(pod(disk, {f"example.com/{disk}": "1"}) for disk in ("ssd", "hdd"))
    chosen = config("a", "b", decides={"least_cost_mix": False})
    found = round_of(cloud, [buffer(replicas=2)], pods=pods, chosen=chosen)
    assert len(actions(found)) == 1
    assert (state(found).triggered, set(state(found).reasons.values())) == (0, {(buffer_planning.PODS_FIRST,)})


def test_a_buffer_is_advice_where_its_group_is_only_recommended_to_grow() -> None:
    found = round_of(Cloud(Group("a", 0, 5, 0)), [buffer(replicas=1)], chosen=config("a", mode=Mode.RECOMMEND))
    assert [(action.mode, action.to_size) for action in found.iteration.actions] == [(Mode.RECOMMEND, 1)]
    assert found.iteration.buffers is not None
    assert [each.advice for each in found.iteration.buffers.decisions] == [True]


def test_bad_buffers_are_told_of_and_keep_no_other_from_its_room() -> None:
    chosen = config("a")
    cache = AutoscalerCache(chosen)
    cloud = Cloud(Group("a", 0, 5, 0))
    buffers = [buffer("bad", replicas=-1), buffer("good", replicas=1)]
    found = round_of(cloud, buffers, chosen=chosen, cache=cache)
    assert (actions(found), list(found.iteration.invalid_objects)) == (
        [(ActionKind.INCREASE, "a", 1)],
        ["CapacityBuffer ns/bad"],
    )
    spoilt = round_of(cloud, [buffer("good", replicas=-1)], chosen=chosen, cache=cache)
    assert actions(spoilt) == [(ActionKind.INCREASE, "a", 1)]  # the last good version holds


# ResourceQuotas.


def resource_quota(name: str, hard: dict[str, str], namespace: str = "ns", **more: Any) -> ResourceQuota:
    used = more.pop("used", {})
    meta = {"name": name, "namespace": namespace}
    return msgspec.convert({"metadata": meta, "spec": more, "status": {"hard": hard, "used": used}}, ResourceQuota)


def limited(
    *quotas: ResourceQuota, requests: dict[str, str] | None = None, **spec: Any
) -> dict[str, tuple[int, tuple[str, ...]]]:
    sources = BufferSources({TEMPLATE: template(requests, **spec)})
    found, _ = buffer_reading.read_buffers([buffer("a", replicas=3), buffer("b", replicas=3)], sources, {})
    chunks, refused = resource_quotas.limit_chunks(found, quotas)
    assert not refused
    again, _ = resource_quotas.limit_chunks(chunks, quotas)
    assert again == chunks, "they are limited from what was wanted"
    return {key: (each.count, each.limited_by) for key, each in chunks.items()}


@pytest.mark.parametrize(
    ("quotas", "expected"),
    [
        ([], {"ns/a": (3, ()), "ns/b": (3, ())}),
        ([resource_quota("q", {"cpu": "12"})], {"ns/a": (3, ()), "ns/b": (1, ("q",))}),
        ([resource_quota("q", {"requests.cpu": "12"})], {"ns/a": (3, ()), "ns/b": (1, ("q",))}),
        ([resource_quota("q", {"cpu": "12"}, used={"cpu": "7500m"})], {"ns/a": (1, ("q",)), "ns/b": (0, ("q",))}),
        ([resource_quota("q", {"cpu": "1"}, used={"cpu": "7"})], {"ns/a": (0, ("q",)), "ns/b": (0, ("q",))}),
        ([resource_quota("q", {"memory": "1Gi", "pods": "1"})], {"ns/a": (3, ()), "ns/b": (3, ())}),
        ([resource_quota("q", {"cpu": "1"}, namespace="other")], {"ns/a": (3, ()), "ns/b": (3, ())}),
        (
            [resource_quota("q", {"cpu": "15"}), resource_quota("r", {"cpu": "6"})],
            {"ns/a": (2, ("r",)), "ns/b": (0, ("r",))},
        ),
    ],
)
def test_what_pods_leave_of_resource_quotas_limits_buffers_one_after_another(
    quotas: list[ResourceQuota], expected: dict[str, Any]
) -> None:
    assert limited(*quotas) == expected


@pytest.mark.parametrize(
    ("spec", "counts"),
    [
        ({"scopes": ["NotTerminating"]}, True),
        ({"scopes": ["Terminating"]}, False),
        ({"scopes": ["NotBestEffort"]}, True),
        ({"scopes": ["BestEffort"]}, False),
        ({"scopes": ["NotTerminating", "BestEffort"]}, False),
        ({"scopes": ["CrossNamespacePodAffinity"]}, False),
        ({"scopes": ["PriorityClass"]}, True),
        (("In", ["high"]), True),
        (("In", ["low"]), False),
        (("NotIn", ["low"]), True),
        (("NotIn", ["high"]), False),
        (("DoesNotExist", []), False),
    ],
)
def test_only_quotas_whose_scopes_have_such_pods_limit_a_buffer(spec: Any, counts: bool) -> None:
    if isinstance(spec, tuple):
        rule = {"scopeName": "PriorityClass", "operator": spec[0], "values": spec[1]}
        spec = {"scopeSelector": {"matchExpressions": [rule]}}
    found = limited(resource_quota("q", {"cpu": "0"}, **spec), priorityClassName="high")
    assert found["ns/a"] == ((0, ("q",)) if counts else (3, ()))


def test_a_quota_that_cannot_be_read_leaves_nothing_and_is_told_of() -> None:
    quotas = (resource_quota("q", {"cpu": "lots"}),)
    found = round_of(Cloud(Group("a", 0, 5, 0)), [buffer(replicas=1)], resource_quotas=quotas)
    assert (actions(found), state(found).chunks) == ([], 0)
    assert "ResourceQuota ns/q: status.hard.cpu: 'lots'" in str(found.iteration.invalid_objects["ResourceQuota ns/q"])


# Mid in place of nodes.


def lending(name: str, cpu: int, memory: str = "64Gi") -> Node:
    return node(name, more={"cpu": "1", MID_CPU: str(cpu), MID_MEMORY: memory})


@pytest.mark.parametrize(
    ("on_mid", "setting", "expected"),
    [
        ("true", False, (0, 2, 1, 0)),
        (None, True, (0, 2, 1, 0)),
        ("false", True, (0, 0, 3, 0)),
        (None, False, (0, 0, 3, 0)),
    ],
)
def test_mid_on_offer_is_room_before_a_node_is_bought_where_that_is_asked_for(
    on_mid: str | None, setting: bool, expected: tuple[int, int, int, int]
) -> None:
    chosen = config("a", capacity_buffer_on_mid=setting)
    found = round_of(
        Cloud(Group("a", 0, 5, 0)), [buffer(replicas=3, on_mid=on_mid)], nodes=(lending("n", 7000),), chosen=chosen
    )
    assert room(state(found)) == expected
    assert actions(found) == [(ActionKind.INCREASE, "a", expected[2])]


def test_a_nodes_own_room_comes_before_mid_and_pods_of_mid_before_chunks() -> None:
    whole = node("n", more={MID_CPU: "3000", MID_MEMORY: "1Gi"})
    cloud = Cloud(Group("a", 0, 5, 0))
    found = round_of(cloud, [buffer(replicas=2, on_mid="true")], nodes=(whole,))
    assert (actions(found), room(state(found))) == ([], (1, 1, 0, 0))
    taken = round_of(cloud, [buffer(replicas=2, on_mid="true")], nodes=(whole,), pods=(pod("p", {MID_CPU: "1000"}),))
    assert room(state(taken)) == (1, 0, 1, 0)


def test_mid_of_the_next_report_is_room_too() -> None:
    cloud = Cloud(Group("a", 0, 5, 0))
    soon = {"n": {MID_CPU: 3000}}
    found = round_of(cloud, [buffer(replicas=1, on_mid="true")], nodes=(lending("n", 0),), expected=soon)
    assert (actions(found), room(state(found))) == ([], (0, 1, 0, 0))


# Scale-down.


def standing(nodes: int, replicas: int, **requests: str) -> dict[str, NodeStanding]:
    there = tuple(node(f"n{number}") for number in range(nodes))
    cloud = Cloud(Group("a", 0, 5, nodes))
    cloud.has("a", *there)
    chosen = config("a", scale_down_enabled=True)
    sources = {TEMPLATE: template(requests)}
    found = round_of(
        cloud, [buffer(replicas=replicas)] if replicas else [], nodes=there, chosen=chosen, chunk_sources=sources
    )
    assert {kind for kind, _, _ in actions(found)} <= {ActionKind.TAINT}
    assert found.iteration.scale_down is not None
    return {name: each.standing for name, each in found.iteration.scale_down.statuses.items()}


@pytest.mark.parametrize(("replicas", "kept"), [(0, 0), (1, 1), (2, 2), (3, 3)])
def test_nodes_that_hold_the_room_of_chunks_stay_and_others_do_not(replicas: int, kept: int) -> None:
    found = standing(3, replicas, cpu="3")
    assert sum(each is NodeStanding.NEEDED for each in found.values()) == kept


def test_a_node_whose_room_others_have_too_is_not_kept_by_a_buffer() -> None:
    found = standing(3, 3, cpu="1")
    assert sum(each is NodeStanding.NEEDED for each in found.values()) == 1
