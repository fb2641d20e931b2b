"""The replay, the oracle and the metrics of a backtest, on series small enough to check by hand."""

import numpy as np
import pytest

from agent.backtest import metrics, oracle, packing, replay
from agent.backtest.recording import PodSchedule, RecordedUsage, side_by_side

NAN = float("nan")
HOUR_TICKS = 12


def recorded(*series: list[float], limit: float = 10.0, interval_seconds: float = 300.0) -> RecordedUsage:
    usage = np.array(series)
    return RecordedUsage(usage, np.full(len(usage), limit), 1_000_000.0, interval_seconds)


def schedule(*pods: tuple[int, int, int, int], nodes: int = 1) -> PodSchedule:
    columns = np.array(pods, np.intp).T
    return PodSchedule(columns[0], columns[1], columns[2], columns[3], nodes)


class TestRecording:
    def test_usage_is_capped_at_the_limit(self) -> None:
        assert recorded([1, 12, 3]).capped_and_filled().usage.tolist() == [[1, 10, 3]]

    def test_a_gap_of_an_hour_is_filled_and_a_longer_one_is_not(self) -> None:
        hour, longer = [NAN] * HOUR_TICKS, [NAN] * (HOUR_TICKS + 1)
        filled = recorded([1, *hour, 2, *longer, 3]).capped_and_filled().usage[0]
        assert filled[1 : HOUR_TICKS + 1].tolist() == [1] * HOUR_TICKS
        assert np.isnan(filled[HOUR_TICKS + 2 : -1]).all()

    def test_what_is_missing_at_the_beginning_stays_missing(self) -> None:
        assert np.isnan(recorded([NAN, 1]).capped_and_filled().usage[0, 0])

    def test_a_pod_comes_back_from_a_gap_as_another_pod(self) -> None:
        split = schedule((0, 0, 0, 4), (1, 1, 0, 4), nodes=2).split_at_gaps(recorded([1, NAN, NAN, 2], [1, 1, 1, 1]))
        assert [(n, f, e) for n, f, e in zip(split.node, split.first, split.end, strict=True)] == [
            (0, 0, 1),
            (0, 3, 4),
            (1, 0, 4),
        ]

    def test_fleets_stand_side_by_side(self) -> None:
        both = side_by_side([schedule((0, 0, 0, 1)), schedule((0, 0, 0, 1), (1, 1, 0, 1), nodes=2)])
        assert both.nodes == 3
        assert both.node.tolist() == [0, 1, 2]

    def test_pods_out_of_order_are_refused(self) -> None:
        with pytest.raises(ValueError, match="order"):
            schedule((1, 0, 0, 1), (0, 0, 0, 1), nodes=2)


class TestPacking:
    sizes = np.random.default_rng(5).choice([1.0, 2.0, 4.0], 200)

    def test_no_node_holds_more_than_it_has_and_none_is_less_than_half_full(self) -> None:
        node = packing.first_fit(self.sizes, 16, np.random.default_rng(0))
        filled = np.bincount(node[node >= 0], weights=self.sizes[node >= 0])
        assert filled.max() <= 16
        assert filled.min() >= 8

    def test_what_no_node_can_hold_has_no_node(self) -> None:
        node = packing.first_fit(np.array([32.0, 8.0, 8.0]), 16, np.random.default_rng(0))
        assert node.tolist() == [-1, 0, 0]

    def test_a_seed_packs_the_same_way_each_time_and_another_does_not(self) -> None:
        same = [packing.first_fit(self.sizes, 16, np.random.default_rng(seed)) for seed in (3, 3, 4)]
        assert (same[0] == same[1]).all()
        assert (same[0] != same[2]).any()

    def test_churn_keeps_every_node_full_at_all_times(self) -> None:
        rng = np.random.default_rng(1)
        node = packing.first_fit(self.sizes, 16, rng)
        churned = packing.churned(node, self.sizes, 600, mean_hours=4, ticks_per_hour=HOUR_TICKS, rng=rng)
        full = np.bincount(node[node >= 0], weights=self.sizes[node >= 0])
        for tick in (0, 100, 599):
            pods = churned.present(tick)
            assert churned.sums(pods, self.sizes[churned.series[pods]]) == pytest.approx(full)
        lives = (churned.end - churned.first)[churned.end < 600]
        assert lives.min() >= HOUR_TICKS
        assert 3 * HOUR_TICKS < lives.mean() < 5 * HOUR_TICKS


class TestOracle:
    def test_it_is_the_largest_sum_of_the_next_samples(self) -> None:
        usage = recorded([9, 1, 2, 3], [9, 5, 1, 0])
        peaks = oracle.future_peaks(usage, schedule((0, 0, 0, 4), (0, 1, 0, 4)), np.array([0]), [1, 2, 3])
        assert peaks[:, 0, 0].tolist() == [6, 6, 6]

    def test_pods_that_leave_count_no_more_and_those_that_arrive_do_not_count(self) -> None:
        usage = recorded([1, 1, 7, 7], [0, 0, 5, 5])
        peaks = oracle.future_peaks(usage, schedule((0, 0, 0, 2), (0, 1, 2, 4)), np.array([0, 1, 2]), [1, 2])
        assert peaks[0, :, 0].tolist() == [1, 0, 5]

    def test_a_horizon_beyond_the_recording_has_no_answer(self) -> None:
        peaks = oracle.future_peaks(recorded([1, 2, 3]), schedule((0, 0, 0, 3)), np.array([0, 1, 2]), [1, 2])
        assert np.isnan(peaks[:, :, 0]).tolist() == [[False, False, True], [False, True, True]]

    def test_a_node_without_pods_has_no_peak(self) -> None:
        peaks = oracle.future_peaks(recorded([1, 2]), schedule((1, 0, 0, 2), nodes=3), np.array([0]), [1])
        assert peaks[0, 0].tolist() == [0, 2, 0]


def test_a_replay_shows_the_pods_of_every_tick_their_usage_and_their_ages() -> None:
    usage = recorded([1, 2, 3, 4], [0, 0, 5, 5])
    seen = list(replay.ticks(usage, schedule((0, 0, 0, 4), (1, 1, 2, 4), nodes=2)))
    assert [tick.node.tolist() for tick in seen] == [[0], [0], [0, 1], [0, 1]]
    assert [tick.usage.tolist() for tick in seen] == [[1], [2], [3, 5], [4, 5]]
    assert [tick.age_seconds.max() for tick in seen] == [0, 300, 600, 900]


class TestMetrics:
    requested = np.full((50, 2), 10.0)

    def test_a_promise_that_came_true_is_no_violation(self) -> None:
        came = np.full((50, 2), 4.0)
        judged = metrics.scores(came.copy(), came, self.requested)
        assert (judged.violation_percent, judged.savings_percent, judged.oracle_savings_percent) == (0, 60, 60)
        assert judged.withdrawn_percent_per_day == 0
        assert judged.kept_24h_percent == 100

    def test_violations_are_counted_over_nodes_and_hours_and_severity_over_all_promises(self) -> None:
        came = np.full((50, 2), 4.0)
        came[:, 1] = 8.0
        judged = metrics.scores(np.full((50, 2), 4.0), came, self.requested)
        assert judged.violation_percent == 50
        assert judged.violation_percent_p90_node == 90
        assert judged.severity_percent == pytest.approx(25)

    def test_what_is_taken_back_counts_against_what_is_lent(self) -> None:
        peaks = np.full((50, 1), 5.0)
        peaks[25:] = 6.0
        judged = metrics.scores(peaks, np.zeros((50, 1)), np.full((50, 1), 10.0))
        lent = 25 * 5 + 24 * 4
        assert judged.withdrawn_percent_per_day == pytest.approx(1 / lent * 24 * 100)
        assert judged.kept_24h_percent == pytest.approx(100 * (5 + 25 * 4) / (25 * 5 + 4))

    def test_a_promise_above_the_requests_lends_nothing_rather_than_less(self) -> None:
        judged = metrics.scores(np.full((50, 2), 99.0), np.zeros((50, 2)), self.requested)
        assert judged.savings_percent == 0

    def test_evaluations_without_a_whole_horizon_are_not_judged(self) -> None:
        came = np.zeros((50, 2))
        came[10:] = NAN
        assert metrics.scores(np.ones((50, 2)), came, self.requested).predictions == 20
        with pytest.raises(ValueError, match="horizon"):
            metrics.scores(np.ones((50, 2)), np.full((50, 2), NAN), self.requested)
