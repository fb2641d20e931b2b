"""Writes the status of custom resources: few at a time, none often, and on the leader alone."""

import logging
from collections.abc import Callable, Iterable
from typing import TypeAlias

from shared import durations
from shared.api.meta import ObjectMeta
from shared.clock import Clock
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.errors import Conflict, NotFound
from shared.kube.resources import Resource

logger = logging.getLogger(__name__)

MOST_AT_ONCE = 10  # objects written in one iteration, which waits for them
TIMEOUT_SECONDS = 5.0

Patch: TypeAlias = dict[str, object] | None
StatusConditions: TypeAlias = tuple[dict[str, object], ...] | None


class ObjectStatusWriter:
    """For the loop's thread. A later iteration repeats a failed write."""

    def __init__(self, client: Client, resource: Resource, may_write: Callable[[], bool], clock: Clock) -> None:
        self._client = client.single_attempt(TIMEOUT_SECONDS)
        self._resource = resource
        self._may_write = may_write
        self._clock = clock
        self._due: dict[str, float] = {}  # by key, the monotonic time of the next write at the earliest

    def write(self, objects: Iterable[tuple[ObjectMeta, Callable[[float], Patch]]], every_seconds: float) -> None:
        """Writes each object's merge patch for now, if it has one; between two writes of one are `every_seconds`."""
        wanted = list(objects)
        self._due = {meta.key: self._due.get(meta.key, 0.0) for meta, _ in wanted}
        now, written = self._clock.monotonic(), 0
        for meta, patch in wanted:
            if now < self._due[meta.key] or written == MOST_AT_ONCE:
                continue
            body = patch(self._clock.now())
            if body is None:
                continue
            if not self._may_write():
                return
            written, self._due[meta.key] = written + 1, now + every_seconds
            try:
                self._client.patch(self._resource, meta.name, body, meta.namespace or None, subresource="status")
            except (Conflict, NotFound) as error:  # it has changed or was deleted; the next iteration handles that
                logger.debug("the status was not written: %s", error, extra={"object": meta.key})
            except HeadroomError as error:
                logger.warning("the status was not written: %s", error, extra={"object": meta.key})
                return


def with_conditions(conditions: StatusConditions, ours: Iterable[dict[str, object]], now: float) -> StatusConditions:
    """All conditions with ours among them; None if these are up to date. A time changes with its status only."""
    kept = {each.get("type"): each for each in conditions or ()}
    found = dict(kept)
    for each in ours:
        old = kept.get(each["type"], {})
        turned = old.get("lastTransitionTime") if old.get("status") == each["status"] else None
        found[each["type"]] = {**each, "lastTransitionTime": turned or durations.timestamp(now)}
    return tuple(found.values()) if found != kept else None
