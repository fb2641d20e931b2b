"""The protobuf bodies that kubectl insists on, read into JSON.

kubectl sends what it creates through typed clients (`create deployment`, `drain`, `auth can-i`) as protobuf and does
not fall back to JSON. Field numbers are those of the Go types (see structs).
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache

from deploy.local.apiserver import structs
from deploy.local.apiserver.objects import Json, JsonObject, decode
from deploy.local.apiserver.structs import Member
from shared.protobuf import Raw, as_bytes, as_int, fields

MAGIC = b"k8s\x00"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# By number: a field's name and type, or the fields of a struct that JSON shows as part of the one around it.
Message = Mapping[int, "tuple[str, Member] | Message"]


class Unreadable(Exception):
    """Not the protobuf of a kind that is read here."""


def read(body: bytes) -> JsonObject:
    """The object of a protobuf body. Raises Unreadable."""
    if not body.startswith(MAGIC):
        raise Unreadable("it does not begin as Kubernetes protobuf does")
    try:
        envelope = dict(fields(body[len(MAGIC) :]))
        names = dict(fields(as_bytes(envelope[1])))
        api_version, kind = as_bytes(names[1]).decode(), as_bytes(names[2]).decode()
        message = _message_of(api_version, kind)
        content = _object(as_bytes(envelope.get(2, b"")), message)
    except (IndexError, KeyError, ValueError, TypeError, OverflowError) as error:
        raise Unreadable(f"it is broken: {error!r}") from error
    return {"apiVersion": api_version, "kind": kind} | content


def _message_of(api_version: str, kind: str) -> Message:
    """Raises Unreadable."""
    group, _, version = api_version.rpartition("/")
    package = "meta" if kind == "DeleteOptions" else group.partition(".")[0] or "core"
    try:
        return _message(f"{package}/{version}.{kind}")
    except (KeyError, AssertionError):
        raise Unreadable(f"{kind} is taken as JSON or YAML only") from None


@cache
def _message(struct: str) -> Message:
    message: dict[int, tuple[str, Member] | Message] = {}
    for name, member in structs.members(struct).items():
        at: dict[int, tuple[str, Member] | Message] = message
        for number in member.numbers[:-1]:
            inner = at.setdefault(number, {})
            assert isinstance(inner, dict), name
            at = inner
        if member.numbers:
            at[member.numbers[-1]] = (name, member)
    return message


def _object(data: bytes, message: Message) -> JsonObject:
    result: JsonObject = {}
    for number, raw in fields(data):
        found = message.get(number)
        if isinstance(found, Mapping):
            result.update(_object(as_bytes(raw), found))
        elif found is not None:
            name, member = found
            _add(result, name, structs.resolved(member.type.lstrip("*")), raw)
    return result


def _add(result: JsonObject, name: str, go: str, raw: Raw) -> None:
    if go.startswith("map["):
        entry = dict(fields(as_bytes(raw)))
        key = as_bytes(entry.get(1, b"")).decode()
        result.setdefault(name, {})[key] = _value(entry.get(2, b""), structs.resolved(structs.element(go)))
    elif go.startswith("[]") and go != "[]byte":
        result.setdefault(name, []).append(_value(raw, structs.resolved(structs.element(go).lstrip("*"))))
    else:
        value = _value(raw, go)
        if value is not None:
            result[name] = value


def _value(raw: Raw, go: str) -> Json:
    if structs.is_struct(go):
        return _object(as_bytes(raw), _message(go))
    match go:
        case "bool":
            return bool(raw)
        case "int32" | "int64" | "int":
            return as_int(raw)
        case "[]byte":
            return base64.b64encode(as_bytes(raw)).decode()
        case "string" | "pkg/types.UID":
            return as_bytes(raw).decode()
    parts = dict(fields(as_bytes(raw)))
    match go:
        case "api/resource.Quantity":
            return as_bytes(parts.get(1, b"")).decode() or "0"
        case "meta/v1.Time" | "meta/v1.MicroTime":
            return _time(parts, fraction=go.endswith("MicroTime"))
        case "util/intstr.IntOrString":
            return as_bytes(parts.get(3, b"")).decode() if parts.get(1) else as_int(parts.get(2, 0))
        case "meta/v1.FieldsV1" | "pkg/runtime.RawExtension":
            return decode(as_bytes(parts[1])) if parts.get(1) else None
    raise ValueError(f"a {go}")


def _time(parts: Mapping[int, Raw], *, fraction: bool) -> str | None:
    """None for the moment that Go calls zero."""
    if not parts:
        return None
    moment = _EPOCH + timedelta(seconds=as_int(parts.get(1, 0)), microseconds=as_int(parts.get(2, 0)) // 1000)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if fraction else "%Y-%m-%dT%H:%M:%SZ")
