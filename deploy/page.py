"""`headroom page`: the manager's page in the browser, with the user's own rights.

A proxy on loopback serves the page, and adds the user's credentials to the browser's requests. It answers only that
browser: the address that opens it holds a one-time secret, which becomes a cookie, and Host and Origin exclude pages of
other servers.
"""

import contextlib
import hmac
import secrets
import threading
import webbrowser
from collections.abc import Callable

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from deploy.manager_api import ManagerApi
from shared import web
from shared.errors import HeadroomError
from shared.web.server import Server

COOKIE, SECRET = "headroom-page", "secret"
_PASSED_ON = (
    "content-type",
    "content-security-policy",
    "x-content-type-options",
    "referrer-policy",
    "cache-control",
    "etag",
)


class PageProxy:
    """The proxy; `address` opens it once."""

    def __init__(self, api: ManagerApi, listen: str = "127.0.0.1:0") -> None:
        self._api = api
        self._once: str | None = secrets.token_urlsafe(32)
        self._cookie = secrets.token_urlsafe(32)
        compressed = Middleware(GZipMiddleware, compresslevel=1)  # the page asks by how much it receives
        routes = [Route("/{path:path}", self._answer)]
        self._server: Server = web.server(Starlette(routes=routes, middleware=[compressed]), listen)
        self.address = f"{self._server.url}/?{SECRET}={self._once}"

    def start(self) -> None:
        self._server.start()

    def close(self) -> None:
        self._server.close()

    async def _answer(self, request: Request) -> Response:
        given = request.query_params.get(SECRET, "")
        if given and self._once is not None and hmac.compare_digest(given.encode(), self._once.encode()):
            self._once = None
            answer = RedirectResponse("/", 303)
            answer.set_cookie(COOKIE, self._cookie, httponly=True, samesite="strict")
            return answer
        if not hmac.compare_digest(request.cookies.get(COOKIE, "").encode(), self._cookie.encode()):
            return Response("open the address that `headroom page` has printed\n", 403, media_type="text/plain")
        path = request.scope["raw_path"].decode("ascii")
        query = request.url.query
        known = request.headers.get("if-none-match", "")
        return await run_in_threadpool(self._asked, f"{path}?{query}" if query else path, request.method, known)

    def _asked(self, path: str, method: str, known: str) -> Response:
        try:
            answer = self._api.get(path, known)
        except HeadroomError as error:
            return Response(f"{error}\n", 502, media_type="text/plain")
        headers = {name: value for name, value in answer.headers.items() if name in _PASSED_ON}
        return Response(b"" if method == "HEAD" else answer.content, answer.status_code, headers=headers)


def run(api: ManagerApi, *, browse: bool, say: Callable[[str], None]) -> None:
    """Until Ctrl-C. Raises HeadroomError."""
    answer = api.get("/api/v1/status")
    if not answer.is_success:
        raise HeadroomError(f"{api.url}: status {answer.status_code}: {answer.text[:200]}")
    page = PageProxy(api)
    page.start()
    try:
        say(f"the manager's page, for this browser only: {page.address}\nCtrl-C ends it")
        if browse:
            webbrowser.open(page.address)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()
    finally:
        page.close()
