"""`python -m agent.enforcer`: runs until SIGTERM or SIGINT. Exit status 2 for bad settings."""

import logging
import os
import sys
from collections.abc import Sequence

from agent.enforcer.enforcer import ROUND_SECONDS, Enforcer
from agent.enforcer.settings import EnforcerSettings
from shared import settings as settings_loader
from shared import telemetry, termination
from shared.errors import InvalidInput

logger = logging.getLogger(__name__)


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
    enforcer = Enforcer(settings)
    while not stop.is_set():
        try:
            enforcer.round()
        except Exception:
            logger.exception("a round failed")
        stop.wait(ROUND_SECONDS)
    enforcer.release()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
