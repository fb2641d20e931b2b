"""Logs (JSON for machines, text on a terminal), the first line of every process, and supervised loops."""

import json
import logging
import math
import sys
import threading
import time
from collections.abc import Callable
from typing import Protocol

from prometheus_client import CollectorRegistry

from shared.clock import Clock, SystemClock
from shared.metric_families import CounterFamily
from shared.stop import Stop

logger = logging.getLogger(__name__)

_RECORD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
}

_LOOP_FAILURES = CounterFamily("headroom_loop_failures", "Failures of a background loop.", ("loop",))
_LOOP_OVERRUNS = CounterFamily(
    "headroom_loop_overruns", "Runs of a periodic loop that took longer than its interval.", ("loop",)
)


class JsonFormatter(logging.Formatter):
    """One JSON object per line: ts, level, logger, msg, the fields of `extra`, and the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "ts": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        line |= {key: value for key, value in vars(record).items() if key not in _RECORD_FIELDS}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def configure_logging(*, level: str = "info", style: str = "auto") -> None:
    """Sends all logs to stderr; `style` is "json", "text" or "auto" (text on a terminal)."""
    handler = logging.StreamHandler()
    if style == "json" or (style == "auto" and not sys.stderr.isatty()):
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


class OncePerMinute(logging.Filter):
    """For loggers that outside input can trigger: passes the first message of a kind per minute, with a count."""

    MOST_KINDS = 1000

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._monotonic = monotonic
        self._lock = threading.Lock()
        # When it was last logged, and how many were held back since
        self._kinds: dict[tuple[str, int, str, object], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind = (record.name, record.levelno, str(record.msg), record.exc_info[0] if record.exc_info else None)
        now = self._monotonic()
        with self._lock:
            said_at, held_back = self._kinds.get(kind, (-math.inf, 0))
            if now - said_at < 60:
                self._kinds[kind] = (said_at, held_back + 1)
                return False
            if len(self._kinds) >= self.MOST_KINDS:
                self._kinds.clear()
            self._kinds[kind] = (now, 0)
        if held_back:
            record.held_back = held_back
        return True


class LoopBody(Protocol):
    """The body of a supervised thread; returns when `stop` is set."""

    def __call__(self, stop: Stop, /) -> None: ...


class Loops:
    """The threads of one process: each has a name, and all end together.

    A body that raises is logged and started again after `restart_seconds`; one that returns before `stop` is set is
    logged as well. The liveness probe uses `ages()`.
    """

    def __init__(
        self,
        registry: CollectorRegistry | None = None,
        clock: Clock | None = None,
        restart_seconds: float = 1.0,
    ) -> None:
        self.stop = Stop()
        self._clock = clock or SystemClock()
        self._restart_seconds = restart_seconds
        self._threads: list[threading.Thread] = []
        self._beats: dict[str, tuple[float, float]] = {}
        self._failures = _LOOP_FAILURES.register(registry)
        self._overruns = _LOOP_OVERRUNS.register(registry)

    def start(self, name: str, body: LoopBody) -> None:
        """Runs `body(stop)` in a thread until the process ends."""
        thread = threading.Thread(target=self._guard, args=(name, body), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def every(self, name: str, interval_seconds: Callable[[], float], work: Callable[[], None]) -> None:
        """Runs `work()` at once and then on a monotonic schedule that never drifts and never queues.

        A round that outlasts its interval is counted, and the rounds it covered are dropped. The interval is read after
        each round, so that a policy can change it.
        """
        self._overruns.labels(name)  # exposed from the start, as 0
        self.start(name, lambda stop: self._schedule(name, interval_seconds, work, stop))

    def overdue(self, periods: float = 3.0, grace_seconds: float = 5.0) -> dict[str, float]:
        """Periodic loops without a successful round for more than `periods` intervals (plus grace), and for how many
        seconds.
        """
        now = self._clock.monotonic()
        return {
            name: now - beat
            for name, (beat, interval) in self._beats.items()
            if now - beat > periods * interval + grace_seconds
        }

    def close(self, timeout_seconds: float = 5.0) -> None:
        """Tells every loop to stop and waits for them, `timeout_seconds` in all."""
        self.stop.set()
        deadline = time.monotonic() + timeout_seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                logger.warning("loop did not stop in time", extra={"loop": thread.name})

    def _guard(self, name: str, body: LoopBody) -> None:
        while not self.stop.is_set():
            try:
                body(self.stop)
            except BaseException:  # of any kind: without its loops the process only looks alive
                self._failures.labels(name).inc()
                logger.exception("loop failed; starting it again", extra={"loop": name})
            else:
                if self.stop.is_set():
                    return
                logger.error("loop ended by itself; starting it again", extra={"loop": name})
            self.stop.wait(self._restart_seconds)

    def _schedule(
        self,
        name: str,
        interval_seconds: Callable[[], float],
        work: Callable[[], None],
        stop: Stop,
    ) -> None:
        due = self._clock.monotonic()
        while True:
            interval = interval_seconds()
            begun, _ = self._beats.get(name, (due, interval))
            self._beats[name] = (begun, interval)
            if self._clock.wait(stop, due - self._clock.monotonic()):
                return
            work()
            ended = self._clock.monotonic()
            self._beats[name] = (ended, interval)
            late = ended - due
            missed = int(late / interval)
            if missed:
                self._overruns.labels(name).inc()
            due += (missed + 1) * interval
