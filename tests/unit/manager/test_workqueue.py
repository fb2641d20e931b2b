"""Each name waits once, failures wait longer, writes wait for tokens and the urgent ones go first."""

import pytest

from manager.nodeside.workqueue import Outbox, TokenBucket, Urgency, WorkQueue
from shared.clock import ManualClock
from shared.kube.errors import TooManyRequests
from shared.kube.retry import Jitter

REFUSED = TooManyRequests(429, "TooManyRequests", "later", retry_after_seconds=4)


def drained(queue: WorkQueue) -> list[str]:
    found = []
    while (name := queue.get(0)) is not None:
        found.append(name)
    return found


def test_a_name_that_waits_is_not_queued_twice_and_comes_again_once_taken() -> None:
    queue = WorkQueue(ManualClock())
    queue.add(["a", "b"])
    queue.add(["a"])
    assert drained(queue) == ["a", "b"]
    queue.add(["a"])
    assert drained(queue) == ["a"]


def test_a_failed_name_comes_back_after_what_the_server_asked_for() -> None:
    clock = ManualClock()
    queue = WorkQueue(clock, Jitter(base_seconds=1, cap_seconds=8))
    delay = queue.retry("a", REFUSED)
    assert 4 <= delay <= 5
    assert drained(queue) == []
    clock.advance(delay)
    assert drained(queue) == ["a"]


def test_delays_grow_with_failures_in_a_row_and_start_small_after_a_success() -> None:
    clock = ManualClock()
    queue = WorkQueue(clock, Jitter(base_seconds=1, cap_seconds=1 << 20))
    error, delays = ValueError(), []
    for _ in range(20):
        delays.append(queue.retry("a", error))
        clock.advance(delays[-1] + 0.001)
        assert drained(queue) == ["a"]
    assert max(delays) > 1
    queue.forget("a")
    assert queue.retry("a", error) <= 1


def test_events_about_a_name_that_keeps_failing_do_not_multiply_its_attempts() -> None:
    clock = ManualClock()
    queue = WorkQueue(clock, Jitter(base_seconds=1, cap_seconds=8))
    for _ in range(100):
        queue.add(["a"])
        for name in drained(queue):
            queue.retry(name, ValueError())
    assert len(queue) == 1
    clock.advance(10)
    assert drained(queue) == ["a"]
    assert len(queue) == 0


def test_a_bucket_gives_its_burst_and_then_its_rate() -> None:
    clock = ManualClock()
    bucket = TokenBucket(clock, per_second=2, burst=3)
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]
    assert bucket.delay_seconds() == pytest.approx(0.5)
    clock.advance(0.5)
    assert [bucket.take(), bucket.take()] == [True, False]
    clock.advance(3600)
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]


def test_shrinking_offers_are_written_first_and_a_changed_mind_changes_the_turn() -> None:
    clock = ManualClock()
    outbox = Outbox(clock)
    for name in ("a", "b", "c", "d"):
        outbox.add(name, Urgency.GROW)
    outbox.add("e", Urgency.LIFECYCLE)
    outbox.add("c", Urgency.SHRINK)
    outbox.add("a", Urgency.GROW)
    outbox.discard("b")
    assert len(outbox) == 4
    clock.advance(7)
    outbox.add("d", Urgency.GROW)
    assert outbox.oldest_seconds() == 7
    assert [outbox.pop() for _ in range(5)] == ["c", "e", "a", "d", None]
    assert outbox.oldest_seconds() == 0


def test_a_node_that_is_being_written_is_not_given_to_another_writer() -> None:
    outbox = Outbox(ManualClock())
    outbox.add("a", Urgency.GROW)
    assert outbox.pop() == "a"
    outbox.add("a", Urgency.SHRINK)
    outbox.add("b", Urgency.GROW)
    assert (outbox.pop(), outbox.pop()) == ("b", None)
    assert not outbox.wait(0)
    assert len(outbox) == 1
    outbox.finish("a")
    assert outbox.wait(0)
    assert outbox.pop() == "a"


def test_a_name_that_is_being_looked_at_is_in_the_queue_until_the_next_one_is_asked_for() -> None:
    queue = WorkQueue(ManualClock())
    queue.add(["a"])
    assert queue.get(0) == "a"
    assert queue.is_filled()
    assert "a" in queue
    assert len(queue) == 0
    assert queue.get(0) is None
    assert not queue.is_filled()
    assert "a" not in queue


def test_the_age_of_the_queue_is_that_of_its_next_name() -> None:
    clock = ManualClock()
    queue = WorkQueue(clock)
    assert queue.oldest_seconds() == 0
    queue.add(["a"])
    clock.advance(5)
    queue.add(["a", "b"])
    assert queue.oldest_seconds() == 5
    assert drained(queue) == ["a", "b"]
    assert queue.oldest_seconds() == 0
