"""Lists in pages: all pages of a list show the same snapshot, however long the client takes."""

from __future__ import annotations

import base64
import time
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from deploy.local.apiserver import status
from deploy.local.apiserver.store import Record, Store
from deploy.local.apiserver.watch import Filter

TOKEN_SECONDS = 300.0
_KEPT_SNAPSHOTS = 64
_INCONSISTENT = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list "
    "without the continue parameter, or use the continue token in this response, which may result in an inconsistent "
    "list."
)


class Token(msgspec.Struct, frozen=True):
    """A continue token: the position and the snapshot; -1 means the present."""

    rv: int = 0
    start: str = ""

    def encode(self) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).rstrip(b"=").decode()


def parse_token(text: str) -> Token:
    """Raises StatusError (400)."""
    try:
        token = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=Token)
    except (msgspec.MsgspecError, ValueError) as error:
        raise status.bad_request(f"invalid continue token: continue key is not valid: {error}") from None
    return token


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list; `remaining` counts the objects after it, None if a selector makes it unknown."""

    records: Sequence[Record]
    version: int
    next_token: str = ""
    remaining: int | None = None


class Lister:
    """Pages over the store, and the snapshots that open tokens refer to."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._snapshots: OrderedDict[tuple[str, int], tuple[float, Sequence[Record]]] = OrderedDict()

    def page(self, resource: str, wanted: Filter, limit: int, token: str) -> Page:
        """At most `limit` matching records (0: all). Raises StatusError (400, 410)."""
        if token:
            records, version, start = self._resume(resource, parse_token(token))
        else:
            records, version, start = self._store.ordered(resource), self._store.version, ""
        first, last = _bounds(records, wanted.namespace, start)
        if not limit:
            return Page(_matching(records[first:last], wanted), version)
        return self._part(resource, records, range(first, last), wanted, limit, version)

    def _part(
        self, resource: str, records: Sequence[Record], span: range, wanted: Filter, limit: int, version: int
    ) -> Page:
        found: list[Record] = []
        for index in span:
            if len(found) == limit:
                self._snapshots[resource, version] = (time.monotonic(), records)
                while len(self._snapshots) > _KEPT_SNAPSHOTS:
                    self._snapshots.popitem(last=False)
                selecting = bool(wanted.labels or wanted.fields)
                token = Token(version, records[index].key).encode()
                return Page(found, version, token, None if selecting else span.stop - index)
            if wanted.matches(records[index]):
                found.append(records[index])
        return Page(found, version)

    def _resume(self, resource: str, token: Token) -> tuple[Sequence[Record], int, str]:
        if token.rv < 0:
            return self._store.ordered(resource), self._store.version, token.start
        kept = self._snapshots.get((resource, token.rv))
        if kept is None or time.monotonic() - kept[0] > TOKEN_SECONDS:
            self._snapshots.pop((resource, token.rv), None)
            raise status.expired(_INCONSISTENT, Token(-1, token.start).encode())
        return kept[1], token.rv, token.start

    def forget(self) -> None:
        """Expires every open token."""
        self._snapshots.clear()


def _bounds(records: Sequence[Record], namespace: str, start: str) -> tuple[int, int]:
    """The index range of a namespace's keys (of all keys if empty), starting at `start`."""
    first, last = 0, len(records)
    if namespace:
        first = bisect_left(records, f"{namespace}/", key=lambda record: record.key)
        last = bisect_left(records, f"{namespace}0", key=lambda record: record.key)  # the character after "/" is "0"
    if start:
        first = bisect_left(records, start, key=lambda record: record.key)
    return first, last


def _matching(records: Sequence[Record], wanted: Filter) -> Sequence[Record]:
    if not wanted.labels and not wanted.fields:
        return records
    return [record for record in records if wanted.matches(record)]
