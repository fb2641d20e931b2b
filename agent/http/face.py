"""The application behind the agent's port."""

import asyncio
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from agent.http import probes
from agent.http.probes import ProbeAnswer
from agent.http.rooms import Rooms

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

# Answered in the event loop; slower requests get a thread.
_AT_ONCE: dict[str, Callable[[Rooms], ProbeAnswer]] = {"/healthz": probes.healthz, "/readyz": probes.readyz}


class Face:
    """Answers probes and scrapes itself, and builds the API at its first request.

    Most agents never get such a request, and need not load what answers it.
    """

    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms
        self._lock = threading.Lock()
        self._api: ASGIApp | None = None

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        answer = await self._own_answer(scope)
        if answer is None:
            api = await asyncio.to_thread(self._made) if self._api is None else self._api
            await api(scope, receive, send)
            return
        headers = [(b"content-type", answer.media_type.encode()), (b"content-length", b"%d" % len(answer.body))]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        body = b"" if scope["method"] == "HEAD" else answer.body
        await send({"type": "http.response.body", "body": body})

    async def _own_answer(self, scope: "Scope") -> ProbeAnswer | None:
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            return None
        path = scope["path"]
        if path in _AT_ONCE:
            return _AT_ONCE[path](self._rooms)
        return await asyncio.to_thread(probes.metrics, self._rooms) if path == "/metrics" else None

    def _made(self) -> "ASGIApp":
        from agent.http import api  # see the docstring of the class

        with self._lock:
            if self._api is None:
                self._api = api.application(self._rooms)
            return self._api
