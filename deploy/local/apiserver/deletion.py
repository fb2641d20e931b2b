"""The options of a deletion, and when the object disappears: at once, after a grace period, or after its finalizers."""

import time
from typing import Literal

import msgspec

from deploy.local.apiserver import status
from deploy.local.apiserver.kinds import ApiKind
from deploy.local.apiserver.objects import JsonObject, dig
from shared import durations


class Preconditions(msgspec.Struct, frozen=True, rename="camel"):
    """The identity and version that an object to delete must have, where they are not empty."""

    uid: str = ""
    resource_version: str = ""


class Deletion(msgspec.Struct, frozen=True, rename="camel"):
    """DeleteOptions. Foreground deletion works as background deletion; none leaves orphans."""

    grace_period_seconds: int | None = None
    preconditions: Preconditions = Preconditions()
    propagation_policy: Literal["", "Background", "Foreground"] = "Background"
    orphan_dependents: bool = False
    dry_run: tuple[Literal["All"], ...] = ()

    def __post_init__(self) -> None:
        if self.orphan_dependents:
            raise ValueError("orphanDependents: nothing leaves orphans here")


def may_go(kind: ApiKind, obj: JsonObject) -> bool:
    """Whether the object is marked for deletion, and neither finalizers, content nor a grace period remain."""
    meta = obj["metadata"]
    if not meta.get("deletionTimestamp") or meta.get("finalizers") or holds_content(kind, obj):
        return False
    return not meta.get("deletionGracePeriodSeconds")


def holds_content(kind: ApiKind, obj: JsonObject) -> bool:
    return kind.resource == "/namespaces" and bool(dig(obj, "spec", "finalizers"))


def check_preconditions(kind: ApiKind, meta: JsonObject, wanted: Deletion) -> None:
    """Raises StatusError (409) if the object has another UID or version than the preconditions."""
    for what, asked, found in (
        ("UID", wanted.preconditions.uid, meta["uid"]),
        ("ResourceVersion", wanted.preconditions.resource_version, meta["resourceVersion"]),
    ):
        if asked and asked != found:
            why = f"the {what} in the precondition ({asked}) does not match the {what} in record ({found})"
            raise status.conflict(kind.group, kind.kind, meta["name"], why)


def grace_seconds(kind: ApiKind, obj: JsonObject, wanted: Deletion) -> int:
    """The grace period of a pod on a node; all other objects have none."""
    if kind.resource != "/pods":
        return 0
    spec = obj["spec"]
    if not spec.get("nodeName") or dig(obj, "status", "phase") in ("Succeeded", "Failed"):
        return 0
    asked = wanted.grace_period_seconds
    seconds: int = spec.get("terminationGracePeriodSeconds", 30) if asked is None else asked
    return seconds if seconds >= 0 else 1


def marked_grace(meta: JsonObject) -> int:
    return int(meta.get("deletionGracePeriodSeconds") or 0)


def mark(kind: ApiKind, obj: JsonObject, grace: int) -> None:
    """Marks an object in place for deletion in `grace` seconds, counted from the first mark."""
    meta = obj["metadata"]
    if meta.get("deletionTimestamp") is None:
        meta["deletionTimestamp"] = durations.timestamp(time.time() + grace)
        if meta.get("generation"):
            meta["generation"] += 1
    else:
        shortened = durations.instant(meta["deletionTimestamp"]) - marked_grace(meta) + grace
        meta["deletionTimestamp"] = durations.timestamp(shortened)
    if kind.resource == "/namespaces":
        obj.setdefault("status", {})["phase"] = "Terminating"
    else:
        meta["deletionGracePeriodSeconds"] = grace
