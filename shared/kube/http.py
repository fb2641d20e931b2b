"""HTTP to one API server: the only module that knows urllib3.

It pools connections (safe to share between threads), authenticates each request, and turns every failure into one of
the errors of `shared.kube.errors`. It never repeats a request, except after a 401 when it can get other credentials.
"""

import contextlib
import logging
import socket
import urllib.parse
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import urllib3
from urllib3.exceptions import HTTPError, InsecureRequestWarning

from shared.errors import InvalidInput
from shared.kube import errors
from shared.kube.config import Connection
from shared.kube.errors import Unreachable

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_SECONDS = 5.0
MAX_IDLE_CONNECTIONS = 16
READ_BYTES = 1 << 16

# urllib3 warns when it closes an idle connection beyond MAX_IDLE_CONNECTIONS, which is what that bound is for.
logging.getLogger("urllib3.connectionpool").addFilter(
    lambda record: not str(record.msg).startswith("Connection pool is full")
)

# Notices within a minute a peer that vanished (its node died, a NAT forgot us), even on a watch, where silence is
# normal.
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


@dataclass(frozen=True)
class Response:
    """A complete answer below 300."""

    status: int
    body: bytes


class Stream(Protocol):
    """An answer below 300 whose body does not end by itself."""

    @property
    def status(self) -> int: ...

    def chunks(self) -> Iterator[bytes]:
        """The body as it arrives. Raises Unreachable when it breaks off or stays silent for too long."""
        ...

    def abort(self) -> None:
        """Ends a blocking read in another thread, which then sees the stream break off."""
        ...

    def close(self) -> None: ...


class Transport(Protocol):
    """The way to one API server as one identity, for all threads of a process."""

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        more_headers: Mapping[str, str] | None = None,
        timeout_seconds: float,
    ) -> Response:
        """The whole answer. Raises ApiError for 300 and above, Unreachable."""
        ...

    def stream(self, path: str, *, query: Mapping[str, str], timeout_seconds: float, idle_seconds: float) -> Stream:
        """A GET whose body is read as it arrives. `timeout_seconds` bounds the wait for the headers, `idle_seconds`
        every silence after them. Raises ApiError for 300 and above, Unreachable.
        """
        ...

    def close(self) -> None:
        """Closes the idle connections."""
        ...


class SocketStream:
    """The `Stream` of a connection."""

    def __init__(self, raw: urllib3.BaseHTTPResponse, what: str) -> None:
        self._raw = raw
        self._what = what
        self.status = raw.status

    def chunks(self) -> Iterator[bytes]:
        with _translated(self._what):
            yield from self._raw.stream(READ_BYTES)

    def abort(self) -> None:
        with contextlib.suppress(OSError, RuntimeError, ValueError):  # the stream has just ended by itself
            self._raw.shutdown()

    def close(self) -> None:
        self._raw.close()
        self._raw.release_conn()


class SocketTransport:
    """Sends requests over `connection`. Raises InvalidInput when its server is no URL."""

    def __init__(self, connection: Connection, user_agent: str) -> None:
        self._credentials = connection.credentials
        self._headers = {"User-Agent": user_agent, "Accept": "application/json"}
        self._prefix = _path_prefix(connection.server)
        self._pool = _pool(connection)

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        more_headers: Mapping[str, str] | None = None,
        timeout_seconds: float,
    ) -> Response:
        raw = self._send(
            method,
            path,
            query=query or {},
            body=body,
            content_type=content_type,
            more_headers=more_headers,
            timeout_seconds=timeout_seconds,
            preload=True,
        )
        return Response(raw.status, raw.data)

    def stream(self, path: str, *, query: Mapping[str, str], timeout_seconds: float, idle_seconds: float) -> Stream:
        raw = self._send("GET", path, query=query, timeout_seconds=timeout_seconds, preload=False)
        sock = getattr(raw.connection, "sock", None)
        if sock is not None:  # an answer that ends with its connection owns the socket, and keeps the first timeout
            sock.settimeout(idle_seconds)
        return SocketStream(raw, f"GET {path}")

    def close(self) -> None:
        self._pool.close()

    def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        timeout_seconds: float,
        preload: bool,
        body: bytes | None = None,
        content_type: str | None = None,
        more_headers: Mapping[str, str] | None = None,
    ) -> urllib3.BaseHTTPResponse:
        url = f"{self._prefix}{path}?{urllib.parse.urlencode(query)}" if query else self._prefix + path
        headers = {**self._headers, **(more_headers or {})}
        if body is not None and content_type:
            headers["Content-Type"] = content_type
        timeout = urllib3.Timeout(connect=CONNECT_TIMEOUT_SECONDS, read=timeout_seconds)

        def send(authorization: str | None) -> urllib3.BaseHTTPResponse:
            if authorization:
                headers["Authorization"] = authorization
            return self._pool.request(
                method,
                url,
                body=body,
                headers=headers,
                timeout=timeout,
                preload_content=preload,
                retries=False,
                redirect=False,  # a redirect would send the token to another host
            )

        with _translated(f"{method} {path}"):
            used = self._credentials.authorization()
            raw = send(used)
            if raw.status == 401:
                self._credentials.renew()
                fresh = self._credentials.authorization()
                if fresh != used:
                    raw.drain_conn()
                    raw = send(fresh)
            if raw.status >= 300:
                raise errors.from_response(raw.status, raw.data, raw.headers)
        return raw


def _pool(connection: Connection) -> urllib3.HTTPConnectionPool:
    keepalive = [
        (socket.IPPROTO_TCP, getattr(socket, name), seconds)
        for name, seconds in _KEEPALIVE.items()
        if hasattr(socket, name)
    ]
    options: dict[str, object] = {
        "maxsize": MAX_IDLE_CONNECTIONS,
        "socket_options": [
            (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
            *keepalive,
        ],
    }
    if connection.server.startswith("https:"):
        # Files instead of a ready SSL context: each new connection reads them again, and so uses rotated ones.
        options |= {
            "ca_certs": connection.ca_file,
            "cert_file": connection.client_cert_file,
            "key_file": connection.client_key_file,
            "server_hostname": connection.tls_server_name,
            "cert_reqs": "CERT_REQUIRED" if connection.verify else "CERT_NONE",
        }
        if not connection.verify:
            logger.warning("the API server's certificate is not verified", extra={"server": connection.server})
            warnings.simplefilter("ignore", InsecureRequestWarning)  # the line above warns once
    return urllib3.connection_from_url(connection.server, **options)


def _path_prefix(server: str) -> str:
    """The path in front of every request's own. Raises InvalidInput for an invalid server address."""
    try:
        url = urllib3.util.parse_url(server)
        if url.scheme in ("http", "https") and url.host:
            return (url.path or "").rstrip("/")
        problem = "not a URL of the form https://host:port"
    except HTTPError as error:
        problem = str(error)
    raise InvalidInput(source="API server", field="server", value=server, problem=problem)


@contextlib.contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except HTTPError as error:
        raise Unreachable(f"{what}: {error}") from error
