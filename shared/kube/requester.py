"""Sends requests to one API server, retries those where a second attempt is harmless, and counts all answers."""

import copy
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from prometheus_client import CollectorRegistry

from shared.clock import Clock
from shared.kube import metrics
from shared.kube.errors import ApiError, LeadershipLost, ServerError, TooManyRequests, Unreachable
from shared.kube.http import Response, Stream, Transport
from shared.kube.retry import ONCE, Answers, Retry

A = TypeVar("A", Response, Stream)

TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True)
class ApiCall:
    """One request for counting, logging and retries. `repeatable`: a second arrival has no further effect; `stores`: it
    may change an object.
    """

    verb: str
    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = True
    repeat_throttled: bool = True
    stores: bool = True

    @property
    def is_write(self) -> bool:
        """Whether only the leader may send it."""
        return self.stores and self.method != "GET"

    def passing(self, error: Exception) -> bool:
        """Whether a retry may succeed after `error`, and is safe."""
        if isinstance(error, TooManyRequests):
            return self.repeat_throttled
        return self.repeatable and isinstance(error, Unreachable | ServerError)


class Requester:
    """Serves all threads. `stop` ends waits between attempts; `answers` notes the time of the server's last answer."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        registry: CollectorRegistry | None,
        retry: Retry,
        stop: threading.Event,
    ) -> None:
        self.clock = clock
        self.metrics = metrics.of(registry)
        self.answers = Answers()
        self._transport = transport
        self._retry = retry
        self._stop = stop
        self._timeout_seconds = TIMEOUT_SECONDS
        self._may_write: Callable[[], bool] = lambda: True

    def single_attempt(self, timeout_seconds: float | None = None) -> "Requester":
        """The same, on the same connections, without retries."""
        other = copy.copy(self)
        other._retry = ONCE
        other._timeout_seconds = timeout_seconds or self._timeout_seconds
        return other

    def fenced(self, may_write: Callable[[], bool]) -> "Requester":
        """The same, on the same connections, but no attempt of a write is sent unless `may_write`."""
        other = copy.copy(self)
        other._may_write = may_write
        return other

    def send(self, call: ApiCall) -> Response:
        """Raises ApiError, Unreachable, InvalidResponse and LeadershipLost."""
        return self._retry.run(
            f"{call.method} {call.path}",
            lambda: self._attempt(call),
            passing=call.passing,
            clock=self.clock,
            stop=self._stop,
        )

    def stream(self, verb: str, path: str, query: dict[str, str], idle_seconds: float) -> Stream:
        """An answer that goes on, opened in one attempt."""
        return self._counted(
            verb,
            lambda: self._transport.stream(
                path, query=query, timeout_seconds=self._timeout_seconds, idle_seconds=idle_seconds
            ),
        )

    def close(self) -> None:
        """Closes idle connections."""
        self._transport.close()

    def _attempt(self, call: ApiCall) -> Response:
        if call.is_write and not self._may_write():
            raise LeadershipLost
        return self._counted(
            call.verb,
            lambda: self._transport.request(
                call.method,
                call.path,
                query=call.query,
                body=call.body,
                content_type=call.content_type,
                more_headers=call.headers,
                timeout_seconds=self._timeout_seconds,
            ),
        )

    def _counted(self, verb: str, send: Callable[[], A]) -> A:
        code = "error"
        try:
            answer = send()
            code = str(answer.status)
            self.answers.note(None, self.clock.monotonic())
            return answer
        except ApiError as error:
            code = str(error.status)
            self.answers.note(error, self.clock.monotonic())
            raise
        finally:
            self.metrics.requests.labels(verb, code).inc()
