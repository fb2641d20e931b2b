"""The start of the local cluster's own processes: their settings, their access to the cluster, and their end."""

import logging
import os
import sys
import threading
from collections.abc import Callable
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from shared import settings, telemetry, termination
from shared.errors import InvalidInput
from shared.kube import config
from shared.kube.config import Connection

logger = logging.getLogger(__name__)


class LocalSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of each process."""

    kubeconfig: Annotated[str, Meta(description="kubeconfig file")] = ""
    log_level: Annotated[str, Meta(pattern="^(debug|info|warning|error)$", description="least level shown")] = "info"


S = TypeVar("S", bound=LocalSettings)


def main(program: str, kind: type[S], serve: Callable[[S, Connection, threading.Event], None]) -> int:
    """Runs `serve`, whose event SIGTERM and SIGINT set. Returns 0 after its end; 2 for invalid settings."""
    try:
        description = kind.__doc__ or ""
        chosen = settings.load(
            kind, program=f"python -m {program}", description=description, argv=sys.argv[1:], environment=os.environ
        )
        telemetry.configure_logging(level=chosen.log_level)
        logger.info("starting", extra=settings.shown(chosen))
        serve(chosen, config.discover(chosen.kubeconfig or None), termination.event())
    except InvalidInput as error:
        print(error, file=sys.stderr)
        return 2
    return 0
