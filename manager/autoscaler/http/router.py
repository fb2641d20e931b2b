"""The autoscaler's part of the API: groups, decisions with their reasons, and plans under other conditions."""

import asyncio
import time
from collections.abc import Sequence
from typing import Annotated, Protocol

import msgspec
from fastapi import APIRouter, HTTPException, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from msgspec.structs import replace as with_fields

from manager.autoscaler import decision_settings
from manager.autoscaler.cloudprovider.errors import ProviderError
from manager.autoscaler.cloudprovider.node_template import LABEL_KEY
from manager.autoscaler.decision_settings import DecisionSettings
from manager.autoscaler.http import plan_request
from manager.autoscaler.http.plan_request import Copies, Overrides
from manager.autoscaler.planning.iteration import Iteration
from manager.autoscaler.reporting import answers, cost_division, group_rows, node_rows
from manager.autoscaler.reporting.answers import Decisions, NodesLeft, Plan
from manager.autoscaler.reporting.cost_division import LabelCosts, NamespaceCosts
from manager.autoscaler.reporting.cost_trend import CostHistory, CostTrend
from manager.autoscaler.reporting.decision_log import DecisionLog
from manager.autoscaler.reporting.group_rows import Groups
from manager.autoscaler.reporting.node_rows import NodeLeft
from manager.autoscaler.settings.autoscaler_settings import AutoscalerSettings
from shared import web
from shared.api.core import Pod
from shared.errors import InvalidInput, shown

MAX_BODY_BYTES = 8 << 20
MOST_PARTS = 1000  # of a cost, in one answer
LONGEST_LABEL_KEY = 317  # characters: a domain of 253, a slash, and a name of 63
MOST_ITERATIONS = 20  # of one answer, if the query sets no number

MostParts = Annotated[int, Query(ge=1, le=MOST_PARTS, description="maximum number of rows")]
LabelKey = Annotated[
    str, Query(max_length=LONGEST_LABEL_KEY, pattern=f"^({LABEL_KEY.pattern})$", description="key of a pod label")
]


class Asked(Protocol):
    """The parts of the autoscaler that the API reads."""

    @property
    def decision_log(self) -> DecisionLog: ...
    @property
    def cost_trend(self) -> CostTrend: ...
    def plan_question(self, more: Sequence[Pod], settings: DecisionSettings) -> Iteration: ...


_BODY = {
    "type": "object",
    "properties": {
        "pods": {"type": "array", "items": {"type": "object", "description": "a Pod, as in a manifest"}},
        "copies": msgspec.json.schema(Copies),
        "overrides": msgspec.json.schema_components([Overrides])[1]["Overrides"],
    },
    "additionalProperties": False,
}


def router(autoscaler: Asked, settings: AutoscalerSettings) -> APIRouter:
    """The routes; overrides of a plan request take precedence over `settings`."""
    routes, decision_log = APIRouter(prefix="/api/v1"), autoscaler.decision_log

    @routes.get("/groups", summary="Node groups: sizes, health, what is on its way, cost", response_model=Groups)
    def groups() -> Response:
        latest = decision_log.latest
        return _json(group_rows.no_groups(settings.cluster_name) if latest is None else group_rows.groups(latest))

    @routes.get(
        "/decisions",
        summary="The last iteration, and earlier ones with an action or a change",
        response_model=Decisions,
    )
    def decisions(
        limit: Annotated[int, Query(ge=0, le=1000, description="maximum number of iterations")] = MOST_ITERATIONS,
        brief: Annotated[bool, Query(description="only the first names of many pods")] = False,
    ) -> Response:
        latest = decision_log.plan()
        if latest is not None and brief:
            latest = answers.brief(latest)
        iterations = decision_log.iterations(limit, brief=brief)
        return _json(
            Decisions(settings.cluster_name, latest, iterations, list(decision_log.earlier[: limit - len(iterations)]))
        )

    @routes.get("/costs", summary="What the cluster cost in the last day", response_model=CostHistory)
    def costs() -> Response:
        return _json(autoscaler.cost_trend.answer())

    @routes.get("/costs/namespaces", summary="What the pods of each namespace cost", response_model=NamespaceCosts)
    def namespaces(limit: MostParts = 100) -> Response:
        return _json(cost_division.namespace_costs(decision_log.latest, limit))

    @routes.get("/costs/labels", summary="What the pods of each value of a label cost", response_model=LabelCosts)
    def labels(key: LabelKey, limit: MostParts = 100) -> Response:
        return _json(cost_division.label_costs(decision_log.latest, key, limit))

    @routes.get("/autoscaler/nodes", summary="Why every node is still here", response_model=NodesLeft)
    def nodes() -> Response:
        return _json(answers.nodes_answer(decision_log.plan(), settings.cluster_name))

    @routes.get(
        "/autoscaler/nodes/{name}",
        summary="Why a node is not deleted, and where its pods would move",
        response_model=NodeLeft,
        responses={404: {"description": "Nothing is known of such a node"}},
    )
    def node(name: str) -> Response:
        latest = decision_log.latest
        found = None if latest is None else node_rows.node_answer(latest, name)
        if found is None:
            why = f": {latest.blocked_reason}" if latest is not None and latest.blocked_reason else ""
            raise HTTPException(404, f"nothing is known of Node {shown(name)}{why}")
        return _json(found)

    _add_plan(routes, autoscaler, settings)
    return routes


def _add_plan(routes: APIRouter, autoscaler: Asked, settings: AutoscalerSettings) -> None:
    one_at_a_time = asyncio.Lock()  # otherwise plans could take all threads, and probes would wait behind them

    @routes.post(
        "/plan",
        summary="What would be decided now, maybe with further pods and other settings; nothing is done",
        description='The body is JSON: {"pods": [a Pod, ...], "copies": 1, "overrides": {"expander": ...}}.',
        openapi_extra={"requestBody": {"required": True, "content": {web.JSON: {"schema": _BODY}}}},
        response_model=Plan,
        responses={
            400: {"description": "The request is invalid"},
            413: {"description": "The body is too large"},
            415: {"description": "The body is not JSON"},
            503: {"description": "This manager does not know enough of cluster and cloud"},
        },
    )
    async def plan(request: Request) -> Response:
        try:
            body = await web.body(request, MAX_BODY_BYTES)
            async with one_at_a_time:
                return await run_in_threadpool(lambda: _json(plan_router(autoscaler, settings, body)))
        except web.TooLarge as error:
            raise HTTPException(413, f"the body is larger than {MAX_BODY_BYTES} bytes") from error
        except InvalidInput as error:
            raise HTTPException(400, str(error)) from error
        except ProviderError as error:
            raise HTTPException(503, str(error)) from error


def plan_router(autoscaler: Asked, settings: AutoscalerSettings, body: bytes) -> Plan:
    """The answer. Raises InvalidInput, and ProviderError where the observations do not suffice."""
    wanted = plan_request.decode(body)
    given = {name: value for name, value in msgspec.structs.asdict(wanted.overrides).items() if value is not None}
    try:
        chosen = decision_settings.load(with_fields(settings, **given), time.monotonic)
    except InvalidInput as error:
        if error.source not in (decision_settings.FLAGS, "--expander"):
            raise  # a file that has become invalid since the start
        raise plan_request.refused(f"overrides: {error.field}", error.value, error.problem) from error
    return answers.plan(autoscaler.plan_question(plan_request.pods(wanted), chosen))


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
