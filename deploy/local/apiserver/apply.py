"""Who owns which field: managedFields for every write, and server-side apply with its conflicts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from deploy.local.apiserver import fieldsets, status
from deploy.local.apiserver.fieldsets import Fields
from deploy.local.apiserver.kinds import ListRules, Path
from deploy.local.apiserver.objects import Json, JsonObject


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
            "time": self.writer.time,
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


def _store_entries(obj: JsonObject, entries: Sequence[Entry]) -> None:
    kept = [entry.to_object() for entry in entries if entry.fields is not None]
    if kept:
        obj["metadata"]["managedFields"] = kept
    else:
        obj["metadata"].pop("managedFields", None)


def track(old: JsonObject | None, new: JsonObject, writer: Writer, rules: ListRules) -> None:
    """Records an ordinary write in `new`: what it changed is the writer's now, what it removed is nobody's.

    An object whose managedFields a client has emptied stays untracked until it is applied.
    """
    reset = new["metadata"].get("managedFields") == [{}]
    if reset or (old is not None and not old["metadata"].get("managedFields")):
        new["metadata"].pop("managedFields", None)
        return
    # What the request itself says about ownership wins: that is how tools migrate it.
    entries = entries_of(new) or (entries_of(old) if old is not None else [])
    gained, lost = fieldsets.compare(fieldsets.ownable(old or {}), fieldsets.ownable(new), rules)
    _store_entries(new, _reassigned(entries, writer, gained, lost))


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
    changes, _ = fieldsets.compare(fieldsets.ownable(current), fieldsets.ownable(merged), rules)
    entries = entries_of(current)
    if live is not None and not entries:
        entries = [_before_first_apply(live, writer, rules)]
    mine = next((entry for entry in entries if entry.same_manager(writer)), None)
    others = [entry for entry in entries if entry is not mine]
    overlaps = [(entry, fieldsets.intersection(changes, entry.fields)) for entry in others]
    if not force and any(overlap is not None for _, overlap in overlaps):
        raise _conflict(overlaps)
    others = [replace(entry, fields=fieldsets.difference(entry.fields, overlap)) for entry, overlap in overlaps]
    if mine is not None:
        merged = _without_abandoned(merged, mine, own, others, rules)
    unchanged = mine is not None and mine.fields == own
    _store_entries(merged, [*others, Entry(mine.writer if mine and unchanged else writer, own)])
    return merged


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
    abandoned = fieldsets.difference(mine.fields, own)
    for entry in others:
        abandoned = fieldsets.difference(abandoned, entry.fields)
    if abandoned is None:
        return merged
    pruned: JsonObject = fieldsets.remove(merged, abandoned, rules)
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
