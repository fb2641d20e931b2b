"""The last day of nodes: whole, bounded, and honest about what was not known."""

import itertools

import pytest

from manager import trends
from manager.nodeside import node_trends
from manager.nodeside.node_trends import NodeAmounts, NodeTrends
from shared import durations
from shared.clock import ManualClock
from shared.quantity import Resources
from tests.unit.manager.objects import GIB, NOW

ROW = NodeAmounts(
    used=Resources(500, 3 * GIB),
    requested=Resources(2000, GIB),
    predicted_peak=None,
    mid=Resources(),
    prod_used=None,
)


class Town:
    def __init__(self, **rows: NodeAmounts) -> None:
        self.rows = dict(rows)
        self.clock = ManualClock(NOW)
        self.trends = NodeTrends(lambda: self.rows, self.clock)

    def live(self, seconds: float) -> None:
        for _ in range(int(seconds / trends.FIRST_INTERVAL_SECONDS)):
            self.trends.record()
            self.clock.advance(trends.FIRST_INTERVAL_SECONDS)


def test_a_day_is_kept_whole_in_as_many_samples_as_there_is_room_for() -> None:
    town = Town(a=ROW)
    for hours in (0.5, 5, 30, 60):
        town.live(3600 * hours)
        found = town.trends.answer("a")
        assert 0.45 * trends.SAMPLES < len(found.times) <= trends.SAMPLES
        assert found.used.cpu_milli == [500] * len(found.times)
        times = [durations.instant(time) for time in found.times]
        gaps = {round(later - earlier) for earlier, later in itertools.pairwise(times)}
        assert max(gaps) <= 1.1 * min(gaps)
        assert town.clock.now() - times[-1] <= max(gaps)
    assert times[0] < town.clock.now() - 86_400
    assert min(gaps) == trends.LAST_INTERVAL_SECONDS


def test_samples_keep_their_times_while_others_go() -> None:
    town = Town(a=ROW)
    for _ in range(5 * trends.SAMPLES):
        minutes = round(town.clock.now() - NOW) // 60
        town.rows["a"] = ROW._replace(used=Resources(minutes, GIB))
        town.live(trends.FIRST_INTERVAL_SECONDS)
    found = town.trends.answer()
    assert found.used.cpu_milli == [round(durations.instant(time) - NOW) // 60 for time in found.times]


def test_what_was_not_known_is_null_and_sums_leave_it_out() -> None:
    town = Town(a=ROW, b=ROW._replace(used=None))
    town.live(20)
    town.rows["b"] = ROW._replace(predicted_peak=Resources(900, GIB))
    town.live(20)
    assert town.trends.answer("b").used.cpu_milli == [None, 500]
    assert town.trends.answer().used.cpu_milli == [500, 1000]
    assert town.trends.answer().predicted_peak.memory_bytes == [None, GIB]


def test_a_node_that_comes_later_has_a_gap_and_one_that_is_gone_no_trend() -> None:
    town = Town(a=ROW)
    town.live(20)
    town.rows = {"b": ROW}
    town.live(20)
    assert town.trends.answer("b").mid.cpu_milli == [None, 0]
    assert town.trends.answer("a").requested.cpu_milli == [None, None]


def test_a_clock_that_is_set_back_begins_anew() -> None:
    town = Town(a=ROW)
    town.live(600)
    town.clock.jump(-3600)
    begun = town.clock.now()
    town.live(20)
    assert town.trends.answer().times == [durations.timestamp(begun)]


def test_of_very_many_nodes_there_are_sums_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_trends, "MOST_NODES", 1)
    town = Town(a=ROW, b=ROW)
    town.live(20)
    assert town.trends.answer().used.cpu_milli == [1000]
    assert town.trends.answer("a").used.cpu_milli == [None]


def test_sparklines_are_few_samples_of_the_nodes_asked_for_up_to_the_newest() -> None:
    town = Town(a=ROW, b=ROW)
    for rounds in (1, 47, 1, 60, 200):
        town.live(rounds * trends.FIRST_INTERVAL_SECONDS)
        found, whole = town.trends.sparklines(["b", "nowhere"]), town.trends.answer("b")
        assert found.nodes.keys() == {"b"}
        assert found.times[-1] == whole.times[-1]
        assert min(len(whole.times), 24) <= len(found.times) <= node_trends.SPARKLINE_SAMPLES
        assert found.nodes["b"].used.cpu_milli == [500] * len(found.times)
        assert found.nodes["b"].predicted_peak.memory_bytes == [None] * len(found.times)


def test_without_a_sample_there_are_no_sparklines() -> None:
    found = Town(a=ROW).trends.sparklines(["a"])
    assert (found.times, found.nodes) == ([], {})
