"""Loops that end, fail or run late are seen and go on."""

import io
import json
import logging
import threading

import pytest
from prometheus_client import CollectorRegistry

from shared.clock import ManualClock
from shared.telemetry import JsonFormatter, Loops
from tests.support import eventually


def test_a_log_line_is_one_json_object_with_its_extra_fields() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    log = logging.Logger("example")
    log.addHandler(handler)
    try:
        raise ValueError("torn")
    except ValueError:
        log.exception("read failed\nbadly", extra={"node": "n1"})
    line = json.loads(stream.getvalue())
    assert (line["level"], line["msg"], line["node"]) == ("error", "read failed\nbadly", "n1")
    assert "ValueError: torn" in line["error"]
    assert line["ts"].endswith("Z")


def test_a_failing_loop_is_counted_and_started_again(caplog: pytest.LogCaptureFixture) -> None:
    registry = CollectorRegistry()
    loops = Loops(registry, restart_seconds=0.0)
    rounds = 0

    def body(stop: threading.Event) -> None:
        nonlocal rounds
        rounds += 1
        if rounds < 3:
            raise RuntimeError("broken")
        stop.wait()

    loops.start("example", body)
    eventually(lambda: rounds == 3)
    loops.close()
    assert registry.get_sample_value("headroom_loop_failures_total", {"loop": "example"}) == 2
    assert "loop failed" in caplog.text


def test_a_periodic_loop_keeps_its_schedule_and_drops_the_rounds_it_missed() -> None:
    clock, registry = ManualClock(), CollectorRegistry()
    loops = Loops(registry, clock)
    started: list[float] = []
    durations = iter([0.0, 0.0, 25.0, 0.0, 0.0])

    def work() -> None:
        started.append(clock.monotonic())
        clock.advance(next(durations, 0.0))

    def reached(rounds: int) -> None:
        eventually(lambda: len(started) == rounds and clock.waiting)  # for the next one

    loops.every("example", lambda: 10.0, work)
    reached(1)
    for rounds in (2, 3, 4, 5):
        clock.advance(10.0 if rounds != 4 else 5.0)
        reached(rounds)
    loops.close()
    assert started == [0.0, 10.0, 20.0, 50.0, 60.0]
    assert registry.get_sample_value("headroom_loop_overruns_total", {"loop": "example"}) == 1


def test_a_silent_loop_is_overdue() -> None:
    clock = ManualClock()
    loops = Loops(CollectorRegistry(), clock)
    release = threading.Event()
    working = threading.Event()

    def work() -> None:
        working.set()
        release.wait(60)

    loops.every("stuck", lambda: 10.0, work)
    assert working.wait(60)
    assert loops.overdue() == {}
    clock.advance(36.0)
    assert loops.overdue() == {"stuck": 36.0}
    release.set()
    loops.close()


@pytest.mark.parametrize("raised", [RuntimeError("broken"), SystemExit(1)])
def test_a_loop_of_which_every_round_fails_is_as_silent_as_one_that_hangs(raised: BaseException) -> None:
    clock = ManualClock()
    loops = Loops(CollectorRegistry(), clock, restart_seconds=0.0)
    rounds = 0

    def work() -> None:
        nonlocal rounds
        rounds += 1
        if rounds > 1:
            raise raised

    loops.every("broken", lambda: 10.0, work)
    eventually(lambda: rounds == 1 and clock.waiting)  # for the next one
    clock.advance(10.0)
    eventually(lambda: rounds > 5)
    assert loops.overdue() == {}
    clock.advance(26.0)
    assert loops.overdue() == {"broken": 36.0}
    loops.close()


def wait_for_the_end(stop: threading.Event) -> None:
    stop.wait()


def test_loops_end_together_and_long_before_their_next_round() -> None:
    loops = Loops(CollectorRegistry())
    loops.every("slow", lambda: 3600.0, lambda: None)
    loops.start("waiting", wait_for_the_end)
    loops.close(timeout_seconds=60.0)
    assert not [thread for thread in threading.enumerate() if thread.name in {"slow", "waiting"}]
