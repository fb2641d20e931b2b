"""The ASGI application: authentication, routing and error handling around the handlers."""

import asyncio
import logging

from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from deploy.local.apiserver import discovery, openapi, requests, status
from deploy.local.apiserver.authentication import Authentication
from deploy.local.apiserver.callouts import Callouts
from deploy.local.apiserver.handlers import Handlers
from deploy.local.apiserver.janitor import Janitor
from deploy.local.apiserver.kinds import CRD_GROUP, REVIEWS
from deploy.local.apiserver.kubectl import INTERACTIVE
from deploy.local.apiserver.registry import KindRegistry
from deploy.local.apiserver.requests import Request
from deploy.local.apiserver.responses import failure, json_response
from deploy.local.apiserver.reviewed import Reviewed
from deploy.local.apiserver.store import ObjectChange, Store
from deploy.local.apiserver.subresources import PODS, PodSubresources
from deploy.local.apiserver.watch import Hub
from deploy.local.apiserver.webhooks import RegisteredWebhooks
from deploy.local.apiserver.writes import Writes

logger = logging.getLogger(__name__)

_CRDS = f"{CRD_GROUP}/customresourcedefinitions"
_REVIEWS = {(kind.group, kind.version, kind.plural): kind for kind in REVIEWS}
_BODY_BYTES = 3 * 1024 * 1024
TICK_SECONDS = 0.5


class Application:
    """Everything behind one listening socket."""

    def __init__(self, store: Store, kinds: KindRegistry, token: str) -> None:
        self._store = store
        self._kinds = kinds
        self._authentication = Authentication(token)
        self.writes = Writes(store, kinds)
        self._hub = Hub(store.version)
        self._webhooks = RegisteredWebhooks(store)
        self._callouts = Callouts()
        reviewed = Reviewed(store, self.writes, self._webhooks, self._callouts)
        self._handlers = Handlers(store, self.writes, reviewed, self._hub)
        self._pods = PodSubresources(store, self.writes)
        self._janitor = Janitor(store, self.writes, kinds)
        self._tasks: list[asyncio.Task[None]] = []
        store.listen(self._changed)

    def _changed(self, change: ObjectChange) -> None:
        if change.record.resource == _CRDS:
            redefine = self._kinds.undefine if change.deleted else self._kinds.define
            redefine(change.record.load())
        self._webhooks.changed(change)
        self._hub.publish(change)
        self._janitor.changed(change)

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._janitor.run()), asyncio.create_task(self._tick())]

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._hub.close()

    def compact(self) -> None:
        """Drops the history: watches from older versions get 410."""
        self._hub.compact(self._store.version)

    async def close(self) -> None:
        await self._callouts.close()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._hub.tick(self._store.version)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"{scope['type']} is not served")
        request = Request(
            method=scope["method"],
            path=scope["path"],
            query=requests.parse_query(scope["query_string"]),
            headers=dict(scope["headers"]),
            body=await read_body(receive, _BODY_BYTES),
        )
        answer = await self._guarded(request)
        await answer(scope, receive, send)

    async def _guarded(self, request: Request) -> Response:
        try:
            request = self._authentication.admitted(request)
            if len(request.body) > _BODY_BYTES:
                raise status.too_large(_BODY_BYTES)
            return await self._route(request)
        except status.StatusError as error:
            return failure(error)
        except (RecursionError, UnicodeEncodeError) as error:  # a patched object nests too deep; half of a character
            return failure(status.bad_request(f"the object cannot be written: {error}"))
        except Exception as error:
            logger.exception("%s %s failed", request.method, request.path)
            return failure(status.internal(f"{type(error).__name__}: {error}"))

    async def _route(self, request: Request) -> Response:
        target = requests.parse_path(request.path)
        if target is None:
            return self._route_other(request)
        review = _REVIEWS.get((target.group, target.version, target.resource))
        if review is not None:
            return self._authentication.review(request, target, review)
        kind = self._kinds.find(target.group, target.version, target.resource)
        subresources = ("", *kind.subresources, *(("status",) if kind.status else ())) if kind is not None else ()
        if kind is PODS and target.subresource in INTERACTIVE:
            raise self._pods.not_interactive(target)
        if kind is None or target.subresource not in subresources:
            raise status.no_such_resource()
        if target.subresource in ("binding", "eviction", "log"):
            return await self._pods.handle(request, target)
        return await self._handlers.handle(request, target, kind)

    def _route_other(self, request: Request) -> Response:
        parts = request.path.strip("/").split("/")
        match request.method, parts:
            case "GET", ["healthz" | "livez" | "readyz"]:
                return PlainTextResponse("ok")
            case "GET", ["version"]:
                return json_response(discovery.version())
            case "GET", ["openapi", "v2"]:
                return openapi.v2()
            case "GET", ["openapi", "v3", *rest] if document := openapi.v3("/".join(rest), self._kinds.kinds()):
                return document
            case "GET", _ if (found := discovery.found(parts, list(self._kinds.kinds()))) is not None:
                return json_response(found)
        return PlainTextResponse("404 page not found\n", 404)


async def read_body(receive: Receive, most_bytes: int) -> bytes:
    """The body of a request; reading stops as soon as it exceeds `most_bytes`."""
    message = await receive()
    body: bytes = message.get("body", b"")
    if not message.get("more_body"):
        return body
    chunks, length = [body], len(body)
    while message.get("more_body") and length <= most_bytes:
        message = await receive()
        chunks.append(message.get("body", b""))
        length += len(chunks[-1])
    return b"".join(chunks)
