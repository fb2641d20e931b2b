"""Server-side printing: objects as the Tables that `kubectl get` shows, and as bare metadata."""

import time
from collections.abc import Callable, Mapping, Sequence

from deploy.local.apiserver.kinds import ApiKind
from deploy.local.apiserver.objects import Json, JsonObject, dig, dotted
from shared import durations

Cell = Callable[[JsonObject], Json]
PrinterColumn = tuple[str, str, int, Cell]  # name, type, priority (1: wide only), value

_NONE = "<none>"
_UNITS = (("y", 365 * 86400), ("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


def age(text: Json, now: float | None = None) -> str:
    """The age of a time in the largest unit of which it has two: 90s, 4h, 12d; <unknown> for an invalid time."""
    try:
        seconds = max(0, int((time.time() if now is None else now) - durations.instant(text)))
    except (TypeError, ValueError):
        return "<unknown>"
    return next(f"{seconds // length}{unit}" for unit, length in _UNITS if seconds >= 2 * length or unit == "s")


def _at(*path: str, default: Json = _NONE) -> Cell:
    def cell(obj: JsonObject) -> Json:
        found = dig(obj, *path)
        return default if found in (None, "", {}, []) else found

    return cell


def _text(*path: str) -> Cell:
    """An int-or-string as text."""
    return lambda obj: str(_at(*path, default="N/A")(obj))


def _age_of(obj: JsonObject) -> str:
    return age(dig(obj, "metadata", "creationTimestamp"))


def _node_status(node: JsonObject) -> str:
    ready = _condition(node, "Ready")
    text = {"True": "Ready", "False": "NotReady"}.get(ready, "NotReady" if ready else "Unknown")
    return text + (",SchedulingDisabled" if dig(node, "spec", "unschedulable") else "")


def _condition(obj: JsonObject, name: str) -> str:
    conditions = dig(obj, "status", "conditions") or ()
    return next((item.get("status", "") for item in conditions if item.get("type") == name), "")


def _node_roles(node: JsonObject) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = dig(node, "metadata", "labels") or {}
    return ",".join(sorted(label.removeprefix(prefix) for label in labels if label.startswith(prefix))) or _NONE


def _node_address(kind: str) -> Cell:
    def cell(node: JsonObject) -> str:
        addresses = dig(node, "status", "addresses") or ()
        return next((item["address"] for item in addresses if item.get("type") == kind), _NONE)

    return cell


def _pod_ready(pod: JsonObject) -> str:
    statuses = dig(pod, "status", "containerStatuses") or ()
    return f"{sum(bool(s.get('ready')) for s in statuses)}/{len(dig(pod, 'spec', 'containers') or ())}"


def _pod_status(pod: JsonObject) -> str:
    if dig(pod, "metadata", "deletionTimestamp"):
        return "Terminating"
    reason = dig(pod, "status", "reason") or dig(pod, "status", "phase") or "Unknown"
    for state in (status.get("state") or {} for status in dig(pod, "status", "containerStatuses") or ()):
        waiting, terminated = state.get("waiting") or {}, state.get("terminated") or {}
        if terminated and not terminated.get("reason"):
            signal = terminated.get("signal")
            reason = f"Signal:{signal}" if signal else f"ExitCode:{terminated.get('exitCode', 0)}"
        reason = waiting.get("reason") or terminated.get("reason") or reason
    return str(reason)


def _pod_restarts(pod: JsonObject) -> str:
    """The containers' restarts and, if the last one has an end time, how long ago it was."""
    statuses = dig(pod, "status", "containerStatuses") or ()
    count = sum(status.get("restartCount", 0) for status in statuses)
    ended = [dig(status, "lastState", "terminated", "finishedAt") for status in statuses]
    last = max(filter(None, ended), default=None)
    return f"{count} ({age(last)} ago)" if count and last else str(count)


def _event_last_seen(event: JsonObject) -> str:
    first = event.get("firstTimestamp") or event.get("eventTime")
    return age(dig(event, "series", "lastObservedTime") or event.get("lastTimestamp") or first)


def _event_object(event: JsonObject) -> str:
    about = event.get("involvedObject") or {}
    return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"


def _event_source(event: JsonObject) -> str:
    source = event.get("source") or {}
    parts = [source.get("component") or event.get("reportingComponent"), source.get("host")]
    return ", ".join(part for part in parts if part)


def _keys(*fields: str) -> Cell:
    return lambda obj: sum(len(obj.get(field) or {}) for field in fields)


_NAME: PrinterColumn = ("Name", "string", 0, _at("metadata", "name"))
_AGE: PrinterColumn = ("Age", "string", 0, _age_of)
_COLUMNS: Mapping[str, tuple[PrinterColumn, ...]] = {
    "Node": (
        _NAME, ("Status", "string", 0, _node_status), ("Roles", "string", 0, _node_roles), _AGE,
        ("Version", "string", 0, _at("status", "nodeInfo", "kubeletVersion", default="")),
        ("Internal-IP", "string", 1, _node_address("InternalIP")),
        ("External-IP", "string", 1, _node_address("ExternalIP")),
        ("OS-Image", "string", 1, _at("status", "nodeInfo", "osImage", default="<unknown>")),
        ("Kernel-Version", "string", 1, _at("status", "nodeInfo", "kernelVersion", default="<unknown>")),
        ("Container-Runtime", "string", 1, _at("status", "nodeInfo", "containerRuntimeVersion", default="<unknown>")),
    ),
    "Pod": (
        _NAME, ("Ready", "string", 0, _pod_ready), ("Status", "string", 0, _pod_status),
        ("Restarts", "string", 0, _pod_restarts), _AGE, ("IP", "string", 1, _at("status", "podIP")),
        ("Node", "string", 1, _at("spec", "nodeName")),
        ("Nominated Node", "string", 1, _at("status", "nominatedNodeName")),
        ("Readiness Gates", "string", 1, lambda _: _NONE),
    ),
    "Namespace": (_NAME, ("Status", "string", 0, _at("status", "phase")), _AGE),
    "ConfigMap": (_NAME, ("Data", "string", 0, _keys("data", "binaryData")), _AGE),
    "Secret": (_NAME, ("Type", "string", 0, _at("type")), ("Data", "string", 0, _keys("data")), _AGE),
    "Event": (
        ("Last Seen", "string", 0, _event_last_seen), ("Type", "string", 0, _at("type", default="")),
        ("Reason", "string", 0, _at("reason", default="")), ("Object", "string", 0, _event_object),
        ("Subobject", "string", 1, _at("involvedObject", "fieldPath", default="")),
        ("Source", "string", 1, _event_source), ("Message", "string", 0, _at("message", default="")),
        ("First Seen", "string", 1, lambda event: age(event.get("firstTimestamp") or event.get("eventTime"))),
        ("Count", "string", 1, _at("count", default=1)),
        ("Name", "string", 1, _at("metadata", "name")),
    ),
    "Lease": (_NAME, ("Holder", "string", 0, _at("spec", "holderIdentity", default="")), _AGE),
    "PodDisruptionBudget": (
        _NAME, ("Min Available", "string", 0, _text("spec", "minAvailable")),
        ("Max Unavailable", "string", 0, _text("spec", "maxUnavailable")),
        ("Allowed Disruptions", "integer", 0, _at("status", "disruptionsAllowed", default=0)), _AGE,
    ),
    "PriorityClass": (
        _NAME, ("Value", "integer", 0, _at("value", default=0)),
        ("Global-Default", "boolean", 0, _at("globalDefault", default=False)), _AGE,
        ("PreemptionPolicy", "string", 0, _at("preemptionPolicy")),
    ),
    "CustomResourceDefinition": (_NAME, ("Created At", "date", 0, _at("metadata", "creationTimestamp"))),
}  # fmt: skip


def _custom_column(column: JsonObject) -> PrinterColumn:
    def cell(obj: JsonObject) -> Json:
        found = dotted(obj, column["jsonPath"].lstrip("."))
        if column["type"] == "string" and type(found) is int:  # int-or-string
            return str(found)
        return age(found) if found is not None and column["type"] == "date" else found

    return (column["name"], column["type"], column.get("priority", 0), cell)


def table(
    kind: ApiKind, objects: Sequence[JsonObject], list_meta: JsonObject, include_object: str = "Metadata"
) -> JsonObject:
    """A meta.k8s.io/v1 Table; `include_object` is None, Metadata or Object."""
    own = tuple(_custom_column(column) for column in kind.columns)
    columns = (_NAME, *own) if kind.custom else _COLUMNS.get(kind.kind, (_NAME, _AGE))
    definitions = [
        {"name": name, "type": type_, "format": "name" if name == "Name" else "", "description": "", "priority": wide}
        for name, type_, wide, _ in columns
    ]
    rows = [
        {"cells": [cell(obj) for _, _, _, cell in columns], "object": _row_object(obj, include_object)}
        for obj in objects
    ]
    return {
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": list_meta,
        "columnDefinitions": definitions, "rows": rows,
    }  # fmt: skip


def _row_object(obj: JsonObject, include_object: str) -> JsonObject | None:
    if include_object == "None":
        return None
    bare = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}
    return obj if include_object == "Object" else bare
