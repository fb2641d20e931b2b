"""The connection to a provider: gRPC's failures as `ProviderError`."""

from manager.autoscaler.cloudprovider.errors import NoAnswer, ProviderError, Refused, Unavailable, Unsupported
from manager.autoscaler.cloudprovider.externalgrpc.config import GrpcConfig
from manager.autoscaler.cloudprovider.externalgrpc.messages import SERVICE
from manager.autoscaler.rpc.channel import NEEDS_LIBRARY, RpcChannel, RpcError
from shared.errors import InvalidInput

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
            self._channel = RpcChannel(SERVICE, config.address, config.tls, config.timeout_seconds)
        except ImportError as error:
            raise InvalidInput(
                source="--cloud-provider", field=provider, value=provider, problem=NEEDS_LIBRARY
            ) from error
        self._provider = provider

    def call(self, method: str, request: bytes, group: str = "") -> bytes:
        """The answer. Raises Unsupported, Refused, Unavailable."""
        try:
            return self._channel.call(method, request)
        except RpcError as error:
            raise self._failure(error, group) from error

    def close(self) -> None:
        self._channel.close()

    def _failure(self, error: RpcError, group: str) -> ProviderError:
        if error.code == "UNIMPLEMENTED":
            return Unsupported(self._provider, group, str(error))
        if error.code in _REFUSALS:
            return Refused(self._provider, group, str(error))
        kind = NoAnswer if error.code in _SILENCE else Unavailable
        return kind(self._provider, group, str(error))
