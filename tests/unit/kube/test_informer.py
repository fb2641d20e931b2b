import math
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import pytest
from prometheus_client import CollectorRegistry

from shared.api.core import Node
from shared.clock import ManualClock
from shared.kube.client import Client
from shared.kube.config import Connection
from shared.kube.informer import Informer
from shared.kube.object_cache import Change, ChangeKind, Kept
from shared.kube.resources import NODES
from shared.kube.retry import LOOK_SECONDS, Jitter
from shared.kube.watch import WatchTimes
from shared.stop import Stop
from tests.support import eventually
from tests.unit.kube.conftest import QUICK
from tests.unit.kube.scripted import (
    Answer,
    Exchange,
    Hurried,
    ScriptedServer,
    answer,
    bookmark,
    error_event,
    event,
    node,
    page,
    reset,
    status,
    stream,
)

Start: TypeAlias = Callable[[Callable[[Stop], None]], Stop]


class Followed:
    """An informer of nodes with everything it announced."""

    def __init__(self, server: ScriptedServer, timeout_seconds: float = 240, margin_seconds: float = 15) -> None:
        self.registry = CollectorRegistry()
        self.changes: list[Change[Node]] = []
        self.informer = Informer(
            Client(Connection(server.url), "test", registry=self.registry),
            NODES,
            Node,
            on_change=self.changes.append,
            times=WatchTimes(jitter=QUICK, timeout_seconds=timeout_seconds, margin_seconds=margin_seconds),
        )

    def told(self) -> list[str]:
        return [f"{change.kind} {change.key}".strip() for change in self.changes]

    def versions(self) -> dict[str, str]:
        return {item.metadata.name: item.metadata.resource_version for item in self.informer.values()}

    def count(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, {"resource": "nodes"} | labels) or 0.0

    def restarts(self, reason: str) -> float:
        return self.count("headroom_kube_watch_restarts_total", reason=reason)


@pytest.fixture
def followed(server: ScriptedServer) -> Followed:
    return Followed(server)


def watched_from(server: ScriptedServer) -> list[str]:
    return [r.query["resourceVersion"] for r in server.requests if "watch" in r.query]


def lists(server: ScriptedServer) -> int:
    return sum("watch" not in request.query for request in server.requests)


def test_it_lists_then_follows(server: ScriptedServer, followed: Followed, start: Start) -> None:
    server.then(
        page(node("a", 1), version=4, token="more"),
        page(node("b", 2), version=5),
        stream(
            event("ADDED", node("c", 6)) + event("MODIFIED", node("a", 7)),
            event("DELETED", node("b", 8)),
        ),
    )
    start(followed.informer.run)
    eventually(lambda: len(followed.changes) == 6)
    assert followed.told() == ["ADDED a", "ADDED b", "SYNCED", "ADDED c", "MODIFIED a", "DELETED b"]
    assert followed.informer.synced.is_set()
    assert followed.versions() == {"a": "7", "c": "6"}
    modified = followed.changes[4]
    assert modified.old is not None
    assert modified.new is not None
    assert (modified.old.metadata.resource_version, modified.new.metadata.resource_version) == ("1", "7")
    watch = server.requests[2].query
    assert (watch["resourceVersion"], watch["allowWatchBookmarks"]) == ("5", "true")
    assert 240 <= int(watch["timeoutSeconds"]) <= 480


@pytest.mark.parametrize("end", ["close", "cut", "reset"])
def test_a_watch_that_ends_is_resumed_at_the_last_version(
    server: ScriptedServer, followed: Followed, start: Start, end: str
) -> None:
    server.then(
        page(node("a", 1), version=5),
        stream(event("MODIFIED", node("a", 7)), bookmark(20), end=end),
        stream(event("MODIFIED", node("a", 21))),
    )
    start(followed.informer.run)
    eventually(lambda: followed.versions() == {"a": "21"})
    # A reset throws away what was sent but not read yet; then it is sent again.
    assert watched_from(server) in ([["5", "20"]] if end != "reset" else [["5", at] for at in ("5", "7", "20")])
    assert lists(server) == 1


def test_it_is_current_as_long_as_a_watch_is_open(server: ScriptedServer, followed: Followed, start: Start) -> None:
    seen: list[bool] = []

    def noting(then: Answer) -> Answer:
        def serve(exchange: Exchange) -> None:
            seen.append(followed.informer.current.is_set())
            then(exchange)

        return serve

    refusal = status(503, "ServiceUnavailable")
    server.then(
        *map(noting, (page(node("a", 1), version=5), refusal, stream(bookmark(6), end="close"), refusal, stream()))
    )
    start(followed.informer.run)
    eventually(lambda: len(seen) == 5)
    # A watch that ended well is asked for again at once, and only then it turns out that there is none.
    assert seen == [False, False, False, True, False]
    eventually(followed.informer.current.is_set)


def test_its_age_counts_from_the_end_of_the_watch_or_the_last_list(server: ScriptedServer, start: Start) -> None:
    clock, registry = ManualClock(), CollectorRegistry()

    def follow(change: Change[Node]) -> None:
        if change.kind is ChangeKind.MODIFIED:
            clock.advance(1000)

    client = Client(Connection(server.url), "test", registry=registry, clock=clock)
    informer = Informer(client, NODES, Node, on_change=follow, times=WatchTimes(jitter=QUICK))

    def refused(times: int) -> bool:
        """And no other try is made before time passes."""
        labels = {"resource": "nodes", "reason": "refused"}
        counted = registry.get_sample_value("headroom_kube_watch_restarts_total", labels)
        return counted == times and clock.waiting == 1

    assert informer.age_seconds == math.inf
    refusal = status(403, "Forbidden")
    server.then(page(node("a", 1), version=5), stream(event("MODIFIED", node("a", 6)), error_event(403, "Forbidden")))
    start(informer.run)
    eventually(lambda: refused(1))
    assert informer.age_seconds == 0
    for round in (1, 2):
        server.then(refusal)
        clock.advance(10)
        eventually(partial(refused, 1 + round))
        assert informer.age_seconds == 10 * round
    server.then(page(node("a", 7), version=8), refusal)
    clock.advance(10)
    eventually(lambda: refused(4))
    assert informer.age_seconds == 0
    server.then(page(node("a", 7), version=8), stream())
    clock.advance(10)
    eventually(informer.current.is_set)
    clock.advance(1000)
    assert informer.age_seconds == 0


@pytest.mark.parametrize(
    "gone",
    [status(410, "Expired"), stream(event("ADDED", node("x", 6)), error_event(410, "Expired"))],
    ids=["at once", "mid-stream"],
)
def test_a_lost_position_lists_again_and_makes_up_for_what_was_missed(
    server: ScriptedServer, followed: Followed, start: Start, gone: Answer
) -> None:
    server.then(
        page(node("same", 1), node("changed", 2), node("vanished", 3), node("reborn", 4), version=5),
        gone,
        page(node("same", 1), node("changed", 8), node("new", 9), node("reborn", 7, uid="2"), version=10),
    )
    start(followed.informer.run)
    eventually(lambda: followed.told().count("SYNCED") == 2)
    told = [one for one in followed.told() if not one.endswith(" x")]
    assert told[:5] == ["ADDED same", "ADDED changed", "ADDED vanished", "ADDED reborn", "SYNCED"]
    assert told[5:] == [
        "DELETED vanished",
        "MODIFIED changed",
        "ADDED new",
        "DELETED reborn",
        "ADDED reborn",
        "SYNCED",
    ]
    assert followed.restarts("gone") == 1
    eventually(lambda: watched_from(server)[-1] == "10")


def test_a_version_seen_before_is_not_announced_again(server: ScriptedServer, followed: Followed, start: Start) -> None:
    server.then(
        page(node("a", 5), version=5),
        stream(event("MODIFIED", node("a", 5)), event("DELETED", node("never-seen", 6)), bookmark(9), end="close"),
    )
    start(followed.informer.run)
    eventually(lambda: watched_from(server) == ["5", "9"])
    assert followed.told() == ["ADDED a", "SYNCED"]


def bad(name: str, version: int) -> dict[str, object]:
    return node(name, version) | {"status": {"capacity": "lots"}}


def test_a_malformed_object_is_refused_alone_and_its_last_good_state_stays(
    server: ScriptedServer, followed: Followed, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    server.then(
        page(node("a", 1), bad("listed-bad", 2), node("b", 3), version=5),
        stream(
            event("MODIFIED", bad("a", 6)), event("MODIFIED", bad("a", 6)), event("ADDED", node("c", 7)), end="close"
        ),
        status(410, "Expired"),
        page(bad("a", 6), bad("listed-bad", 2), node("c", 7), version=10),
        stream(event("DELETED", bad("a", 11)), event("MODIFIED", node("listed-bad", 12))),
    )
    start(followed.informer.run)
    eventually(lambda: "ADDED listed-bad" in followed.told())
    assert followed.told() == [
        "ADDED a",
        "ADDED b",
        "SYNCED",
        "ADDED c",
        "DELETED b",
        "SYNCED",
        "DELETED a",
        "ADDED listed-bad",
    ]
    assert watched_from(server)[1] == "7"
    assert followed.count("headroom_kube_refused_objects_total") == 2
    refusals = [record for record in caplog.records if record.message.startswith("object refused")]
    assert [vars(record)["key"] for record in refusals] == ["listed-bad", "a"]


@pytest.mark.parametrize(
    "garbage",
    [
        b'{"type":"ADDED","object":{"metadata"\n',
        b"<html>sorry</html>\n",
        b'{"type":"WHATEVER","object":{}}\n',
        b"\x00\xff\n",
    ],
)
def test_garbage_in_a_watch_is_left_behind_by_listing_again(
    server: ScriptedServer, followed: Followed, start: Start, garbage: bytes
) -> None:
    server.then(
        page(node("a", 1), version=5),
        stream(event("MODIFIED", node("a", 6)), garbage),
        page(node("a", 7), version=10),
    )
    start(followed.informer.run)
    eventually(lambda: followed.versions() == {"a": "7"})
    assert followed.restarts("malformed") == 1


def test_a_list_that_is_no_list_does_not_empty_the_cache(
    server: ScriptedServer, followed: Followed, start: Start
) -> None:
    server.then(
        page(node("a", 1), version=5),
        status(410, "Expired"),
        answer({}),
        answer(b"<html>"),
        answer({"kind": "Status", "metadata": {}}),
        page(node("a", 1), version=9),
    )
    start(followed.informer.run)
    eventually(lambda: followed.told().count("SYNCED") == 2)
    assert followed.told() == ["ADDED a", "SYNCED", "SYNCED"]


def test_a_silent_stall_ends_after_the_inactivity_timeout(server: ScriptedServer, start: Start) -> None:
    # The server says it ends the watch within a second or two, and then does not.
    followed = Followed(server, timeout_seconds=0.1, margin_seconds=-0.9)
    server.then(
        page(version=5),
        stream(event("ADDED", node("a", 6)), end="stall"),
        stream(event("ADDED", node("b", 7)), end="stall"),
    )
    start(followed.informer.run)
    eventually(lambda: followed.versions() == {"a": "6", "b": "7"})
    assert watched_from(server)[:2] == ["5", "6"]
    assert followed.restarts("unreachable") >= 1


def test_faults_before_the_first_list_are_outlasted(server: ScriptedServer, followed: Followed, start: Start) -> None:
    server.then(
        reset(),
        status(503, "ServiceUnavailable"),
        status(403, "Forbidden"),
        status(404, "NotFound"),
        page(node("a", 1), version=2),
        status(429, "TooManyRequests", retry_after="0"),
        status(500, "InternalError"),
        stream(event("MODIFIED", node("a", 3))),
    )
    start(followed.informer.run)
    eventually(lambda: followed.versions() == {"a": "3"})
    assert watched_from(server) == ["2", "2", "2"]
    assert lists(server) == 5
    assert followed.restarts("throttled") == 1


def test_the_server_can_ask_to_be_left_alone(server: ScriptedServer, start: Start) -> None:
    clock = Hurried()
    informer = Informer(
        Client(Connection(server.url), "test", clock=clock), NODES, Node, times=WatchTimes(jitter=QUICK)
    )
    server.then(
        status(429, "TooManyRequests", retry_after="7"),
        page(node("a", 1), version=2),
        status(503, "ServiceUnavailable", details={"retryAfterSeconds": 5}),
    )
    start(informer.run)
    eventually(lambda: watched_from(server) == ["2", "2"])
    assert 7 <= clock.waits[0] < 8
    assert 5 <= clock.waits[1] < 6


def test_all_go_on_once_one_has_an_answer_from_a_server_that_was_away(server: ScriptedServer, start: Start) -> None:
    clock = ManualClock()
    client = Client(Connection(server.url), "test", clock=clock)
    slow = Jitter(base_seconds=1e6, cap_seconds=1e6)
    followed = [Informer(client, NODES, Node, times=WatchTimes(jitter=slow)) for _ in range(3)]
    server.then(*[reset()] * 3)
    clock.advance(60)
    for one in followed:
        start(one.run)
    eventually(lambda: len(server.requests) == 3 and clock.waiting == 3)

    def well(exchange: Exchange) -> None:
        (stream() if "watch" in exchange.request_seen.query else page(node("a", 1), version=2))(exchange)

    server.then(*[well] * 7)
    clock.advance(LOOK_SECONDS)
    client.get(NODES, "a")  # a report, say

    def all_synced() -> bool:
        clock.advance(LOOK_SECONDS)
        return all(one.synced.is_set() for one in followed)

    eventually(all_synced)
    assert clock.monotonic() < 1e4
    assert [one.keys() for one in followed] == [["a"]] * 3


def test_a_kind_the_server_does_not_know_is_empty_and_current_until_it_does(
    server: ScriptedServer, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    clock, changes = Hurried(), list[Change[Node]]()
    client = Client(Connection(server.url), "test", clock=clock)
    informer = Informer(
        client, NODES, Node, on_change=changes.append, times=WatchTimes(jitter=QUICK, absent_seconds=60)
    )
    empty: list[tuple[bool, bool, int]] = []

    def unknown(exchange: Exchange) -> None:
        empty.append((informer.synced.is_set(), informer.current.is_set(), len(informer.keys())))
        status(404, "NotFound")(exchange)

    server.then(
        unknown, unknown, page(node("a", 1), version=2), unknown, unknown, page(node("b", 3), version=4), stream()
    )
    start(informer.run)
    eventually(lambda: informer.keys() == ["b"] and watched_from(server) == ["2", "4"])
    assert empty == [(False, False, 0), (True, True, 0), (True, True, 1), (True, True, 0)]
    heard = [f"{change.kind} {change.key}".strip() for change in changes]
    assert heard == ["ADDED a", "SYNCED", "DELETED a", "ADDED b", "SYNCED"]
    assert all(30 <= seconds <= 90 for seconds in clock.waits)
    told = [record for record in caplog.records if "does not know this kind" in record.message]
    assert len(told) == 2


def test_a_reaction_that_fails_costs_neither_the_next_ones_nor_other_subscribers(
    server: ScriptedServer, start: Start
) -> None:
    seen: list[str] = []
    also_seen: list[str] = []

    def react(change: Change[Node]) -> None:
        seen.append(change.key)
        if change.key == "a":
            raise RuntimeError("scripted")

    server.then(page(node("a", 1), node("b", 2), version=3))
    informer = Informer(Client(Connection(server.url), "test"), NODES, Node, on_change=react)
    informer.subscribe(lambda change: also_seen.append(change.key))
    start(informer.run)
    eventually(lambda: seen == also_seen == ["a", "b", ""])


def test_the_cache_has_a_change_before_it_is_announced(server: ScriptedServer, start: Start) -> None:
    agreed: list[bool] = []

    def react(change: Change[Node]) -> None:
        if change.kind is not ChangeKind.SYNCED:
            agreed.append(informer.get(change.key) is change.new)

    informer = Informer(Client(Connection(server.url), "test"), NODES, Node, on_change=react)
    server.then(
        page(node("a", 1), version=3),
        stream(event("MODIFIED", node("a", 4)), event("DELETED", node("a", 5))),
    )
    start(informer.run)
    eventually(lambda: agreed == [True, True, True])


class Recording:
    """Makes a record of each node, its name and version, and fails for one that is called so."""

    def __init__(self, server: ScriptedServer) -> None:
        self.made: list[str] = []
        self.changes: list[Change[str]] = []
        self.registry = CollectorRegistry()
        client = Client(Connection(server.url), "test", registry=self.registry)
        self.informer = Informer(
            client, NODES, Kept(Node, self._record), on_change=self.changes.append, times=WatchTimes(jitter=QUICK)
        )

    def _record(self, node: Node) -> str:
        if node.metadata.name == "bad":
            raise OverflowError("scripted")
        self.made.append(f"{node.metadata.name}@{node.metadata.resource_version}")
        return self.made[-1]


def test_what_is_kept_of_objects_is_cached_and_announced_in_their_stead(server: ScriptedServer, start: Start) -> None:
    recording = Recording(server)
    server.then(
        page(node("a", 1), version=4, token="more"),
        page(node("b", 2), node("reborn", 3), version=5),
        stream(event("MODIFIED", node("a", 6)), event("DELETED", node("b", 7)), event("DELETED", node("never", 8))),
    )
    start(recording.informer.run)
    eventually(lambda: len(recording.changes) == 6)
    assert [(change.old, change.new) for change in recording.changes] == [
        (None, "a@1"),
        (None, "b@2"),
        (None, "reborn@3"),
        (None, None),
        ("a@1", "a@6"),
        ("b@7", None),
    ]
    assert recording.informer.get("a") == "a@6"
    assert sorted(recording.informer.values()) == ["a@6", "reborn@3"]
    assert sorted(recording.informer.keys()) == ["a", "reborn"]


def test_a_list_that_says_what_is_known_makes_no_new_records(server: ScriptedServer, start: Start) -> None:
    recording = Recording(server)
    server.then(
        page(node("same", 1), node("changed", 2), node("reborn", 3), version=5),
        status(410, "Expired"),
        page(node("same", 1), node("changed", 8), node("reborn", 3, uid="2"), version=10),
    )
    start(recording.informer.run)
    eventually(lambda: [change.kind for change in recording.changes].count(ChangeKind.SYNCED) == 2)
    assert recording.made == ["same@1", "changed@2", "reborn@3", "changed@8", "reborn@3"]
    assert [change.kind for change in recording.changes][4:] == [
        ChangeKind.MODIFIED,
        ChangeKind.DELETED,
        ChangeKind.ADDED,
        ChangeKind.SYNCED,
    ]


LISTED_BAD = (node("a", 1), bad("mended", 2), bad("gone", 3), bad("unlisted", 4))


def test_what_is_there_and_cannot_be_read_is_known(server: ScriptedServer, followed: Followed, start: Start) -> None:
    server.then(page(*LISTED_BAD, version=5), stream(event("MODIFIED", bad("a", 6)), event("ADDED", node("mark", 7))))
    start(followed.informer.run)
    eventually(lambda: "ADDED mark" in followed.told())
    assert followed.informer.unread() == ["gone", "mended", "unlisted"], "of a there is a version that can be read"


def test_what_could_not_be_read_is_forgotten_once_it_can_be_or_has_gone(
    server: ScriptedServer, followed: Followed, start: Start
) -> None:
    server.then(
        page(*LISTED_BAD, version=5),
        stream(event("MODIFIED", node("mended", 8)), event("DELETED", bad("gone", 9)), end="close"),
        status(410, "Expired"),
        page(node("mended", 8), version=10),
        stream(),
    )
    start(followed.informer.run)
    eventually(lambda: followed.told().count("SYNCED") == 2)
    assert followed.informer.unread() == []


def test_an_object_nobody_foresaw_is_refused_alone(server: ScriptedServer, start: Start) -> None:
    recording = Recording(server)
    server.then(
        page(node("bad", 1), node("a", 2), version=5),
        stream(event("MODIFIED", node("bad", 6)), event("DELETED", node("bad", 7)), event("MODIFIED", node("a", 8))),
    )
    start(recording.informer.run)
    eventually(lambda: recording.informer.get("a") == "a@8")
    assert [(change.old, change.new) for change in recording.changes] == [(None, "a@2"), (None, None), ("a@2", "a@8")]
    assert recording.registry.get_sample_value("headroom_kube_refused_objects_total", {"resource": "nodes"}) == 2


def test_a_stop_ends_a_silent_watch_long_before_its_server_does(server: ScriptedServer, followed: Followed) -> None:
    server.then(page(version=5), stream())
    stop = Stop()
    thread = threading.Thread(target=followed.informer.run, args=(stop,))
    thread.start()
    eventually(lambda: watched_from(server))
    stop.set()
    thread.join(60)
    assert not thread.is_alive()
    assert followed.restarts("unreachable") == 0
    eventually(lambda: not any(t.name == "watch-guard" for t in threading.enumerate()))


def test_a_run_that_is_started_again_goes_on_where_it_was(server: ScriptedServer, followed: Followed) -> None:
    server.then(page(node("a", 1), version=5), stream(event("MODIFIED", node("a", 6))))
    for expected in ({"a": "6"}, {"a": "7"}):
        stop = Stop()
        thread = threading.Thread(target=followed.informer.run, args=(stop,))
        thread.start()
        eventually(partial(_has, followed, expected))
        stop.set()
        thread.join(60)
        assert not thread.is_alive()
        server.then(stream(event("MODIFIED", node("a", 7))))
    assert watched_from(server) == ["5", "6"]
    assert lists(server) == 1


def _has(followed: Followed, versions: dict[str, str]) -> bool:
    return followed.versions() == versions
