"""Runs calls that may hang in a thread of their own, and gives them up at a deadline."""

import logging
import math
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from manager.autoscaler.cloudprovider.errors import Later, NoAnswer, NotAsked, ProviderError, Unavailable
from shared.errors import HeadroomError
from shared.plugins import reraise_interrupt

logger = logging.getLogger(__name__)

T = TypeVar("T")
# What a call returns or raises. A queue takes less than half the time of a Future, and prices take thousands of calls.
_Reply = queue.SimpleQueue[tuple[Any, BaseException | None]]


class Caller:
    """Calls one provider, one call at a time.

    A call that outlasts its deadline runs on, since nothing can end it; no other call starts before it ends, so one
    hung cloud costs one thread, and no call overtakes another.
    """

    def __init__(self, provider: str, deadline_seconds: float) -> None:
        self._provider = provider
        self._deadline_seconds = deadline_seconds
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], _Reply] | None] = queue.SimpleQueue()
        self._late: tuple[str, _Reply] | None = None
        self._thread: threading.Thread | None = None
        self._ends = math.inf  # by the monotonic clock

    def end_within(self, seconds: float) -> None:
        """Limits the sum of all calls from now on, until the next such call."""
        self._ends = time.monotonic() + seconds

    def call(self, what: str, work: Callable[[], T], *, group: str = "") -> T:
        """The result of `work()`. Raises ProviderError for any failure; NoAnswer after the deadline."""
        if self._late is not None and self._late[1].empty():
            raise NotAsked(self._provider, group, f"{what}: not called, because {self._late[0]} has not ended yet")
        patience = min(self._deadline_seconds, self._ends - time.monotonic())
        if patience <= 0:
            raise Later(self._provider, group, f"{what}: not called, because the calls before it took too long")
        reply: _Reply = queue.SimpleQueue()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"provider {self._provider}", daemon=True)
            self._thread.start()
        self._calls.put((work, reply))
        try:
            found, error = reply.get(timeout=patience)
        except queue.Empty:
            self._late = (what, reply)
            raise NoAnswer(self._provider, group, f"{what}: no answer within {patience:.3g} s") from None
        try:
            if error is not None:
                raise error
            result: T = found
            return result
        except ProviderError:
            raise
        except HeadroomError as error:
            raise Unavailable(self._provider, group, f"{what}: {error}") from error
        except BaseException as error:  # also an attempt to exit: a plug-in must not end the process
            reraise_interrupt(error)
            logger.exception("the provider failed", extra={"provider": self._provider, "call": what})
            raise Unavailable(self._provider, group, f"{what}: {error!r}") from error

    def close(self) -> None:
        """Ends the thread once it is idle."""
        if self._thread is not None:
            self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            work, reply = call
            try:
                reply.put((work(), None))
            except BaseException as error:
                reply.put((None, error))
