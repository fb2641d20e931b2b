"""What cannot be understood is refused alone, and said so."""

import logging
from collections.abc import Callable
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter

logger = logging.getLogger(__name__)

T = TypeVar("T")
M = TypeVar("M")


class Refusals:
    """Logs and counts the objects that mean nothing."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._refused = Counter(
            "headroom_agent_refused_objects",
            "Versions of objects that mean nothing and were left out",
            ["kind"],
            registry=registry,
        )

    def accepted(self, kind: str, key: str, new: T, meaning: Callable[[T], M]) -> M | None:
        """What `new` means; None when it means nothing."""
        try:
            return meaning(new)
        except ValueError as error:
            self.refuse(kind, key, str(error))
            return None

    def refuse(self, kind: str, key: str, problem: str) -> None:
        self._refused.labels(kind).inc()
        logger.error("object refused: %s", problem, extra={"kind": kind, "key": key})
