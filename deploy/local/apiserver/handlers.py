"""The verbs on objects and collections: get, list, watch, create, update, patch, delete."""

import math
from collections.abc import Sequence

from starlette.responses import Response

from deploy.local.apiserver import bodies, kubectl, listing, metadata, patching, scaling, selectors, status
from deploy.local.apiserver.kinds import ApiKind, field_labels
from deploy.local.apiserver.objects import JsonObject, decode
from deploy.local.apiserver.requests import Request, Target
from deploy.local.apiserver.responses import done, form_of, json_response, stream, warning_headers
from deploy.local.apiserver.reviewed import Reviewed
from deploy.local.apiserver.store import ObjectChange, Store
from deploy.local.apiserver.watch import Filter, Hub, Watcher
from deploy.local.apiserver.writes import Mutate, WriteOutcome, Writes
from shared.api.selectors import LabelRequirement

MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


class Handlers:
    """Requests on served kinds, over one store."""

    def __init__(self, store: Store, writes: Writes, reviewed: Reviewed, hub: Hub) -> None:
        self._store = store
        self._writes = writes
        self._reviewed = reviewed
        self._hub = hub

    async def handle(self, request: Request, target: Target, kind: ApiKind) -> Response:
        """Handles a request on an object, its status, or a collection. Raises StatusError."""
        if target.subresource == scaling.SUBRESOURCE:
            return await self._scale(request, target, kind)
        if kind.namespaced and not target.namespace and (request.method != "GET" or target.name):
            raise status.method_not_allowed()
        match request.method, bool(target.name):
            case "GET", True:
                return self._get(request, target, kind)
            case "GET", False:
                watching = request.flag("watch")
                return self._watch(request, target, kind) if watching else self._list(request, target, kind)
            case "POST", False:
                return await self._create(request, target, kind)
            case "PUT", True:
                return await self._replace(request, target, kind)
            case "PATCH", True:
                return await self._patch(request, target, kind)
            case "DELETE", True if not target.subresource:
                return self._delete(request, target, kind)
        raise status.method_not_allowed()

    def _get(self, request: Request, target: Target, kind: ApiKind) -> Response:
        return form_of(request, kind).value(self._store.found(kind, target.namespace, target.name).value)

    def _list(self, request: Request, target: Target, kind: ApiKind) -> Response:
        wanted = _filter(request, target, kind)
        _version_of(request)
        page = listing.page(
            self._store, kind.resource, wanted, max(0, request.number("limit")), request.query.get("continue", "")
        )
        meta: JsonObject = {"resourceVersion": str(page.version)}
        if page.next_token:
            meta["continue"] = page.next_token
        return form_of(request, kind).many(page.records, meta)

    def _watch(self, request: Request, target: Target, kind: ApiKind) -> Response:
        wanted = _filter(request, target, kind)
        if "sendInitialEvents" in request.query:
            raise status.invalid_option(status.forbidden_field("sendInitialEvents", "lists are not streamed here"))
        form = form_of(request, kind)
        watcher = Watcher(
            kind,
            wanted,
            form.one if form.as_table else None,
            bookmarks=request.flag("allowWatchBookmarks"),
            timeout_seconds=request.number("timeoutSeconds") or math.inf,
        )
        version = _version_of(request)
        try:
            if version:
                changes = self._hub.history(kind.resource).since(version)
            else:
                present = listing.page(self._store, kind.resource, wanted).records
                changes = [ObjectChange(record, None, deleted=False) for record in present]
            for change in changes:
                watcher.offer(change)
        except status.StatusError as error:
            # After its validation, a watch reports errors inside the stream.
            watcher.error(error)
        self._hub.attach(kind.resource, watcher)
        return stream(watcher.lines())

    async def _create(self, request: Request, target: Target, kind: ApiKind) -> Response:
        obj = bodies.check_object(bodies.parse_written(request), kind, target.namespace)
        outcome = await self._reviewed.create(kind, target.namespace, obj, bodies.how_of(request, target))
        return _answer(request, kind, outcome, kubectl.warnings(request, kind))

    async def _replace(self, request: Request, target: Target, kind: ApiKind) -> Response:
        obj = bodies.check_object(bodies.parse_written(request), kind, target.namespace)
        metadata.check_name(obj["metadata"].get("name"), target.name)
        how, where = bodies.how_of(request, target), (target.namespace, target.name)
        outcome = await self._reviewed.update(kind, *where, lambda _: obj, how, replacing=True)
        return _answer(request, kind, outcome)

    async def _patch(self, request: Request, target: Target, kind: ApiKind) -> Response:
        mutate, how = mutation(request, kind), bodies.how_of(request, target)
        outcome = await self._reviewed.update(kind, target.namespace, target.name, mutate, how)
        return _answer(request, kind, outcome)

    async def _scale(self, request: Request, target: Target, kind: ApiKind) -> Response:
        """The replicas of a custom object, read or written as an autoscaling/v1 Scale."""
        if request.method == "GET":
            return json_response(scaling.scale_of(self._store.found(kind, target.namespace, target.name).load()))
        if request.method not in ("PUT", "PATCH"):
            raise status.method_not_allowed()
        change, how = _scale_change(request, kind), bodies.how_of(request, target)
        outcome = await self._reviewed.update(kind, target.namespace, target.name, change, how)
        return json_response(scaling.scale_of(decode(outcome.value)))

    def _delete(self, request: Request, target: Target, kind: ApiKind) -> Response:
        outcome = self._writes.delete(kind, target.namespace, target.name, bodies.deletion_of(request))
        if not outcome.deleted or kind.resource == "/pods":
            return _answer(request, kind, outcome)
        details = {"name": target.name, "kind": kind.plural, "uid": outcome.uid}
        details |= {"group": kind.group} if kind.group else {}
        return done(details=details)


def _answer(request: Request, kind: ApiKind, outcome: WriteOutcome, warnings: Sequence[str] = ()) -> Response:
    """The object after a write."""
    headers = warning_headers([*outcome.warnings, *warnings])
    return form_of(request, kind).value(outcome.value, 201 if outcome.created else 200, headers)


def _version_of(request: Request) -> int:
    """Raises StatusError (400)."""
    text = request.query.get("resourceVersion", "")
    if text and not text.isdigit():
        raise status.bad_request(f"resourceVersion: {text!r} is no version")
    return int(text or 0)


def _filter(request: Request, target: Target, kind: ApiKind) -> Filter:
    fields = selectors.parse_fields(request.query.get("fieldSelector", ""))
    allowed = field_labels(kind)
    for requirement in fields:
        if requirement.key not in allowed:
            raise status.bad_request(f"field label not supported: {requirement.key}")
    if target.name:
        fields = (*fields, LabelRequirement("metadata.name", "In", (target.name,)))
    return Filter(target.namespace, selectors.parse_labels(request.query.get("labelSelector", "")), fields)


def mutation(request: Request, kind: ApiKind) -> Mutate:
    """The patch of a request as a function of the live object. Raises StatusError (400, 415)."""
    accepted = [JSON_PATCH, MERGE, *([] if kind.custom else [STRATEGIC])]
    if request.content_type not in accepted:
        raise status.unsupported_media_type(accepted)
    patch = bodies.parse(request)
    if request.content_type == JSON_PATCH:
        return lambda live: patching.json_patch(live, patch)
    if not isinstance(patch, dict):
        raise status.bad_request("error decoding patch: it is no object")
    if request.content_type == STRATEGIC:
        return lambda live: patching.strategic(live, patch, kind.list_rule)
    return lambda live: patching.merge(live, patch)


def _scale_change(request: Request, kind: ApiKind) -> Mutate:
    """The change of a written or patched Scale's object. Raises StatusError (400, 415)."""
    if request.method == "PUT":
        scale = bodies.parse(request)
        return lambda live: scaling.scaled(live, scale)
    change = mutation(request, kind)
    return lambda live: scaling.scaled(live, change(scaling.scale_of(live)))
