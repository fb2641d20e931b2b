"""The scale subresource of custom kinds: their replicas, read and written as an autoscaling/v1 Scale."""

from __future__ import annotations

import json

from deploy.local.apiserver import bodies, handlers, status
from deploy.local.apiserver.kinds import Kind
from deploy.local.apiserver.objects import JsonObject, dig
from deploy.local.apiserver.requests import Request, Target
from deploy.local.apiserver.responses import Response, json_response
from deploy.local.apiserver.reviewed import Reviewed
from deploy.local.apiserver.store import Store, object_key
from deploy.local.apiserver.writes import Mutate

SUBRESOURCE = "scale"

_SHOWN = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


class Scales:
    """Handlers of <kind>/scale."""

    def __init__(self, store: Store, writes: Reviewed) -> None:
        self._store = store
        self._writes = writes

    async def handle(self, request: Request, target: Target, kind: Kind) -> Response:
        """Raises StatusError."""
        match request.method:
            case "GET":
                record = self._store.get(kind.resource, object_key(target.namespace, target.name))
                if record is None:
                    raise status.not_found(kind.group, kind.plural, target.name)
                return json_response(_scale(record.load()))
            case "PUT":
                scale = bodies.parse(request)
                return await self._update(request, target, kind, lambda _: scale)
            case "PATCH":
                return await self._update(request, target, kind, handlers.mutation(request, kind))
        raise status.method_not_allowed()

    async def _update(self, request: Request, target: Target, kind: Kind, change: Mutate) -> Response:
        how = handlers.how_of(request, target)
        outcome = await self._writes.update(
            request, kind, target.namespace, target.name, lambda live: _scaled(live, change(_scale(live))), how
        )
        if outcome.done is not None:
            await outcome.done
        return json_response(_scale(json.loads(outcome.value)))


def _scale(obj: JsonObject) -> JsonObject:
    meta = obj["metadata"]
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: meta[key] for key in _SHOWN if key in meta},
        "spec": {"replicas": dig(obj, "spec", "replicas") or 0},
        "status": {"replicas": dig(obj, "status", "replicas") or 0},
    }


def _scaled(obj: JsonObject, scale: JsonObject) -> JsonObject:
    """The object with a Scale's replicas, at the version that the Scale names, if any."""
    replicas = dig(scale, "spec", "replicas") or 0
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise status.unfit("Scale", "v1", "spec.replicas is no number")
    if replicas < 0:
        wrong = status.invalid_value("spec.replicas", replicas, "should be a non-negative integer")
        raise status.invalid("autoscaling", "Scale", obj["metadata"]["name"], [wrong])
    meta = dict(obj["metadata"])
    if version := dig(scale, "metadata", "resourceVersion"):
        meta["resourceVersion"] = version
    return {**obj, "metadata": meta, "spec": {**(obj.get("spec") or {}), "replicas": replicas}}
