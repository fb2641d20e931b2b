"""Batch of NUMA zones: what is known of a zone counts there, what is not is divided over all."""

from typing import Any

import pytest
from hypothesis import given

from manager.nodeside.noderesource import batch, numa
from manager.nodeside.noderesource.batch import Above
from manager.nodeside.noderesource.situation import NodeSituation
from manager.pods import PodRecord
from shared.api.colocation import ColocationStrategy
from shared.names import PriorityClass, QoS
from shared.quantity import Resources
from tests.unit.manager.batches import GIGA, PODS, SITUATIONS, STRATEGIES, record, seen

TWO = {0: Resources(50_000, 62 * GIGA), 1: Resources(50_000, 58 * GIGA)}
HALF = {0: Resources(1_000, GIGA), 1: Resources(1_000, GIGA)}
STRATEGY: dict[str, Any] = {"cpu_reclaim_threshold_percent": 65, "memory_reclaim_threshold_percent": 65}
ALL = ColocationStrategy(cpu_reclaim_threshold_percent=100, memory_reclaim_threshold_percent=100)

BOUND = record("bound", (10_000, 10 * GIGA), numa_nodes=(0,))
BOUND_LSE = record("bound", (10_000, 10 * GIGA), numa_nodes=(0,), qos=QoS.LSE)
ANYWHERE = record("anywhere", (10_000, 10 * GIGA))
MID = record("mid", (20_000, 40 * GIGA), PriorityClass.MID)
BATCH = record("batch", (10_000, 10 * GIGA), PriorityClass.BATCH)
USED = {"anywhere": (6_000, 6 * GIGA), "batch": (10_000, 10 * GIGA), "mid": (22_000, 22 * GIGA)}


@pytest.mark.parametrize(
    ("strategy", "pods", "used", "cpu", "memory"),
    [
        ({}, [BOUND, ANYWHERE, MID, BATCH], {"bound": (5_000, 5 * GIGA)}, (10_000, 15_000), (15_300, 17_700)),
        (
            {"memory_calculate_policy": "request"},
            [BOUND_LSE, ANYWHERE, MID, BATCH],
            {"bound": (5_000, 5 * GIGA)},
            (5_000, 15_000),
            (5_300, 12_700),
        ),
        (
            {"memory_calculate_policy": "request"},
            [BOUND_LSE, ANYWHERE, MID, BATCH],
            {"gone": (2_000, 4 * GIGA, "koord-prod")},
            (4_000, 14_000),
            (5_300, 12_700),
        ),
        (
            {"memory_calculate_policy": "request"},
            [BOUND_LSE, ANYWHERE, MID, BATCH],
            {
                "gone": (2_000, 4 * GIGA, "koord-prod"),
                "gone too": (4_000, 8 * GIGA, "koord-prod"),
                "gone below": (8_000, 8 * GIGA, "koord-batch"),
            },
            (2_000, 12_000),
            (5_300, 12_700),
        ),
    ],
)
def test_zones_as_koordinator_has_them(
    strategy: dict[str, Any],
    pods: list[PodRecord],
    used: dict[str, tuple[int, int]],
    cpu: tuple[int, int],
    memory: tuple[int, int],
) -> None:
    situation = seen(used=USED | used, system=(7_000, 12 * GIGA))
    found = numa.calculate(ColocationStrategy(**STRATEGY, **strategy), situation, pods, TWO)
    assert tuple(each.cpu_milli for each in found.values()) == cpu
    assert tuple(each.memory_bytes // 10**6 for each in found.values()) == memory


def test_within_a_zone_a_pod_without_a_metric_counts_under_every_policy() -> None:
    strategy = ColocationStrategy(
        cpu_calculate_policy="maxUsageRequest", cpu_reclaim_threshold_percent=100, memory_reclaim_threshold_percent=100
    )
    assert numa.calculate(strategy, seen(), [record("p", (500, 0), numa_nodes=(1,))], HALF) == {
        0: Resources(1_000, GIGA),
        1: Resources(500, GIGA),
    }


@pytest.mark.parametrize(
    ("numa_nodes", "expected"), [((), (998, 998)), ((0,), (997, 1_000)), ((0, 1), (998, 998)), ((7,), (998, 998))]
)
def test_a_pod_takes_from_the_zones_it_is_bound_to_and_rounded_up(
    numa_nodes: tuple[int, ...], expected: tuple[int, int]
) -> None:
    found = numa.calculate(ALL, seen(), [record("p", (3, 0), numa_nodes=numa_nodes)], HALF)
    assert tuple(each.cpu_milli for each in found.values()) == expected


def test_bytes_are_divided_to_the_thousandth_before_they_are_rounded() -> None:
    pods = [record(f"p{n}", (0, 1)) for n in range(4)]
    found = numa.calculate(ALL, seen(), pods, HALF)
    assert [each.memory_bytes for each in found.values()] == [GIGA - 2, GIGA - 2]
    found = numa.calculate(ALL, seen(), pods[:3], HALF)
    assert [each.memory_bytes for each in found.values()] == [GIGA - 2, GIGA - 2]


def test_a_threshold_is_a_share_of_the_zone() -> None:
    strategy = ColocationStrategy(**STRATEGY, batch_cpu_threshold_percent=10)
    assert [each.cpu_milli for each in numa.calculate(strategy, seen(), [], TWO).values()] == [5_000, 5_000]


def test_a_node_without_zones_has_none() -> None:
    assert numa.calculate(ALL, seen(), [ANYWHERE], {}) == {}


@given(STRATEGIES, SITUATIONS, PODS)
def test_one_zone_that_is_the_whole_node_has_what_the_node_has_unless_a_pod_is_not_measured(
    strategy: ColocationStrategy, situation: NodeSituation, pods: list[PodRecord]
) -> None:
    assert situation.report is not None
    measured = [pod for pod in pods if pod.key in situation.report.pods]
    whole = batch.calculate(strategy, situation, Above.from_pods(measured))
    found = numa.calculate(strategy, situation, measured, {0: situation.capacity})
    assert found == {0: Resources(whole.cpu.result, whole.memory.result)}


@given(STRATEGIES, SITUATIONS, PODS)
def test_a_zone_never_has_less_than_nothing_nor_more_than_may_be_reclaimed_of_it(
    strategy: ColocationStrategy, situation: NodeSituation, pods: list[PodRecord]
) -> None:
    for zone, amount in numa.calculate(strategy, situation, pods, TWO).items():
        cpu, memory = TWO[zone]
        assert 0 <= amount.cpu_milli <= max(cpu, cpu * strategy.cpu_reclaim_threshold_percent // 100)
        assert 0 <= amount.memory_bytes <= max(memory, memory * strategy.memory_reclaim_threshold_percent // 100 + 1)
