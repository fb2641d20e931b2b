"""Refuses invalid objects one by one, and reports them."""

import logging
from collections.abc import Callable
from typing import TypeVar

from prometheus_client import CollectorRegistry

from shared.metric_families import CounterFamily

logger = logging.getLogger(__name__)

T = TypeVar("T")
M = TypeVar("M")

_REFUSED_OBJECTS = CounterFamily(
    "headroom_agent_refused_objects", "Invalid versions of objects that the agent ignored.", ("kind",)
)


class Refusals:
    """Logs and counts invalid objects."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._refused = _REFUSED_OBJECTS.register(registry)

    def accepted(self, kind: str, key: str, new: T, meaning: Callable[[T], M]) -> M | None:
        """The meaning of `new`; None for an invalid object."""
        try:
            return meaning(new)
        except ValueError as error:
            self.refuse(kind, key, str(error))
            return None

    def refuse(self, kind: str, key: str, problem: str) -> None:
        self._refused.labels(kind).inc()
        logger.error("object refused: %s", problem, extra={"kind": kind, "key": key})
