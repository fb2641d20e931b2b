"""Kinds that a cluster may lack, or get later, such as custom resources of others."""

import logging
import random
import threading
from collections.abc import Callable

from shared.errors import HeadroomError
from shared.kube import retry
from shared.kube.client import Client
from shared.kube.errors import NotFound, Unreachable
from shared.kube.resources import Resource
from shared.kube.retry import Backoff, Jitter

logger = logging.getLogger(__name__)

ABSENT_SECONDS = 300.0  # between two looks for a missing kind
SLOWLY = Jitter(base_seconds=1.0, cap_seconds=ABSENT_SECONDS)


def wait_for(
    client: Client,
    resource: Resource,
    stop: threading.Event,
    *,
    field_selector: str | None = None,
    absent: Callable[[], None] = lambda: None,
) -> bool:
    """True once the cluster has the kind, False when `stop` came first; calls `absent` at each look without it."""
    client = client.single_attempt()
    backoff = Backoff(client.clock, SLOWLY)
    while not stop.is_set():
        answers = None
        try:
            client.list(resource, field_selector=field_selector)
            return True
        except NotFound:
            logger.debug("the cluster has no such kind", extra={"resource": str(resource)})
            absent()
            delay = ABSENT_SECONDS * random.uniform(0.5, 1.5)
        except HeadroomError as error:
            delay = backoff.delay_seconds(error)
            answers = client.answers if isinstance(error, Unreachable) else None
            logger.warning("cannot be listed, next look in %.0f s: %s", delay, error, extra={"resource": str(resource)})
        retry.wait(client.clock, stop, delay, answers)
    return False
