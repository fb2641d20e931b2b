"""Lists in pages. Each page shows the present; all bear the first one's version, from which a watch catches up."""

import base64
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from deploy.local.apiserver import status
from deploy.local.apiserver.store import Store, StoredObject
from deploy.local.apiserver.watch import Filter


def _token(version: int, start: str) -> str:
    """A continue token: the list's version, and the key at which its next page starts."""
    return base64.urlsafe_b64encode(f"{version} {start}".encode()).decode()


def _read(token: str) -> tuple[int, str]:
    """Raises StatusError (400)."""
    try:
        version, start = base64.urlsafe_b64decode(token).decode().split(" ")
        return int(version), start
    except ValueError as error:
        raise status.bad_request(f"continue: {token!r} is no token of a list: {error}") from None


@dataclass(frozen=True, slots=True)
class ListPage:
    """A part of a list."""

    records: Sequence[StoredObject]
    version: int
    next_token: str = ""


def page(store: Store, resource: str, wanted: Filter, limit: int = 0, token: str = "") -> ListPage:
    """At most `limit` matching records (0: all), from where the token says. Raises StatusError (400)."""
    version, start = _read(token) if token else (store.version, "")
    records, prefix = store.ordered(resource), f"{wanted.namespace}/" if wanted.namespace else ""
    if not (limit or token or prefix or wanted.labels or wanted.fields):
        return ListPage(records, version)
    found: list[StoredObject] = []
    for record in records[bisect_left(records, max(start, prefix), key=lambda record: record.key) :]:
        if not record.key.startswith(prefix):
            break
        if limit and len(found) == limit:
            return ListPage(found, version, _token(version, record.key))
        if wanted.matches(record):
            found.append(record)
    return ListPage(found, version)
