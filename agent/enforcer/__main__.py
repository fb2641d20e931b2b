"""`python -m agent.enforcer`: runs until SIGTERM or SIGINT. Exit status 2 for bad settings."""

import logging
import os
import sys
import time
from collections.abc import Callable, Sequence

from agent.enforcer.enforcer import ROUND_SECONDS, Enforcer
from agent.enforcer.settings import EnforcerSettings
from agent.enforcer.watch import FileWatch
from shared import settings as settings_loader
from shared import telemetry, termination
from shared.errors import InvalidInput

logger = logging.getLogger(__name__)

LEAST_SECONDS = 0.01  # between two reads of the quota, however often another process writes it


def main(argv: Sequence[str]) -> int:
    """Runs the process."""
    try:
        settings = settings_loader.load(
            EnforcerSettings,
            program="headroom enforcer",
            description="Keeps Mid and Batch pods within their bounds by writing to their cgroups.",
            argv=argv,
            environment=os.environ,
        )
    except InvalidInput as error:
        print(f"headroom enforcer: {error}", file=sys.stderr)
        return 2
    telemetry.configure_logging(level=settings.log_level, style=settings.log_format)
    logger.info("settings", extra=settings_loader.shown(settings))
    stop = termination.event()
    watch = _watch()
    enforcer = Enforcer(settings, watch=watch)
    while not stop.is_set():
        _tried(enforcer.round)
        until = time.monotonic() + ROUND_SECONDS
        while watch is not None and (left := until - time.monotonic()) > 0 and not stop.is_set():
            if watch.wait(left):
                _tried(enforcer.restore)
                stop.wait(LEAST_SECONDS)
        stop.wait(until - time.monotonic())
    enforcer.release()
    return 0


def _watch() -> FileWatch | None:
    """None where the user has none left; then what other processes write is found within a round."""
    try:
        return FileWatch()
    except OSError as error:
        logger.warning("writes by other processes are found each second, and not at once: %s", error)
        return None


def _tried(work: Callable[[], None]) -> None:
    try:
        work()
    except Exception:
        logger.exception("a pass of the enforcer failed")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
