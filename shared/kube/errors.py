"""Errors between us and the API server, named so that a caller can act on them.

ApiError means a refusal, Unreachable no complete answer, InvalidResponse an answer of another protocol, and
LeadershipLost that nothing was sent.
"""

from collections.abc import Mapping

import msgspec

from shared.errors import HeadroomError

MAX_TEXT = 400  # a log line must not carry a proxy's HTML page

_RESOURCE_VERSION_TOO_LARGE = "ResourceVersionTooLarge"


class ApiError(HeadroomError):
    """The server refused. `reason` is Kubernetes' CamelCase word, `details` the unchanged Status, if any.

    `causes` are the single reasons in the Status, CamelCase words too.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        details: Mapping[str, object] | None = None,
        causes: tuple[str, ...] = (),
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.details = details
        self.causes = causes
        self.retry_after_seconds = retry_after_seconds


class BadRequest(ApiError):
    """400."""


class Unauthorized(ApiError):
    """401: the credentials are not valid, or have expired."""


class Forbidden(ApiError):
    """403: RBAC or an admission rule says no."""


class NotFound(ApiError):
    """404: the object does not exist, or the whole resource when a CRD is missing."""


class Conflict(ApiError):
    """409: a precondition (resourceVersion, uid) does not hold any more: read again, then decide again."""


class AlreadyExists(ApiError):
    """409 on create: the name is taken."""


class Gone(ApiError):
    """410: the position is older than the server's history, or newer than anything it knows: list again."""


class Invalid(ApiError):
    """422: the object breaks its schema."""


class TooManyRequests(ApiError):
    """429: overload, or a disruption budget on eviction."""


class ServerError(ApiError):
    """5xx."""


class Unreachable(HeadroomError):
    """No complete answer; the server may have executed a write all the same."""


class InvalidResponse(HeadroomError):
    """The answer does not have the requested form."""


NOT_LEADING = "another replica leads"


class LeadershipLost(HeadroomError):
    """A write was not sent, because this process does not lead any more."""

    def __init__(self) -> None:
        super().__init__(NOT_LEADING)


_BY_STATUS: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


class _Cause(msgspec.Struct, frozen=True):
    reason: str = ""


class _Details(msgspec.Struct, frozen=True, rename="camel"):
    retry_after_seconds: float | None = None
    causes: tuple[_Cause, ...] | None = None


class _Status(msgspec.Struct, frozen=True):
    """metav1.Status, reduced to what decides the kind of error."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


# Built here, while modules are imported one after the other: msgspec cannot do it in two threads at once.
_STATUS = msgspec.json.Decoder(_Status)
_WHOLE = msgspec.json.Decoder(dict[str, object])


def from_response(status: int, body: bytes, headers: Mapping[str, str]) -> ApiError:
    """The error behind an HTTP answer of 3xx and above; names in `headers` may have any case."""
    retry_after = _seconds(next((v for k, v in headers.items() if k.lower() == "retry-after"), None))
    try:
        return from_status(body, code=status, retry_after_seconds=retry_after)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        # Proxies and load balancers answer with text or HTML.
        text = body[:MAX_TEXT].decode(errors="replace").strip() or "no body"
        return _kind(status, "")(status, "NotAStatus", text, retry_after_seconds=retry_after)


def from_status(body: bytes, *, code: int = 0, retry_after_seconds: float | None = None) -> ApiError:
    """The error in a metav1.Status; `code` overrides the Status's own. Raises the decoder's errors."""
    parsed = _STATUS.decode(body)
    status = code or parsed.code
    details = parsed.details or _Details()
    if retry_after_seconds is None:
        retry_after_seconds = details.retry_after_seconds
    causes = tuple(cause.reason for cause in details.causes or ())
    if _RESOURCE_VERSION_TOO_LARGE in causes:
        # A server restored from a backup: waiting for the future version would never end, and listing again repairs it.
        kind: type[ApiError] = Gone
    else:
        kind = _kind(status, parsed.reason)
    return kind(
        status,
        parsed.reason or kind.__name__,
        parsed.message[:MAX_TEXT] or "no message",
        details=_WHOLE.decode(body),
        causes=causes,
        retry_after_seconds=retry_after_seconds,
    )


def _kind(status: int, reason: str) -> type[ApiError]:
    if status == 409 and reason == "AlreadyExists":
        return AlreadyExists
    return _BY_STATUS.get(status, ServerError if status >= 500 else ApiError)


def _seconds(header: str | None) -> float | None:
    """Retry-After in seconds. Kubernetes never sends the date form, so our own backoff covers it."""
    return float(header) if header is not None and header.strip().isascii() and header.strip().isdigit() else None
