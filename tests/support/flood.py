"""What a careless or hostile client does to a port: real sockets, bounded in number and time, on loopback alone."""

import contextlib
import socket
import ssl
import time
from collections.abc import Callable, Iterator

import httpx

Address = tuple[str, int]

ENOUGH_SECONDS = 20.0  # for one attack to have had its effect


def health_seconds(url: str, timeout_seconds: float = 10.0) -> float:
    """How long the answer of a health probe on a connection of its own takes. Raises httpx.HTTPError."""
    began = time.monotonic()
    with httpx.Client(verify=False, timeout=timeout_seconds) as http:
        http.get(f"{url}/healthz").raise_for_status()
    return time.monotonic() - began


@contextlib.contextmanager
def half_sent(address: Address, text: bytes, count: int) -> Iterator[list[socket.socket]]:
    """So many connections that have sent `text`, and send no more."""
    held: list[socket.socket] = []
    try:
        for _ in range(count):
            held.append(socket.create_connection(address, timeout=5))
            with contextlib.suppress(OSError):  # cut already
                held[-1].sendall(text)
        yield held
    finally:
        for each in held:
            each.close()


@contextlib.contextmanager
def encrypted(address: Address, count: int, progress: str) -> Iterator[list[socket.socket]]:
    """So many TLS connections: "silent" from the start, after their "hello", or "idle" after the handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with half_sent(address, _client_hello(context) if progress == "hello" else b"", count) as held:
        if progress == "idle":
            for place, each in enumerate(held):
                with contextlib.suppress(OSError):  # cut already
                    held[place] = context.wrap_socket(each)
        yield held


def _client_hello(context: ssl.SSLContext) -> bytes:
    outgoing = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    return outgoing.read()


@contextlib.contextmanager
def stalled_bodies(address: Address, path: str, count: int, sent_bytes: int) -> Iterator[list[socket.socket]]:
    """Clients that have announced more than they send; all send at the same pace, as far as they are let."""
    text = (
        f"POST {path} HTTP/1.1\r\nHost: {address[0]}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {sent_bytes + 1}\r\n\r\n"
    ).encode()
    chunk = b" " * (256 << 10)
    with half_sent(address, text, count) as held:
        left = dict.fromkeys(held, sent_bytes)
        deadline = time.monotonic() + ENOUGH_SECONDS
        for each in held:
            each.setblocking(False)
        while left and time.monotonic() < deadline:
            for each in list(left):
                try:
                    left[each] -= each.send(chunk[: left[each]])
                except (BlockingIOError, ssl.SSLWantWriteError):
                    continue
                except OSError:
                    left[each] = 0
                if not left[each]:
                    del left[each]
        yield held


def is_cut(client: socket.socket, answered: Callable[[bytes], bool] = lambda _: True) -> bool:
    """Whether the other side has ended the connection, after an answer or without."""
    client.settimeout(5)
    received = b""
    try:
        while chunk := client.recv(65536):
            received += chunk
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    return answered(received)
