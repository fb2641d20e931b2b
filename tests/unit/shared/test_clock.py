"""A clock held in the hand moves only when told to."""

import threading

from shared.clock import ManualClock
from tests.support import eventually


def test_a_wait_ends_when_its_time_has_come() -> None:
    clock, ended = ManualClock(), threading.Event()
    results: list[bool] = []

    def waiter() -> None:
        results.append(clock.wait(threading.Event(), 10.0))
        ended.set()

    threading.Thread(target=waiter, daemon=True).start()
    eventually(lambda: clock.waiting == 1)
    clock.advance(9.0)
    assert not ended.wait(0.05)
    clock.advance(10.0)
    assert ended.wait(60)
    assert results == [False]
    assert clock.waiting == 0


def test_a_wait_ends_when_its_event_is_set() -> None:
    clock, event = ManualClock(), threading.Event()
    results: list[bool] = []
    threading.Thread(target=lambda: results.append(clock.wait(event, 10.0)), daemon=True).start()
    event.set()
    eventually(lambda: results == [True])


def test_a_jump_of_wall_time_leaves_durations_alone() -> None:
    clock = ManualClock(now=100.0)
    clock.jump(-50.0)
    assert (clock.now(), clock.monotonic()) == (50.0, 0.0)
