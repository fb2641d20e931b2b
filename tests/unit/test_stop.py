"""`shared.stop`: whoever waits for something else meanwhile is called."""

import threading

from shared.stop import Stop
from tests.support import eventually


def test_a_thread_that_waits_on_a_condition_is_woken_once_it_is_set() -> None:
    stop, waited_for, ended = Stop(), threading.Condition(), threading.Event()

    def wake() -> None:
        with waited_for:
            waited_for.notify_all()

    def body() -> None:
        with stop.calling(wake):
            with waited_for:
                waited_for.wait_for(stop.is_set)
            ended.set()

    threading.Thread(target=body, daemon=True).start()
    stop.set()
    eventually(ended.is_set)


def test_a_call_named_after_the_end_is_made_at_once_and_one_whose_block_has_ended_is_not() -> None:
    stop, calls = Stop(), list[str]()
    with stop.calling(lambda: calls.append("in time")):
        pass
    with stop.calling(lambda: calls.append("waits")):
        stop.set()
        assert calls == ["waits"]
    with stop.calling(lambda: calls.append("late")):
        assert calls == ["waits", "late"]
    stop.set()
    assert calls == ["waits", "late"]
