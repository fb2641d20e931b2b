"""Disruption budgets of consolidation: how many nodes may go, when, and which texts are refused."""

import datetime as dt
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manager.autoscaler import decision_settings
from manager.autoscaler.cloudprovider.contract import Group
from manager.autoscaler.cluster_state.replacement import DisruptionReason
from manager.autoscaler.disruption import schedule
from manager.autoscaler.disruption.disruption_limits import (
    Allowed,
    DisruptionAllowance,
    DisruptionLimits,
    allowance,
    allowed_nodes,
    empty_node_limits,
    parse_limit,
    parse_limits,
)
from manager.autoscaler.disruption.schedule import BadSchedule
from manager.autoscaler.scale_down.scale_down_context import EmptyNodeLimit, ScaleDownContext, ShrinkingGroup
from manager.autoscaler.settings.autoscaler_settings import AutoscalerSettings
from manager.autoscaler.snapshot.cluster import NodeInfo, NodeState
from shared.errors import InvalidInput
from tests.support.properties import examples

MONDAY = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
DAY = 86_400.0


def at(day: int, hour: int, minute: int = 0) -> float:
    """So many days after a Monday, in Unix seconds."""
    return (MONDAY + dt.timedelta(days=day, hours=hour, minutes=minute)).timestamp()


def allowed(
    texts: list[str],
    total: int = 10,
    unavailable: int = 0,
    now: float = at(0, 12),
    reason: DisruptionReason = DisruptionReason.UNDERUTILIZED,
) -> Allowed:
    limits = [parse_limit(each, source="flags", name="b") for each in texts]
    return allowed_nodes(limits, total, unavailable, now, reason)


@pytest.mark.parametrize(
    ("texts", "total", "unavailable", "nodes"),
    [
        ([], 7, 0, 7),
        (["10%"], 100, 0, 10),
        (["10%"], 1, 0, 1),  # percentages round up
        (["10%"], 11, 0, 2),
        (["10%"], 0, 0, 0),
        (["0%"], 100, 0, 0),
        (["3", "50%"], 10, 0, 3),
        (["3", "10%"], 10, 0, 1),
        (["3"], 10, 2, 1),
        (["3"], 10, 5, 0),
        (["0;reasons=Empty+Drifted"], 10, 0, 10),
        (["0;reasons=drifted+Underutilized"], 10, 0, 0),
    ],
)
def test_the_smallest_limit_counts_less_the_nodes_that_are_away(
    texts: list[str], total: int, unavailable: int, nodes: int
) -> None:
    assert allowed(texts, total, unavailable).nodes == nodes


@pytest.mark.parametrize("reason", DisruptionReason)
def test_a_limit_with_reasons_holds_for_these_alone(reason: DisruptionReason) -> None:
    found = allowed(["0;reasons=Expired+Unhealthy", "4"], reason=reason)
    assert found.nodes == (0 if reason in (DisruptionReason.EXPIRED, DisruptionReason.UNHEALTHY) else 4)


def test_the_limit_that_decides_is_named() -> None:
    assert allowed(["50%", "2"]) == Allowed(2, "2")


@pytest.mark.parametrize(
    ("text", "now", "holds"),
    [
        ("0 8 * * mon-fri;duration=10h", at(0, 8), True),
        ("0 8 * * mon-fri;duration=10h", at(0, 7, 59), False),
        ("0 8 * * mon-fri;duration=10h", at(0, 17, 59), True),
        ("0 8 * * mon-fri;duration=10h", at(0, 18), False),
        ("0 8 * * mon-fri;duration=10h", at(5, 12), False),
        ("0 22 * * 5;duration=56h", at(6, 12), True),  # from Friday night on
        ("0 22 * * fri;duration=56h", at(7, 6), False),
        ("@daily;duration=1h", at(3, 0, 30), True),
        ("@daily;duration=1h", at(3, 1), False),
        ("*/15 * * * *;duration=5m", at(3, 1, 34), True),
        ("*/15 * * * *;duration=5m", at(3, 1, 35), False),
        ("0 0 1 * *;duration=24h", at(31, 12), True),  # the first of February
        ("0 0 1 * *;duration=24h", at(32, 12), False),
        ("0 0 13 * 0;duration=24h", at(6, 12), True),  # a Sunday, or the 13th, as in cron
        ("0 0 13 * 7;duration=24h", at(12, 12), True),
        ("0 0 13 * sun;duration=24h", at(11, 12), False),
        ("30 4-6/2 * jan,mar *;duration=10m", at(0, 6, 35), True),
        ("30 4-6/2 * jan,mar *;duration=10m", at(0, 5, 35), False),
        ("30 4-6/2 * feb,mar *;duration=10m", at(0, 6, 35), False),
    ],
)
def test_a_schedule_is_read_in_utc_and_holds_for_its_duration(text: str, now: float, holds: bool) -> None:
    assert allowed([f"0;schedule={text}"], now=now).nodes == (0 if holds else 10)


@examples(200)
@given(
    st.sets(st.integers(0, 59), min_size=1, max_size=3),
    st.sets(st.integers(0, 23), min_size=1, max_size=3),
    st.integers(1, 3 * 24 * 60),
    st.integers(0, 5 * 24 * 60),
)
def test_a_schedule_began_when_a_walk_back_through_the_minutes_says(
    minutes: set[int], hours: set[int], duration: int, now: int
) -> None:
    text = f"{','.join(map(str, minutes))} {','.join(map(str, hours))} * * *"
    moment = at(30, 0, now)
    walked = (moment - 60 * back for back in range(duration))
    expected = next(
        (each for each in walked if int(each // 60 % 60) in minutes and int(each // 3600 % 24) in hours), None
    )
    assert schedule.parse(text).began(moment, 60.0 * duration) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "fields"),
        ("* * * *", "it has 4 fields"),
        ("60 * * * *", "'60' is no minute from 0 to 59"),
        ("* 24 * * *", "'24' is no hour"),
        ("* * 0 * *", "'0' is no day of month"),
        ("* * * nov-feb *", "ends before it begins"),
        ("* * * * yes", "'yes' is no day of week"),
        ("*/0 * * * *", "a step of 0"),
        ("1, * * * *", "is no value of its minute"),
        ("@noon", "is none of"),
    ],
)
def test_a_bad_schedule_says_what_is_wrong_with_it(text: str, problem: str) -> None:
    with pytest.raises(BadSchedule, match=problem):
        schedule.parse(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "begins with a number"),
        ("half", "begins with a number"),
        ("-1", "begins with a number"),
        ("101%", "more than 100 percent"),
        ("1;schedule=@daily", "schedule and duration go together"),
        ("1;duration=1h", "schedule and duration go together"),
        ("1;schedule=61 * * * *;duration=1h", "'61' is no minute"),
        ("1;schedule=@daily;duration=soon", "not a duration"),
        ("1;schedule=@daily;duration=30s", "is not from 1m"),
        ("1;schedule=@daily;schedule=@daily;duration=1h", "at most once"),
        ("1;when=never", "is none of schedule"),
        ("1;reasons=Tired", "reason 'tired' is none of"),
    ],
)
def test_a_bad_budget_is_refused_with_field_and_value_even_where_nothing_is_replaced(text: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem) as refused:
        decision_settings.load(AutoscalerSettings(disruption_budgets=("10%", text)))
    assert (refused.value.field, refused.value.value) == ("disruption-budgets", text)


def three_groups(*limits: str, **own: tuple[str, ...]) -> tuple[ScaleDownContext, DisruptionLimits]:
    """Groups of ten nodes: a and b, and c, of which three are not ready."""
    nodes = [
        NodeInfo(f"{group}{number}", state=NodeState.UNREADY if group == "c" and number < 3 else NodeState.READY)
        for group in "abc"
        for number in range(10)
    ]
    groups = {group: ShrinkingGroup(Group(group, 0, 10, 10)) for group in "abc"}
    inputs = ScaleDownContext(at(0, 12), nodes, groups=groups, group_of={node.name: node.name[0] for node in nodes})
    parsed = {group: parse_limits(texts, source="f", name="b") for group, texts in own.items()}
    return inputs, DisruptionLimits(parse_limits(limits, source="f", name="b"), parsed)


def test_a_group_with_limits_of_its_own_has_these_over_its_nodes_and_the_others_share_theirs() -> None:
    found = allowance(*three_groups("20%", c=("5",), b=()), DisruptionReason.UNDERUTILIZED)
    assert found == DisruptionAllowance(Allowed(2, "20%"), {"c": Allowed(2, "5"), "b": Allowed(10)})
    assert [found.of_group(group).nodes for group in "abc"] == [2, 10, 2]


def test_nodes_are_taken_in_order_as_far_as_each_limit_goes() -> None:
    limits = DisruptionAllowance(Allowed(1), {"c": Allowed(2), "d": Allowed(0)})
    assert limits.cropped(["a1", "b1", "c1", "c2", "c3", "d1", "a2"], lambda name: name[0]) == ["a1", "c1", "c2"]


def test_only_limits_that_name_empty_nodes_govern_their_removal() -> None:
    assert empty_node_limits(*three_groups("0", "0;reasons=Drifted")) == ()
    assert empty_node_limits(*three_groups("8;reasons=Empty", "0")) == (
        EmptyNodeLimit(frozenset("abc"), 5, "8;reasons=Empty"),
    )
    closed = "0;reasons=Empty+Drifted;schedule=0 8 * * *;duration=10h"
    assert empty_node_limits(*three_groups("1;reasons=Empty", a=(closed,), b=("9",))) == (
        EmptyNodeLimit(frozenset("c"), 0, "1;reasons=Empty"),
        EmptyNodeLimit(frozenset("a"), 0, closed),
    )
    assert empty_node_limits(*three_groups(closed.replace("0 8", "0 18"))) == (), "it is not active now"


def test_consolidation_is_off_unless_it_is_asked_for() -> None:
    assert decision_settings.load(AutoscalerSettings()).consolidation is None
    found = decision_settings.load(AutoscalerSettings(consolidation="price", disruption_budgets=("20%", "3")))
    assert found.consolidation is not None
    assert [each.text for each in found.disruption.limits.shared] == ["20%", "3"]
    assert found.consolidation.consolidation_balance == 0.5


@pytest.mark.parametrize("more", [{"scale_down_enabled": False}, {"prices": "none", "expander": "random"}])
def test_consolidation_without_scale_down_or_prices_is_refused(more: dict[str, Any]) -> None:
    settings = AutoscalerSettings(consolidation="price", **more)
    with pytest.raises(InvalidInput) as refused:
        decision_settings.load(settings)
    assert (refused.value.field, refused.value.value) == ("consolidation", "price")


def test_days_are_told_apart_by_their_dates() -> None:
    starts = [schedule.parse("@daily").began(at(day, 12), DAY) for day in range(5)]
    assert all(
        later is not None and earlier is not None and later - earlier == DAY for earlier, later in pairwise(starts)
    )
