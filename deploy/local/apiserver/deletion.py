"""What a deletion asks for, and how an object goes: at once, in its time, or when nobody holds it any more."""

from __future__ import annotations

import time
from dataclasses import dataclass

from deploy.local.apiserver import status
from deploy.local.apiserver.kinds import Kind
from deploy.local.apiserver.objects import JsonObject, dig, timestamp, unix_seconds

ORPHAN = "orphan"  # the finalizer by which an object waits until its dependents have forgotten it
PROPAGATIONS = ("Background", "Foreground", "Orphan")  # foreground goes as background does


@dataclass(frozen=True, slots=True)
class Deletion:
    """DeleteOptions."""

    grace_period_seconds: int | None = None
    uid: str = ""
    resource_version: str = ""
    propagation: str = "Background"
    dry_run: bool = False


def may_go(kind: Kind, obj: JsonObject) -> bool:
    """Marked for deletion and nobody holds it any more."""
    meta = obj["metadata"]
    if not meta.get("deletionTimestamp") or meta.get("finalizers") or holds_content(kind, obj):
        return False
    return not meta.get("deletionGracePeriodSeconds")


def holds_content(kind: Kind, obj: JsonObject) -> bool:
    """Whether a namespace still waits for what is in it to go."""
    return kind.resource == "/namespaces" and bool(dig(obj, "spec", "finalizers"))


def check_preconditions(kind: Kind, meta: JsonObject, wanted: Deletion) -> None:
    """Raises StatusError (409) when the object is not the one, or not the version, to be deleted."""
    for what, asked, found in (
        ("UID", wanted.uid, meta["uid"]),
        ("ResourceVersion", wanted.resource_version, meta["resourceVersion"]),
    ):
        if asked and asked != found:
            why = f"the {what} in the precondition ({asked}) does not match the {what} in record ({found})"
            raise status.conflict(kind.group, kind.kind, meta["name"], why)


def grace_seconds(kind: Kind, obj: JsonObject, wanted: Deletion) -> int:
    """How long a pod on a node is given; nothing else gets time."""
    if kind.resource != "/pods":
        return 0
    spec = obj["spec"]
    if not spec.get("nodeName") or dig(obj, "status", "phase") in ("Succeeded", "Failed"):
        return 0
    asked = wanted.grace_period_seconds
    seconds: int = spec.get("terminationGracePeriodSeconds", 30) if asked is None else asked
    return seconds if seconds >= 0 else 1


def marked_grace(meta: JsonObject) -> int:
    """The seconds that an object was given."""
    return int(meta.get("deletionGracePeriodSeconds") or 0)


def finalizers(meta: JsonObject, propagation: str) -> list[str]:
    """Who has to let go, the garbage collector included where it has something to do first."""
    kept = [name for name in meta.get("finalizers") or () if name != ORPHAN]
    return [*kept, ORPHAN] if propagation == "Orphan" else kept


def mark(kind: Kind, obj: JsonObject, grace: int) -> None:
    """Says in place that an object is to go in `grace` seconds, counted from when it was first said."""
    meta = obj["metadata"]
    if meta.get("deletionTimestamp") is None:
        meta["deletionTimestamp"] = timestamp(time.time() + grace)
        if meta.get("generation"):
            meta["generation"] += 1
    else:
        shortened = unix_seconds(meta["deletionTimestamp"]) - marked_grace(meta) + grace
        meta["deletionTimestamp"] = timestamp(shortened)
    if kind.resource == "/namespaces":
        obj.setdefault("status", {})["phase"] = "Terminating"
    else:
        meta["deletionGracePeriodSeconds"] = grace
