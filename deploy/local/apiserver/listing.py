"""Lists in pages. Each page shows the present; all bear the first one's version, from which a watch catches up."""

from __future__ import annotations

import base64
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from deploy.local.apiserver import status
from deploy.local.apiserver.store import Store, StoredObject
from deploy.local.apiserver.watch import Filter


class Token(msgspec.Struct, frozen=True):
    """A continue token: the list's version, and the key at which its next page starts."""

    rv: int
    start: str

    def encode(self) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).rstrip(b"=").decode()


def parse_token(text: str) -> Token:
    """Raises StatusError (400)."""
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=Token)
    except (msgspec.MsgspecError, ValueError) as error:
        raise status.bad_request(f"invalid continue token: {error}") from None


@dataclass(frozen=True, slots=True)
class ListPage:
    """A part of a list."""

    records: Sequence[StoredObject]
    version: int
    next_token: str = ""


def page(store: Store, resource: str, wanted: Filter, limit: int = 0, token: str = "") -> ListPage:
    """At most `limit` matching records (0: all), from where the token says. Raises StatusError (400)."""
    at = parse_token(token) if token else Token(store.version, "")
    records = store.ordered(resource)
    first, last = _bounds(records, wanted.namespace, at.start)
    if not limit:
        return ListPage(_matching(records[first:last], wanted), at.rv)
    found: list[StoredObject] = []
    for record in records[first:last]:
        if len(found) == limit:
            return ListPage(found, at.rv, Token(at.rv, record.key).encode())
        if wanted.matches(record):
            found.append(record)
    return ListPage(found, at.rv)


def _bounds(records: Sequence[StoredObject], namespace: str, start: str) -> tuple[int, int]:
    """The index range of a namespace's keys (of all keys if empty), starting at `start`."""
    first, last = 0, len(records)
    if namespace:
        first = bisect_left(records, f"{namespace}/", key=lambda record: record.key)
        last = bisect_left(records, f"{namespace}0", key=lambda record: record.key)  # the character after "/" is "0"
    if start:
        first = bisect_left(records, start, key=lambda record: record.key)
    return first, last


def _matching(records: Sequence[StoredObject], wanted: Filter) -> Sequence[StoredObject]:
    if not wanted.labels and not wanted.fields:
        return records
    return [record for record in records if wanted.matches(record)]
