"""Answers 304 to a client that already has the present answer of the API."""

import hashlib
from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

PREFIX = "/api/"


class Revalidated:
    """Gives each answer to a GET below `PREFIX` an ETag of its content; an answer in parts gets none."""

    def __init__(self, app: "ASGIApp") -> None:
        self._app = app

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] != "http" or scope["method"] != "GET" or not scope["path"].startswith(PREFIX):
            await self._app(scope, receive, send)
            return
        known = Headers(scope=scope).get("if-none-match", "")
        start: Message | None = None

        async def send_tagged(message: "Message") -> None:
            nonlocal start
            if message["type"] == "http.response.start" and message["status"] == 200:
                start = message
                return
            if start is not None:
                message = _tagged(start, message, known)
                await send(start)
                start = None
            await send(message)

        await self._app(scope, receive, send_tagged)


def _tagged(start: "Message", body: "Message", known: str) -> "Message":
    """Adds the ETag to the start; returns the body that is sent, which is empty where the client knows it."""
    if body.get("more_body"):
        return body
    headers = MutableHeaders(raw=start["headers"])
    tag = f'W/"{hashlib.blake2b(body.get("body", b""), digest_size=12).hexdigest()}"'  # weak: it may be compressed
    headers["ETag"] = tag
    headers["Cache-Control"] = "private, no-cache"
    if known != tag:
        return body
    start["status"] = 304
    for name in ("content-length", "content-type"):
        del headers[name]
    return {**body, "body": b""}
