"""Calls that the server makes itself: a POST over verified TLS, without keeping anybody else waiting.

What goes wrong is said in the words of Go's HTTP client, which is what the users of kube-apiserver know.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import socket
import ssl
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import urlsplit

import httptools
import msgspec

from deploy.local.apiserver import selectors
from deploy.local.apiserver.objects import JsonObject, decode, dig
from deploy.local.apiserver.store import Store, object_key
from deploy.local.apiserver.webhooks import Client

_HTTPS_PORT = 443
_READ_BYTES = 65536
_QUOTED_BYTES = 2048
_IDLE_CONNECTIONS = 16
_LOOPBACK = "127.0.0.1"
_UNTRUSTED = "x509: certificate signed by unknown authority"
_CERTIFICATE_FAULTS: Mapping[int, str] = {  # by OpenSSL's codes
    9: "x509: certificate has expired or is not yet valid", 10: "x509: certificate has expired or is not yet valid",
    18: _UNTRUSTED, 19: _UNTRUSTED, 20: _UNTRUSTED, 21: _UNTRUSTED,
    62: "x509: certificate is not valid for {host}", 64: "x509: certificate is not valid for {host}",
}  # fmt: skip
_REFUSALS: Mapping[int, str] = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    403: "{said}",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    406: "{said}",
    409: "the server reported a conflict",
    415: "{said}",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be processing the request",
}


class CallFailed(Exception):
    """A call that brought no answer; the text says why."""


class NoClient(CallFailed):
    """A call that cannot even be tried."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where connections go: the host that has to prove who it is, to whom, and the address that is dialled."""

    host: str
    address: tuple[str, int]
    ca_bundle: str


@dataclass(slots=True)
class _Answer:
    """A response on its way; a parser fills it in."""

    headers: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    begun: bool = False
    complete: bool = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.begun = True

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.complete = True

    def ends_with_connection(self) -> bool:
        return self.begun and not {"content-length", "transfer-encoding"} & self.headers.keys()


class _Connection:
    """One TLS connection, used by one call at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.reusable = True

    @property
    def alive(self) -> bool:
        return self.reusable and not self._reader.at_eof() and not self._writer.is_closing()

    def close(self) -> None:
        self._writer.close()

    async def post(self, head: bytes, body: bytes) -> tuple[int, _Answer]:
        """Raises OSError, EOFError, httptools.HttpParserError."""
        self.reusable = False
        self._writer.write(head + body)
        answer = _Answer()
        parser = httptools.HttpResponseParser(answer)
        while not answer.complete:
            received = await self._reader.read(_READ_BYTES)
            if not received and answer.ends_with_connection():
                break
            if not received:
                raise EOFError
            parser.feed_data(received)
        closing = answer.headers.get("connection", "").lower() == "close" or parser.get_http_version() == "1.0"
        self.reusable = answer.complete and not closing
        return parser.get_status_code(), answer


class Callouts:
    """A client for the webhooks of one store, which keeps its connections."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._idle: dict[Place, list[_Connection]] = defaultdict(list)

    async def post(self, client: Client, body: bytes, timeout_seconds: int) -> bytes:
        """The JSON that a webhook answers with. Raises CallFailed."""
        url = _url(client, timeout_seconds)
        try:
            _trusting(client.ca_bundle)
            place = self._place(client, url)
            async with asyncio.timeout(timeout_seconds):
                code, answer = await self._exchange(place, _head(url, body), body)
        except (OSError, EOFError, httptools.HttpParserError, LookupError, ValueError) as error:
            raise CallFailed(f'Post "{url}": {_reason(error, url)}') from error
        if not 200 <= code <= 206:
            raise CallFailed(_refusal(code, answer))
        if not answer.body:
            kind = answer.headers.get("content-type") or "application/json"
            raise CallFailed(f"0-length response with status code: {code} and content type: {kind}")
        return bytes(answer.body)

    def close(self) -> None:
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()

    def _place(self, client: Client, url: str) -> Place:
        """Raises LookupError."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        address = (host, parts.port or _HTTPS_PORT)
        if client.service is not None:
            address = self._behind(*client.service)
        return Place(host, address, client.ca_bundle)

    def _behind(self, namespace: str, name: str, port: int) -> tuple[str, int]:
        """Where the pods of a service listen: they share the host's network. Raises LookupError."""
        record = self._store.get("/services", object_key(namespace, name))
        if record is None:
            raise LookupError(f'service "{name}" not found')
        spec: JsonObject = record.load()["spec"]
        if spec["type"] == "ExternalName":
            return spec.get("externalName") or "", port
        target = next((item["targetPort"] for item in spec.get("ports") or () if item["port"] == port), None)
        if target is None:
            raise LookupError(f'no service port {port} found for service "{name}"')
        return _LOOPBACK, target if isinstance(target, int) else self._named(namespace, name, spec, target)

    def _named(self, namespace: str, name: str, spec: JsonObject, port: str) -> int:
        """The number of a port that pods of a service give a name. Raises LookupError."""
        wanted = selectors.from_object({"matchLabels": spec.get("selector") or {}})
        for record in self._store.ordered("/pods"):
            if record.namespace == namespace and wanted and wanted.matches(record.labels):
                for container in record.load()["spec"]["containers"]:
                    for item in container.get("ports") or ():
                        if item.get("name") == port:
                            return int(item["containerPort"])
        raise LookupError(f'no endpoints available for service "{name}"')

    async def _exchange(self, place: Place, head: bytes, body: bytes) -> tuple[int, _Answer]:
        while idle := self._idle[place]:
            connection = idle.pop()
            if connection.alive:
                try:
                    return await self._posted(place, connection, head, body)
                except (OSError, EOFError):
                    break  # closed meanwhile by the other side, which has not seen the call
        return await self._posted(place, await _opened(place), head, body)

    async def _posted(self, place: Place, connection: _Connection, head: bytes, body: bytes) -> tuple[int, _Answer]:
        try:
            return await connection.post(head, body)
        finally:
            if connection.alive and len(self._idle[place]) < _IDLE_CONNECTIONS:
                self._idle[place].append(connection)
            else:
                connection.close()


def _url(client: Client, timeout_seconds: int) -> str:
    """The URL of a call, which tells the webhook how long it is waited for."""
    if client.service is not None:
        namespace, name, port = client.service
        base = f"https://{name}.{namespace}.svc:{port}/{client.path.lstrip('/')}"
    else:
        base = client.url
    return f"{base}?timeout={timeout_seconds}s"


def _head(url: str, body: bytes) -> bytes:
    parts = urlsplit(url)
    return (
        f"POST {parts.path or '/'}?{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
        "User-Agent: kube-apiserver-admission\r\nAccept: application/json, */*\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()


async def _opened(place: Place) -> _Connection:
    """Raises OSError."""
    context = _trusting(place.ca_bundle)
    return _Connection(*await asyncio.open_connection(*place.address, ssl=context, server_hostname=place.host))


@lru_cache(maxsize=64)
def _trusting(ca_bundle: str) -> ssl.SSLContext:
    """A context that trusts the certificates in a bundle, or the system's without one. Raises NoClient."""
    try:
        authorities = base64.b64decode(ca_bundle).decode()
        context = ssl.create_default_context(cadata=authorities or None)
    except (binascii.Error, UnicodeDecodeError, ssl.SSLError) as error:
        raise NoClient("unable to load root certificates: unable to parse bytes as PEM block") from error
    context.hostname_checks_common_name = False
    return context


def _reason(error: Exception, url: str) -> str:
    match error:
        case TimeoutError():
            return "context deadline exceeded"
        case ssl.SSLCertVerificationError(verify_code=code):
            fault = _CERTIFICATE_FAULTS.get(code, f"x509: {error.verify_message}")
            return f"tls: failed to verify certificate: {fault.format(host=urlsplit(url).hostname)}"
        case ssl.SSLError(reason="WRONG_VERSION_NUMBER" | "HTTP_REQUEST"):
            return "http: server gave HTTP response to HTTPS client"
        case ConnectionRefusedError():
            parts = urlsplit(url)
            host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
            return f"dial tcp {host}:{parts.port or _HTTPS_PORT}: connect: connection refused"
        case socket.gaierror():
            return f"dial tcp: lookup {urlsplit(url).hostname}: no such host"
        case ConnectionResetError():
            return "read: connection reset by peer"
        case EOFError():
            return "EOF"
        case OSError():
            return error.strerror or str(error)
    return str(error.args[0]) if error.args else type(error).__name__


def _refusal(code: int, answer: _Answer) -> str:
    """What is said of an answer that is a failure: its own message where it is a Status."""
    try:
        body = decode(answer.body)
    except msgspec.DecodeError:
        body = None
    if dig(body, "kind") == "Status" and dig(body, "apiVersion") == "v1" and dig(body, "status") != "Success":
        return str(dig(body, "message") or "")
    is_text = answer.headers.get("content-type", "text/plain").startswith("text/")
    said = bytes(answer.body[:_QUOTED_BYTES]).decode(errors="replace").strip() if is_text else "unknown"
    if code in _REFUSALS:
        return _REFUSALS[code].format(said=said)
    if code >= 500:
        quoted = said.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'an error on the server ("{quoted}") has prevented the request from succeeding'
    return f"the server responded with the status code {code} but did not return more information"
