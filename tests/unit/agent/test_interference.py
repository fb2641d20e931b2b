"""Prod is slowed when it waits longer than it did without Mid and Batch, and for no other reason."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from agent.metric_cache.cache import MetricCache
from agent.metric_cache.series import Kind, Metric, SeriesKey, Usage
from agent.reporter import interference
from agent.reporter.interference import CALM_SECONDS, LEARNED_SECONDS, WINDOW_SECONDS, WaitState, judged
from agent.reporter.prod_waits import ProdWaits
from shared import names
from shared.api import nodemetric
from shared.api.nodemetric import ProdWait
from shared.api.nodemetric_spec import ResourceThresholds
from shared.clock import ManualClock
from shared.names import KubeQoS
from tests.support import certain
from tests.unit.agent.models import entities
from tests.unit.agent.pods import pod
from tests.unit.agent.test_pressure import held

NOW = 1_700_000_000.0
THRESHOLD = 0.1
DAY = 86_400
SHARES = st.one_of(st.none(), st.floats(0, 1))


def passed(before: WaitState, share: float | None, seconds: int, *, lends: bool, since: float = NOW) -> WaitState:
    after = before
    for second in range(seconds):
        after = judged(after, share, threshold=THRESHOLD, lends=lends, now=since + second, seconds=1)
    return after


def test_the_baseline_is_nearly_the_most_that_prod_waits_on_its_own() -> None:
    known = passed(WaitState(), 0.2, 600, lends=False)
    assert known.is_learned
    assert known.baseline == pytest.approx(0.2, abs=0.01)
    assert passed(known, 0.25, 60, lends=True, since=NOW + 600).since is None
    assert passed(known, 0.32, 1, lends=True, since=NOW + 600).since == NOW + 600


def test_a_minute_of_calm_ends_it_and_a_pause_does_not() -> None:
    slowed = passed(WaitState(), 0.5, 10, lends=True)
    assert (slowed.since, slowed.last) == (NOW, NOW + 9)
    calming = passed(slowed, 0.0, int(CALM_SECONDS) - 1, lends=True, since=NOW + 10)
    assert calming.since == NOW
    between = passed(calming, 0.07, 1, lends=True, since=NOW + 68)  # above half of the threshold
    assert between.last == NOW + 68
    ended = passed(between, 0.04, int(CALM_SECONDS) + 1, lends=True, since=NOW + 69)
    assert (ended.since, ended.last) == (None, NOW + 68)


def test_a_policy_that_turns_to_never_ends_it_and_lets_none_begin() -> None:
    slowed = passed(WaitState(), 1.0, 10, lends=True)
    assert slowed.since is not None
    after = slowed
    for second in range(10, 11 + int(CALM_SECONDS)):
        after = judged(after, 1.0, threshold=1.0, lends=True, now=NOW + second, seconds=1)
    assert (after.since, after.last) == (None, slowed.last)
    assert judged(WaitState(), 1.0, threshold=1.0, lends=True, now=NOW, seconds=1).since is None


@given(st.lists(st.tuples(SHARES, st.booleans(), st.floats(0.1, 300)), max_size=80))
def test_prod_is_never_slowed_without_mid_and_batch_and_not_for_longer_than_the_wait_and_a_minute(
    steps: list[tuple[float | None, bool, float]],
) -> None:
    state, now, bad_at = WaitState(), NOW, NOW
    for share, lends, seconds in steps:
        now += seconds
        state = judged(state, share, threshold=THRESHOLD, lends=lends, now=now, seconds=seconds)
        assert 0 <= state.baseline <= 1
        assert 0 <= state.slowed_share <= 1
        if lends and share is not None and share - state.baseline >= THRESHOLD / 2:
            bad_at = now
        assert lends or state.since is None
        assert state.since is None or (state.since <= now and now - bad_at < CALM_SECONDS)


@given(st.lists(st.tuples(SHARES, st.floats(-5000, 5000)), max_size=40))
def test_a_clock_that_jumps_leaves_no_time_in_the_future(steps: list[tuple[float | None, float]]) -> None:
    state, now = WaitState(), NOW
    for share, jump in steps:
        now += jump
        state = judged(state, share, threshold=THRESHOLD, lends=True, now=now, seconds=1)
        assert state.since is None or state.since <= now
        assert state.last is None or state.last <= now


def test_time_slowed_counts_as_a_share_of_a_day_that_fades() -> None:
    learned = WaitState(learned_seconds=LEARNED_SECONDS)
    slowed = passed(learned, 0.5, 144, lends=True)
    assert slowed.slowed_share * DAY == pytest.approx(144, rel=0.01)
    ended = replace(slowed, since=None, last=None)
    after = ended
    for hour in range(24):
        after = judged(after, 0.0, threshold=THRESHOLD, lends=True, now=NOW + 3600 * hour, seconds=3600)
    assert after.slowed_share == pytest.approx(0.37 * slowed.slowed_share, rel=0.05)


def test_without_a_baseline_no_time_counts_as_slowed() -> None:
    slowed = passed(WaitState(), 0.5, 144, lends=True)
    assert slowed.since is not None
    assert slowed.slowed_share == 0


class Watched:
    """A node whose shares a test sets, judged each second."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.registry = CollectorRegistry()
        self.cache = MetricCache(clock=self.clock)
        self.waits = ProdWaits(self.cache, self.clock, self.registry)

    def passed(self, seconds: int, *, lends: bool = True, **shares: float) -> interference.JudgedWaits | None:
        found = None
        for _ in range(seconds):
            self.clock.advance(1)
            readings = {SeriesKey(Kind.NODE, "", Metric(name)): value for name, value in shares.items()}
            self.cache.append(self.cache.second(), entities(Usage(1.0, 2**30)), readings)
            found = self.waits.judge([held("a", tier="mid")] if lends else [], ResourceThresholds())
        return found

    def value(self, metric: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"headroom_agent_{metric}", labels)


def test_slowed_seconds_are_counted_by_resource() -> None:
    node = Watched()
    node.passed(180, lends=False, prod_cpu_wait=0.02, prod_memory_wait=0.0, prod_throttled_pods=0)
    found = certain(node.passed(30, prod_cpu_wait=0.5, prod_memory_wait=0.0, prod_throttled_pods=3))
    assert found.slowed == (names.CPU,)
    assert found.throttled_pods == 3
    assert 0 < certain(node.value("prod_slowed_seconds_total", resource="cpu")) <= 30
    assert node.value("prod_slowed_seconds_total", resource="memory") == 0
    assert node.value("prod_wait_baseline_ratio", resource="cpu") == pytest.approx(0.02, abs=0.005)


def test_the_time_since_prod_waited_is_known_while_it_is_slowed_beyond_a_baseline() -> None:
    node, without = Watched(), Watched()
    node.passed(int(LEARNED_SECONDS) + 10, lends=False, prod_cpu_wait=0.0, prod_memory_wait=0.0, prod_throttled_pods=0)
    assert node.waits.waited_seconds(names.CPU) is None
    for each in (node, without):
        each.passed(WINDOW_SECONDS, prod_cpu_wait=0.6, prod_memory_wait=0.0, prod_throttled_pods=0)
    assert node.waits.waited_seconds(names.CPU) == 0
    node.clock.advance(3)
    assert node.waits.waited_seconds(names.CPU) == 3
    assert node.waits.waited_seconds(names.MEMORY) is None
    assert without.waits.waited_seconds(names.CPU) is None
    node.passed(1, lends=False, prod_cpu_wait=0.6, prod_memory_wait=0.0, prod_throttled_pods=0)
    assert node.waits.waited_seconds(names.CPU) is None


def test_time_that_the_hypervisor_takes_concludes_nothing() -> None:
    node = Watched()
    found = certain(node.passed(30, prod_cpu_wait=0.9, prod_memory_wait=0.0, prod_throttled_pods=0, cpu_steal=0.2))
    assert found.slowed == ()
    assert found.waits[names.CPU].share is None


def test_without_pressure_files_nothing_is_known_and_that_is_said() -> None:
    node = Watched()
    assert node.passed(5) is None
    assert node.waits.is_measured([held("a", tier="mid")]) is None  # too early, and no Prod pod
    node.passed(60)
    assert node.waits.is_measured([pod("p", qos=KubeQoS.BEST_EFFORT)]) is None
    assert node.waits.is_measured([pod("p")]) is False


def test_what_is_reported_is_taken_over_by_the_next_process() -> None:
    node = Watched()
    node.passed(int(LEARNED_SECONDS) + 10, lends=False, prod_cpu_wait=0.1, prod_memory_wait=0.0, prod_throttled_pods=0)
    found = certain(node.passed(WINDOW_SECONDS, prod_cpu_wait=0.6, prod_memory_wait=0.0, prod_throttled_pods=0))
    wire = interference.report(found)
    later = Watched()
    later.waits.restore(wire)
    again = certain(later.passed(1, prod_cpu_wait=0.6, prod_memory_wait=0.0, prod_throttled_pods=0))
    assert again.waits[names.CPU].since is not None
    assert again.waits[names.CPU].baseline == pytest.approx(found.waits[names.CPU].baseline, abs=1e-3)
    slowed = found.waits[names.CPU].slowed_share
    assert slowed > 0
    assert again.waits[names.CPU].slowed_share == pytest.approx(slowed + 1 / DAY, abs=1e-5)
    assert [each.slowed_percent is not None for each in wire.waits] == [True, False]


@pytest.mark.parametrize(
    "odd",
    [
        ProdWait("gpu", baseline_percent="1"),
        ProdWait("cpu", baseline_percent="nan"),
        ProdWait("cpu", baseline_percent="101"),
        ProdWait("cpu", baseline_percent="x"),
        ProdWait("cpu", since="yesterday"),
        ProdWait("cpu", slowed_percent="101"),
    ],
)
def test_what_no_agent_writes_is_not_taken_over(odd: ProdWait) -> None:
    node = Watched()
    node.waits.restore(nodemetric.Interference(waits=(odd,)))
    found = certain(node.passed(1, prod_cpu_wait=0.0, prod_memory_wait=0.0, prod_throttled_pods=0))
    assert found.waits[names.CPU] == WaitState(share=0.0)
