"""The errors of calls to a cloud, named so that a caller can act on them.

HeadroomError
 └ ProviderError      names the provider, the group (empty: none in particular) and the problem
    ├ Unsupported     the provider does not offer this call, and never will
    ├ Refused         the cloud refuses, and nothing has changed
    ├ Unavailable     no answer: for a write this says nothing about whether it happened
    │  ├ NoAnswer     no answer came, and the next call will wait, too
    │  └ Later        not now: the cloud says so, or was not called, and nothing has changed
    │     └ NotAsked  the cloud was not called
    └ InvalidAnswer   an implausible answer; names the field and the value
"""

from typing import ClassVar

from shared.errors import HeadroomError, shown
from shared.kube.errors import ApiError, ServerError, TooManyRequests


class ProviderError(HeadroomError):
    """A failed call to a cloud. `leaves_doubt`: a failed write may have taken effect nevertheless."""

    leaves_doubt: ClassVar[bool] = False

    def __init__(self, provider: str, group: str, problem: str) -> None:
        self.provider = provider
        self.group = group
        self.problem = problem
        super().__init__(f"{provider}: {f'group {group}: ' if group else ''}{problem}")


class Unsupported(ProviderError):
    """The provider does not offer this call."""


class Refused(ProviderError):
    """The cloud refuses."""


class Unavailable(ProviderError):
    """No valid answer came in time."""

    leaves_doubt = True


class NoAnswer(Unavailable):
    """No answer came, or none in time."""


class Later(Unavailable):
    """The cloud is called too often, or was not called because an earlier call has not been answered yet."""

    leaves_doubt = False


class NotAsked(Later):
    """It was not called because an earlier call has not been answered yet."""


class InvalidAnswer(ProviderError):
    """An implausible answer."""

    leaves_doubt = True

    def __init__(self, provider: str, group: str, field: str, value: object, problem: str) -> None:
        self.field = field
        self.value = value
        super().__init__(provider, group, f"{field}: {shown(value)}: {problem}")


def api_error(provider: str, group: str, error: HeadroomError, what: str, *, has_begun: bool = False) -> ProviderError:
    """The error of a failed write to an API server, whose no means that nothing has changed, unless it `has_begun`."""
    kind = Unavailable if has_begun or api_leaves_doubt(error) else Refused
    return kind(provider, group, f"{what}: {error}")


def api_leaves_doubt(error: HeadroomError) -> bool:
    """Whether a write to an API server may have taken effect nevertheless."""
    return not isinstance(error, ApiError) or isinstance(error, ServerError | TooManyRequests)
