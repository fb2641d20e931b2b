"""What recorded seconds of services say of means of five minutes."""

import numpy as np
import pytest

from tests.bench import recorded


def test_four_services_were_recorded_for_twenty_minutes_and_more() -> None:
    seconds = recorded.services()
    assert set(seconds) == {"latency", "heap", "build", "database"}
    assert all(len(used) >= 1200 and used.max() > 0 for used in seconds.values())


def test_agents_train_on_the_seconds_that_nine_of_ten_do_not_exceed() -> None:
    used = np.zeros(70)
    used[:3], used[30:33] = 1.0, 2.0  # a tenth of 30 s does not count
    used[40] = 5.0
    assert recorded.trained(used) == pytest.approx([0.1, 2.0])


def test_a_mean_hides_as_much_as_the_peak_within_is_above_it() -> None:
    hidden = recorded.hidden_by_means()
    assert len(hidden) == 4
    assert (hidden >= 0.9).all(), "a constant usage is its own 90th percentile, but for rounding"
    assert np.median(hidden) > 1.1
    assert hidden.max() > 2
