"""The pure parts of the replay: demand, placing, predictions and figures."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.api.core import Condition, Node, NodeSpec, NodeStatus, Taint
from shared.api.meta import ObjectMeta
from shared.quantity import Resources
from tests.bench import replay_demand, replay_figures, replay_placing
from tests.bench.replay_figures import Seen
from tests.bench.replay_peaks import WARM_SAMPLES, NodeModels, RunningPod
from tests.bench.replay_placing import Placed

HOUR = 3600
CORE = Resources(1000, 1 << 30)
TARGET = 0.7

loads = st.lists(st.floats(0.1, 500), min_size=1, max_size=60)
sizes = st.integers(0, 20)


def test_a_seed_is_a_day_and_another_one_another_day() -> None:
    assert replay_demand.day(1) == replay_demand.day(1)
    assert replay_demand.day(1) != replay_demand.day(2)


def test_more_is_asked_for_by_day_and_most_in_the_crowd() -> None:
    day = replay_demand.day(8)
    used = [
        sum(each.heat[step] * each.replicas[step] * each.owner.request.cpu_milli for each in day.services)
        for step in range(day.steps)
    ]
    night, noon = used[4 * replay_demand.HOUR_STEPS], used[13 * replay_demand.HOUR_STEPS]
    crowd = used[replay_demand.CROWD_HOUR * replay_demand.HOUR_STEPS + 1]
    assert night * 1.5 < noon < crowd


def test_pods_use_more_than_they_have_asked_for_at_times_and_never_so_much_memory() -> None:
    day = replay_demand.day(8)
    found = [
        (day.usage(each.owner, f"pod-{pod}", step), each.owner.request)
        for each in day.services
        for step in range(0, day.steps, 12)
        for pod in range(3)
    ]
    above = sum(used.cpu_milli > asked.cpu_milli for used, asked in found)
    assert 0.2 < above / len(found) < 0.8
    assert all(used.memory_bytes < asked.memory_bytes for used, asked in found)


@given(loads)
def test_replicas_follow_the_load_of_the_step_before(loads: list[float]) -> None:
    replicas = replay_demand.followed(loads, TARGET)
    assert len(replicas) == len(loads)
    assert min(replicas) >= 1
    for before, now, seen in zip(replicas, replicas[1:], loads, strict=False):
        needed = math.ceil(seen / TARGET)
        assert now >= needed or (now == before and seen <= before * TARGET * (1 + replay_demand.TOLERANCE) * (1 + 1e-9))
        assert now <= max(before, needed)


def node(name: str, *taints: Taint, ready: bool = True, unschedulable: bool = False) -> Node:
    return Node(
        metadata=ObjectMeta(name=name),
        spec=NodeSpec(taints=taints, unschedulable=unschedulable),
        status=NodeStatus(
            allocatable={"cpu": "8", "memory": "8Gi"},
            conditions=(Condition(type="Ready", status="True" if ready else "False"),),
        ),
    )


def test_pods_go_to_nodes_that_are_ready_and_take_them() -> None:
    nodes = [
        node("open"),
        node("liked less", Taint(key="x", effect="PreferNoSchedule")),
        node("tainted", Taint(key="x", effect="NoSchedule")),
        node("cordoned", unschedulable=True),
        node("unready", ready=False),
    ]
    assert replay_placing.open_nodes(nodes) == dict.fromkeys(("open", "liked less"), Resources(8000, 8 << 30))


@given(st.lists(st.tuples(sizes, st.sampled_from(["", "a", "b", "gone"])), max_size=20))
def test_what_waits_goes_where_there_is_room_and_nothing_goes_where_there_is_none(pods: list[tuple[int, str]]) -> None:
    nodes = dict.fromkeys(("a", "b", "c"), Resources(10, 10))
    given_pods = [Placed(str(number), "o", Resources(size, size), home) for number, (size, home) in enumerate(pods)]
    placed = dict(replay_placing.place(given_pods, nodes))
    assert placed.keys() <= {pod.name for pod in given_pods if not pod.node}
    nothing = dict.fromkeys(nodes, Resources())
    before = nothing | replay_placing.sums((pod.node, pod.request) for pod in given_pods)
    after = nothing | replay_placing.sums((placed.get(pod.name, pod.node), pod.request) for pod in given_pods)
    for name, whole in nodes.items():
        assert after[name] in (before[name], after[name].least(whole))
    for pod in given_pods:
        if not pod.node and pod.name not in placed:
            assert all(pod.request.cpu_milli > 10 - after[name].cpu_milli for name in nodes)


def test_owners_pods_are_spread_and_the_emptiest_node_is_taken() -> None:
    nodes = {"a": Resources(8000, 8 << 30), "b": Resources(8000, 8 << 30)}
    there = [Placed("x", "web", CORE, "a"), Placed("y", "db", CORE, "b")]
    assert replay_placing.place([*there, Placed("new", "web", CORE)], nodes) == [("new", "b")]
    assert replay_placing.place([*there, Placed("new", "cache", CORE), Placed("newer", "cache", CORE)], nodes) == [
        ("new", "a"),
        ("newer", "b"),
    ]


def test_a_nodes_peak_is_predicted_once_it_is_known_and_forgotten_with_it() -> None:
    models, alone = NodeModels(), NodeModels()
    steady, gone = RunningPod("a", "steady", CORE, CORE), RunningPod("b", "gone", CORE, CORE)
    for sample in range(WARM_SAMPLES):
        assert models.peaks == {}
        models.train(["steady", "gone"], [steady, gone], 300.0 * sample)
        alone.train(["steady"], [steady], 300.0 * sample)
    assert models.peaks["steady"].prod == CORE
    young = RunningPod("young", "steady", CORE, Resources(100, 0))
    for each in (models, alone):
        each.train(["steady"], [steady, young], 300.0 * WARM_SAMPLES)
    assert models.peaks == alone.peaks  # no other node is in it
    assert 1000 < models.peaks["steady"].prod.cpu_milli < 2000  # the young one is taken to use some of its request
    models.train(["steady", "empty"], [steady._replace(usage=CORE.plus(CORE))], 300.0 * (WARM_SAMPLES + 1))
    assert models.peaks.keys() == {"steady"}
    assert models.peaks["steady"].prod.cpu_milli >= 2000


@given(st.lists(st.integers(0, 9), max_size=30))
def test_turns_are_of_the_way_and_not_of_standing_still(values: list[int]) -> None:
    found = replay_figures.turns(values)
    assert found == replay_figures.turns(values[::-1])
    assert found == replay_figures.turns([each for each in values for _ in range(2)])
    assert replay_figures.turns(sorted(values)) == 0


def test_a_target_that_goes_to_and_fro_turns() -> None:
    assert replay_figures.turns([1, 3, 3, 2, 2, 5, 4]) == 3


@given(st.lists(st.floats(0, 100), min_size=1), st.integers(1, 100))
def test_so_many_of_a_hundred_do_not_exceed_the_percentile(values: list[float], percent: int) -> None:
    found = replay_figures.percentile(values, percent)
    assert sum(each <= found for each in values) * 100 >= percent * len(values)
    assert sum(each < found for each in values) * 100 < percent * len(values)


def test_figures_are_of_the_hours_that_were_seen() -> None:
    seen = Seen(
        targets=[2, 3] * 60,
        machines=[2, 4] * 60,
        costs=[1.0, 2.0] * 60,
        open_nodes=[2] * 120,
        pending=[0] * 118 + [3, 1],
        overloaded=[0] * 119 + [2],
        replaced=5,
        waits=[0.0] * 98 + [2.0, 3.0],
        walls=[0.01, 0.03],
        cpus=[0.01],
    )
    found = replay_figures.of(seen)
    assert (found.mean_nodes, found.most_nodes, found.dollars_per_day) == (3.0, 4, 36.0)
    assert (found.pending_pod_minutes, found.wait_p95_minutes, found.wait_p99_minutes) == (4, 0.0, 2.0)
    assert (found.turns_per_hour, found.open_turns_per_hour) == (59.0, 0.0)
    assert (found.overloaded_node_minutes, found.replaced_pods) == (2, 5)
    assert (found.round_wall_ms, found.round_cpu_ms) == pytest.approx((20.0, 10.0))
