"""Batch of a node: what each policy subtracts, and what must hold whatever the cluster says."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manager.nodeside.noderesource import batch
from manager.nodeside.noderesource.batch import Above
from manager.nodeside.noderesource.report import NodeReport, ReportedUsage
from manager.nodeside.noderesource.situation import NodeSituation
from manager.pods import PodRecord
from shared import names
from shared.api.colocation import ColocationStrategy
from shared.explanation import Explanation
from shared.names import PriorityClass, QoS
from shared.quantity import INT64_MAX, Resources
from tests.unit.manager.batches import GIGA, PODS, SITUATIONS, STRATEGIES, UPDATED, record, seen
from tests.unit.manager.sums import assert_sums_are_right

ALL = ColocationStrategy(cpu_reclaim_threshold_percent=100, memory_reclaim_threshold_percent=100)


def policy(name: str, **fields: Any) -> ColocationStrategy:
    """Both resources by one policy, of all there is."""
    return ColocationStrategy(
        cpu_reclaim_threshold_percent=100,
        memory_reclaim_threshold_percent=100,
        cpu_calculate_policy=name,
        memory_calculate_policy=name,
        **fields,
    )


def results(explained: Explanation) -> Resources:
    return Resources(explained.cpu.result, explained.memory.result)


def taken(strategy: ColocationStrategy, situation: NodeSituation, *pods: PodRecord) -> Resources:
    """What of a large node is not for Batch."""
    return situation.capacity.minus(results(batch.calculate(strategy, situation, Above.from_pods(pods))))


@pytest.mark.parametrize(
    ("pod", "used", "expected"),
    [
        (record("p", (10_000, 10 * GIGA)), (4_000, 20 * GIGA), (4_000, 20 * GIGA)),
        (record("p", (10_000, 10 * GIGA)), None, (10_000, 10 * GIGA)),
        (record("p", (10_000, 10 * GIGA), qos=QoS.LSE), (4_000, 4 * GIGA), (10_000, 4 * GIGA)),
        (record("p", (10_000, 10 * GIGA), qos=QoS.LSR), (4_000, 4 * GIGA), (4_000, 4 * GIGA)),
        (record("p", (10_000, 10 * GIGA), PriorityClass.MID), (4_000, 4 * GIGA), (4_000, 4 * GIGA)),
        (record("p", (10_000, 10 * GIGA), PriorityClass.BATCH), (4_000, 4 * GIGA), (0, 0)),
        (record("p", (10_000, 10 * GIGA), PriorityClass.FREE), None, (0, 0)),
        (record("p", (10_000, 10 * GIGA), active=False), None, (0, 0)),
    ],
)
def test_by_usage_a_pod_counts_for_what_it_uses(
    pod: PodRecord, used: tuple[int, int] | None, expected: tuple[int, int]
) -> None:
    assert taken(policy("usage"), seen(used={} if used is None else {"p": used}), pod) == expected


def test_by_usage_or_request_a_pod_counts_for_the_larger_once_its_usage_is_known() -> None:
    strategy = policy("maxUsageRequest")
    assert taken(strategy, seen(used={"p": (4_000, 20 * GIGA)}), record("p", (10_000, GIGA))) == (10_000, 20 * GIGA)
    assert taken(strategy, seen(), record("p", (10_000, GIGA))) == (0, 0)


def test_by_request_memory_is_what_is_neither_requested_nor_reserved() -> None:
    situation = seen(used={"p": (4_000, 20 * GIGA), "gone": (1_000, 5 * GIGA)}, system=(500, 9 * GIGA))
    assert taken(policy("request"), situation, record("p", (10_000, GIGA))).memory_bytes == GIGA
    reserving = msgspec.structs.replace(situation, reserved=Resources(0, 3 * GIGA))
    assert taken(policy("request"), reserving, record("p", (10_000, GIGA))).memory_bytes == 4 * GIGA


def test_cpu_knows_no_policy_of_requests() -> None:
    situation = seen(used={"p": (4_000, GIGA)})
    assert taken(policy("request"), situation, record("p", (10_000, GIGA))).cpu_milli == 4_000


@pytest.mark.parametrize(
    ("priority_class", "expected"), [("koord-prod", 500), ("koord-mid", 500), ("", 500), ("unheard-of", 500)]
)
def test_usage_of_a_pod_that_is_not_there_counts_by_the_class_it_was_reported_in(
    priority_class: str, expected: int
) -> None:
    situation = seen(used={"gone": (500, GIGA, priority_class)})
    assert taken(ALL, situation) == (expected, GIGA)
    assert taken(policy("maxUsageRequest"), situation) == (expected, GIGA)


@pytest.mark.parametrize("priority_class", ["koord-batch", "koord-free"])
def test_usage_below_batch_of_a_pod_that_is_not_there_is_no_matter(priority_class: str) -> None:
    assert taken(ALL, seen(used={"gone": (500, GIGA, priority_class)})) == (0, 0)


def test_a_finished_pod_that_was_just_measured_counts_as_one_that_is_not_there() -> None:
    situation = seen(used={"p": (500, GIGA, "koord-prod")})
    assert taken(ALL, situation, record("p", (10_000, GIGA), active=False)) == (500, GIGA)


@pytest.mark.parametrize(
    ("priority_class", "counts"), [("koord-prod", 1), ("koord-mid", 1), ("koord-batch", 0), ("koord-free", 0), ("", 0)]
)
def test_a_host_application_above_batch_counts_with_the_system(priority_class: str, counts: int) -> None:
    situation = seen(system=(1_000, GIGA), host_applications=[(500, GIGA, priority_class)])
    assert taken(ALL, situation) == (1_000 + counts * 500, GIGA + counts * GIGA)


def test_the_larger_of_reservation_and_system_usage_is_taken_for_each_resource() -> None:
    assert taken(ALL, seen(system=(1_000, 2 * GIGA), reserved=(3_000, GIGA))) == (3_000, 2 * GIGA)


def test_percentages_are_truncated_as_gos_are() -> None:
    situation = seen((101, 99))
    strategy = ColocationStrategy(
        cpu_reclaim_threshold_percent=71, memory_reclaim_threshold_percent=150, batch_memory_threshold_percent=57
    )
    explained = batch.calculate(strategy, situation, Above.from_pods(()))
    assert results(explained) == (101 - 29, 56)
    assert [term.value for term in explained.memory.terms if term.name == "safety_margin"] == [-49]


def test_a_node_without_a_report_has_what_its_pods_leave_by_their_requests() -> None:
    assert taken(ALL, msgspec.structs.replace(seen(), report=None), record("p", (1_000, GIGA))) == (1_000, GIGA)


def test_every_term_names_its_source_and_reported_ones_their_time() -> None:
    strategy = ColocationStrategy(batch_cpu_threshold_percent=10, memory_calculate_policy="request")
    explained = batch.calculate(strategy, seen(system=(7_000, 0)), Above.from_pods([record("p", (3_000, GIGA))]))
    assert [(term.name, term.value, term.unit) for term in explained.cpu.terms] == [
        ("capacity", 100_000, "milli"),
        ("safety_margin", 40_000, "milli"),
        ("reserved", 0, "milli"),
        ("system_usage", 7_000, "milli"),
        ("system_usage_or_reserved", 7_000, "milli"),
        ("pod_hp_used", 3_000, "milli"),
        ("uncapped", 50_000, "milli"),
        ("threshold", 10, "percent"),
        ("cap", 10_000, "milli"),
    ]
    assert (explained.cpu.bound, explained.cpu.result) == ("cap", 10_000)
    assert [term.name for term in explained.memory.terms] == ["capacity", "safety_margin", "reserved", "pod_hp_request"]
    assert explained.memory.bound == "request"
    assert all(term.source for term in (*explained.cpu.terms, *explained.memory.terms))
    timed = {term.name for term in explained.cpu.terms if term.time == UPDATED}
    assert timed == {"system_usage", "pod_hp_used"}


@pytest.mark.parametrize(
    ("strategy", "cpu", "memory"),
    [
        (
            {},
            "batchAllocatable[CPU(Milli-Core)]:49999 = nodeCapacity:100000 - nodeSafetyMargin:40000 - "
            "systemUsageOrNodeReserved:7000 - podHPUsed:3001",
            "batchAllocatable[Mem(GB)]:65 = nodeCapacity:120 - nodeSafetyMargin:42 - systemUsage:12 - podHPUsed:1",
        ),
        (
            {
                "cpu_calculate_policy": "maxUsageRequest",
                "memory_calculate_policy": "request",
                "batch_cpu_threshold_percent": 45,
                "batch_memory_threshold_percent": 100,
            },
            "batchAllocatable[CPU(Milli-Core)]:45000 = min(nodeCapacity:100000 * thresholdRatio:0.45, "
            "nodeCapacity:100000 - nodeSafetyMargin:40000 - systemUsageOrNodeReserved:7000 - podHPMaxUsedRequest:5000)",
            "batchAllocatable[Mem(GB)]:76 = min(nodeCapacity:120 * thresholdRatio:1, "
            "nodeCapacity:120 - nodeSafetyMargin:42 - nodeReserved:0 - podHPRequest:2)",
        ),
    ],
)
def test_the_messages_are_koordinators(strategy: dict[str, Any], cpu: str, memory: str) -> None:
    situation = seen(system=(7_000, 12 * GIGA), used={"p": (3_001, GIGA)})
    explained = batch.calculate(
        ColocationStrategy(**strategy), situation, Above.from_pods([record("p", (5_000, 2 * GIGA))])
    )
    assert batch.message(names.CPU, explained.cpu) == cpu
    assert batch.message(names.MEMORY, explained.memory) == memory
    assert batch.reason(explained) == f"{cpu}; {memory}"


def test_a_sum_that_whole_units_would_show_wrongly_has_as_many_decimals_as_make_it_right() -> None:
    capacity, reserved, used = 68_719_476_736, 2_100_000_000, 18_200_000_000
    situation = msgspec.structs.replace(
        seen(system=(0, reserved), used={"p": (0, used)}), capacity=Resources(16_000, capacity)
    )
    explained = batch.calculate(ColocationStrategy(), situation, Above.from_pods([record("p", (0, used))]))
    assert batch.message(names.MEMORY, explained.memory).endswith(
        "]:25 = nodeCapacity:69 - nodeSafetyMargin:25 - systemUsage:3 - podHPUsed:19"
    )
    assert batch.reason(explained).endswith(
        "]:24.37 = nodeCapacity:68.72 - nodeSafetyMargin:24.05 - systemUsage:2.10 - podHPUsed:18.20"
    )


@given(STRATEGIES, SITUATIONS, PODS)
def test_every_sum_of_a_reason_is_right_as_it_is_shown(
    strategy: ColocationStrategy, situation: NodeSituation, pods: list[PodRecord]
) -> None:
    explained = batch.calculate(strategy, situation, Above.from_pods(pods))
    assert_sums_are_right(batch.reason(explained))


@given(STRATEGIES, SITUATIONS, PODS)
def test_batch_is_an_amount_and_always_explained(
    strategy: ColocationStrategy, situation: NodeSituation, pods: list[PodRecord]
) -> None:
    explained = batch.calculate(strategy, situation, Above.from_pods(pods))
    for each, percent in (
        (explained.cpu, strategy.batch_cpu_threshold_percent),
        (explained.memory, strategy.batch_memory_threshold_percent),
    ):
        value = {term.name: term.value for term in each.terms}
        assert 0 <= each.result <= INT64_MAX
        assert each.result <= max(0, value["capacity"] - value["safety_margin"] - value["reserved"])
        assert percent is None or each.result <= value["cap"]
        assert each.bound in ("usage", "request", "maxUsageRequest", "cap")


@given(STRATEGIES, SITUATIONS, PODS, st.sampled_from(["a", "b", "c", "d"]), st.integers(1, 10**6))
def test_more_usage_never_leaves_more_to_batch(
    strategy: ColocationStrategy, situation: NodeSituation, pods: list[PodRecord], name: str, more: int
) -> None:
    before = results(batch.calculate(strategy, situation, Above.from_pods(pods)))
    report = situation.report
    assert report is not None
    for heavier in (_system(report, more), _pod(report, f"default/{name}", more)):
        after = results(
            batch.calculate(strategy, msgspec.structs.replace(situation, report=heavier), Above.from_pods(pods))
        )
        assert after.cpu_milli <= before.cpu_milli
        assert after.memory_bytes <= before.memory_bytes


@given(STRATEGIES, SITUATIONS, SITUATIONS, PODS)
def test_by_request_nothing_that_is_measured_matters(
    strategy: ColocationStrategy, situation: NodeSituation, other: NodeSituation, pods: list[PodRecord]
) -> None:
    by_request = policy("request", batch_memory_threshold_percent=strategy.batch_memory_threshold_percent)
    elsewhere = msgspec.structs.replace(situation, report=other.report)
    assert (
        batch.calculate(by_request, situation, Above.from_pods(pods)).memory.result
        == batch.calculate(by_request, elsewhere, Above.from_pods(pods)).memory.result
    )


@pytest.mark.parametrize(
    ("system", "results"),
    [
        ((1000, None), (59_000, 0)),
        ((None, GIGA), (0, 77 * GIGA)),
        ((1000, GIGA), (59_000, 77 * GIGA)),
    ],
)
def test_a_resource_whose_system_usage_is_not_reported_is_not_offered_and_the_other_one_is(
    system: tuple[int | None, int | None], results: tuple[int, int]
) -> None:
    known = seen()
    assert known.report is not None
    partly = msgspec.structs.replace(known, report=msgspec.structs.replace(known.report, system_usage=system))
    explained = batch.calculate(ColocationStrategy(), partly, Above.from_pods(()))
    assert (explained.cpu.result, explained.memory.result) == results
    assert ("lacks cpu" in batch.reason(explained), "lacks memory" in batch.reason(explained)) == (
        system[0] is None,
        system[1] is None,
    )


def _system(report: NodeReport, more: int) -> NodeReport:
    cpu, memory = report.system_usage
    heavier = (cpu or 0) + more, (memory or 0) + more
    return NodeReport(report.name, "", "", report.spec, system_usage=heavier, pods=report.pods)


def _pod(report: NodeReport, key: str, more: int) -> NodeReport:
    """A usage that is known already grows: one that gets known may be less than the request that stood in for it."""
    known = report.pods.get(key)
    if known is None:
        return report
    heavier = {**report.pods, key: ReportedUsage(known.priority_class, *known.usage.plus(Resources(more, more)))}
    return NodeReport(report.name, "", "", report.spec, system_usage=report.system_usage, pods=heavier)


@pytest.mark.parametrize(
    ("reported", "by_usage", "by_most"),
    [
        ((100, 5 * GIGA), (100, 5 * GIGA), (1000, 5 * GIGA)),
        ((None, 5 * GIGA), (1000, 5 * GIGA), (1000, 5 * GIGA)),
        ((100, None), (100, 2 * GIGA), (1000, 2 * GIGA)),
        ((None, None), (1000, 2 * GIGA), (1000, 2 * GIGA)),
    ],
)
def test_a_resource_that_is_not_reported_of_a_pod_counts_as_used_as_it_is_requested(
    reported: tuple[int | None, int | None], by_usage: tuple[int, int], by_most: tuple[int, int]
) -> None:
    above = Above((("default/p", 1000, 2 * GIGA, False),), Resources(1000, 2 * GIGA), frozenset({"default/p"}))
    usages = {"default/p": ReportedUsage("koord-prod", *reported)}
    assert (batch.used(above, usages), batch.most(above, usages)) == (by_usage, by_most)


def test_a_resource_that_is_not_reported_of_a_host_application_above_batch_is_not_offered() -> None:
    known = seen()
    assert known.report is not None
    for of, results in (("koord-prod", (59_000, 0)), ("koord-batch", (59_000, 77 * GIGA))):
        report = msgspec.structs.replace(
            known.report, system_usage=(1000, GIGA), host_applications=(ReportedUsage(of, 0, None),)
        )
        explained = batch.calculate(
            ColocationStrategy(), msgspec.structs.replace(known, report=report), Above.from_pods(())
        )
        assert (explained.cpu.result, explained.memory.result) == results
