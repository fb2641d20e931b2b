from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest
from prometheus_client import CollectorRegistry

from shared.clock import ManualClock
from shared.kube import events
from shared.kube.client import Client
from shared.kube.config import Connection
from shared.kube.events import NORMAL, WARNING, ObjectRef, Recorder
from shared.kube.retry import ONCE, Retry
from shared.stop import Stop
from tests.support import eventually
from tests.unit.kube.conftest import QUICK
from tests.unit.kube.scripted import Request, ScriptedServer, answer, reset, status

Start: TypeAlias = Callable[[Callable[[Stop], None]], Stop]

NODE = ObjectRef("v1", "Node", "n1", uid="u1")
POD = ObjectRef("v1", "Pod", "p1", "prod", "u2")


class Recorded:
    def __init__(self) -> None:
        self.server = ScriptedServer()
        self.clock = ManualClock()
        self.registry = CollectorRegistry()
        client = Client(Connection(self.server.url), "test", clock=self.clock, retry=ONCE, registry=self.registry)
        self.recorder = Recorder(client, "headroom-manager", "host-1")
        self.noted = 0

    def accept(self, times: int = 1) -> None:
        self.server.then(*[answer({"metadata": {"name": "e"}}, 201)] * times)

    def dropped(self, reason: str) -> float:
        labels = {"reason": reason}
        return self.registry.get_sample_value("headroom_kube_dropped_events_total", labels) or 0.0

    def requests(self) -> list[tuple[str, Any]]:
        return [(request.method, request.body) for request in self.server.requests]

    def after(self, count: int) -> list[Request]:
        return eventually(lambda: self.server.requests if len(self.server.requests) >= count else [])


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    recorded = Recorded()
    yield recorded
    recorded.server.close()


def test_an_event_says_what_happened_to_whom_and_who_says_so(recorded: Recorded, start: Start) -> None:
    recorded.accept(2)
    start(recorded.recorder.run)
    recorded.recorder.event(POD, WARNING, "PodRefused", "requests are not a quantity")
    recorded.recorder.event(NODE, NORMAL, "MidReset", "x" * 5000)
    pod, node = recorded.after(2)
    assert pod.path == "/api/v1/namespaces/prod/events"
    assert pod.body["metadata"]["name"].startswith("p1.")
    assert pod.body["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "p1",
        "namespace": "prod",
        "uid": "u2",
    }
    assert (pod.body["type"], pod.body["reason"], pod.body["count"]) == ("Warning", "PodRefused", 1)
    assert pod.body["source"] == {"component": "headroom-manager", "host": "host-1"}
    assert pod.body["firstTimestamp"] == pod.body["lastTimestamp"] == "2023-11-14T22:13:20Z"
    assert node.path == "/api/v1/namespaces/default/events"
    assert len(node.body["message"]) == events.MAX_MESSAGE


def test_a_repetition_within_two_minutes_raises_the_count_of_the_first(recorded: Recorded, start: Start) -> None:
    recorded.accept(3)
    start(recorded.recorder.run)
    for count in (1, 2, 3):
        recorded.recorder.event(NODE, NORMAL, "MidReset", "stale")
        recorded.after(count)
        recorded.clock.advance(100)
    created, second, third = recorded.server.requests
    assert [second.method, third.method] == ["PATCH", "PATCH"]
    assert second.path == f"/api/v1/namespaces/default/events/{created.body['metadata']['name']}"
    assert second.body == {"count": 2, "lastTimestamp": "2023-11-14T22:15:00Z"}
    assert third.body["count"] == 3


def test_after_two_minutes_of_silence_it_is_a_new_event(recorded: Recorded, start: Start) -> None:
    recorded.accept(2)
    start(recorded.recorder.run)
    recorded.recorder.event(NODE, NORMAL, "MidReset", "stale")
    recorded.after(1)
    recorded.clock.advance(121)
    recorded.recorder.event(NODE, NORMAL, "MidReset", "stale")
    assert [request.method for request in recorded.after(2)] == ["POST", "POST"]


def test_an_event_the_server_has_forgotten_is_made_anew(recorded: Recorded, start: Start) -> None:
    recorded.accept()
    recorded.server.then(status(404, "NotFound"))
    recorded.accept()
    start(recorded.recorder.run)
    for _ in range(2):
        recorded.recorder.event(NODE, NORMAL, "MidReset", "stale")
    assert [request.method for request in recorded.after(3)] == ["POST", "PATCH", "POST"]


def test_a_reason_has_a_budget_and_other_reasons_do_not_pay_for_it(recorded: Recorded, start: Start) -> None:
    recorded.accept(200)
    start(recorded.recorder.run)
    for number in range(100):
        recorded.recorder.event(NODE._replace(name=f"n{number}"), NORMAL, "Flood", "m")
    recorded.recorder.event(NODE, NORMAL, "Rare", "m")
    reasons = [request.body["reason"] for request in recorded.after(int(events.BURST) + 1)]
    assert reasons == ["Flood"] * int(events.BURST) + ["Rare"]
    assert recorded.dropped("rate_limited") == 100 - events.BURST
    recorded.clock.advance(1 / events.REFILL_PER_SECOND)
    recorded.recorder.event(NODE, NORMAL, "Flood", "another")
    assert recorded.after(int(events.BURST) + 2)[-1].body["reason"] == "Flood"


def test_repetitions_beyond_the_budget_are_counted_by_the_next_write(recorded: Recorded, start: Start) -> None:
    recorded.accept(200)
    start(recorded.recorder.run)
    for _ in range(100):
        recorded.recorder.event(NODE, NORMAL, "Flood", "m")
    recorded.recorder.event(NODE, NORMAL, "Rare", "m")
    recorded.after(int(events.BURST) + 1)
    recorded.clock.advance(1 / events.REFILL_PER_SECOND)
    recorded.recorder.event(NODE, NORMAL, "Flood", "m")
    assert recorded.after(int(events.BURST) + 2)[-1].body["count"] == 101
    assert recorded.dropped("rate_limited") == 0


def test_a_server_that_is_away_or_says_no_costs_only_the_event(
    recorded: Recorded, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    recorded.server.then(reset(), status(403, "Forbidden"), answer(b"<html>"))
    recorded.accept()
    start(recorded.recorder.run)
    for name in "abcd":
        recorded.recorder.event(NODE._replace(name=name), NORMAL, "MidReset", "m")
    eventually(lambda: recorded.dropped("refused") == 3)
    recorded.after(4)
    assert "event not written" in caplog.text


def test_an_event_whose_first_attempt_got_through_unseen_is_written_once(start: Start) -> None:
    server = ScriptedServer()
    server.then(reset(), status(409, "AlreadyExists"), answer({"metadata": {"name": "e"}}))
    recorder = Recorder(Client(Connection(server.url), "test", retry=Retry(jitter=QUICK)), "c", "h")
    start(recorder.run)
    recorder.event(NODE, NORMAL, "MidReset", "m")
    recorder.event(NODE, NORMAL, "MidReset", "m")
    eventually(lambda: [request.method for request in server.requests] == ["POST", "POST", "PATCH"])
    first, second, patch = server.requests
    assert first.body["metadata"] == second.body["metadata"]
    assert patch.path.endswith(first.body["metadata"]["name"])
    server.close()


def test_a_full_queue_drops_and_never_blocks(recorded: Recorded) -> None:
    for _ in range(events.QUEUE_LENGTH + 7):
        recorded.recorder.event(NODE, NORMAL, "MidReset", "m")
    assert recorded.dropped("queue_full") == 7


def test_what_was_noted_before_the_end_is_still_written(recorded: Recorded) -> None:
    recorded.accept(2)
    stop = Stop()
    stop.set()
    recorded.recorder.event(NODE, NORMAL, "Stopping", "m")
    recorded.recorder.event(POD, NORMAL, "Stopping", "m")
    recorded.recorder.run(stop)
    assert len(recorded.server.requests) == 2
