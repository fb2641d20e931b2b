"""`IterationTimer`: a resting loop goes on when it is due, woken, wanted or stopped, and costs nothing until then."""

import threading
from collections.abc import Callable

from manager.autoscaler.loop import IterationTimer
from shared.clock import ManualClock
from shared.stop import Stop
from tests.support import eventually

LONG_SECONDS = 3600.0


def resting(
    timer: IterationTimer, stop: Stop, *, productive: bool = False, is_wanted: Callable[[], bool] | None = None
) -> threading.Event:
    """Set once the rest has ended."""
    ended = threading.Event()

    def rest() -> None:
        timer.begin()
        timer.rest(stop, productive=productive, is_wanted=is_wanted)
        ended.set()

    threading.Thread(target=rest, daemon=True).start()
    return ended


def passing(clock: ManualClock, ended: threading.Event) -> bool:
    """Lets some time pass, of which a whole hour is never needed."""
    clock.advance(0.5)
    return ended.is_set()


def test_a_rest_ends_when_the_interval_has_passed_and_not_before() -> None:
    clock, stop = ManualClock(), Stop()
    ended = resting(IterationTimer(clock, 10.0), stop)
    eventually(lambda: clock.waiting == 1)
    clock.advance(9.0)
    assert not ended.is_set()
    clock.advance(1.0)
    eventually(ended.is_set)


def test_a_pod_that_turns_unschedulable_ends_the_rest() -> None:
    clock, stop = ManualClock(), Stop()
    timer = IterationTimer(clock, LONG_SECONDS)
    ended = resting(timer, stop)
    eventually(lambda: clock.waiting == 1)
    timer.wake()
    eventually(lambda: passing(clock, ended))


def test_a_blind_loop_goes_on_once_it_sees_again() -> None:
    clock, stop, sees = ManualClock(), Stop(), threading.Event()
    ended = resting(IterationTimer(clock, LONG_SECONDS), stop, is_wanted=sees.is_set)
    eventually(lambda: clock.waiting == 1)
    sees.set()
    eventually(lambda: passing(clock, ended))


def test_the_end_of_the_process_ends_the_rest_at_once() -> None:
    clock, stop = ManualClock(), Stop()
    ended = resting(IterationTimer(clock, LONG_SECONDS), stop)
    eventually(lambda: clock.waiting == 1)
    stop.set()
    eventually(ended.is_set)


def test_a_rest_is_no_silence_however_long_it_is() -> None:
    clock, stop = ManualClock(), Stop()
    timer = IterationTimer(clock, LONG_SECONDS)
    timer.begin()
    clock.advance(30.0)
    assert timer.silent_seconds() == 30.0
    ended = resting(timer, stop)
    eventually(lambda: clock.waiting == 1)
    clock.advance(300.0)
    assert timer.silent_seconds() == 0.0
    stop.set()
    eventually(ended.is_set)
