"""A tier is short when its pods hold more than there is, and the least set of pods goes, lowest priority first."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manager.nodeside.eviction import shortfall
from manager.nodeside.eviction.shortfall import Cause, Shortfall
from manager.nodeside.noderesource import explain
from manager.nodeside.noderesource.explain import Decision
from manager.pods import PodRecord, record
from shared import names
from shared.api.meta import OwnerReference
from shared.names import Tier
from shared.quantity import Resources
from tests.unit.manager.objects import pod
from tests.unit.manager.shortfalls import GIB, decision, mid_pod


def of(decided: Decision, *pods: PodRecord) -> Shortfall | None:
    return shortfall.find(decided, pods).get(Tier.MID)


def going(decided: Decision, *pods: PodRecord) -> list[str]:
    found = of(decided, *pods)
    return [] if found is None else [each.key.removeprefix("default/") for each in found.pods]


def test_what_pods_hold_beyond_what_there_is_is_missing() -> None:
    found = of(decision(2500), mid_pod("a"), mid_pod("b", priority=7100), mid_pod("c", 2000))
    assert found is not None
    assert (found.cause, found.held, found.missing) == (Cause.SHRUNK, Resources(4000, 3 * GIB), Resources(1500, 0))
    assert found.reason == (
        "pods request cpu 4 and memory 3.00 GiB, the node can offer cpu 2500m and memory 100.00 GiB: "
        "cpu 1500m is missing; "
        "in eviction order: default/b (priority 7100), default/a (priority 7500)"
    )


def test_who_holds_of_a_tier_without_being_of_its_class_is_short_with_the_others() -> None:
    found = of(decision(1500), mid_pod("a"), mid_pod("classless", priority=None))
    assert found is not None
    assert (found.held, found.missing) == (Resources(2000, 2 * GIB), Resources(500, 0))


def test_nothing_is_missing_where_enough_is_held_back_or_less_than_a_hundredth_lacks() -> None:
    assert of(decision(900, held_back=Resources(100, 0)), mid_pod("a")) is None
    assert of(decision(990), mid_pod("a")) is None
    assert of(decision(989), mid_pod("a")) is not None
    assert of(decision(0)) is None


def test_only_pods_that_run_and_stay_hold_anything() -> None:
    leaving = mid_pod("a", deletion_timestamp="2023-11-14T22:13:20Z")
    assert of(decision(0), leaving, mid_pod("b", phase="Succeeded")) is None
    assert of(decision(0), record(pod("prod", priority=9500))) is None
    assert of(decision(0), mid_pod("c", phase="Pending")) is not None


def test_what_is_not_decided_is_no_shortfall_and_what_is_not_known_evicts_nobody() -> None:
    held = mid_pod("a")
    assert of(decision(None, bound=explain.UNDECIDED, hold=True), held) is None
    for bound in (explain.STALE, explain.UNREADABLE, explain.FAILED):
        unknown = of(decision(None, bound=bound), held)
        assert unknown is not None
        assert (unknown.cause, unknown.there_is, unknown.pods) == (Cause.UNKNOWN, None, ())
    disabled = of(decision(None, bound=explain.DISABLED), held)
    assert disabled is not None
    assert (disabled.cause, disabled.missing) == (Cause.DISABLED, Resources(1000, GIB))


def labelled(priority: str) -> dict[str, str]:
    return {names.LABEL_PRIORITY: priority}


def annotated(priority: str) -> dict[str, str]:
    return {names.ANNOTATION_EVICTION_PRIORITY: priority}


ORDERED = [
    mid_pod("eviction-priority-first", priority=7900, annotations=annotated("-5")),
    mid_pod("low", priority=7001),
    mid_pod("low-label", priority=7500, labels=labelled("-1")),
    mid_pod("uses-more", priority=7500),
    mid_pod("uses-less", priority=7500),
    mid_pod("young", priority=7500, creation_timestamp="2023-11-14T22:00:00Z"),
    mid_pod("no-number", priority=7500, creation_timestamp="2023-11-14T21:00:00Z", labels=labelled("high")),
    mid_pod("old", priority=7500, creation_timestamp="2023-11-14T20:00:00Z"),
    mid_pod("high-label", priority=7500, labels=labelled("10")),
    mid_pod("high", priority=7999),
    mid_pod("eviction-priority-last", priority=7000, annotations=annotated("5")),
]
USAGES = {"default/uses-more": Resources(900, 0), "default/uses-less": Resources(100, GIB)}


@pytest.mark.parametrize("seed", range(5))
def test_pods_go_by_koordinators_order(seed: int) -> None:
    shuffled = random.Random(seed).sample(ORDERED, len(ORDERED))
    expected = [each.key.removeprefix("default/") for each in ORDERED]
    assert going(decision(0, usages=USAGES), *shuffled) == expected


def test_whom_it_would_not_help_to_evict_stays() -> None:
    small, large = mid_pod("small", 100, priority=7000), mid_pod("large", 1000, priority=7900)
    assert going(decision(1000), small, large) == ["small"]
    assert going(decision(100), small, large) == ["large"]
    only_memory = mid_pod("memory", 0, 4 * GIB, priority=7000)
    assert going(decision(0), only_memory, large) == ["large"]


OF_A_DAEMON = (OwnerReference("apps/v1", "DaemonSet", "d", "u", controller=True),)


@pytest.mark.parametrize(
    "metadata",
    [
        {"owner_references": OF_A_DAEMON},
        {"owner_references": (OwnerReference("v1", "Node", "n1", "u", controller=True),)},
        {"annotations": {"kubernetes.io/config.mirror": "hash"}},
        {"labels": {names.LABEL_EVICTION_ENABLED: "false"}},
    ],
)
def test_pods_of_the_node_itself_and_those_that_forbid_it_never_go(metadata: dict[str, Any]) -> None:
    bound = mid_pod("bound", priority=7000, **metadata)
    assert going(decision(1000), bound, mid_pod("free")) == ["free"]
    found = of(decision(0), bound)
    assert found is not None
    assert found.reason.endswith("; no pod may be evicted")


def test_spared_pods_leave_their_turn_to_others() -> None:
    pods = [mid_pod("first", priority=7000), mid_pod("second", priority=7100)]
    found = shortfall.find(decision(1000), pods, spared={"uid-first"})[Tier.MID]
    assert [each.uid for each in found.pods] == ["uid-second"]


# Of sums below a hundred, the tolerance is less than one.
AMOUNTS = st.builds(Resources, st.integers(0, 19), st.integers(0, 19))
PODS = st.lists(st.tuples(AMOUNTS, st.integers(7000, 7005), st.booleans()), max_size=5).map(
    lambda drawn: [
        mid_pod(
            f"p{index}",
            *held,
            priority=priority,
            labels=None if evictable else {names.LABEL_EVICTION_ENABLED: "false"},
        )
        for index, (held, priority, evictable) in enumerate(drawn)
    ]
)


@given(PODS, AMOUNTS)
def test_without_the_pods_that_go_nothing_is_missing_and_none_of_them_can_be_spared(
    pods: list[PodRecord], there_is: Resources
) -> None:
    decided = decision(*there_is)
    found = of(decided, *pods)
    if found is None:
        return
    staying = [each for each in pods if each not in found.pods]
    left = of(decided, *staying)
    if left is not None:
        assert left.pods == ()  # whoever could be evicted for it is
    for spared in found.pods:
        again = of(decided, *staying, spared)
        assert again is not None
        assert left is None or max(again.missing.minus(left.missing)) > 0


@given(PODS, AMOUNTS)
def test_lower_priorities_go_first_and_the_rest_stays_as_planned_after_each_eviction(
    pods: list[PodRecord], there_is: Resources
) -> None:
    decided = decision(*there_is)
    found = of(decided, *pods)
    planned = [] if found is None else list(found.pods)
    assert [each.priority for each in planned] == sorted(each.priority for each in planned)
    while planned:
        pods = [each for each in pods if each is not planned[0]]
        del planned[0]
        next_found = of(decided, *pods)
        assert (next_found is None and not planned) or (next_found is not None and list(next_found.pods) == planned)
