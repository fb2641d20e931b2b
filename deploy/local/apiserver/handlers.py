"""The verbs on objects and collections: get, list, watch, create, update, patch, delete."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from deploy.local.apiserver import apply, bodies, metadata, patching, selectors, status, structs
from deploy.local.apiserver.decoding import How
from deploy.local.apiserver.kinds import Kind, field_label_error, field_labels
from deploy.local.apiserver.listing import Lister, Moment, undone
from deploy.local.apiserver.objects import Json, JsonObject, timestamp
from deploy.local.apiserver.requests import Request, Target
from deploy.local.apiserver.responses import (
    Response,
    Stream,
    form_of,
    json_response,
    warning_headers,
)
from deploy.local.apiserver.reviewed import Reviewed
from deploy.local.apiserver.store import Record, Store, object_key
from deploy.local.apiserver.watch import Filter, Hub, Watcher
from deploy.local.apiserver.writes import Mutate, Outcome

MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
STRATEGIC, APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"


class Handlers:
    """Requests on served kinds, over one store."""

    def __init__(self, store: Store, writes: Reviewed, hub: Hub, lister: Lister) -> None:
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
            case "POST", True if kind.custom:
                raise status.not_supported("create", kind.group, kind.plural)
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
        past = None
        if request.query.get("resourceVersionMatch") == "Exact" and version != self._store.version:
            past = self._past(kind, version)
        page = self._lister.page(
            kind.resource, wanted, max(0, request.number("limit")), request.query.get("continue", ""), past
        )
        meta: JsonObject = {"resourceVersion": str(page.version)}
        if page.next_token:
            meta["continue"] = page.next_token
            if page.remaining is not None:
                meta["remainingItemCount"] = page.remaining
        return form_of(request, kind, of_list=True).many(page.records, meta)

    def _past(self, kind: Kind, version: int) -> Moment:
        """A kind's objects as they were. Raises StatusError (410)."""
        try:
            changes = self._hub.history(kind.resource).since(version)
        except status.StatusError:
            raise status.expired("The resourceVersion for the provided list is too old.") from None
        return undone(self._store.ordered(kind.resource), changes, version)

    def _watch(self, request: Request, target: Target, kind: Kind) -> Stream:
        wanted = _filter(request, target, kind)
        _check_watch_options(request)
        form = form_of(request, kind, of_list=None)
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
        obj, repeated = bodies.parse_object(request, kind, target.namespace)
        outcome = await self._writes.create(request, kind, target.namespace, obj, how_of(request, target, repeated))
        return await self._answer(request, kind, outcome)

    async def _replace(self, request: Request, target: Target, kind: Kind) -> Response:
        obj, repeated = bodies.parse_object(request, kind, target.namespace)
        metadata.check_name(obj["metadata"].get("name"), target.name)
        how = how_of(request, target, repeated)
        if kind.create_on_update and self._missing(kind, target):
            obj["metadata"].pop("resourceVersion", None)
            outcome = await self._writes.create(request, kind, target.namespace, obj, how)
            return await self._answer(request, kind, outcome)
        where = (target.namespace, target.name)
        outcome = await self._writes.update(request, kind, *where, lambda _: obj, how, replacing=True)
        return await self._answer(request, kind, outcome)

    def _missing(self, kind: Kind, target: Target) -> bool:
        return self._store.latest(kind.resource, object_key(target.namespace, target.name)) is None

    async def _patch(self, request: Request, target: Target, kind: Kind) -> Response:
        how = how_of(request, target)
        if request.content_type == APPLY:
            return await self._answer(request, kind, await self._apply(request, target, kind, how))
        if request.flag("force"):
            error = status.forbidden_field("force", "may not be specified for non-apply patch")
            raise status.invalid_options("PatchOptions", error)
        mutate, patch = mutation(request, kind)
        how = with_patch(how, request, patch)
        outcome = await self._writes.update(request, kind, target.namespace, target.name, mutate, how)
        return await self._answer(request, kind, outcome)

    async def _apply(self, request: Request, target: Target, kind: Kind, how: How) -> Outcome:
        if not request.query.get("fieldManager"):
            error = status.required("fieldManager", "is required for apply patch")
            raise status.invalid_options("PatchOptions", error)
        applied, repeated = bodies.parse_applied(request, kind, target.namespace)
        if repeated and how.field_validation == "Strict":
            raise status.bad_request(
                f"error strict decoding YAML: error converting YAML to JSON: {status.repeated_in_yaml(repeated)}"
            )
        if applied["metadata"].get("managedFields"):
            raise status.bad_request("metadata.managedFields must be nil")
        metadata.check_name(applied["metadata"].get("name"), target.name)
        if not kind.custom and (why := structs.undeclared(kind.struct, applied)):
            key = f"{applied['metadata'].get('namespace', '')}/{target.name}"
            raise status.not_applicable(kind.group, kind.version, kind.kind, key, why)
        if kind.schema is not None and (unknown := kind.schema.check(applied).unknown):
            key, why = f"/{target.name}", f".{unknown[0]}: field not declared in schema"
            raise status.not_applicable(kind.group, kind.version, kind.kind, key, why)
        _reset_fields(kind, applied, target.subresource)
        how = replace(how, operation="Apply", repeated=repeated)
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
            try:
                return await self._writes.create(request, kind, target.namespace, mutate(None), how)
            except status.StatusError as error:
                if error.reason != "AlreadyExists":  # it does since webhooks were asked
                    raise
        return await self._writes.update(request, kind, target.namespace, target.name, mutate, how)

    async def _delete(self, request: Request, target: Target, kind: Kind) -> Response:
        options = bodies.parse_deletion(request)
        how = replace(how_of(request, target), dry_run=bodies.dry_run_of_deletion(request))
        outcome = await self._writes.delete(request, kind, target.namespace, target.name, options, how)
        if outcome.done is not None:
            await outcome.done
        headers = warning_headers(outcome.warnings)
        if kind.returns_deleted or not outcome.deleted:
            return form_of(request, kind).value(outcome.value, headers=headers)
        return replace(json_response(_deleted(kind, target.name, outcome.uid)), headers=headers)

    async def _delete_collection(self, request: Request, target: Target, kind: Kind) -> Response:
        options = bodies.parse_deletion(request)
        how = replace(how_of(request, target), dry_run=bodies.dry_run_of_deletion(request))
        if kind.resource == "/namespaces":
            raise status.method_not_allowed()
        wanted, version = _filter(request, target, kind), self._store.version
        gone: list[Record] = []
        outcomes: list[Outcome] = []
        for record in self._lister.page(kind.resource, wanted, 0, "").records:
            if self._store.latest(kind.resource, record.key) is not None:
                where = (record.namespace, record.name)
                outcomes.append(await self._writes.delete(request, kind, *where, options, how, of_many=True))
                gone.append(record)
        for outcome in outcomes:
            if outcome.done is not None:
                await outcome.done
        return form_of(request, kind, of_list=True).many(gone, {"resourceVersion": str(version)})

    async def _answer(self, request: Request, kind: Kind, outcome: Outcome) -> Response:
        """The object after a write, once the write is durable."""
        if outcome.done is not None:
            await outcome.done
        headers = warning_headers(outcome.warnings)
        return form_of(request, kind).value(outcome.value, 201 if outcome.created else 200, headers)


def how_of(request: Request, target: Target, repeated: Sequence[str] = ()) -> How:
    return How(
        manager=request.field_manager,
        subresource=target.subresource,
        dry_run=request.dry_run,
        field_validation=request.field_validation,
        repeated=repeated,
    )


def with_patch(how: How, request: Request, patch: Json) -> How:
    """The same for a patch that was parsed."""
    strategic = request.content_type == STRATEGIC
    return replace(how, patch=patch, strategic=strategic, repeated=bodies.repeated_fields(request, patch))


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
        if match:
            errors.append(status.unsupported("resourceVersionMatch", match, ("NotOlderThan",)))
    if errors:
        raise status.invalid_options("ListOptions", *errors)


def mutation(request: Request, kind: Kind) -> tuple[Mutate, Json]:
    """The patch of a request as a function of the live object, and as it is. Raises StatusError (400, 415)."""
    accepted = [JSON_PATCH, MERGE, *([] if kind.custom else [STRATEGIC]), APPLY]
    media_type = request.content_type
    if media_type not in (JSON_PATCH, MERGE, STRATEGIC):
        raise status.unsupported_media_type("415: Unsupported Media Type", details={})
    if media_type not in accepted:
        raise status.unsupported_media_type(status.unknown_format(accepted))
    prefix = "" if media_type == STRATEGIC else "error decoding patch: "
    try:
        patch = bodies.parse(request)
    except bodies.Unreadable as error:
        raise status.bad_request(f"{prefix}{error.why}") from None
    if media_type == JSON_PATCH and not isinstance(patch, list):
        raise status.bad_request(f"{prefix}{bodies.not_into(patch, '[]handlers.jsonPatchOp')}")
    if media_type == JSON_PATCH:
        return lambda live: patching.json_patch(live, patch), patch
    if not isinstance(patch, dict):
        raise status.bad_request(f"{prefix}{bodies.not_into(patch, 'map[string]interface {}')}")
    if media_type == STRATEGIC:
        return lambda live: patching.strategic(live, patch, kind.list_rule), patch
    return lambda live: _merged(live, patch), patch


def _merged(live: JsonObject, patch: JsonObject) -> JsonObject:
    merged: JsonObject = patching.merge(live, patch)
    return merged


def _reset_fields(kind: Kind, applied: JsonObject, subresource: str) -> None:
    """Drops what the endpoint does not write, so that nobody owns it by applying it there."""
    if subresource == "status":
        for key in [key for key in applied if key not in ("apiVersion", "kind", "metadata", "status")]:
            del applied[key]
        if kind.custom:
            named = ("name", "resourceVersion", "uid")
            applied["metadata"] = {key: applied["metadata"][key] for key in named if key in applied["metadata"]}
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
