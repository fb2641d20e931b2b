"""The verbs on objects and collections: get, list, watch, create, update, patch, delete."""

from __future__ import annotations

from dataclasses import replace

from deploy.local.apiserver import bodies, metadata, patching, selectors, status
from deploy.local.apiserver.decoding import How
from deploy.local.apiserver.kinds import Kind, field_labels
from deploy.local.apiserver.listing import Lister
from deploy.local.apiserver.objects import JsonObject
from deploy.local.apiserver.requests import Request, Target
from deploy.local.apiserver.responses import Response, Stream, form_of, json_response, warning_headers
from deploy.local.apiserver.reviewed import Reviewed
from deploy.local.apiserver.store import Record, Store, object_key
from deploy.local.apiserver.watch import Filter, Hub, Watcher
from deploy.local.apiserver.writes import Mutate, Outcome

MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


class Handlers:
    """Requests on served kinds, over one store."""

    def __init__(self, store: Store, writes: Reviewed, hub: Hub, lister: Lister) -> None:
        self._store = store
        self._writes = writes
        self._hub = hub
        self._lister = lister

    async def handle(self, request: Request, target: Target, kind: Kind) -> Response | Stream:
        """Handles a request on an object, its status, or a collection. Raises StatusError."""
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
                return await self._delete(request, target, kind)
            case "DELETE", False if kind.resource != "/namespaces":
                return await self._delete_collection(request, target, kind)
        raise status.method_not_allowed()

    def _get(self, request: Request, target: Target, kind: Kind) -> Response:
        self._check_version(request)
        record = self._store.get(kind.resource, object_key(target.namespace, target.name))
        if record is None:
            raise status.not_found(kind.group, kind.plural, target.name)
        return form_of(request, kind).value(record.value)

    def _check_version(self, request: Request) -> int:
        """The requested resourceVersion (0 if absent). Raises StatusError (504) if it is in the future."""
        version = _version_of(request)
        if version > self._store.version:
            raise status.version_too_large(version, self._store.version)
        return version

    def _list(self, request: Request, target: Target, kind: Kind) -> Response:
        wanted = _filter(request, target, kind)
        self._check_version(request)
        page = self._lister.page(
            kind.resource, wanted, max(0, request.number("limit")), request.query.get("continue", "")
        )
        meta: JsonObject = {"resourceVersion": str(page.version)}
        if page.next_token:
            meta["continue"] = page.next_token
            if page.remaining is not None:
                meta["remainingItemCount"] = page.remaining
        return form_of(request, kind).many(page.records, meta)

    def _watch(self, request: Request, target: Target, kind: Kind) -> Stream:
        wanted = _filter(request, target, kind)
        if "sendInitialEvents" in request.query:
            raise status.invalid_option(status.forbidden_field("sendInitialEvents", "lists are not streamed here"))
        form = form_of(request, kind)
        watcher = Watcher(kind, wanted, form.one if form.as_table else None, request.flag("allowWatchBookmarks"))
        version = _version_of(request)
        try:
            self._begin(kind, watcher, wanted, version)
        except status.StatusError as error:
            # After its validation, a watch reports errors inside the stream.
            watcher.error(error)
        timeout = request.number("timeoutSeconds") or None
        self._hub.attach(kind.resource, watcher, timeout)
        return Stream(watcher.take, lambda: self._hub.detach(kind.resource, watcher))

    def _begin(self, kind: Kind, watcher: Watcher, wanted: Filter, version: int) -> None:
        if version:
            for change in self._hub.history(kind.resource).since(version):
                watcher.offer(change)
        else:
            for record in self._lister.page(kind.resource, wanted, 0, "").records:
                watcher.add(record)

    async def _create(self, request: Request, target: Target, kind: Kind) -> Response:
        obj = bodies.parse_object(request, kind, target.namespace)
        outcome = await self._writes.create(request, kind, target.namespace, obj, how_of(request, target))
        return await self._answer(request, kind, outcome)

    async def _replace(self, request: Request, target: Target, kind: Kind) -> Response:
        obj = bodies.parse_object(request, kind, target.namespace)
        metadata.check_name(obj["metadata"].get("name"), target.name)
        how, where = how_of(request, target), (target.namespace, target.name)
        if kind.create_on_update and self._store.latest(kind.resource, object_key(*where)) is None:
            obj["metadata"].pop("resourceVersion", None)
            outcome = await self._writes.create(request, kind, target.namespace, obj, how)
        else:
            outcome = await self._writes.update(request, kind, *where, lambda _: obj, how, replacing=True)
        return await self._answer(request, kind, outcome)

    async def _patch(self, request: Request, target: Target, kind: Kind) -> Response:
        mutate, how = mutation(request, kind), how_of(request, target)
        outcome = await self._writes.update(request, kind, target.namespace, target.name, mutate, how)
        return await self._answer(request, kind, outcome)

    async def _delete(self, request: Request, target: Target, kind: Kind) -> Response:
        deletion = bodies.deletion(bodies.deletion_options(request))
        outcome = await self._writes.delete(request, kind, target.namespace, target.name, deletion)
        if outcome.done is not None:
            await outcome.done
        headers = warning_headers(outcome.warnings)
        if kind.returns_deleted or not outcome.deleted:
            return form_of(request, kind).value(outcome.value, headers=headers)
        return replace(json_response(_deleted(kind, target.name, outcome.uid)), headers=headers)

    async def _delete_collection(self, request: Request, target: Target, kind: Kind) -> Response:
        deletion = bodies.deletion(bodies.deletion_options(request))
        wanted, version = _filter(request, target, kind), self._store.version
        gone: list[Record] = []
        outcomes: list[Outcome] = []
        for record in self._lister.page(kind.resource, wanted, 0, "").records:
            if self._store.latest(kind.resource, record.key) is not None:
                outcomes.append(await self._writes.delete(request, kind, record.namespace, record.name, deletion))
                gone.append(record)
        for outcome in outcomes:
            if outcome.done is not None:
                await outcome.done
        return form_of(request, kind).many(gone, {"resourceVersion": str(version)})

    async def _answer(self, request: Request, kind: Kind, outcome: Outcome) -> Response:
        """The object after a write; waits until the write is durable."""
        if outcome.done is not None:
            await outcome.done
        headers = warning_headers(outcome.warnings)
        return form_of(request, kind).value(outcome.value, 201 if outcome.created else 200, headers)


def how_of(request: Request, target: Target) -> How:
    return How(target.subresource, dry_run=request.dry_run, field_validation=request.field_validation)


def _version_of(request: Request) -> int:
    """Raises StatusError (400)."""
    text = request.query.get("resourceVersion", "")
    if text and not text.isdigit():
        raise status.bad_request(f"resourceVersion: {text!r} is no version")
    return int(text or 0)


def _filter(request: Request, target: Target, kind: Kind) -> Filter:
    fields = selectors.parse_fields(request.query.get("fieldSelector", ""))
    allowed = field_labels(kind)
    for requirement in fields.requirements:
        if requirement.key not in allowed:
            raise status.bad_request(f"field label not supported: {requirement.key}")
    if target.name:
        named = selectors.Requirement("metadata.name", "In", (target.name,))
        fields = selectors.Selector((*fields.requirements, named))
    return Filter(target.namespace, selectors.parse_labels(request.query.get("labelSelector", "")), fields)


def mutation(request: Request, kind: Kind) -> Mutate:
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
    return lambda live: patching.merged(live, patch)


def _deleted(kind: Kind, name: str, uid: str) -> JsonObject:
    details = {"name": name, "group": kind.group, "kind": kind.plural, "uid": uid}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {key: value for key, value in details.items() if value},
    }
