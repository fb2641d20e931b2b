"""What the cluster cost in the last day is remembered, and a round that counted nothing is a gap."""

from dataclasses import replace

import msgspec

from manager import trends
from manager.autoscaler.cluster_state.cost import Cost
from manager.autoscaler.reporting.cost_trend import CostHistory, CostTrend
from shared import durations
from shared.clock import ManualClock
from tests.support import schemas
from tests.unit.manager.objects import NOW
from tests.unit.manager.rounds import held, two_groups

COST = Cost(total=4.9, idle=1.73, offered=1.14, used=0.02)


def test_the_cost_of_each_round_is_told_with_its_time_and_what_was_not_bought() -> None:
    clock = ManualClock(NOW)
    trend = CostTrend(clock)
    trend.note(replace(two_groups(), cost=COST))
    clock.advance(trends.FIRST_INTERVAL_SECONDS)
    trend.note(held("the API server does not answer"))
    clock.advance(trends.FIRST_INTERVAL_SECONDS)
    trend.note(replace(two_groups(), cost=replace(COST, total=5.2, used=0.3)))
    found = trend.answer()
    assert found == CostHistory(
        [durations.timestamp(NOW + seconds) for seconds in (0, 20, 40)],
        total=[4.9, None, 5.2],
        idle=[1.73, None, 1.73],
        offered=[1.14, None, 1.14],
        used=[0.02, None, 0.3],
    )
    assert list(schemas.problems(msgspec.to_builtins(found), schemas.published("costs"))) == []


def test_rounds_come_faster_than_samples_and_a_day_stays_bounded() -> None:
    clock = ManualClock(NOW)
    trend = CostTrend(clock)
    made = replace(two_groups(), cost=COST)
    for _ in range(10_000):
        trend.note(made)
        clock.advance(10.0)
    found = trend.answer()
    assert len(found.times) == len(found.total) <= trends.SAMPLES
    assert set(found.total) == {4.9}
    assert durations.instant(found.times[0]) < clock.now() - 86_400


def test_before_the_first_round_nothing_is_known() -> None:
    assert CostTrend(ManualClock(NOW)).answer() == CostHistory([], [], [], [], [])


def test_the_published_schema_is_that_of_the_answer() -> None:
    assert schemas.published("costs") == msgspec.json.schema(CostHistory)
