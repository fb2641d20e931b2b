"""The autoscaler's part of the API: the groups, what was decided and why, and what would be under other conditions."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Literal, Protocol

import msgspec
from fastapi import APIRouter, HTTPException, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from msgspec import Meta
from msgspec.structs import replace as with_fields

from manager.autoscaler import config
from manager.autoscaler.cloudprovider.errors import ProviderError
from manager.autoscaler.config import Config
from manager.autoscaler.reporting import answers, answers_nodes
from manager.autoscaler.reporting.journal import Journal
from manager.autoscaler.reporting.schemas import Decisions, Groups, Plan
from manager.autoscaler.reporting.schemas_nodes import NodeLeft, NodesLeft
from manager.autoscaler.rounds import Round
from manager.autoscaler.settings import AutoscalerSettings
from manager.autoscaler.snapshot import podfacts
from manager.autoscaler.snapshot.podfacts import Surroundings
from shared import web, yaml_file
from shared.api.core import Condition, Pod, PodStatus
from shared.api.meta import OwnerReference, prepared
from shared.errors import MAX_SHOWN_VALUE, InvalidInput, shown

MAX_BODY_BYTES = 8 << 20
MOST_PODS = 100_000  # of one question
MOST_NAME = 253  # characters, as for the API server; every copy has its own
MOST_ROUNDS = 20  # of one answer, where nobody says how many
SOURCE = "POST /api/v1/plan"
_UNSCHEDULABLE = Condition(type="PodScheduled", status="False", reason="Unschedulable")

Count = Annotated[int, Meta(ge=0)]
Copies = Annotated[int, Meta(ge=1, le=10_000)]


class Overrides(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the manager that may be others for once, with their names and meaning; null leaves them."""

    expander: str | None = None
    expander_preset: Annotated[str, Meta(pattern="^(seed|cluster-autoscaler)$")] | None = None
    least_cost_mix: bool | None = None
    node_autoprovisioning: bool | None = None
    balance_similar_node_groups: bool | None = None
    salvo_scale_up: bool | None = None
    max_nodes_total: Count | None = None
    max_cpu: Count | None = None
    max_memory: Count | None = None


class Manifest(Pod, frozen=True):
    """A Pod, and nothing else that could be applied."""

    kind: Literal["Pod"] = "Pod"


@prepared
class PlanRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What else there is to be planned for: `pods` as in a manifest, each `copies` times, beside those that wait."""

    pods: tuple[Manifest, ...] = ()
    copies: Copies = 1
    overrides: Overrides = Overrides()


class Asked(Protocol):
    """The autoscaler, as far as it is asked."""

    @property
    def journal(self) -> Journal: ...
    def asked(self, more: Sequence[Pod], config: Config) -> Round: ...


_REQUEST = msgspec.json.Decoder(PlanRequest)
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
    """The routes; `settings` are those that overrides go before."""
    routes, journal = APIRouter(prefix="/api/v1"), autoscaler.journal
    one_at_a_time = asyncio.Lock()  # or plans would take all threads there are, and probes wait behind them

    @routes.get("/groups", summary="Node groups: sizes, health, what is on its way, cost", response_model=Groups)
    def groups() -> Response:
        return _json(answers.groups(journal.latest))

    @routes.get(
        "/decisions",
        summary="The last round, and those before it that did or changed something",
        response_model=Decisions,
    )
    def decisions(
        limit: Annotated[int, Query(ge=0, le=1000, description="rounds at most")] = MOST_ROUNDS,
        brief: Annotated[bool, Query(description="only the first names of many pods")] = False,
    ) -> Response:
        latest = journal.plan()
        if latest is not None and brief:
            latest = answers.brief(latest)
        rounds = journal.rounds(limit, brief=brief)
        return _json(Decisions(settings.cluster_name, latest, rounds, list(journal.earlier[: limit - len(rounds)])))

    @routes.get("/autoscaler/nodes", summary="Why every node is still here", response_model=NodesLeft)
    def nodes() -> Response:
        return _json(answers_nodes.nodes(journal.plan()))

    @routes.get(
        "/autoscaler/nodes/{name}",
        summary="Why one node is still here, and where its pods would go",
        response_model=NodeLeft,
        responses={404: {"description": "There is no word on such a node"}},
    )
    def node(name: str) -> Response:
        latest = journal.latest
        found = None if latest is None else answers_nodes.node(latest, name)
        if found is None:
            why = f": {latest.held}" if latest is not None and latest.held else ""
            raise HTTPException(404, f"there is no word on Node {shown(name)}{why}")
        return _json(found)

    @routes.post(
        "/plan",
        summary="What would be decided now, maybe with further pods and other settings; nothing is done",
        description='The body is JSON, or empty: {"pods": [a Pod, ...], "copies": 1, "overrides": {"expander": ...}}.',
        openapi_extra={"requestBody": {"content": {"application/json": {"schema": _BODY}}}},
        response_model=Plan,
        responses={
            400: {"description": "What was asked means nothing"},
            413: {"description": "The body is too large"},
            503: {"description": "This manager does not know enough of cluster and cloud"},
        },
    )
    async def plan(request: Request) -> Response:
        try:
            body = await web.body(request, MAX_BODY_BYTES)
            async with one_at_a_time:
                return await run_in_threadpool(lambda: _json(planned(autoscaler, settings, body)))
        except web.TooLarge as error:
            raise HTTPException(413, f"the body is larger than {MAX_BODY_BYTES} bytes") from error
        except InvalidInput as error:
            raise HTTPException(400, str(error)) from error
        except ProviderError as error:
            raise HTTPException(503, str(error)) from error

    return routes


def planned(
    autoscaler: Asked,
    settings: AutoscalerSettings,
    body: bytes,
    clock: Callable[[], float] = time.monotonic,
) -> Plan:
    """The answer. Raises InvalidInput, and ProviderError where there is not enough to go by."""
    wanted = decode(body)
    given = {name: value for name, value in msgspec.structs.asdict(wanted.overrides).items() if value is not None}
    try:
        chosen = config.load(with_fields(settings, **given), clock)
    except InvalidInput as error:
        if error.source not in (config.FLAGS, "--expander"):  # a file that has been spoilt since the start
            raise
        raise _refused(f"overrides: {error.field}", error.value, error.problem) from error
    return answers.plan(autoscaler.asked(_pods(wanted), chosen))


def decode(body: bytes) -> PlanRequest:
    """What is asked; an empty body asks for nothing special. Raises InvalidInput."""
    try:
        return _REQUEST.decode(body) if body.strip() else PlanRequest()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        problem, _, where = str(error).partition(" - at `$")
        where = where.rstrip("`")
        raise _refused(where.lstrip(".") or "(body)", _standing_at(body, where), problem) from error


def _standing_at(body: bytes, where: str) -> object:
    """The value that was refused; the whole text where it cannot be told."""
    try:
        return yaml_file.at(msgspec.json.decode(body), where)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return body[:MAX_SHOWN_VALUE].decode(errors="replace")


def _refused(field: str, value: object, problem: str) -> InvalidInput:
    return InvalidInput(source=SOURCE, field=field, value=value, problem=problem)


def _pods(wanted: PlanRequest) -> list[Pod]:
    """As pods that wait, each under a name of its own; those of one manifest as made by one controller."""
    if len(wanted.pods) * wanted.copies > MOST_PODS:
        raise _refused("copies", wanted.copies, f"more than {MOST_PODS} pods in all")
    for position, pod in enumerate(wanted.pods):
        _check(pod, f"pods[{position}]")
    return [_copy(pod, position, number) for position, pod in enumerate(wanted.pods) for number in range(wanted.copies)]


def _check(pod: Pod, where: str) -> None:
    """Raises InvalidInput for a pod that could not be."""
    if pod.spec.node_name:
        raise _refused(f"{where}.spec.nodeName", pod.spec.node_name, "it has a node already")
    for field, value in (("name", pod.metadata.name), ("namespace", pod.metadata.namespace)):
        if len(value) > MOST_NAME:
            raise _refused(f"{where}.metadata.{field}", value, f"longer than {MOST_NAME} characters")
    try:
        podfacts.read(pod, Surroundings())
    except InvalidInput as error:
        raise _refused(f"{where}.{error.field}", error.value, error.problem) from error


def _copy(pod: Pod, position: int, number: int) -> Pod:
    meta = pod.metadata
    name = meta.name or f"pod-{position}"
    owner = OwnerReference(kind="Plan", name=name, uid=f"plan-{position}", controller=True)
    return Pod(
        metadata=with_fields(
            meta,
            name=f"{name}-{number}",
            namespace=meta.namespace or "default",
            creation_timestamp=None,
            owner_references=(owner,),
        ),
        spec=pod.spec,
        status=PodStatus(phase="Pending", conditions=(_UNSCHEDULABLE,)),
    )


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
