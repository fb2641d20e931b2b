import json

import pytest

from shared.kube import errors


def status(code: int, reason: str = "", **more: object) -> bytes:
    return json.dumps({"kind": "Status", "code": code, "reason": reason, "message": "m"} | more).encode()


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", errors.BadRequest),
        (401, "Unauthorized", errors.Unauthorized),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (409, "Conflict", errors.Conflict),
        (409, "AlreadyExists", errors.AlreadyExists),
        (410, "Expired", errors.Gone),
        (410, "Gone", errors.Gone),
        (422, "Invalid", errors.Invalid),
        (429, "TooManyRequests", errors.TooManyRequests),
        (500, "InternalError", errors.ServerError),
        (503, "ServiceUnavailable", errors.ServerError),
        (405, "MethodNotAllowed", errors.ApiError),
        (302, "", errors.ApiError),
    ],
)
def test_each_status_has_its_kind(code: int, reason: str, kind: type[errors.ApiError]) -> None:
    error = errors.from_response(code, status(code, reason), {})
    assert type(error) is kind
    assert error.status == code
    assert error.message == "m"


def test_a_taken_name_is_no_stale_version() -> None:
    assert not isinstance(errors.from_response(409, status(409, "AlreadyExists"), {}), errors.Conflict)


def test_a_resource_version_from_the_future_is_as_good_as_gone() -> None:
    body = status(504, "Timeout", details={"causes": [{"reason": "ResourceVersionTooLarge", "message": "x"}]})
    assert isinstance(errors.from_response(504, body, {}), errors.Gone)


@pytest.mark.parametrize(
    ("headers", "details", "seconds"),
    [
        ({"Retry-After": "7"}, {}, 7.0),
        ({"retry-after": "7"}, {"retryAfterSeconds": 3}, 7.0),
        ({}, {"retryAfterSeconds": 3}, 3.0),
        ({"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, {}, None),
        ({"Retry-After": "-5"}, {}, None),
        ({}, {}, None),
    ],
)
def test_retry_after_comes_from_the_header_before_the_body(
    headers: dict[str, str], details: dict[str, object], seconds: float | None
) -> None:
    error = errors.from_response(429, status(429, "TooManyRequests", details=details), headers)
    assert error.retry_after_seconds == seconds


@pytest.mark.parametrize(
    "body", [b"", b"<html>Bad gateway</html>", b"\xff\xfe", b"[1]", b'{"message": 5}', b'{"code":', b"null"]
)
def test_an_answer_that_is_no_status_is_told_by_its_code(body: bytes) -> None:
    error = errors.from_response(502, body, {})
    assert isinstance(error, errors.ServerError)
    assert error.details is None


def test_a_long_page_of_a_proxy_is_cut() -> None:
    assert len(errors.from_response(502, b"x" * 100_000, {}).message) == errors.MAX_TEXT
