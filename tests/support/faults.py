"""Scripted faults for tests: rules that delay, refuse, cut or drop the requests they match."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import msgspec
from starlette.types import Receive

from deploy.local.apiserver.status import StatusError, bad_request

Action = Literal["delay", "status", "drop-watch", "truncate", "close"]
_REASONS = {
    400: "BadRequest", 403: "Forbidden", 404: "NotFound", 409: "Conflict", 410: "Expired",
    429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout",
}  # fmt: skip


class Disconnect(Exception):
    """The connection is to be cut without (the rest of) an answer."""


async def disconnected(receive: Receive) -> None:
    """Returns when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


class Match(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which requests a rule is about; `path` is a regular expression searched in the path with its query."""

    method: str = ""
    path: str = ""


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """`times`: how many requests it acts on; 0 means every one.

    drop-watch ends a matching watch after `seconds`; truncate cuts an answer in its middle; close drops the
    connection without one.
    """

    action: Action
    match: Match = Match()
    times: int = 0
    seconds: float = 0.0
    status: int = 500
    reason: str = ""
    message: str = "a scripted fault"
    retry_after: int = 0

    def error(self) -> StatusError:
        details = {"retryAfterSeconds": self.retry_after} if self.retry_after else None
        reason = self.reason or _REASONS.get(self.status, "")
        return StatusError(self.status, reason, self.message, details=details)


@dataclass(slots=True)
class _Armed:
    rule: Rule
    pattern: re.Pattern[str]
    left: int


class Faults:
    """The rules in force, in order; the first that matches acts."""

    def __init__(self) -> None:
        self._armed: list[_Armed] = []

    def __bool__(self) -> bool:
        return bool(self._armed)

    def script(self, body: bytes) -> None:
        """Replaces all rules. Raises StatusError (400)."""
        try:
            rules = msgspec.json.decode(body or b"[]", type=list[Rule])
            self._armed = [_Armed(rule, re.compile(rule.match.path), rule.times) for rule in rules]
        except (msgspec.MsgspecError, re.error) as error:
            raise bad_request(f"fault rules: {error}") from None

    def rules(self) -> list[Rule]:
        return [armed.rule for armed in self._armed]

    def strike(self, method: str, path: str) -> Rule | None:
        """The rule that acts on a request, used up by one."""
        for armed in self._armed:
            wanted = armed.rule.match.method
            if (wanted and wanted.upper() != method) or not armed.pattern.search(path):
                continue
            if armed.rule.times:
                armed.left -= 1
                if armed.left == 0:
                    self._armed.remove(armed)
            return armed.rule
        return None
