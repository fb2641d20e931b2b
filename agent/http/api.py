"""The agent's API and its description. Imported at the first request for it."""

from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse

from agent.http import answers, examples, probes, queries, schemas
from agent.http.answers import Chosen
from agent.http.probes import JSON, ProbeAnswer
from agent.http.rooms import Rooms
from agent.metric_cache import cache
from agent.metric_cache.aggregate import Aggregation
from agent.metric_cache.cache import StorageTier
from agent.metric_cache.series import Kind, Metric
from shared import errors, web
from shared.errors import InvalidInput

VERSION = "v1"
UNPROCESSABLE = 422

KindQuery = Annotated[Kind, Query(description="what the series is about")]
MetricQuery = Annotated[Metric, Query(description="what is measured; the answer says its unit")]
EntityQuery = Annotated[
    str | None,
    Query(description="one series: a pod's uid, uid/container, namespace/Kind/name of a workload, a priority class, a "
          "host application, a NUMA node's number; empty for node and system"),
]  # fmt: skip
LabelQuery = Annotated[str | None, Query(description="only series with this label, for kinds that have it")]
TierQuery = Annotated[StorageTier, Query(description="what to read: single seconds, or five minutes' mean or maximum")]
TimeQuery = Annotated[str | None, Query(description="RFC 3339 or Unix seconds, included")]


@dataclass(frozen=True)
class Selection:
    """Selects series."""

    kind: KindQuery
    metric: MetricQuery
    entity: EntityQuery = None
    namespace: LabelQuery = None
    pod: LabelQuery = None
    container: LabelQuery = None
    workload: LabelQuery = None
    priority: LabelQuery = None


_PROBLEM = {"model": schemas.ProblemSchema}
_REFUSED: dict[int | str, dict[str, Any]] = {UNPROCESSABLE: _PROBLEM | {"description": "A parameter means nothing"}}


def application(rooms: Rooms) -> FastAPI:
    app = FastAPI(
        title="Headroom agent",
        version=VERSION,
        description=f"Usage and prediction of node {rooms.node_name}.",
        docs_url=None,
        redoc_url=None,
    )
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(InvalidInput, _refused)

    @app.get("/docs", include_in_schema=False, response_class=HTMLResponse)
    def docs() -> str:
        return web.docs_page("Headroom agent")

    _describe_probes(app, rooms)
    _add_usage(app, rooms)
    _add_history(app, rooms)
    _add_prediction(app, rooms)
    return app


def _describe_probes(app: FastAPI, rooms: Rooms) -> None:
    @app.get("/healthz", operation_id="getHealth", summary="Alive: 503 when a loop has fallen silent")
    def healthz() -> Response:
        return _answered(probes.healthz(rooms))

    @app.get("/readyz", operation_id="getReadiness", summary="Whether pods and Node are known and usage is sampled")
    def readyz() -> Response:
        return _answered(probes.readyz(rooms))

    @app.get("/metrics", operation_id="getMetrics", summary="Prometheus metrics", response_class=Response)
    def metrics() -> Response:
        return _answered(probes.metrics(rooms))


def _add_usage(app: FastAPI, rooms: Rooms) -> None:
    @app.get("/api/v1/node", **_about("getNode", schemas.NodeUsage, "The node's usage now"))
    def node() -> Response:
        return _json(answers.node(rooms))

    @app.get("/api/v1/pods", **_about("listPods", schemas.PodsSchema, "Every pod's usage now"))
    def pods() -> Response:
        return _json(answers.pods(rooms))

    @app.get(
        "/api/v1/pods/{uid}",
        **_about("getPod", schemas.PodDetail, "One pod: containers, workload, past", missing="No such pod here"),
    )
    def pod(uid: str) -> Response:
        return _found(answers.pod(rooms, uid), f"uid: no pod {errors.shown(uid)} on this node")


def _add_history(app: FastAPI, rooms: Rooms) -> None:
    @app.get(
        "/api/v1/series",
        **_about(
            "getSeries", schemas.SeriesSchema, "Samples of the series of one kind and metric", missing="No such series"
        ),
    )
    def series(
        selection: Annotated[Selection, Depends()],
        start: TimeQuery = None,
        end: TimeQuery = None,
        tier: TierQuery = StorageTier.SECONDS,
    ) -> Response:
        """The last five minutes unless told otherwise, a day of a five-minute tier. Up to 100000 values are answered.

        Single seconds reach back an hour, a quarter of one for containers and for all that is not cpu or memory of
        the node, classes, pods and workloads; the five-minute tiers, which only those have, reach back seven days.
        """
        span = queries.span(start, end, rooms.clock.now(), tier)
        if tier not in cache.tiers(selection.kind, selection.metric):
            problem = f"{selection.metric} of kind {selection.kind} has single seconds alone"
            raise queries.refused("tier", str(tier), problem)
        return _json(answers.samples(rooms, _chosen(rooms, selection), tier, span))

    @app.get(
        "/api/v1/aggregate",
        **_about("getAggregate", schemas.Aggregate, "One number a series over a window", missing="No such series"),
    )
    def aggregate(
        selection: Annotated[Selection, Depends()],
        window: Annotated[str, Query(description="a duration that ends now: 30s, 5m, 168h, or seconds")] = "5m",
        agg: Annotated[Aggregation, Query(description="how many values become one")] = Aggregation.AVG,
    ) -> Response:
        """Of one series or all of a kind. The tier that answered is said."""
        return _json(answers.aggregates(rooms, _chosen(rooms, selection), agg, queries.window(window)))


def _add_prediction(app: FastAPI, rooms: Rooms) -> None:
    @app.get(
        "/api/v1/prediction",
        **_about(
            "getPrediction", schemas.PredictionSchema, "Every model's peak, and what can be reclaimed with every term"
        ),
    )
    def prediction() -> Response:
        return _json(answers.prediction(rooms))

    of_histograms = _about(
        "getHistograms",
        dict[str, schemas.Histogram],
        "One model's histograms by resource",
        missing="No such model",
    )

    @app.get("/api/v1/histograms/{key:path}", **of_histograms)
    def histograms(key: str) -> Response:
        """Of a pod's uid, a workload ("workload:namespace/Kind/name"), or one of the node's own models.

        Those are `__node__`, `__node-sys__`, `__node-prod-peak__`, and of each class, as `__node-koord-prod__`.
        """
        return _found(answers.histograms(rooms, key), f"key: no model {errors.shown(key)}")

    @app.get(
        "/api/v1/report",
        **_about("getReport", schemas.ReportSchema, "The last report: when, why, what", missing="None has arrived yet"),
    )
    def report() -> Response:
        return _found(answers.report(rooms), "no report has arrived yet")


def _about(operation: str, model: object, summary: str, *, missing: str = "") -> dict[str, Any]:
    """The OpenAPI description of a route."""
    example = {"content": {JSON: {"example": examples.ANSWERS[operation]}}}
    responses: dict[int | str, dict[str, Any]] = {200: example, **_REFUSED}
    if missing:
        responses[404] = _PROBLEM | {"description": missing}
    return {
        "operation_id": operation,
        "summary": summary,
        "response_model": model,
        "responses": responses,
        "dependencies": [Depends(_once_and_known)],
    }


def _once_and_known(request: Request) -> None:
    """Raises InvalidInput for an unknown or repeated parameter."""
    known = _names(request.scope["route"].dependant)
    given = set()
    for name, value in request.query_params.multi_items():
        if name not in known:
            raise queries.refused(name, value, f"no such parameter; there are {', '.join(sorted(known)) or 'none'}")
        if name in given:
            raise queries.refused(name, value, "given twice")
        given.add(name)


def _names(dependant: Dependant) -> set[str]:
    own = {each.alias for each in dependant.query_params}
    return own.union(*map(_names, dependant.dependencies))


def _chosen(rooms: Rooms, selection: Selection) -> Chosen:
    """Raises HTTPException for an entity that does not exist."""
    kind, metric, entity = selection.kind, selection.metric, selection.entity
    given = {name: value for name in queries.LABEL_NAMES if (value := getattr(selection, name)) is not None}
    chosen = answers.choose(rooms, kind, metric, entity, queries.labels(kind, given))
    if entity is not None and not chosen.keys:
        raise HTTPException(404, f"entity: no series {metric} of {kind} {errors.shown(entity)}")
    return chosen


def _found(answer: object | None, problem: str) -> Response:
    if answer is None:
        raise HTTPException(404, problem)
    return _json(answer)


def _json(answer: object) -> Response:
    return Response(msgspec.json.encode(answer), media_type=JSON)


def _answered(answer: ProbeAnswer) -> Response:
    return Response(answer.body, answer.status, media_type=answer.media_type)


def _invalid(_request: Request, error: Exception) -> Response:
    """Every parameter that FastAPI itself refused, by name and value."""
    found = error.errors() if isinstance(error, RequestValidationError) else ()
    problems = [
        f"{one['loc'][-1]}: {errors.shown(one['input'])}: {one['msg']}" if one["type"] != "missing"
        else f"{one['loc'][-1]}: must be given"
        for one in found
    ]  # fmt: skip
    return _problem(f"{queries.SOURCE}: {'; '.join(problems)}")


def _refused(_request: Request, error: Exception) -> Response:
    return _problem(str(error))


def _problem(detail: str) -> Response:
    return Response(msgspec.json.encode(schemas.ProblemSchema(detail)), UNPROCESSABLE, media_type=JSON)
