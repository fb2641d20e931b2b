"""A port gives up what takes too long or too much, says so to who sent it, and keeps answering everybody else."""

import contextlib
import logging
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from fastapi import FastAPI, Request, Response
from prometheus_client import CollectorRegistry

from shared import web
from shared.certificates import VALID_SECONDS, issued
from shared.telemetry import OncePerMinute
from shared.web.connections import Connections
from shared.web.counts import Counts, Reason
from shared.web.limits import Limits
from shared.web.metrics import HttpCollector
from shared.web.server import Server
from shared.web.tls import Tls
from tests.support import eventually, flood
from tests.support.local_http import LOCAL_HTTP

POST = b"POST /echo HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
Start = Callable[..., Server]


class Held:
    """Requests that are not answered before they may be."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Event()

    def wait(self) -> str:
        self.begun.release()
        assert self.may_end.wait(60)
        return "done"


@pytest.fixture
def held() -> Iterator[Held]:
    held = Held()
    yield held
    held.may_end.set()


def certified() -> Tls:
    made, tls = issued(["127.0.0.1"], time.time(), VALID_SECONDS), Tls()
    tls.install(made.chain.encode(), made.key.encode(), source="test")
    return tls


@pytest.fixture
def start(held: Held) -> Iterator[Start]:
    app = FastAPI()
    app.get("/ping")(lambda: "pong")
    app.get("/held")(held.wait)
    app.get("/large")(lambda: Response(bytes(32 << 20)))

    @app.get("/healthz")
    async def healthz() -> str:
        return "ok"

    @app.post("/echo")
    async def echo(request: Request) -> Response:
        try:
            return Response(await web.body(request, 1 << 20))
        except web.TooLarge:
            return Response(status_code=413)

    servers: list[Server] = []

    def start(*, tls: bool = False, **limits: Any) -> Server:
        context = certified().context if tls else None
        servers.append(web.server(app, "127.0.0.1:0", tls=context, limits=replace(Limits(), **limits)))
        servers[-1].start()
        return servers[-1]

    yield start
    for each in servers:
        each.close()


def sent(server: Server, *parts: bytes) -> bytes:
    """What comes back until the connection ends."""
    with socket.create_connection(server.address, timeout=30) as client:
        for part in parts:
            client.sendall(part)
        received = b""
        while chunk := client.recv(65536):
            received += chunk
    return received


@pytest.mark.parametrize(
    "text",
    [b"", b"GET /ping", b"GET /ping HTTP/1.1\r\nHost: x\r\n", b"\r\n", POST + b"Content-Length: 9\r\n\r\n{",
     POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{"],
)  # fmt: skip
def test_what_is_not_sent_to_its_end_is_given_up(start: Start, text: bytes) -> None:
    answer = sent(start(header_seconds=0.1, body_seconds=0.1), text)
    assert answer.startswith(b"HTTP/1.1 408 ")


def test_an_empty_line_after_an_answer_keeps_no_connection(start: Start) -> None:
    server = start(header_seconds=0.1)
    with socket.create_connection(server.address, timeout=30) as client:
        client.sendall(b"GET /ping HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 200 ")
        client.sendall(b"\r\n")
        assert flood.is_cut(client)


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (b"GET /ping HTTP/1.1\r\nX: " + b"x" * 100_000, b"431"),
        (b"GET /ping HTTP/1.1\r\n" + b"x: y\r\n" * 200 + b"\r\n", b"400"),
        (POST + b"Content-Length: 9999999\r\n\r\n", b"413"),
        (POST + b"Content-Length: -1\r\n\r\n", b"400"),
        (POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", b"400"),
    ],
    ids=["header", "headers", "announced", "negative", "twice"],
)
def test_what_is_too_large_or_contradicts_itself_is_refused(start: Start, text: bytes, status: bytes) -> None:
    assert sent(start(body_seconds=0.1), text).startswith(b"HTTP/1.1 " + status)


def test_a_body_without_an_announced_size_is_refused_once_it_is_too_large(start: Start) -> None:
    chunk = b"%x\r\n%s\r\n" % (1 << 16, bytes(1 << 16))
    answer = sent(start(body_seconds=0.5), POST + b"Transfer-Encoding: chunked\r\n\r\n", chunk * 17)
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_health_is_answered_beyond_the_requests_that_are(start: Start, held: Held) -> None:
    server = start(answering=2)
    with ThreadPoolExecutor(2) as askers:
        asked = [askers.submit(LOCAL_HTTP.get, f"{server.url}/held", timeout=60) for _ in range(2)]
        assert all(held.begun.acquire(timeout=60) for _ in range(2))
        refused = LOCAL_HTTP.get(f"{server.url}/ping")
        posted = LOCAL_HTTP.post(f"{server.url}/echo", json={})
        assert LOCAL_HTTP.get(f"{server.url}/healthz").text == '"ok"'
        held.may_end.set()
        assert [each.result().text for each in asked] == ['"done"'] * 2
    assert (refused.status_code, posted.status_code) == (503, 503)
    assert refused.headers["retry-after"] == "1"
    assert LOCAL_HTTP.get(f"{server.url}/ping").text == '"pong"'


def test_a_newcomer_takes_the_place_of_who_waits_and_not_of_who_is_answered(start: Start, held: Held) -> None:
    server = start(connections=8)
    with ThreadPoolExecutor(1) as askers:
        asked = askers.submit(LOCAL_HTTP.get, f"{server.url}/held", timeout=60)
        assert held.begun.acquire(timeout=60)
        with flood.half_sent(server.address, b"GET / HT", 20) as clients:
            assert flood.health_seconds(server.url) < 30
            assert flood.is_cut(clients[0], lambda answer: not answer)
            held.may_end.set()
            assert asked.result().text == '"done"'


class _Peer:
    """A connection as the table sees it."""

    def __init__(self, peer: str, table: Any) -> None:
        self.peer, self.held_bytes, self.table, self.is_cut = peer, 0, table, False

    def cut(self, _: Reason | None = None) -> None:
        self.is_cut = True
        self.table.remove(self)


def test_the_peer_that_holds_most_gives_up_its_oldest() -> None:
    table: Any = Connections(Limits(connections=8, held_bytes=100), Counts())
    kubelet, *crowd = peers = [_Peer(name, table) for name in ["kubelet", *["crowd"] * 7]]
    assert all(table.add(each) for each in peers)
    assert table.add(_Peer("prometheus", table))
    assert [each.is_cut for each in peers] == [False, True, *[False] * 6]
    table.hold(kubelet, 40)
    for each in crowd[1:5]:
        table.hold(each, 20)
    assert [each.is_cut for each in peers] == [False, True, True, *[False] * 5]


def test_an_answer_that_is_not_read_is_given_up(start: Start) -> None:
    server = start(write_seconds=0.1)
    with socket.create_connection(server.address, timeout=30) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.sendall(b"GET /large HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        eventually(lambda: len(server._server.server_state.connections) == 0)


def test_answers_that_are_not_read_count_with_the_bodies(start: Start) -> None:
    server = start(held_bytes=40 << 20)
    with flood.half_sent(server.address, b"GET /large HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 6):
        eventually(lambda: 0 < server._server.connections._held_bytes <= 40 << 20)
        assert flood.health_seconds(server.url) < 30


def test_a_client_that_goes_away_is_one_line_below_warning(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    server = start()
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            with socket.create_connection(server.address) as client:
                client.sendall(POST + b"Content-Length: 9\r\n\r\n{")
                time.sleep(0.05)
        eventually(lambda: len(server._server.server_state.connections) == 0)
        eventually(lambda: not server._server.server_state.tasks)
    found = [
        (record.levelno, record.msg) for record in caplog.records if record.name in ("shared.web", "uvicorn.error")
    ]
    assert found in ([], [(logging.INFO, "client went away")])  # the kind may have been told of within this minute
    assert LOCAL_HTTP.get(f"{server.url}/ping").text == '"pong"'


def test_what_was_cut_and_refused_is_counted_by_reason(start: Start) -> None:
    server, full = start(header_seconds=0.2, header_bytes=1000), start(connections=8)
    registry = CollectorRegistry()
    registry.register(HttpCollector({"api": server, "full": full}))

    def counted(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"headroom_http_{name}", {"port": "api"} | labels)

    def cut(reason: str, port: str = "api") -> float | None:
        return counted("connections_cut_total", reason=reason, port=port)

    assert [cut(reason) for reason in Reason] == [0.0] * len(Reason)
    assert b" 400 " in sent(server, b"nonsense\r\n\r\n")
    assert b" 431 " in sent(server, b"GET /ping HTTP/1.1\r\nX: " + b"x" * 2000)
    assert b" 408 " in sent(server, b"GET")
    with contextlib.ExitStack() as clients:
        for _ in range(9):
            clients.enter_context(socket.create_connection(full.address))
        eventually(lambda: cut("made_room", "full") == 1)
        assert counted("connections", port="full") == 8
    assert LOCAL_HTTP.post(f"{server.url}/echo", content=b"x").status_code == 415
    assert counted("requests_refused_total", code="415") == 1
    assert [cut(reason) for reason in ("malformed", "large_headers", "timeout", "made_room")] == [1, 1, 1, 0]


def test_one_kind_of_message_is_logged_once_a_minute_with_how_many_there_were() -> None:
    now = 0.0
    sparing = OncePerMinute(lambda: now)

    def passes(message: str, **more: object) -> bool:
        return bool(sparing.filter(logging.makeLogRecord({"msg": message, "name": "n", "levelno": 30, **more})))

    assert [passes("one"), passes("one"), passes("two"), passes("one")] == [True, False, True, False]
    now = 61.0
    record = logging.makeLogRecord({"msg": "one", "name": "n", "levelno": 30})
    assert sparing.filter(record)
    assert vars(record)["held_back"] == 2
    for number in range(3000):
        passes(f"kind {number}")
    assert len(sparing._kinds) <= OncePerMinute.MOST_KINDS


def test_a_handshake_that_is_not_finished_is_given_up() -> None:
    server = web.server(FastAPI(), "127.0.0.1:0", tls=Tls().context, limits=Limits(handshake_seconds=0.1))
    server.start()
    try:
        with socket.create_connection(server.address, timeout=30) as client:
            client.sendall(b"\x16\x03\x01")
            assert flood.is_cut(client)
        eventually(lambda: len(server._server.connections) == 0)
    finally:
        server.close()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "localhost:1234"}, 200),
        ({"host": "[::1]:80"}, 200),
        ({"host": "127.8.0.1"}, 200),
        ({"host": "rebound.example"}, 403),
        ({"host": "127.0.0.1.rebound.example:80"}, 403),
        ({"host": ""}, 403),
        ({"origin": "http://rebound.example"}, 403),
        ({"origin": "null"}, 403),
        ({"host": "localhost:80", "origin": "http://localhost:80"}, 200),
        ({"host": "localhost:80", "origin": "http://localhost:81"}, 403),
    ],
)
def test_on_loopback_host_and_origin_are_checked(start: Start, headers: dict[str, str], status: int) -> None:
    assert LOCAL_HTTP.get(f"{start().url}/ping", headers=headers).status_code == status


@pytest.mark.parametrize(
    ("media_type", "status"),
    [
        ("application/json", 200),
        ("Application/JSON; charset=utf-8", 200),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("", 415),
    ],
)
def test_a_post_that_is_not_json_is_refused(start: Start, media_type: str, status: int) -> None:
    headers = {"content-type": media_type} if media_type else {}
    assert LOCAL_HTTP.post(f"{start().url}/echo", content=b"{}", headers=headers).status_code == status


@pytest.mark.parametrize("media_type", ["application/json", "text/plain"])
def test_a_post_to_what_is_only_read_is_told_the_method_and_not_the_media_type(start: Start, media_type: str) -> None:
    for path in ("ping", "healthz"):
        answer = LOCAL_HTTP.post(f"{start().url}/{path}", content=b"{}", headers={"content-type": media_type})
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET")


def test_health_is_answered_under_any_name(start: Start) -> None:
    assert LOCAL_HTTP.get(f"{start().url}/healthz", headers={"host": "10.0.0.1:8080"}).status_code == 200


@pytest.mark.parametrize("asked", [1, 3])
@pytest.mark.parametrize("goodbye", ["notice", "end", "reset"])
def test_a_client_that_breaks_off_tls_during_an_answer_is_no_warning(
    start: Start, held: Held, caplog: pytest.LogCaptureFixture, asked: int, goodbye: str
) -> None:
    server = start(tls=True)
    text = b"GET /held HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with caplog.at_level(logging.INFO), flood.encrypted(server.address, 1, "idle") as [client]:
        client.sendall(b"GET /ping HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 200 ")
        client.sendall(text)
        assert held.begun.acquire(timeout=60)
        with contextlib.suppress(OSError):  # cut already
            client.sendall(text * (asked - 1))
            eventually(lambda: server.counts.connections[Reason.PIPELINED] == asked // 2)
            if goodbye == "notice":
                assert isinstance(client, ssl.SSLSocket)
                client.unwrap()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", goodbye == "reset", 0))
        client.close()
        eventually(lambda: server.connections == 0)
        held.may_end.set()
        eventually(lambda: not server._server.server_state.tasks)
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING] == []
