"""Who owns which field: managedFields for every write, and server-side apply with its conflicts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from deploy.local.apiserver import fieldsets, status
from deploy.local.apiserver.fieldsets import Fields
from deploy.local.apiserver.merging import ListRules, Path
from deploy.local.apiserver.objects import Json, JsonObject, decode

_KUBECTL = "kubectl"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(frozen=True, slots=True)
class Writer:
    """Who writes, how and when: the identity of a managedFields entry."""

    manager: str
    operation: str
    api_version: str
    time: str
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One manager's fields."""

    writer: Writer
    fields: Fields | None

    def same_manager(self, writer: Writer) -> bool:
        mine = self.writer
        return (mine.manager, mine.operation, mine.subresource) == (
            writer.manager, writer.operation, writer.subresource,
        )  # fmt: skip

    def to_object(self) -> JsonObject:
        obj = {
            "manager": self.writer.manager,
            "operation": self.writer.operation,
            "apiVersion": self.writer.api_version,
            **({"time": self.writer.time} if self.writer.time else {}),
            "fieldsType": "FieldsV1",
            "fieldsV1": self.fields,
        }
        return obj | ({"subresource": self.writer.subresource} if self.writer.subresource else {})


def entries_of(obj: JsonObject) -> list[Entry]:
    found = []
    for raw in obj["metadata"].get("managedFields") or ():
        if raw.get("manager"):
            writer = Writer(
                raw["manager"], raw.get("operation", "Update"), raw.get("apiVersion", ""), raw.get("time", ""),
                raw.get("subresource", ""),
            )  # fmt: skip
            found.append(Entry(writer, raw.get("fieldsV1")))
    return found


def _rank(entry: Entry) -> tuple[str, ...]:
    by = entry.writer
    return (by.operation, by.time, by.manager, by.api_version, by.subresource)


def _store_entries(obj: JsonObject, entries: Sequence[Entry]) -> None:
    kept = [entry.to_object() for entry in sorted(entries, key=_rank) if entry.fields is not None]
    if kept:
        obj["metadata"]["managedFields"] = kept
    else:
        obj["metadata"].pop("managedFields", None)


def track(old: JsonObject, new: JsonObject, writer: Writer, rules: ListRules) -> None:
    """Records an ordinary write in `new`: what it changed is the writer's now, what it removed is nobody's.

    An object whose managedFields a client has emptied stays untracked until it is applied.
    """
    if _is_reset(new) or not old["metadata"].get("managedFields"):
        new["metadata"].pop("managedFields", None)
        return
    # What the request itself says about ownership wins: that is how tools migrate it.
    entries = entries_of(new) or entries_of(old)
    gained, lost = _changes(old, new, rules)
    _store_entries(new, _reassigned(entries, writer, gained, lost))


def track_new(blank: JsonObject, new: JsonObject, written: JsonObject, writer: Writer, rules: ListRules) -> None:
    """Records the creation of `new`: what was `written` beyond a blank object of the kind is the writer's."""
    if _is_reset(new):
        new["metadata"].pop("managedFields", None)
        return
    gained, _ = _changes(blank, written, rules)
    _store_entries(new, _reassigned(entries_of(new), writer, gained, None))


def _changes(old: JsonObject, new: JsonObject, rules: ListRules) -> tuple[Fields | None, Fields | None]:
    """What an object gained and lost; its metadata as such are always there."""
    always: JsonObject = {"metadata": {}}
    return fieldsets.compare(always | fieldsets.ownable(old), always | fieldsets.ownable(new), rules)


def _is_reset(obj: JsonObject) -> bool:
    return bool(obj["metadata"].get("managedFields") == [{}])


def _reassigned(entries: Sequence[Entry], writer: Writer, gained: Fields | None, lost: Fields | None) -> list[Entry]:
    result, found = [], False
    for entry in entries:
        fields = fieldsets.difference(entry.fields, lost)
        if entry.same_manager(writer):
            found = True
            author = writer if gained is not None else entry.writer
            result.append(Entry(author, fieldsets.union(fields, gained)))
        else:
            result.append(replace(entry, fields=fieldsets.difference(fields, gained)))
    return result if found else [*result, Entry(writer, gained)]


def apply(live: JsonObject | None, applied: JsonObject, writer: Writer, rules: ListRules, *, force: bool) -> JsonObject:
    """The live object with the applied configuration in it. Raises StatusError (409) on foreign fields."""
    current = live or {"metadata": {}}
    wanted = fieldsets.ownable(applied)
    own = fieldsets.fields_of(wanted, rules) if wanted else None
    merged: JsonObject = merge_applied(current, _merging(applied, wanted), rules)
    changes, _ = _changes(current, merged, rules)
    entries = entries_of(current)
    if live is not None and not entries:
        entries = [_before_first_apply(live, writer, rules)]
    mine = next((entry for entry in entries if entry.same_manager(writer)), None)
    others = [entry for entry in entries if entry is not mine]
    overlaps = [(entry, fieldsets.intersection(changes, entry.fields)) for entry in others]
    if not force and any(overlap is not None for _, overlap in overlaps):
        applied_before = _applied_by_client(current, rules) if writer.manager == _KUBECTL else None
        conflicts = [(entry, fieldsets.difference(overlap, applied_before)) for entry, overlap in overlaps]
        if any(overlap is not None for _, overlap in conflicts):
            raise _conflict(conflicts)
    others = [replace(entry, fields=fieldsets.difference(entry.fields, overlap)) for entry, overlap in overlaps]
    if mine is not None:
        merged = _without_abandoned(merged, mine, own, others, rules)
    if live is not None and fieldsets.ownable(live) == fieldsets.ownable(merged):
        # Who says what is so already has not written at any time.
        writer = replace(writer, time=mine.writer.time if mine is not None else "")
    _store_entries(merged, [*others, Entry(writer, own)])
    return merged


def _applied_by_client(live: JsonObject, rules: ListRules) -> Fields | None:
    """What kubectl has applied on its own side and is so still: it may take it over when it applies on the server's."""
    text = (live["metadata"].get("annotations") or {}).get(_LAST_APPLIED, "")
    try:
        applied = fieldsets.ownable(decode(text.encode()))
    except (AttributeError, ValueError):
        return None  # somebody else's text is no configuration
    changed, _ = fieldsets.compare(fieldsets.ownable(live), applied, rules)
    return fieldsets.difference(fieldsets.fields_of(applied, rules), changed)


def _merging(applied: JsonObject, wanted: JsonObject) -> JsonObject:
    """What of an applied configuration merges: the ownable part and the object's identity."""
    identity = {key: applied["metadata"][key] for key in ("name", "namespace") if key in applied["metadata"]}
    meta = identity | wanted.get("metadata", {})
    return {"apiVersion": applied["apiVersion"], "kind": applied["kind"], **wanted, "metadata": meta}


def _before_first_apply(live: JsonObject, writer: Writer, rules: ListRules) -> Entry:
    """The owner of everything in an object that nobody tracked."""
    unknown = Writer("before-first-apply", "Update", writer.api_version, writer.time)
    return Entry(unknown, fieldsets.fields_of(fieldsets.ownable(live), rules))


def _without_abandoned(
    merged: JsonObject, mine: Entry, own: Fields | None, others: Sequence[Entry], rules: ListRules
) -> JsonObject:
    """Drops what this manager applied last time, applies no longer, and nobody else owns."""
    owned = own
    for entry in others:
        owned = fieldsets.union(owned, entry.fields)
    abandoned = fieldsets.difference(mine.fields, owned)
    if abandoned is None:
        return merged
    pruned: JsonObject = fieldsets.remove(merged, abandoned, owned, rules)
    return pruned


def merge_applied(live: Json, applied: Json, rules: ListRules, path: Path = ()) -> Json:
    """Applied values over live ones: objects and keyed lists merge, everything else is replaced."""
    children = fieldsets.items_by_key(applied, path, rules)
    existing = fieldsets.items_by_key(live, path, rules)
    if children is None or existing is None:
        return applied
    merged = dict(existing)
    for element, item in children.items():
        below = fieldsets.child_path(path, element)
        merged[element] = merge_applied(existing[element], item, rules, below) if element in existing else item
    if isinstance(applied, dict):
        return {element[2:]: item for element, item in merged.items() if item is not None}
    return list(merged.values())


def _conflict(overlaps: Sequence[tuple[Entry, Fields | None]]) -> status.StatusError:
    by_manager: dict[str, list[str]] = defaultdict(list)
    for entry, overlap in overlaps:
        by_manager[_named(entry.writer)].extend(fieldsets.paths(overlap))
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {manager}", "field": path}
        for manager, found in by_manager.items()
        for path in found
    ]
    if len(causes) == 1:
        message = f"Apply failed with 1 conflict: {causes[0]['message']}: {causes[0]['field']}"
    else:
        groups = (
            "\n".join([f"conflicts with {manager}:", *(f"- {path}" for path in by_manager[manager])])
            for manager in sorted(by_manager)
            if by_manager[manager]
        )
        message = f"Apply failed with {len(causes)} conflicts: " + "\n".join(groups)
    return status.apply_conflict(causes, message)


def _named(writer: Writer) -> str:
    text = f'"{writer.manager}"'
    if writer.subresource:
        text += f' with subresource "{writer.subresource}"'
    if writer.operation == "Update":
        text += f" using {writer.api_version}"
    return text
