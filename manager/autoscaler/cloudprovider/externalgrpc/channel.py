"""One connection to a gRPC server: the only module that imports the library, on first use."""

import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import grpc

MAX_MESSAGE_BYTES = 128 << 20
NEEDS_LIBRARY = "it needs grpcio and protobuf: pip install 'headroom-k8s[grpc]'"
# Reconnects happen soon: callers have a loop and a deadline.
_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2000),
)
_ENDPOINT = re.compile(r"(dns:(//[^/\s]*/)?|ipv[46]:)?(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\s:/\[\]]+):(?P<port>\d{1,5})")
_SOCKET = re.compile(r"unix(-abstract)?:\S+")


class RpcError(Exception):
    """A call failed. `code` is the name of gRPC's status code."""

    def __init__(self, method: str, code: str, details: str) -> None:
        self.code = code
        super().__init__(f"{method}: {code}: {details}")


@dataclass(frozen=True, slots=True)
class ChannelTls:
    """PEM; None for the system's authorities, or for no client certificate."""

    authorities: bytes | None
    certificate: bytes | None = None
    key: bytes | None = None


class RpcChannel:
    """Calls of one service in bytes, each of which ends within the timeout. Connects on first use."""

    def __init__(self, service: str, address: str, tls: ChannelTls | None, timeout_seconds: float) -> None:
        """Without `tls` nothing is encrypted. Raises ImportError without the library."""
        import grpc

        self._grpc = grpc
        self._service = service
        self._timeout_seconds = timeout_seconds
        if tls is None:
            self._channel = grpc.insecure_channel(address, options=_OPTIONS)
        else:
            credentials = grpc.ssl_channel_credentials(tls.authorities, tls.key, tls.certificate)
            self._channel = grpc.secure_channel(address, credentials, options=_OPTIONS)

    def call(self, method: str, request: bytes) -> bytes:
        """The answer. Raises RpcError."""
        ask: grpc.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(f"/{self._service}/{method}")
        try:
            return ask(request, timeout=self._timeout_seconds)
        except self._grpc.RpcError as error:
            known = isinstance(error, self._grpc.Call)
            code, details = (error.code().name, error.details()) if known else ("UNKNOWN", str(error))
            raise RpcError(method, code, details or "") from error

    def close(self) -> None:
        self._channel.close()


def is_address(text: str) -> bool:
    """Whether gRPC can connect to it; gRPC would call a bare host at a port that no setting names."""
    if _SOCKET.fullmatch(text):
        return True
    found = _ENDPOINT.fullmatch(text)
    return found is not None and 0 < int(found["port"]) < 1 << 16


def authorities_problem(file: str) -> str:
    """What is wrong with a file of certificates in PEM; empty if nothing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return _problem(lambda: context.load_verify_locations(file))


def certificate_problem(certificate: str, key: str) -> str:
    """What is wrong with a certificate in PEM and its key; empty if nothing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return _problem(lambda: context.load_cert_chain(certificate, key, _no_password))


def _problem(load: Callable[[], None]) -> str:
    """OpenSSL's error; empty if none."""
    try:
        load()
    except (OSError, ValueError) as error:  # SSLError is one of these
        return str(error)
    return ""


def _no_password() -> str:
    """The process has no terminal to ask for one."""
    raise ValueError("the key is encrypted")
