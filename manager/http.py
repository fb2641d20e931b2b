"""The manager's HTTP server: probes, metrics, the API, and the page for people."""

import hashlib
import importlib.resources
import re
from collections.abc import Callable
from typing import Annotated, Protocol

import msgspec
from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.responses import HTMLResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.middleware.gzip import GZipMiddleware

from manager.nodeside import answers, usage_histograms
from manager.nodeside.answers import Explained, Nodes, Status
from manager.nodeside.decisions import KnownNode
from manager.nodeside.fleet_answers import FleetPrediction
from manager.nodeside.node_trends import MOST_SPARKLINES, NodeTrend, NodeTrends, Sparklines
from manager.nodeside.usage_histograms import NodeHistograms
from manager.revalidation import Revalidated
from shared import errors, web

# The page loads only its own files, and a node's name can never become a script.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
GZIP_LEVEL = 5  # 245 kB of 300 nodes become 36 kB in 3 ms; 9 takes three times as long for 1 kB less
# Indentation and comments to the end of a line, which a browser does not need; the lines keep their numbers.
_UNSENT = re.compile(rb"^[ \t]*(?://.*)?|(?<=[;{},)\]]) // .*$", re.MULTILINE)
_MEDIA_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}  # of the page's files, by their ends
NodeNames = Annotated[list[str], Query(max_length=MOST_SPARKLINES, description="names of nodes; others are left out")]


class Reader(Protocol):
    """The source of the answers."""

    def states(self) -> list[KnownNode]: ...
    def state(self, name: str) -> KnownNode | None: ...


class SlowLoops(Protocol):
    """The loops that make no progress, by name, with seconds."""

    def silent(self) -> dict[str, float]:
        """Those that have fallen silent, which a restart fixes."""
        ...

    def overdue(self) -> dict[str, float]:
        """Those that take too long, which a restart would not fix."""
        ...


def application(
    *,
    reader: Reader,
    trends: NodeTrends,
    registry: CollectorRegistry,
    status: Callable[[], Status],
    fleet: Callable[[], FleetPrediction],
    loops: SlowLoops,
    version: str,
    now: Callable[[], float],
) -> FastAPI:
    """All routes."""
    app = FastAPI(
        title="Headroom manager",
        version=version,
        description="What every node offers to Mid and Batch, which node groups grow, and why.",
        docs_url=None,
        redoc_url=None,
    )
    app.add_middleware(Revalidated)
    app.add_middleware(GZipMiddleware, compresslevel=GZIP_LEVEL)
    _serve_probes(app, registry, status, loops)
    _serve_nodes(app, reader, status, now)
    _serve_trends(app, reader, trends)

    @app.get("/api/v1/prediction", summary="Whether promises are kept over all nodes", response_model=FleetPrediction)
    def prediction() -> Response:
        return _json(fleet())

    @app.get("/api/v1/status", summary="The manager itself", response_model=Status)
    def status_() -> Response:
        return _json(status())

    _serve_page(app)
    return app


def _serve_probes(app: FastAPI, registry: CollectorRegistry, status: Callable[[], Status], loops: SlowLoops) -> None:
    @app.get("/healthz", summary="Alive: 503 when a loop has fallen silent; names those that are overdue")
    async def healthz() -> Response:  # answered without a thread: all of them may be busy
        silent = loops.silent()
        return _json({"silent_loops": silent, "overdue_loops": loops.overdue()}, 503 if silent else 200)

    @app.get("/readyz", summary="Ready: 503 until all of the cluster has been seen")
    async def readyz() -> Response:
        waiting_for = status().waiting_for
        return _json({"waiting_for": waiting_for}, 503 if waiting_for else 200)

    @app.get("/metrics", summary="Prometheus metrics", response_class=Response)
    def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/docs", include_in_schema=False)
    def docs() -> HTMLResponse:
        return HTMLResponse(web.docs_page("Headroom manager"))


def _serve_nodes(app: FastAPI, reader: Reader, status: Callable[[], Status], now: Callable[[], float]) -> None:
    @app.get("/api/v1/nodes", summary="All nodes", response_model=Nodes)
    def nodes() -> Response:
        return _json(answers.nodes(reader.states(), status().cluster, now()))

    @app.get(
        "/api/v1/nodes/{name}",
        summary="Every term of one node's offer",
        response_model=Explained,
        responses={404: {"description": "There is no such node"}},
    )
    def node(name: str) -> Response:
        return _json(answers.explained(_read_state(reader, name), status().cluster))

    @app.get(
        "/api/v1/nodes/{name}/histograms",
        summary="How often Prod and the system use how much of one node",
        response_model=NodeHistograms,
        responses={404: {"description": "There is no such node"}},
    )
    def histograms(name: str) -> Response:
        decision = _read_state(reader, name).decision
        observed = None if decision is None else decision.observed
        return _json(usage_histograms.answer(name, None if observed is None else observed.report))


def _serve_trends(app: FastAPI, reader: Reader, trends: NodeTrends) -> None:
    @app.get("/api/v1/history", summary="The last day of all nodes together", response_model=NodeTrend)
    def cluster_trend() -> Response:
        return _json(trends.answer())

    @app.get(
        "/api/v1/history/nodes",
        summary="The last day of some nodes, in few samples",
        response_model=Sparklines,
    )
    def sparklines(name: NodeNames) -> Response:
        return _json(trends.sparklines(name))

    @app.get(
        "/api/v1/nodes/{name}/history",
        summary="The last day of one node",
        response_model=NodeTrend,
        responses={404: {"description": "There is no such node"}},
    )
    def node_trend(name: str) -> Response:
        _read_state(reader, name)
        return _json(trends.answer(name))


def _read_state(reader: Reader, name: str) -> KnownNode:
    state = reader.state(name)
    if state is None:
        raise HTTPException(404, f"there is no Node {errors.shown(name)} in the cluster")
    return state


def _serve_page(app: FastAPI) -> None:
    for file in importlib.resources.files("manager.page").iterdir():
        media_type = _MEDIA_TYPES.get(file.name.rpartition(".")[2])
        if media_type is not None:
            path = "/" if file.name == "index.html" else f"/page/{file.name}"
            answer = _constant(_UNSENT.sub(b"", file.read_bytes()), media_type)
            app.add_api_route(path, answer, methods=["GET"], include_in_schema=False)


def _constant(content: bytes, media_type: str) -> Callable[[Request], Response]:
    headers = {
        "Content-Security-Policy": CONTENT_SECURITY_POLICY,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
        "ETag": f'W/"{hashlib.sha256(content).hexdigest()[:16]}"',  # weak: it is compressed on its way
    }

    def answer(request: Request) -> Response:
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=media_type, headers=headers)

    return answer


def _json(value: object, status_code: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status_code, media_type="application/json")
