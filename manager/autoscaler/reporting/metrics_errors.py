"""Errors as metric labels with few values."""

from manager.autoscaler.cloudprovider.contract import InstanceError
from manager.autoscaler.cloudprovider.errors import ProviderError
from shared.kube.errors import ApiError, InvalidResponse, Unreachable

MOST_CODES = 30

CLOUD, API, INTERNAL = "cloudProviderError", "apiCallError", "internalError"


class Codes:
    """A cloud's own codes; after too many different ones, only the kind of the error."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def code(self, error: InstanceError) -> str:
        if error.code not in self._known and len(self._known) >= MOST_CODES:
            return error.kind.value
        self._known.add(error.code)
        return error.code


def kind(error: Exception) -> str:
    """Cluster Autoscaler's word for the cause of a failed iteration."""
    if isinstance(error, ProviderError):
        return CLOUD
    return API if isinstance(error, ApiError | InvalidResponse | Unreachable) else INTERNAL
