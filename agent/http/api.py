"""The agent's API. Imported at the first request for it.

Starlette serves it: FastAPI with pydantic takes 18 MB more, on every node.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from agent.http import answers, description, probes, queries, schemas
from agent.http.answers import Chosen
from agent.http.description import Operation
from agent.http.probes import JSON, ProbeAnswer
from agent.http.queries import (
    AggregateQuery,
    HistogramsQuery,
    NoQuery,
    NothingSelected,
    PodQuery,
    RefusedQuery,
    Selection,
    SeriesQuery,
)
from agent.http.rooms import Rooms
from agent.metric_cache import cache
from shared import errors, web
from shared.errors import InvalidInput

VERSION = "v1"
TITLE = "Headroom agent"
NOT_FOUND, UNPROCESSABLE = 404, 422


def application(rooms: Rooms) -> Starlette:
    def docs(_request: Request) -> Response:
        return HTMLResponse(web.docs_page(TITLE))

    def described(_request: Request) -> Response:
        return _json(openapi(rooms.node_name))

    return Starlette(
        routes=[
            Route("/docs", docs),
            Route("/openapi.json", described),
            *(Route(operation.path, _endpoint(rooms, operation)) for operation in OPERATIONS),
        ],
        exception_handlers={
            HTTPException: _failed,
            InvalidInput: _refused,
            RefusedQuery: _refused,
            NothingSelected: _unmatched,
        },
    )


def openapi(node_name: str) -> dict[str, Any]:
    about = f"Usage and prediction of node {node_name}."
    return description.document({"title": TITLE, "description": about, "version": VERSION}, OPERATIONS)


def _endpoint(rooms: Rooms, operation: Operation) -> Callable[[Request], Response]:
    def endpoint(request: Request) -> Response:
        query = queries.read(operation.query, request.path_params, request.query_params.multi_items())
        return _json(operation.respond(rooms, query))

    def probe(_request: Request) -> Response:
        answer = operation.respond(rooms, NoQuery())
        assert isinstance(answer, ProbeAnswer)
        return Response(answer.body, answer.status, media_type=answer.media_type)

    return probe if operation.answer is None else endpoint


def _pod(rooms: Rooms, query: PodQuery) -> object:
    return _found(answers.pod(rooms, query.uid), f"uid: no pod {errors.shown(query.uid)} on this node")


def _series(rooms: Rooms, query: SeriesQuery) -> object:
    """The last five minutes by default, or a day of a five-minute tier. Up to 100000 values are answered.

    Single seconds reach back an hour, a quarter of one for containers and for all that is not cpu or memory of
    the node, classes, pods and workloads; the five-minute tiers, which only those have, reach back seven days.
    """
    span = queries.span(query.start, query.end, rooms.clock.now(), query.tier)
    if query.tier not in cache.tiers(query.kind, query.metric):
        problem = f"{query.metric} of kind {query.kind} has single seconds alone"
        raise queries.unmatched("tier", str(query.tier), problem)
    return answers.samples(rooms, _chosen(rooms, query), query.tier, span)


def _aggregate(rooms: Rooms, query: AggregateQuery) -> object:
    """Of one series or all of a kind. The tier that answered is said."""
    return answers.aggregates(rooms, _chosen(rooms, query), query.agg, queries.window(query.window))


def _histograms(rooms: Rooms, query: HistogramsQuery) -> object:
    """Of a pod's uid, a workload ("workload:namespace/Kind/name"), or one of the node's own models.

    Those are `__node__`, `__node-sys__`, `__node-prod-peak__`, and of each class, as `__node-koord-prod__`.
    """
    return _found(answers.histograms(rooms, query.key), f"key: no model {errors.shown(query.key)}")


def _report(rooms: Rooms, _: NoQuery) -> object:
    return _found(answers.report(rooms), "no report has arrived yet")


def _chosen(rooms: Rooms, selection: Selection) -> Chosen:
    """Raises HTTPException for an entity that does not exist."""
    kind, metric, entity = selection.kind, selection.metric, selection.entity
    given = {name: value for name in queries.LABEL_NAMES if (value := getattr(selection, name)) is not None}
    chosen = answers.choose(rooms, kind, metric, entity, queries.labels(kind, given))
    if entity is not None and not chosen.keys:
        raise HTTPException(404, f"entity: no series {metric} of {kind} {errors.shown(entity)}")
    return chosen


def _found(answer: object | None, problem: str) -> object:
    """Raises HTTPException for None."""
    if answer is None:
        raise HTTPException(404, problem)
    return answer


def _json(answer: object) -> Response:
    return Response(msgspec.json.encode(answer), media_type=JSON)


def _failed(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _problem(error.detail, error.status_code, error.headers)


def _refused(_request: Request, error: Exception) -> Response:
    return _problem(str(error), UNPROCESSABLE)


def _unmatched(_request: Request, error: Exception) -> Response:
    return _problem(str(error), NOT_FOUND)


def _problem(detail: str, status: int, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(schemas.ProblemSchema(detail)), status, headers, JSON)


OPERATIONS = (
    Operation(
        "/healthz", "getHealth", "Alive: 503 when a loop has fallen silent", lambda rooms, _: probes.healthz(rooms)
    ),
    Operation(
        "/readyz",
        "getReadiness",
        "Whether pods and Node are known and usage is sampled",
        lambda rooms, _: probes.readyz(rooms),
    ),
    Operation("/metrics", "getMetrics", "Prometheus metrics", lambda rooms, _: probes.metrics(rooms)),
    Operation(
        "/api/v1/node", "getNode", "The node's usage now", lambda rooms, _: answers.node(rooms), schemas.NodeUsage
    ),
    Operation(
        "/api/v1/pods", "listPods", "Every pod's usage now", lambda rooms, _: answers.pods(rooms), schemas.PodsSchema
    ),
    Operation(
        "/api/v1/pods/{uid}",
        "getPod",
        "One pod: containers, workload, past",
        _pod,
        schemas.PodDetail,
        PodQuery,
        missing="No such pod here",
    ),
    Operation(
        "/api/v1/series",
        "getSeries",
        "Samples of the series of one kind and metric",
        _series,
        schemas.SeriesSchema,
        SeriesQuery,
        missing="No such series",
    ),
    Operation(
        "/api/v1/aggregate",
        "getAggregate",
        "One number a series over a window",
        _aggregate,
        schemas.Aggregate,
        AggregateQuery,
        missing="No such series",
    ),
    Operation(
        "/api/v1/prediction",
        "getPrediction",
        "Every model's peak, and what can be reclaimed with every term",
        lambda rooms, _: answers.prediction(rooms),
        schemas.PredictionSchema,
    ),
    Operation(
        "/api/v1/histograms/{key:path}",
        "getHistograms",
        "One model's histograms by resource",
        _histograms,
        dict[str, schemas.Histogram],
        HistogramsQuery,
        missing="No such model",
    ),
    Operation(
        "/api/v1/report",
        "getReport",
        "The last report: when, why, what",
        _report,
        schemas.ReportSchema,
        missing="None has arrived yet",
    ),
)
