import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.clock import ManualClock
from shared.kube.errors import ApiError, Forbidden, ServerError, TooManyRequests, Unreachable
from shared.kube.retry import (
    MAX_RETRY_AFTER_SECONDS,
    RESUME_SECONDS,
    SILENT_FAILURES,
    Answers,
    Backoff,
    Jitter,
    Retry,
    resumed_at,
    wait,
)

seconds = st.floats(0.001, 100)


@given(seconds, seconds, st.integers(1, 10_000))
def test_a_delay_never_exceeds_its_growing_bound_nor_the_cap(base: float, cap: float, failures: int) -> None:
    delay = Jitter(base, cap).delay_seconds(failures)
    assert 0 <= delay <= min(cap, base * 2 ** min(failures - 1, 100))


@given(st.floats(0, 1e9), st.integers(1, 100))
def test_what_the_server_asks_for_is_waited_and_jittered_but_not_without_end(asked: float, failures: int) -> None:
    jitter = Jitter(1, 5)
    delay = jitter.delay_seconds(failures, TooManyRequests(429, "r", "m", retry_after_seconds=asked))
    floor = min(asked, MAX_RETRY_AFTER_SECONDS)
    assert floor <= delay <= floor + 5


def test_a_loops_delays_grow_and_start_small_again_after_a_calm_time() -> None:
    clock = ManualClock()
    backoff = Backoff(clock, Jitter(1, 1000), calm_seconds=60)
    for _ in range(12):
        backoff.delay_seconds()
    long = [backoff.delay_seconds() for _ in range(20)]
    assert max(long) > 16
    clock.advance(2000)
    assert backoff.delay_seconds() <= 1


def test_the_wait_itself_is_no_calm_time() -> None:
    clock = ManualClock()
    backoff = Backoff(clock, Jitter(1, 1000), calm_seconds=0.5)
    for _ in range(12):
        clock.advance(backoff.delay_seconds())
    assert max(backoff.delay_seconds() for _ in range(20)) > 16


def test_a_refusal_by_a_server_that_was_away_begins_the_delays_anew() -> None:
    backoff = Backoff(ManualClock(), Jitter(1, 1000))
    for _ in range(12):
        backoff.delay_seconds(Unreachable("m"))
    assert max(backoff.delay_seconds(Unreachable("m")) for _ in range(20)) > 16
    assert backoff.delay_seconds(Forbidden(403, "Forbidden", "m")) <= 1
    assert backoff.delay_seconds(Forbidden(403, "Forbidden", "m")) <= 2


@pytest.mark.parametrize("error", [ServerError(503, "r", "m"), TooManyRequests(429, "r", "m")])
def test_a_server_that_is_away_by_a_proxys_word_or_has_too_much_to_do_is_still_spared(error: ApiError) -> None:
    backoff = Backoff(ManualClock(), Jitter(1, 1000))
    for _ in range(12):
        backoff.delay_seconds(Unreachable("m"))
    assert max(backoff.delay_seconds(error) for _ in range(20)) > 16


def test_a_connection_that_fails_now_and_then_does_not_hurry_what_is_refused() -> None:
    backoff, delays = Backoff(ManualClock(), Jitter(1, 1000)), []
    for _ in range(40):
        for _ in range(SILENT_FAILURES - 1):
            backoff.delay_seconds(Unreachable("m"))
        delays.append(backoff.delay_seconds(Forbidden(403, "Forbidden", "m")))
    assert max(delays) > 16


times = st.floats(0, 1e6)


@given(times, seconds, times, st.floats(0, 1))
def test_what_waits_goes_on_soon_after_an_answer_and_never_later_than_it_was_due(
    since: float, delay: float, answered_at: float, jitter: float
) -> None:
    due = since + delay
    found = resumed_at(due, since, answered_at, jitter)
    assert found <= due
    if answered_at <= since:
        assert found == due
    else:
        assert found == due or found - answered_at <= RESUME_SECONDS


def test_a_fleet_does_not_go_on_in_step() -> None:
    found = [resumed_at(1000.0, 0.0, 10.0, place / 99) for place in range(100)]
    most = max(sum(second <= one < second + 1 for one in found) for second in range(10, 16))
    assert most <= 100 / RESUME_SECONDS + 1


class Passing(ManualClock):
    """Time passes by waiting; `then` is called after each wait."""

    def __init__(self, then: Callable[[float], None]) -> None:
        super().__init__()
        self._then = then

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.advance(seconds)
        self._then(self.monotonic())
        return event.is_set()


def waited(heard: float, then: Callable[[Answers, float], None]) -> float:
    """How long a wait of 1000 s took that began 100 s after the clock, for a server last heard of at `heard`."""
    answers = Answers()
    clock = Passing(lambda now: then(answers, now))
    clock.advance(100)
    answers.last_at = heard
    wait(clock, threading.Event(), 1000.0, answers)
    return clock.monotonic() - 100


def test_a_wait_ends_soon_after_the_server_is_back() -> None:
    def comes_back(answers: Answers, now: float) -> None:
        if now >= 120:
            answers.note(Forbidden(403, "Forbidden", "m") if now >= 130 else TooManyRequests(429, "r", "m"), now)

    assert 30 <= waited(50.0, comes_back) <= 30 + RESUME_SECONDS
    assert waited(50.0, lambda answers, now: None) == pytest.approx(1000)


def test_a_wait_lasts_while_the_server_answers_others_all_the_time() -> None:
    assert waited(99.0, lambda answers, now: answers.note(None, now)) == pytest.approx(1000)


def test_giving_up_says_for_how_long_it_was_tried() -> None:
    clock = ManualClock()

    def attempt() -> None:
        clock.advance(6)
        raise ServerError(500, "InternalError", "m")

    with pytest.raises(ServerError) as caught:
        Retry(deadline_seconds=20, jitter=Jitter(1e-9, 1e-9)).run(
            "GET /x", attempt, passing=lambda _: True, clock=clock, stop=_set()
        )
    assert clock.monotonic() == 6
    assert not hasattr(caught.value, "__notes__")  # told to stop, not out of time

    with pytest.raises(ServerError) as caught:
        Retry(deadline_seconds=5).run("GET /x", attempt, passing=lambda _: True, clock=clock, stop=threading.Event())
    assert caught.value.__notes__ == ["gave up on GET /x after 1 attempts in 6.0 s"]


def test_a_process_that_was_stopped_between_two_attempts_does_not_make_the_next() -> None:
    class Stopped(ManualClock):
        def wait(self, event: threading.Event, seconds: float) -> bool:
            self.advance(seconds + 60)
            return False

    attempts = []

    def attempt() -> None:
        attempts.append(1)
        raise ServerError(500, "InternalError", "m")

    with pytest.raises(ServerError):
        Retry().run("PATCH /x", attempt, passing=lambda _: True, clock=Stopped(), stop=threading.Event())
    assert len(attempts) == 1


def _set() -> threading.Event:
    event = threading.Event()
    event.set()
    return event
