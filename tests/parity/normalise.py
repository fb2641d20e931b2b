"""Transcripts without what differs from run to run, and without what is outside parity.

What differs from run to run gets a name that keeps its meaning: the objects' resource versions become v1, v2 ... in
their order, a list's version the newest of these that it includes, uids become uid1, uid2 ... in order of appearance,
and so on. `LEFT_OUT` says what is not compared at all, most of it because other parts of a cluster add it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.parity.calls import Exchange

Json = Any  # what JSON decodes to
Object = dict[str, Json]

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TIME = re.compile(
    r"(?!2020-|2006-)\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"
)  # written by behaviours: 2020; by Go: 2006
_GENERATED = re.compile(r"\bgen[-_][bcdfghjklmnpqrstvwxz2456789]{5}\b")
_CURRENT = re.compile(r"(?<=current: )\d+|(?<=resource version: \d \()\d+")
# A list's version, which a call goes on from, is an object's only where nobody else has written in between.
_ASKED_VERSION = re.compile(r"(?<=resourceVersion=)[1-9]\d{1,12}(?!\d)")
_ANY_VERSION = re.compile(r"(?<=resourceVersion: \")\d+|(?<=Resource Version:  )\s*\d+")
_AGE = re.compile(r"\b(?:\d+m?s|\d+y(?:\d+d)?)\b(?: ago)?")  # of what was made just now, or in 2020
_PORT = re.compile(r"(?<=//127\.0\.0\.1:)\d{4,5}\b")  # of a server that a behaviour runs
_OWN_NAME = re.compile(r"(?<![a-z0-9])(ns|me)-[0-9a-f]{8}\b")


@dataclass(frozen=True)
class Omission:
    """A part of objects of a kind ("": of every kind) that is not compared."""

    kind: str
    what: str
    remove: Callable[[Object], None]


def _dig(obj: Json, *path: str) -> Json:
    for step in path:
        obj = obj.get(step) if isinstance(obj, dict) else None
    return obj


def _keep_items(obj: Json, field: str, wanted: Callable[[Object], bool]) -> None:
    """Only the wanted items of a list; an emptied list goes."""
    if isinstance(obj, dict) and isinstance(obj.get(field), list):
        obj[field] = [item for item in obj[field] if wanted(item)]
        if not obj[field]:
            del obj[field]


def _pod_spec(pod: Object) -> None:
    spec = pod.get("spec") or {}
    for field in ("serviceAccountName", "serviceAccount"):
        if spec.get(field) == "default":
            del spec[field]
    _keep_items(spec, "volumes", lambda item: not item["name"].startswith("kube-api-access-"))
    for container in [*spec.get("containers", ()), *spec.get("initContainers", ())]:
        _keep_items(container, "volumeMounts", lambda item: not item["name"].startswith("kube-api-access-"))


def _node(node: Object) -> None:
    _keep_items(node.get("spec"), "taints", lambda item: not item["key"].startswith("node.kubernetes.io/"))
    annotations = _dig(node, "metadata", "annotations") or {}
    annotations.pop("node.alpha.kubernetes.io/ttl", None)
    if annotations == {}:
        node["metadata"].pop("annotations", None)


def _namespace(namespace: Object) -> None:
    namespace["metadata"].pop("resourceVersion", None)
    (namespace.get("status") or {}).pop("conditions", None)


def _status(status: Object) -> None:
    status.pop("message", None)
    if status.get("status") == "Success":
        status.pop("code", None)
    for part in ("causes", "uid"):
        (status.get("details") or {}).pop(part, None)


def _workload(obj: Object) -> None:
    obj["metadata"].pop("resourceVersion", None)
    obj.pop("status", None)
    annotations = _dig(obj, "metadata", "annotations") or {}
    annotations.pop("deployment.kubernetes.io/revision", None)
    if annotations == {}:
        obj["metadata"].pop("annotations", None)


def _metadata(obj: Object) -> None:
    for field in ("managedFields", "remainingItemCount"):
        obj["metadata"].pop(field, None)


def _token(obj: Object) -> None:
    if obj["metadata"].get("continue") == "":
        del obj["metadata"]["continue"]


def _conditions(obj: Object) -> None:
    if isinstance(conditions := _dig(obj, "status", "conditions"), list):
        conditions.sort(key=lambda each: str(each.get("type")))


def _budget(budget: Object) -> None:
    (budget.get("status") or {}).pop("conditions", None)


def _item(obj: Object) -> None:
    if str(obj.get("kind", "")).startswith("-"):
        obj.pop("apiVersion", None)


def _table(table: Object) -> None:
    for column in table.get("columnDefinitions") or ():
        column.pop("description", None)


LEFT_OUT = (
    Omission("Pod", "the service account's name and token volume (token signing is outside parity)", _pod_spec),
    Omission("Node", "taints `node.kubernetes.io/...` and the TTL annotation of the node controllers", _node),
    Omission("Deployment", "what its controller writes, and the version it moves on", _workload),
    Omission("ReplicaSet", "what its controller writes, and the version it moves on", _workload),
    Omission("Namespace", "conditions, which its controller writes, and the version it moves on", _namespace),
    Omission("Status", "the message, the causes, the code of a success: what is wrong is said in other words", _status),
    Omission("Table", "the descriptions of columns, which no client shows", _table),
    Omission("PodDisruptionBudget", "conditions, which its controller writes", _budget),
    Omission("", "managedFields and remainingItemCount, which the embedded server does not keep", _metadata),
    Omission("", "an empty continue token, which lists of custom kinds have", _token),
    Omission("", "the kind of a list's items, which the embedded server names in every list", _item),
    Omission("", "the order of conditions", _conditions),
)


def _objects(value: Json) -> Iterator[Object]:
    """Every API object in a body, each before what it contains; items of lists with the kind of their list."""
    if isinstance(value, list):
        for item in value:
            yield from _objects(item)
    elif isinstance(value, dict):
        if isinstance(value.get("metadata"), dict):
            yield value
        kind = value.get("kind")
        if isinstance(kind, str) and kind.endswith("List") and isinstance(value.get("items"), list):
            for item in value["items"]:
                if isinstance(item, dict):
                    item["kind"] = "-" + kind.removesuffix("List")
        for item in value.values():
            yield from _objects(item)


def _without_left_out(body: Json) -> None:
    for obj in _objects(body):
        kind = str(obj.get("kind", "")).lstrip("-")
        for omission in LEFT_OUT:
            if omission.kind in ("", kind):
                omission.remove(obj)
    for obj in _objects(body):
        if str(obj.get("kind", "")).startswith("-"):
            del obj["kind"]


class _Names:
    """Symbols for what differs from run to run, over one transcript."""

    def __init__(self, exchanges: Sequence[Exchange]) -> None:
        found = {v for exchange in exchanges for v in _versions(exchange.get("body"))}
        self._versions = {version: f"v{index}" for index, version in enumerate(sorted(found), 1)}
        self._uids: dict[str, str] = {}

    def of(self, value: Json, key: str = "", parent: Object | None = None) -> Json:
        if isinstance(value, dict):
            return {self._text(name): self.of(item, name, value) for name, item in value.items()}
        if isinstance(value, list):
            return [self.of(item, key) for item in value]
        if not isinstance(value, str):
            return value
        if key == "resourceVersion" and value.isdigit():
            return self._version(int(value), exact=bool(parent and parent.get("name")))
        if key == "continue" and value:
            return "<token>"
        return self._text(value)

    def _version(self, version: int, *, exact: bool) -> str:
        if exact:
            return self._versions[version]
        before = [name for known, name in self._versions.items() if known <= version]
        return f"{before[-1]} or later" if before else "v0"

    def _text(self, text: str) -> str:
        text = _OWN_NAME.sub(r"<\1>", text)
        text = _UUID.sub(lambda match: self._uids.setdefault(match[0], f"uid{len(self._uids) + 1}"), text)
        text = _TIME.sub(lambda match: "<micro time>" if match[1] else "<time>", text)
        text = _GENERATED.sub(lambda match: match[0][:4] + "<suffix>", text)
        text = _PORT.sub("<port>", text)
        text = _CURRENT.sub("<version>", text)
        text = re.sub(r"continue=[\w-]+", "continue=<token>", text)
        text = _ASKED_VERSION.sub("<version>", text)
        for version, name in self._versions.items():
            text = re.sub(rf"(?<![\w.-]){version}(?![\w.-])", name, text)
        text = _ANY_VERSION.sub("<version>", text)
        return _AGE.sub("<age>", text)


def _versions(value: Json) -> Iterator[int]:
    """The resource versions of objects: what has a name, unlike lists and bookmarks."""
    if isinstance(value, list):
        for item in value:
            yield from _versions(item)
    elif isinstance(value, dict):
        if value.get("name") and str(value.get("resourceVersion", "")).isdigit():
            yield int(value["resourceVersion"])
        for item in value.values():
            yield from _versions(item)


def normalised(exchanges: Sequence[Exchange]) -> list[Exchange]:
    """A transcript as it is recorded and compared."""
    copied: list[Exchange] = json.loads(json.dumps(exchanges))
    for exchange in copied:
        _without_left_out(exchange.get("body"))
    names = _Names(copied)
    return [exchange for exchange in map(names.of, copied) if not exchange.get("quiet")]
