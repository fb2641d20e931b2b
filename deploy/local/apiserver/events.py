"""events.k8s.io/v1: the same Events as those of the core group, with other names for their fields.

A request on one is turned into a request on the other, and its answer back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from deploy.local.apiserver import bodies, selectors, status, structs
from deploy.local.apiserver.builtin import new_style_errors
from deploy.local.apiserver.decoding import How, decode
from deploy.local.apiserver.handlers import APPLY, Handlers, how_of, mutation, with_patch
from deploy.local.apiserver.kinds import Kind, field_label_error, field_labels
from deploy.local.apiserver.objects import JsonObject, encode
from deploy.local.apiserver.objects import decode as decode_json
from deploy.local.apiserver.requests import Request, Target
from deploy.local.apiserver.responses import Response, Stream, warning_headers
from deploy.local.apiserver.reviewed import Reviewed
from deploy.local.apiserver.status import FieldError

# The fields of events.k8s.io/v1 by those of the core group.
_NAMES: Mapping[str, str] = {
    "involvedObject": "regarding", "message": "note", "source": "deprecatedSource", "count": "deprecatedCount",
    "firstTimestamp": "deprecatedFirstTimestamp", "lastTimestamp": "deprecatedLastTimestamp",
    "reportingComponent": "reportingController",
}  # fmt: skip
_CORE_NAMES = {new: old for old, new in _NAMES.items()}
_LABELS = {"reportingController": "reportingComponent"}
_FIXED = (
    "involvedObject", "reason", "message", "eventTime", "action", "related", "reportingComponent",
    "reportingInstance", "type",
)  # fmt: skip
_TYPES = ("Normal", "Warning")


class EventsView:
    """Requests on events.k8s.io/v1."""

    def __init__(self, handlers: Handlers, writes: Reviewed, core: Kind) -> None:
        self._handlers = handlers
        self._writes = writes
        self._core = core

    async def handle(self, request: Request, target: Target, kind: Kind) -> Response | Stream:
        """Raises StatusError."""
        on_core = replace(target, group=self._core.group, version=self._core.version)
        warnings: list[str] = []
        if request.method == "PATCH" and request.content_type != APPLY:
            return await self._patch(request, target, kind)
        if request.method in ("POST", "PUT", "PATCH"):
            parse = bodies.parse_applied if request.method == "PATCH" else bodies.parse_object
            given, repeated = parse(request, kind, target.namespace)
            taken, _, found = decode(kind, given, how_of(request, target, repeated))
            warnings += found
            event = _as_core(taken, self._core)
            if request.method == "POST" and (wrong := list(_errors(event, None))):
                raise status.invalid("", kind.kind, event["metadata"].get("name", ""), wrong)
            media_type = {b"content-type": APPLY.encode() if request.method == "PATCH" else b"application/json"}
            query = {**request.query, "fieldValidation": "Ignore"}
            request = replace(request, body=encode(event), headers={**request.headers, **media_type}, query=query)
        elif "fieldSelector" in request.query:
            request = replace(request, query={**request.query, "fieldSelector": _core_selector(request, kind)})
        answer = await self._handlers.handle(request, on_core, self._core)
        if isinstance(answer, Stream):
            return _shown_stream(answer, kind)
        shown = encode(_shown_answer(decode_json(answer.body), kind))
        return replace(answer, body=shown, headers=(*answer.headers, *warning_headers(warnings)))

    async def _patch(self, request: Request, target: Target, kind: Kind) -> Response:
        mutate, patch = mutation(request, kind)
        how = with_patch(how_of(request, target), request, patch)
        warnings: list[str] = []

        def patched(live: JsonObject) -> JsonObject:
            taken, _, warnings[:] = decode(kind, mutate(_as_new(live, kind)), how)
            event = _as_core(taken, self._core)
            if wrong := list(_errors(event, live)):
                raise status.invalid("", kind.kind, target.name, wrong)
            return event

        plain = How(how.manager, dry_run=how.dry_run, field_validation="Ignore", patch=patch)
        outcome = await self._writes.update(request, self._core, target.namespace, target.name, patched, plain)
        if outcome.done is not None:
            await outcome.done
        event = _as_new(decode_json(outcome.value), kind)
        return Response(encode(event), headers=warning_headers(warnings))


def _as_new(event: JsonObject, kind: Kind) -> JsonObject:
    renamed = {_NAMES.get(key, key): value for key, value in event.items()}
    return structs.decode(kind.struct, renamed | {"apiVersion": kind.api_version, "kind": kind.kind}).obj


def _as_core(event: JsonObject, core: Kind) -> JsonObject:
    renamed = {_CORE_NAMES.get(key, key): value for key, value in event.items()}
    return renamed | {"apiVersion": core.api_version, "kind": core.kind}


def _core_selector(request: Request, kind: Kind) -> str:
    """The field selector of a request in the names of the core group. Raises StatusError (400)."""
    terms = []
    for term in selectors.parse_fields(request.query["fieldSelector"]).requirements:
        if term.key not in field_labels(kind):
            raise status.bad_request(field_label_error(kind, term.key))
        head, _, rest = term.key.partition(".")
        old = _LABELS.get(term.key) or (f"involvedObject.{rest}" if head == "regarding" else term.key)
        value = term.values[0].replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")
        terms.append(f"{old}{'=' if term.operator == 'In' else '!='}{value}")
    return ",".join(terms)


def _shown_answer(answer: JsonObject, kind: Kind) -> JsonObject:
    match answer.get("kind"):
        case "Event":
            return _as_new(answer, kind)
        case "EventList":
            items = [_as_new(item, kind) for item in answer["items"]]
            for item in items:
                del item["apiVersion"], item["kind"]
            return answer | {"apiVersion": kind.api_version, "items": items}
        case "Table":
            rows = [
                row | {"object": _shown_answer(row["object"], kind)} if row.get("object") else row
                for row in answer["rows"]
            ]
            return answer | {"rows": rows}
        case "Status" if answer.get("status") == "Success":
            return answer | {"details": answer["details"] | {"group": kind.group}}
    return answer


def _shown_stream(stream: Stream, kind: Kind) -> Stream:
    async def take() -> bytes | None:
        lines = await stream.take()
        if lines is None:
            return None
        return b"".join(_shown_line(line, kind) for line in lines.splitlines())

    return replace(stream, take=take)


def _shown_line(line: bytes, kind: Kind) -> bytes:
    event = decode_json(line)
    return encode(event | {"object": _shown_answer(event["object"], kind)}) + b"\n"


def _errors(event: JsonObject, old: JsonObject | None) -> Iterator[FieldError]:
    """What this version asks of an event beside the rules of the core group."""
    if old is not None:
        for name in _FIXED:
            if event.get(name) != old.get(name):
                yield status.immutable(name, event.get(name))
        return
    if event.get("eventTime"):
        yield from new_style_errors(event, "reportingController")
    else:
        yield status.required("eventTime")
    if event.get("type") not in _TYPES:
        yield status.invalid_value("type", "", f"has invalid value: {event.get('type') or ''}")
    for name in ("firstTimestamp", "lastTimestamp", "count", "source"):
        if event.get(name):
            yield status.invalid_value(name, "", "needs to be unset")
    if (series := event.get("series")) is not None:
        if series.get("count", 0) < 2:
            yield status.invalid_value("series.count", "", "should be at least 2")
        if not series.get("lastObservedTime"):
            yield status.required("series.lastObservedTime")
