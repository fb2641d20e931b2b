"""Writes the status of custom resources: few at a time, none often, and on the leader alone."""

import logging
from collections.abc import Callable, Iterable
from typing import TypeAlias

from manager.autoscaler.pod_injection.request_states import SaidCondition
from shared import durations
from shared.api.meta import ObjectMeta
from shared.clock import Clock
from shared.errors import HeadroomError, InvalidInput
from shared.kube.client import Client
from shared.kube.errors import Conflict, NotFound
from shared.kube.resources import Resource

logger = logging.getLogger(__name__)

MOST_AT_ONCE = 10  # objects written in one iteration, which waits for them
TIMEOUT_SECONDS = 5.0
MOST_CHARACTERS = 32_768  # of a message, as in the CustomResourceDefinitions

Patch: TypeAlias = dict[str, object] | None
StatusConditions: TypeAlias = tuple[dict[str, object], ...] | None
DuePatch: TypeAlias = tuple[ObjectMeta, Callable[[float], Patch]]  # an object, and what makes its patch at a time


class ObjectStatusWriter:
    """For the loop's thread. A later iteration repeats a failed write."""

    def __init__(
        self, client: Client, resource: Resource, every_seconds: float, may_write: Callable[[], bool], clock: Clock
    ) -> None:
        """Between two writes of one object are `every_seconds`."""
        self._client = client.single_attempt(TIMEOUT_SECONDS)
        self._resource = resource
        self._every_seconds = every_seconds
        self._may_write = may_write
        self._clock = clock
        self._due: dict[str, float] = {}  # by key, the monotonic time of the next write at the earliest

    def write(self, objects: Iterable[DuePatch]) -> None:
        """Writes each object's merge patch for now, if it has one."""
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
            written, self._due[meta.key] = written + 1, now + self._every_seconds
            try:
                self._client.patch(self._resource, meta.name, body, meta.namespace or None, subresource="status")
            except (Conflict, NotFound) as error:  # it has changed or was deleted; the next iteration handles that
                logger.debug("the status was not written: %s", error, extra={"object": meta.key})
            except HeadroomError as error:
                logger.warning("the status was not written: %s", error, extra={"object": meta.key})
                return


def validity(name: str, problem: InvalidInput | None, words: tuple[str, str, str], *, has_last: bool) -> SaidCondition:
    """Whether an object is valid: `words` are the reason and message if it is, and the reason if it is not.

    With `has_last`, the last valid version of an invalid one holds.
    """
    good, message, bad = words
    if problem is None:
        return SaidCondition(name, True, good, message)
    return SaidCondition(name, False, bad, f"{problem}; the last valid version holds" if has_last else str(problem))


def patch(
    meta: ObjectMeta, conditions: StatusConditions, said: Iterable[SaidCondition], changes: Patch, now: float
) -> Patch:
    """The merge patch of the status with these conditions among all, and the changes; None if it is up to date.

    The time of a condition changes with its status only.
    """
    kept = {each.get("type"): each for each in conditions or ()}
    found = dict(kept)
    for each in said:
        holds, old = "True" if each.holds else "False", kept.get(each.type, {})
        turned = old.get("lastTransitionTime") if old.get("status") == holds else None
        found[each.type] = {
            "type": each.type,
            "status": holds,
            "reason": each.reason,
            "message": each.message[:MOST_CHARACTERS],
            "observedGeneration": meta.generation,
            "lastTransitionTime": turned or durations.timestamp(now),
        }
    wanted = {**({"conditions": list(found.values())} if found != kept else {}), **(changes or {})}
    return {"metadata": {"resourceVersion": meta.resource_version}, "status": wanted} if wanted else None
