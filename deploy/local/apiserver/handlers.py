"""The verbs on objects and collections: get, list, watch, create, update, patch, delete."""

from __future__ import annotations

import time
from dataclasses import replace

from deploy.local.apiserver import apply, bodies, metadata, patching, selectors, status
from deploy.local.apiserver.kinds import Kind, field_label_error, field_labels
from deploy.local.apiserver.listing import Lister
from deploy.local.apiserver.objects import JsonObject, timestamp
from deploy.local.apiserver.requests import Request, Target
from deploy.local.apiserver.responses import (
    Response,
    Stream,
    form_of,
    json_response,
    warning_headers,
)
from deploy.local.apiserver.store import Record, Store, object_key
from deploy.local.apiserver.watch import Filter, Hub, Watcher
from deploy.local.apiserver.writes import How, Mutate, Outcome, Writes

MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
STRATEGIC, APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"


class Handlers:
    """Requests on served kinds, over one store."""

    def __init__(self, store: Store, writes: Writes, hub: Hub, lister: Lister) -> None:
        self._store = store
        self._writes = writes
        self._hub = hub
        self._lister = lister

    async def handle(self, request: Request, target: Target, kind: Kind) -> Response | Stream:
        """Answers a request on an object, its status, or a collection. Raises StatusError."""
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
            case "DELETE", True:
                if not target.subresource:
                    return await self._delete(request, target, kind)
            case "DELETE", False:
                return await self._delete_collection(request, target, kind)
        raise status.method_not_allowed()

    def _get(self, request: Request, target: Target, kind: Kind) -> Response:
        self._check_version(request)
        record = self._store.get(kind.resource, object_key(target.namespace, target.name))
        if record is None:
            raise status.not_found(kind.group, kind.plural, target.name)
        return form_of(request, kind).value(record.value)

    def _check_version(self, request: Request) -> int:
        """The resourceVersion asked for (0 without one), if it is not from the future."""
        version = _version_of(request)
        if version > self._store.version:
            raise status.version_too_large(version, self._store.version)
        return version

    def _list(self, request: Request, target: Target, kind: Kind) -> Response:
        wanted = _filter(request, target, kind)
        _check_list_options(request)
        version = self._check_version(request)
        if request.query.get("resourceVersionMatch") == "Exact" and version != self._store.version:
            raise status.expired("The resourceVersion for the provided list is too old.")
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
        _check_watch_options(request)
        form = form_of(request, kind)
        watcher = Watcher(kind, wanted, form.one if form.shown_as else None, request.flag("allowWatchBookmarks"))
        version = _version_of(request)
        initial = request.flag("sendInitialEvents") if "sendInitialEvents" in request.query else version == 0
        try:
            self._begin(kind, watcher, wanted, version, initial)
        except status.StatusError as error:
            # Past its validation a watch fails inside the stream.
            watcher.error(error)
        if initial and "sendInitialEvents" in request.query:
            watcher.bookmark(self._store.version, initial_events_end=True)
        timeout = request.number("timeoutSeconds") or None
        self._hub.attach(kind.resource, watcher, timeout)
        return Stream(watcher.take, lambda: self._hub.detach(kind.resource, watcher))

    def _begin(self, kind: Kind, watcher: Watcher, wanted: Filter, version: int, initial: bool) -> None:
        if initial:
            for record in self._lister.page(kind.resource, wanted, 0, "").records:
                watcher.add(record)
        elif version:
            for change in self._hub.history(kind.resource).since(version):
                watcher.offer(change)

    async def _create(self, request: Request, target: Target, kind: Kind) -> Response:
        obj = bodies.parse_object(request, kind, target.namespace)
        how = _how(request, target)
        return await self._answer(request, kind, self._writes.create(kind, target.namespace, obj, how))

    async def _replace(self, request: Request, target: Target, kind: Kind) -> Response:
        obj = bodies.parse_object(request, kind, target.namespace)
        metadata.check_name(obj["metadata"].get("name"), target.name)
        how = _how(request, target)
        if kind.create_on_update and self._missing(kind, target) and not obj["metadata"].get("resourceVersion"):
            return await self._answer(request, kind, self._writes.create(kind, target.namespace, obj, how))
        outcome = self._writes.update(kind, target.namespace, target.name, lambda _: obj, how, replacing=True)
        return await self._answer(request, kind, outcome)

    def _missing(self, kind: Kind, target: Target) -> bool:
        return self._store.latest(kind.resource, object_key(target.namespace, target.name)) is None

    async def _patch(self, request: Request, target: Target, kind: Kind) -> Response:
        how = _how(request, target)
        if request.content_type == APPLY:
            return await self._answer(request, kind, self._apply(request, target, kind, how))
        if request.flag("force"):
            error = status.forbidden_field("force", "may not be specified for non-apply patch")
            raise status.invalid_options("PatchOptions", error)
        mutate = _mutation(request, kind)
        outcome = self._writes.update(kind, target.namespace, target.name, mutate, replace(how, patched=True))
        return await self._answer(request, kind, outcome)

    def _apply(self, request: Request, target: Target, kind: Kind, how: How) -> Outcome:
        if not request.query.get("fieldManager"):
            error = status.required("fieldManager", "is required for apply patch")
            raise status.invalid_options("PatchOptions", error)
        applied = bodies.parse_applied(request, kind, target.namespace)
        if applied["metadata"].get("managedFields"):
            raise status.bad_request("metadata.managedFields must be nil")
        metadata.check_name(applied["metadata"].setdefault("name", target.name), target.name)
        _reset_fields(kind, applied, target.subresource)
        how = replace(how, operation="Apply")
        writer = apply.Writer(how.manager, "Apply", kind.api_version, timestamp(time.time()), how.subresource)

        def mutate(live: JsonObject | None) -> JsonObject:
            merged = apply.apply(live, applied, writer, kind.list_rule, force=request.flag("force"))
            if version := applied["metadata"].get("resourceVersion"):
                merged["metadata"]["resourceVersion"] = version
            return merged

        if self._missing(kind, target) and not target.subresource:
            if applied["metadata"].get("uid"):
                why = "uid mismatch: the provided object specified uid "
                why += f"{applied['metadata']['uid']}, and no existing object was found"
                raise status.conflict(kind.group, kind.plural, target.name, why)
            return self._writes.create(kind, target.namespace, mutate(None), how)
        return self._writes.update(kind, target.namespace, target.name, mutate, how)

    async def _delete(self, request: Request, target: Target, kind: Kind) -> Response:
        options = bodies.parse_deletion(request)
        how = replace(_how(request, target), dry_run=bodies.dry_run_of_deletion(request))
        outcome = self._writes.delete(kind, target.namespace, target.name, options, how)
        if outcome.done is not None:
            await outcome.done
        if kind.returns_deleted or not outcome.deleted:
            return form_of(request, kind).value(outcome.value)
        return json_response(_deleted(kind, target.name, outcome.uid))

    async def _delete_collection(self, request: Request, target: Target, kind: Kind) -> Response:
        options = bodies.parse_deletion(request)
        how = replace(_how(request, target), dry_run=bodies.dry_run_of_deletion(request))
        wanted = _filter(request, target, kind)
        gone: list[Record] = []
        outcomes: list[Outcome] = []
        for record in self._lister.page(kind.resource, wanted, 0, "").records:
            if self._store.latest(kind.resource, record.key) is not None:
                outcomes.append(self._writes.delete(kind, record.namespace, record.name, options, how))
                gone.append(record)
        for outcome in outcomes:
            if outcome.done is not None:
                await outcome.done
        return form_of(request, kind).many(gone, {"resourceVersion": str(self._store.version)})

    async def _answer(self, request: Request, kind: Kind, outcome: Outcome) -> Response:
        """The object after a write, once the write is durable."""
        if outcome.done is not None:
            await outcome.done
        headers = warning_headers(outcome.warnings)
        return form_of(request, kind).value(outcome.value, 201 if outcome.created else 200, headers)


def _how(request: Request, target: Target) -> How:
    return How(
        manager=request.field_manager,
        subresource=target.subresource,
        dry_run=request.dry_run,
        field_validation=request.field_validation,
    )


def _version_of(request: Request) -> int:
    """Raises StatusError (500: such is the API's answer to gets and watches)."""
    text = request.query.get("resourceVersion", "")
    if text and not text.isdigit():
        error = status.invalid_value("resourceVersion", text, status.no_number(text))
        raise status.StatusError(500, "", str(error))
    return int(text or 0)


def _filter(request: Request, target: Target, kind: Kind) -> Filter:
    fields = selectors.parse_fields(request.query.get("fieldSelector", ""))
    allowed = field_labels(kind)
    for requirement in fields.requirements:
        if requirement.key not in allowed:
            raise status.bad_request(field_label_error(kind, requirement.key))
    if target.name:
        named = selectors.Requirement("metadata.name", "In", (target.name,))
        fields = selectors.Selector((*fields.requirements, named))
    return Filter(target.namespace, selectors.parse_labels(request.query.get("labelSelector", "")), fields)


def _match_error(detail: str) -> status.FieldError:
    return status.forbidden_field("resourceVersionMatch", detail)


def _check_list_options(request: Request) -> None:
    query = request.query
    match = query.get("resourceVersionMatch", "")
    errors = []
    if match and not query.get("resourceVersion"):
        errors.append(_match_error("resourceVersionMatch is forbidden unless resourceVersion is provided"))
    if match and query.get("continue"):
        errors.append(_match_error("resourceVersionMatch is forbidden when continue is provided"))
    if match not in ("", "Exact", "NotOlderThan"):
        errors.append(status.unsupported("resourceVersionMatch", match, ("Exact", "NotOlderThan", "")))
    if match == "Exact" and query.get("resourceVersion") == "0":
        errors.append(_match_error('resourceVersionMatch "exact" is forbidden for resourceVersion "0"'))
    if "sendInitialEvents" in query:
        errors.append(status.forbidden_field("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    if errors:
        raise status.invalid_options("ListOptions", *errors)
    version = query.get("resourceVersion") or "0"
    if not version.isdigit():
        error = status.invalid_value("resourceVersion", version, status.no_number(version))
        raise status.bad_request(f"invalid resource version: {error}")
    if query.get("continue") and version != "0":
        raise status.bad_request("specifying resource version is not allowed when using continue")


def _check_watch_options(request: Request) -> None:
    query = request.query
    match, initial = query.get("resourceVersionMatch", ""), "sendInitialEvents" in query
    errors = []
    if match and not initial:
        errors.append(_match_error("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"))
    if initial and match != "NotOlderThan":
        errors.append(_match_error("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"))
    if errors:
        raise status.invalid_options("ListOptions", *errors)


def _mutation(request: Request, kind: Kind) -> Mutate:
    """The patch of a request as a function of the live object. Raises StatusError (400, 415)."""
    accepted = [JSON_PATCH, MERGE, *([] if kind.custom else [STRATEGIC]), APPLY]
    media_type = request.content_type
    if media_type not in (JSON_PATCH, MERGE, STRATEGIC):
        raise status.unsupported_media_type("415: Unsupported Media Type", details={})
    if media_type not in accepted:
        raise status.unsupported_media_type(status.unknown_format(accepted))
    patch = bodies.parse(request)
    if media_type == JSON_PATCH:
        return lambda live: patching.json_patch(live, patch)
    if not isinstance(patch, dict):
        raise status.bad_request("error decoding patch: a patch of this type is a JSON object")
    if media_type == STRATEGIC:
        return lambda live: patching.strategic(live, patch, kind.list_rule)
    return lambda live: _merged(live, patch)


def _merged(live: JsonObject, patch: JsonObject) -> JsonObject:
    merged: JsonObject = patching.merge(live, patch)
    return merged


def _reset_fields(kind: Kind, applied: JsonObject, subresource: str) -> None:
    """Drops what the endpoint does not write, so that nobody owns it by applying it there."""
    if subresource == "status":
        for key in [key for key in applied if key not in ("apiVersion", "kind", "metadata", "status")]:
            del applied[key]
    elif kind.status:
        applied.pop("status", None)


def _deleted(kind: Kind, name: str, uid: str) -> JsonObject:
    details = {"name": name, "group": kind.group, "kind": kind.plural, "uid": uid}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {key: value for key, value in details.items() if value},
    }
