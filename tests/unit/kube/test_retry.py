import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.clock import ManualClock
from shared.kube.errors import ServerError, TooManyRequests
from shared.kube.retry import MAX_RETRY_AFTER_SECONDS, Backoff, Jitter, Retry

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


def _set() -> threading.Event:
    event = threading.Event()
    event.set()
    return event
