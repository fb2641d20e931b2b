"""A Node shows what its pods hold, and no tenant decides what that is: kubelet's admission and the past offer do."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manager.nodeside.eviction import shortfall
from manager.nodeside.eviction.shortfall import Cause
from manager.nodeside.noderesource import explain, holdings, situation
from manager.nodeside.noderesource.explain import Known
from manager.nodeside.noderesource.report import read
from manager.pods import NOTHING, NodeRequests, PodRecord, record
from shared import names
from shared.api.core import Node, PodStatus
from shared.names import Tier
from shared.quantity import Resources
from tests.unit.manager.objects import GIB, NOW, enabled, metric, node, pod
from tests.unit.manager.shortfalls import mid_pod

AMOUNTS = st.builds(Resources, st.integers(0, 2_000_000), st.integers(0, 1 << 50))
REQUESTED = NodeRequests(Resources(5000, 50 * GIB), Resources(5000, 50 * GIB))
CAPACITY = Resources(10_000, 100 * GIB)
THIEF = mid_pod("thief", 1_000_000, 1 << 40, phase="Pending", priority=None)


def showing(cpu_milli: int, memory_bytes: int = 10 * GIB) -> Node:
    return node(mid={names.MID_CPU: str(cpu_milli), names.MID_MEMORY: str(memory_bytes)})


def waiting(name: str, cpu_milli: int, created_at: str = "2023-11-14T22:13:20Z") -> PodRecord:
    return mid_pod(name, cpu_milli, 1, phase="Pending", creation_timestamp=created_at)


RUNNING = mid_pod("running", 300, 1)


@pytest.mark.parametrize(
    ("pods", "shown", "floor", "beyond"),
    [
        ([RUNNING], 100, 300, []),  # admitted before the Node shrank
        ([RUNNING, waiting("fits", 100)], 400, 400, []),
        ([RUNNING, waiting("too-much", 101)], 400, 300, ["too-much"]),
        ([RUNNING, THIEF], 400, 300, ["thief"]),
        ([RUNNING, THIEF, waiting("fits", 100)], 400, 400, ["thief"]),
        ([THIEF], 0, 0, ["thief"]),
        ([waiting("late", 300, "2023-11-14T23:00:00Z"), waiting("early", 300)], 400, 300, ["late"]),
        ([mid_pod("a", 9000, 1), mid_pod("b", 9000, 1)], 400, 10_000, []),
        ([waiting("more-than-the-node", 11_000)], 1_000_000, 0, ["more-than-the-node"]),
        ([mid_pod("done", 300, 1, phase="Failed")], 400, 0, []),
    ],
)
def test_an_admitted_pod_counts_up_to_capacity_and_another_if_it_fits_into_what_was_on_offer(
    pods: list[PodRecord], shown: int, floor: int, beyond: list[str]
) -> None:
    there = showing(shown)
    found = holdings.find(there, pods, situation.facts(there))[Tier.MID]
    assert found.floor.cpu_milli == floor
    assert [each.key for each in found.beyond] == [f"default/{name}" for name in beyond]


@pytest.mark.parametrize(
    ("status", "admitted"),
    [
        ({"phase": "Pending"}, False),
        # As a kubelet reports it that starts, before it refuses the pod.
        ({"phase": "Pending", "startTime": "2023-11-14T22:13:20Z", "observedGeneration": 1}, False),
        ({"phase": "Pending", "containerStatuses": [{"name": "c"}]}, True),
        ({"phase": "Pending", "initContainerStatuses": [{"name": "i"}]}, True),
        ({"phase": "Running"}, True),
    ],
)
def test_a_pod_is_admitted_once_its_kubelet_reports_its_containers(status: dict[str, Any], admitted: bool) -> None:
    bound = pod(phase="Pending")
    reported = msgspec.structs.replace(bound, status=msgspec.convert(status, PodStatus))
    assert record(reported).admitted is admitted


def test_a_pod_that_was_bound_by_what_the_node_showed_before_a_write_counts() -> None:
    there, racing = showing(100), waiting("racing", 600)
    facts = situation.facts(there)
    assert holdings.find(there, [racing], facts, {Tier.MID: Resources(700, GIB)})[Tier.MID].floor.cpu_milli == 600
    assert holdings.find(there, [racing], facts, {Tier.MID: Resources(500, GIB)})[Tier.MID].floor == NOTHING


def test_where_the_capacity_is_unknown_the_node_is_never_raised() -> None:
    assert holdings.find(showing(400), [mid_pod("a", 900, 1)], None)[Tier.MID].floor == Resources(400, 1)


def test_batch_counts_up_to_the_nodes_cores() -> None:
    held = record(pod(requests={names.BATCH_CPU: "15000"}))
    assert holdings.find(node(), [held], situation.facts(node()))[Tier.BATCH].floor.cpu_milli == 10_000


@given(
    st.lists(st.tuples(AMOUNTS, st.booleans()), max_size=6),
    AMOUNTS,
)
def test_no_pods_bring_a_node_above_its_capacity_nor_unadmitted_ones_above_its_offer(
    asked: list[tuple[Resources, bool]], shown: Resources
) -> None:
    pods = [
        mid_pod(str(number), *amount, phase="Running" if admitted else "Pending")
        for number, (amount, admitted) in enumerate(asked)
    ]
    there = showing(*shown)
    found = holdings.find(there, pods, situation.facts(there))[Tier.MID]
    admitted = Resources(*(sum(amount[at] for amount, runs in asked if runs) for at in range(2)))
    assert min(CAPACITY.minus(found.floor)) >= 0
    assert min(admitted.most(shown.least(CAPACITY)).minus(found.held)) >= 0
    assert min(found.floor.minus(admitted.least(CAPACITY))) >= 0


def test_a_pod_that_counts_for_nothing_changes_no_offer_and_evicts_nobody() -> None:
    there, others = showing(2000), [mid_pod("a", 1500, GIB)]
    reported = read(metric(reclaimable={"cpu": "2", "memory": "10Gi"}))

    def decided(pods: list[PodRecord]) -> explain.Decision:
        return explain.decide(there, reported, Known.from_pods(there, REQUESTED, pods), enabled(), NOW)

    without, with_thief = decided(others), decided([*others, THIEF])
    assert with_thief.offers[Tier.MID].shown == without.offers[Tier.MID].shown == Resources(2000, 10 * GIB)
    found = shortfall.find(with_thief, [*others, THIEF])[Tier.MID]
    assert (found.cause, found.missing, found.pods) == (Cause.BEYOND, NOTHING, ())
    assert "default/thief (cpu 1000 and memory 1024.00 GiB)" in found.reason
    assert shortfall.find(without, others) == {}


def test_a_real_shortfall_beside_it_has_only_its_own_pods_go() -> None:
    there, others = showing(2000), [mid_pod("a", 800, 1, priority=9), mid_pod("b", 800, 1, priority=1)]
    reported = read(metric(reclaimable={"cpu": "1", "memory": "10Gi"}))
    known = Known.from_pods(there, REQUESTED, [*others, THIEF])
    found = shortfall.find(explain.decide(there, reported, known, enabled(mid_buffer="off"), NOW), [*others, THIEF])
    short = found[Tier.MID]
    assert (short.cause, short.missing) == (Cause.SHRUNK, Resources(600, 0))
    assert [each.key for each in short.pods] == ["default/b"]
    assert short.reason.endswith("until their kubelet admits them: default/thief (cpu 1000 and memory 1024.00 GiB)")
