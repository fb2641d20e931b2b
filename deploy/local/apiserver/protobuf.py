"""The protobuf bodies that kubectl insists on: some small built-in kinds, read into JSON.

kubectl sends what it creates through typed clients (`create namespace`, `drain`, `auth can-i`) as protobuf and does
not fall back to JSON. Field numbers are those Kubernetes publishes in its generated.proto files.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from deploy.local.apiserver.objects import Json, JsonObject

MAGIC = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

Message = Mapping[int, "Field"]


class Unreadable(Exception):
    """Not the protobuf of a kind that is read here."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field: its JSON name and type: string, bytes, bool, int, message, int-or-string; lists and maps thereof."""

    name: str
    type: str = "string"
    message: Message | None = None
    repeated: bool = False


def _message(name: str, message: Message) -> Field:
    return Field(name, "message", message)


_METADATA = _message(
    "metadata",
    {
        1: Field("name"),
        2: Field("generateName"),
        3: Field("namespace"),
        5: Field("uid"),
        6: Field("resourceVersion"),
        11: Field("labels", "string-map"),
        12: Field("annotations", "string-map"),
        14: Field("finalizers", repeated=True),
    },
)
_PRECONDITIONS = _message("preconditions", {1: Field("uid"), 2: Field("resourceVersion")})
_DELETE_OPTIONS = {
    1: Field("gracePeriodSeconds", "int"),
    2: _PRECONDITIONS,
    4: Field("propagationPolicy"),
    5: Field("dryRun", repeated=True),
}
_ATTRIBUTES = ("namespace", "verb", "group", "version", "resource", "subresource", "name")
_KINDS: Mapping[str, Message] = {
    "Namespace": {1: _METADATA},
    "ServiceAccount": {1: _METADATA},
    "ConfigMap": {
        1: _METADATA,
        2: Field("data", "string-map"),
        3: Field("binaryData", "bytes-map"),
        4: Field("immutable", "bool"),
    },
    "Secret": {
        1: _METADATA,
        2: Field("data", "bytes-map"),
        3: Field("type"),
        4: Field("stringData", "string-map"),
        5: Field("immutable", "bool"),
    },
    "PriorityClass": {
        1: _METADATA,
        2: Field("value", "int"),
        3: Field("globalDefault", "bool"),
        4: Field("description"),
        5: Field("preemptionPolicy"),
    },
    "PodDisruptionBudget": {
        1: _METADATA,
        2: _message(
            "spec",
            {
                1: Field("minAvailable", "int-or-string"),
                2: _message("selector", {1: Field("matchLabels", "string-map")}),
                3: Field("maxUnavailable", "int-or-string"),
            },
        ),
    },
    "Eviction": {1: _METADATA, 2: _message("deleteOptions", _DELETE_OPTIONS)},
    "DeleteOptions": _DELETE_OPTIONS,
    "SelfSubjectAccessReview": {
        1: _METADATA,
        2: _message(
            "spec",
            {
                1: _message("resourceAttributes", {i: Field(name) for i, name in enumerate(_ATTRIBUTES, 1)}),
                2: _message("nonResourceAttributes", {1: Field("path"), 2: Field("verb")}),
            },
        ),
    },
}


def read(body: bytes) -> JsonObject:
    """The object of a protobuf body. Raises Unreadable."""
    if not body.startswith(MAGIC):
        raise Unreadable("it does not begin as Kubernetes protobuf does")
    try:
        envelope = dict(_fields(body[len(MAGIC) :]))
        names = dict(_fields(_as_bytes(envelope[1])))
        api_version, kind = _as_bytes(names[1]).decode(), _as_bytes(names[2]).decode()
        if kind not in _KINDS:
            raise Unreadable(f"{kind} is taken as JSON or YAML only")
        return {"apiVersion": api_version, "kind": kind} | _object(_as_bytes(envelope.get(2, b"")), _KINDS[kind])
    except (IndexError, KeyError, ValueError, TypeError) as error:
        raise Unreadable(f"it is broken: {error!r}") from error


def _as_bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number where bytes belong")
    return value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, at
        shift += 7


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field numbers with their raw values, in order."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        wire = tag & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield tag >> 3, value
            continue
        if wire == _BYTES:
            size, at = _varint(data, at)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if at + size > len(data):
            raise ValueError("it ends too early")
        yield tag >> 3, data[at : at + size]
        at += size


def _object(data: bytes, message: Message) -> JsonObject:
    result: JsonObject = {}
    for number, raw in _fields(data):
        field = message.get(number)
        if field is None:
            continue
        value = _value(raw, field)
        if field.repeated:
            result.setdefault(field.name, []).append(value)
        elif field.type.endswith("-map"):
            result.setdefault(field.name, {}).update(value)
        elif value not in ("", {}):  # the zero values that Go writes out
            result[field.name] = value
    return result


def _value(raw: int | bytes, field: Field) -> Json:
    match field.type:
        case "bool":
            return bool(raw)
        case "int":
            return raw if isinstance(raw, int) and raw < 2**63 else int(str(raw)) - 2**64
        case "message":
            return _object(_as_bytes(raw), field.message or {})
        case "int-or-string":
            parts = dict(_fields(_as_bytes(raw)))
            return _as_bytes(parts[3]).decode() if parts.get(1) else parts.get(2, 0)
        case "string-map" | "bytes-map":
            entry = dict(_fields(_as_bytes(raw)))
            value = _as_bytes(entry.get(2, b""))
            shown = value.decode() if field.type == "string-map" else base64.b64encode(value).decode()
            return {_as_bytes(entry.get(1, b"")).decode(): shown}
    return _as_bytes(raw).decode()
