"""One connection to a gRPC server: the only module that imports the library, on first use."""

from typing import TYPE_CHECKING

from manager.autoscaler.cloudprovider.errors import NoAnswer, ProviderError, Refused, Unavailable, Unsupported
from manager.autoscaler.cloudprovider.externalgrpc.config import GrpcConfig
from manager.autoscaler.cloudprovider.externalgrpc.messages import SERVICE
from shared.errors import InvalidInput

if TYPE_CHECKING:
    import grpc

MAX_MESSAGE_BYTES = 128 << 20
# Reconnects happen soon: callers have a loop and a deadline.
_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2000),
)
# With these codes a server refuses; with all others the call may have taken effect.
_REFUSALS = (
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "UNAUTHENTICATED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "OUT_OF_RANGE",
)
_SILENCE = ("DEADLINE_EXCEEDED", "UNAVAILABLE")


class Channel:
    """Calls in bytes, each of which ends within the timeout."""

    def __init__(self, config: GrpcConfig, provider: str) -> None:
        """Raises InvalidInput if the library is not installed, or rejects the certificates."""
        try:
            import grpc
        except ImportError as error:
            raise InvalidInput(
                source="--cloud-provider",
                field=provider,
                value=provider,
                problem="it needs grpcio, which is not installed: pip install 'headroom[grpc]'",
            ) from error
        self._grpc = grpc
        self._provider = provider
        self._timeout_seconds = config.timeout_seconds
        self._channel = self._open(config)

    def call(self, method: str, request: bytes, group: str = "") -> bytes:
        """The answer. Raises Unsupported, Refused, Unavailable."""
        ask: grpc.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(f"/{SERVICE}/{method}")
        try:
            return ask(request, timeout=self._timeout_seconds)
        except self._grpc.RpcError as error:
            raise self._failure(error, method, group) from error

    def close(self) -> None:
        self._channel.close()

    def _open(self, config: GrpcConfig) -> "grpc.Channel":
        if config.tls is None:
            return self._grpc.insecure_channel(config.address, options=_OPTIONS)
        tls = config.tls
        credentials = self._grpc.ssl_channel_credentials(tls.authorities, tls.key, tls.certificate)
        return self._grpc.secure_channel(config.address, credentials, options=_OPTIONS)

    def _failure(self, error: "grpc.RpcError", method: str, group: str) -> ProviderError:
        code = error.code().name if isinstance(error, self._grpc.Call) else "UNKNOWN"
        details = error.details() if isinstance(error, self._grpc.Call) else str(error)
        problem = f"{method}: {code}: {details}"
        if code == "UNIMPLEMENTED":
            return Unsupported(self._provider, group, problem)
        if code in _REFUSALS:
            return Refused(self._provider, group, problem)
        kind = NoAnswer if code in _SILENCE else Unavailable
        return kind(self._provider, group, problem)
