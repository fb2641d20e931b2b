"""The scale subresource: how many replicas a workload is to have, as kubectl scale and autoscalers see it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from deploy.local.apiserver import apply, bodies, metadata, status, workloads
from deploy.local.apiserver.decoding import How
from deploy.local.apiserver.decoding import decode as decode_object
from deploy.local.apiserver.handlers import APPLY, how_of, mutation, with_patch
from deploy.local.apiserver.kinds import SCALE, Kind
from deploy.local.apiserver.objects import JsonObject, decode, dig, timestamp
from deploy.local.apiserver.requests import Request, Target
from deploy.local.apiserver.responses import Response, json_response, warning_headers
from deploy.local.apiserver.reviewed import Reviewed
from deploy.local.apiserver.selectors import object_text
from deploy.local.apiserver.store import Store, object_key
from deploy.local.apiserver.writes import Mutate, Writes

_SHOWN = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


class ScaleSubresource:
    """Requests on the scale of workloads."""

    def __init__(self, store: Store, writes: Writes, reviewed: Reviewed) -> None:
        self._store = store
        self._writes = writes
        self._reviewed = reviewed

    async def handle(self, request: Request, target: Target, kind: Kind) -> Response:
        """Raises StatusError."""
        match request.method:
            case "GET":
                record = self._store.get(kind.resource, object_key(target.namespace, target.name))
                if record is None:
                    raise status.not_found(kind.group, kind.plural, target.name)
                return json_response(_scale_of(record.load()))
            case "PUT":
                scale, repeated = bodies.parse_object(request, SCALE, target.namespace)
                metadata.check_name(scale["metadata"].get("name"), target.name)
                how = how_of(request, target, repeated)
                return await self._write(request, target, kind, lambda _: scale, how)
            case "PATCH" if request.content_type == APPLY:
                return await self._apply(request, target, kind)
            case "PATCH":
                mutate, patch = mutation(request, SCALE)
                how = with_patch(how_of(request, target), request, patch)
                return await self._write(request, target, kind, mutate, how)
        raise status.method_not_allowed()

    async def _write(self, request: Request, target: Target, kind: Kind, mutate: Mutate, how: How) -> Response:
        scale, warnings = await self._wanted(request, target, kind, mutate, how)
        meta, replicas = scale["metadata"], scale["spec"].get("replicas", 0)
        if replicas < 0:
            error = status.invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")
            raise status.invalid(SCALE.group, SCALE.kind, target.name, [error])

        def scaled(workload: JsonObject) -> JsonObject:
            said = {key: meta[key] for key in ("uid", "resourceVersion") if key in meta}
            known = {key: value for key, value in workload["metadata"].items() if key != "resourceVersion"}
            return workload | {"metadata": known | said, "spec": workload["spec"] | {"replicas": replicas}}

        outcome = self._writes.update(kind, target.namespace, target.name, scaled, how)
        if outcome.done is not None:
            await outcome.done
        answer = json_response(_scale_of(decode(outcome.value)))
        return replace(answer, headers=warning_headers(warnings))

    async def _wanted(
        self, request: Request, target: Target, kind: Kind, mutate: Mutate, how: How
    ) -> tuple[JsonObject, Sequence[str]]:
        """The Scale that the workload is to have, as webhooks leave it, and what to warn of. Raises StatusError."""
        key = object_key(target.namespace, target.name)
        while True:
            record = self._store.latest(kind.resource, key)
            if record is None:
                raise status.not_found(kind.group, kind.plural, target.name)
            before = _scale_of(record.load())
            scale, _, complaints = decode_object(SCALE, mutate(before), how)
            where = (target.namespace, target.name)
            scale, warnings = await self._reviewed.sent(request, SCALE, kind, how, *where, scale, before)
            if self._store.latest(kind.resource, key) is record:
                return scale, [*complaints, *warnings]

    async def _apply(self, request: Request, target: Target, kind: Kind) -> Response:
        if not request.query.get("fieldManager"):
            error = status.required("fieldManager", "is required for apply patch")
            raise status.invalid_options("PatchOptions", error)
        scale, repeated = bodies.parse_applied(request, SCALE, target.namespace)
        metadata.check_name(scale["metadata"].get("name"), target.name)
        how = replace(how_of(request, target, repeated), operation="Apply")
        writer = apply.Writer(how.manager, "Apply", kind.api_version, timestamp(time.time()), how.subresource)
        said = {"spec": {"replicas": dig(scale, "spec", "replicas") or 0}}
        scale, warnings = await self._wanted(request, target, kind, lambda before: before | said, how)
        replicas = scale["spec"].get("replicas", 0)
        wanted = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {}, "spec": {"replicas": replicas}}

        def applied(workload: JsonObject) -> JsonObject:
            return apply.apply(workload, wanted, writer, kind.list_rule, force=request.flag("force"))

        outcome = self._writes.update(kind, target.namespace, target.name, applied, how)
        if outcome.done is not None:
            await outcome.done
        answer = json_response(_scale_of(decode(outcome.value)))
        return replace(answer, headers=warning_headers(warnings))


def _scale_of(workload: JsonObject) -> JsonObject:
    """A workload as a Scale; what is zero is left out."""
    replicas, current = dig(workload, "spec", "replicas"), dig(workload, "status", "replicas") or 0
    selector = object_text(workloads.selector_of(workload) or {})
    return {
        "kind": SCALE.kind,
        "apiVersion": SCALE.api_version,
        "metadata": {key: workload["metadata"][key] for key in _SHOWN if key in workload["metadata"]},
        "spec": {"replicas": replicas} if replicas else {},
        "status": {"replicas": current} | ({"selector": selector} if selector else {}),
    }
