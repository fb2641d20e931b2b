"""Decodes the server's bytes into the caller's structs; a malformed object is refused alone, never its neighbours.

The common path decodes a whole page or event in one pass. Only when that fails are objects decoded one by one, to find
and name the malformed one.
"""

import threading
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from shared.api.meta import ObjectMeta
from shared.kube import errors
from shared.kube.errors import InvalidResponse

ADDED, MODIFIED, DELETED, BOOKMARK = "ADDED", "MODIFIED", "DELETED", "BOOKMARK"

# All errors of the decoder for malformed JSON.
_MALFORMED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class HasMetadata(Protocol):
    """Any Kubernetes object as a struct."""

    @property
    def metadata(self) -> ObjectMeta: ...


ObjectT = TypeVar("ObjectT", bound=HasMetadata)
T = TypeVar("T")


@dataclass(frozen=True)
class RefusedObject:
    """One version of an object that does not fit its struct. `key` is empty when its name is unreadable too."""

    key: str
    resource_version: str
    reason: str


class WatchEvent(msgspec.Struct, Generic[T], frozen=True):
    """One change on the server: ADDED, MODIFIED, DELETED, or a BOOKMARK, which only moves the position.

    `object` is None for a BOOKMARK, and for a DELETED whose last state does not fit the struct.
    """

    type: str
    key: str
    resource_version: str
    object: T | None = None


@dataclass(frozen=True)
class Page(Generic[T]):
    """One answer to a list request; `continue_token` is empty on the last one."""

    items: list[T]
    refused: list[RefusedObject]
    resource_version: str
    continue_token: str


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_token: str = msgspec.field(default="", name="continue")


class _WirePage(msgspec.Struct, Generic[T], frozen=True):
    # Both are required: an answer without `items` must not pass for an empty cluster.
    metadata: _ListMeta
    items: list[T] | None


class _WireEvent(msgspec.Struct, Generic[T], frozen=True):
    type: str
    object: T


class _Identity(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class _Identified(msgspec.Struct, frozen=True):
    metadata: _Identity = _Identity()


_DECODERS: dict[tuple[Any, Any], msgspec.json.Decoder[Any]] = {}
_BUILDING = threading.Lock()


def is_older(version: str, other: str) -> bool:
    """Whether one resourceVersion is older than another of the same kind, where both are numbers (KEP-5504)."""
    return version.isdecimal() and other.isdecimal() and int(version) < int(other)


def _decoder(shape: Any, of: Any = None) -> msgspec.json.Decoder[Any]:
    """The decoder of `shape`, or of the generic `shape[of]`, built once.

    A lock serialises this: msgspec stores incomplete type information on the class, and a second thread that builds a
    decoder of the same class at that moment causes a segmentation fault.
    """
    found = _DECODERS.get((shape, of))
    if found is None:
        with _BUILDING:
            found = _DECODERS[shape, of] = msgspec.json.Decoder(shape if of is None else shape[of])
    return found


def decode(body: bytes, into: type[T]) -> T:
    """Raises InvalidResponse."""
    try:
        decoded: T = _decoder(into).decode(body)
    except _MALFORMED as error:
        raise InvalidResponse(f"not a {into.__name__}: {error}") from error
    return decoded


def decode_page(body: bytes, into: type[T]) -> Page[T]:
    """One page of a list. Raises InvalidResponse when it is no list at all."""
    try:
        wire: _WirePage[T] = _decoder(_WirePage, into).decode(body)
    except _MALFORMED:
        return _picked_page(body, into)
    return Page(wire.items or [], [], wire.metadata.resource_version, wire.metadata.continue_token)


def decode_event(line: bytes, into: type[ObjectT]) -> WatchEvent[ObjectT] | RefusedObject:
    """One line of a watch. Raises InvalidResponse, and ApiError for an ERROR event."""
    try:
        wire: _WireEvent[ObjectT] = _decoder(_WireEvent, into).decode(line)
    except _MALFORMED:
        return _picked_event(line, into)
    if wire.type in (ADDED, MODIFIED, DELETED):
        meta = wire.object.metadata
        return WatchEvent(wire.type, meta.key, meta.resource_version, wire.object)
    return _picked_event(line, into)


def _picked_page(body: bytes, into: type[T]) -> Page[T]:
    wire = decode(body, _RawPage)
    items: list[T] = []
    refused: list[RefusedObject] = []
    for raw in wire.items or ():
        try:
            items.append(_decoder(into).decode(raw))
        except _MALFORMED as error:
            identity = _identity(raw)
            refused.append(RefusedObject(identity.key, identity.resource_version, str(error)))
    return Page(items, refused, wire.metadata.resource_version, wire.metadata.continue_token)


def _picked_event(line: bytes, into: type[ObjectT]) -> WatchEvent[ObjectT] | RefusedObject:
    wire = decode(line, _RawEvent)
    if wire.type == "ERROR":
        raise _reported(wire.object)
    identity = _identity(wire.object)
    if wire.type == BOOKMARK:
        return WatchEvent(BOOKMARK, "", identity.resource_version)
    if wire.type == DELETED and identity.name:
        return WatchEvent(DELETED, identity.key, identity.resource_version)
    if wire.type not in (ADDED, MODIFIED):
        raise InvalidResponse(f"not a watch event: type {wire.type[:40]!r}")
    try:
        decoded: ObjectT = _decoder(into).decode(wire.object)
    except _MALFORMED as error:
        return RefusedObject(identity.key, identity.resource_version, str(error))
    return WatchEvent(wire.type, identity.key, identity.resource_version, decoded)


def _reported(status: msgspec.Raw) -> errors.ApiError | InvalidResponse:
    try:
        return errors.from_status(bytes(status))
    except _MALFORMED as error:
        return InvalidResponse(f"not a Status: {error}")


def _identity(raw: msgspec.Raw) -> _Identity:
    try:
        found: _Identified = _decoder(_Identified).decode(raw)
    except _MALFORMED:
        return _Identity()
    return found.metadata


_RawPage = _WirePage[msgspec.Raw]
_RawEvent = _WireEvent[msgspec.Raw]
