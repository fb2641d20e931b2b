"""The autoscaler's part of the API: the groups, what was decided and why, and what would be under other conditions."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Protocol

import msgspec
from fastapi import APIRouter, HTTPException, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from msgspec import Meta
from msgspec.structs import replace as with_fields

from manager.autoscaler import answers, config
from manager.autoscaler.answers import Decisions, Groups, Plan
from manager.autoscaler.cloudprovider.errors import ProviderError
from manager.autoscaler.config import Config
from manager.autoscaler.journal import Journal
from manager.autoscaler.rounds import Round
from manager.autoscaler.settings import AutoscalerSettings
from shared import web
from shared.api import pods
from shared.api.core import Condition, Pod, PodStatus
from shared.api.meta import OwnerReference, prepared
from shared.errors import MAX_SHOWN_VALUE, InvalidInput
from shared.quantity import QuantityError

MAX_BODY_BYTES = 8 << 20
MOST_PODS = 100_000  # of one question
MOST_NAME = 253  # characters, as for the API server; every copy has its own
MOST_ROUNDS = 20  # of one answer, where nobody says how many
SOURCE = "POST /api/v1/plan"
_UNSCHEDULABLE = Condition(type="PodScheduled", status="False", reason="Unschedulable")

Count = Annotated[int, Meta(ge=0)]


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


@prepared
class PlanRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What else there is to be planned for: `pods` as in a manifest, each `copies` times, beside those that wait."""

    pods: tuple[Pod, ...] = ()
    copies: Annotated[int, Meta(ge=1, le=10_000)] = 1
    overrides: Overrides = Overrides()


class Asked(Protocol):
    """The autoscaler, as far as it is asked."""

    @property
    def journal(self) -> Journal: ...
    def asked(self, more: Sequence[Pod], config: Config) -> Round: ...


_REQUEST = msgspec.json.Decoder(PlanRequest)


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
        return _json(Decisions(latest, journal.rounds(limit, brief=brief)))

    @routes.post(
        "/plan",
        summary="What would be decided now, maybe with further pods and other settings; nothing is done",
        description='The body is JSON, or empty: {"pods": [a Pod, ...], "copies": 1, "overrides": {"expander": ...}}.',
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
    return answers.plan(autoscaler.asked(_pods(wanted), config.load(with_fields(settings, **given), clock)))


def decode(body: bytes) -> PlanRequest:
    """What is asked; an empty body asks for nothing special. Raises InvalidInput."""
    try:
        return _REQUEST.decode(body) if body.strip() else PlanRequest()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        problem, _, path = str(error).partition(" - at `$")
        field = path.rstrip("`").lstrip(".") or "(body)"
        raise InvalidInput(source=SOURCE, field=field, value=body[:MAX_SHOWN_VALUE], problem=problem) from error


def _pods(wanted: PlanRequest) -> list[Pod]:
    """As pods that wait, each under a name of its own; those of one manifest as made by one controller."""
    if len(wanted.pods) * wanted.copies > MOST_PODS:
        raise InvalidInput(
            source=SOURCE, field="copies", value=wanted.copies, problem=f"more than {MOST_PODS} pods in all"
        )
    return [
        _copy(pod, position, number)
        for position, pod in enumerate(wanted.pods)
        if _is_pending(pod, f"pods[{position}]")
        for number in range(wanted.copies)
    ]


def _is_pending(pod: Pod, where: str) -> bool:
    """Raises InvalidInput for a pod that could not be."""
    if pod.spec.node_name:
        raise InvalidInput(
            source=SOURCE, field=f"{where}.spec.nodeName", value=pod.spec.node_name, problem="it has a node already"
        )
    for field, value in (("name", pod.metadata.name), ("namespace", pod.metadata.namespace)):
        if len(value) > MOST_NAME:
            problem = f"longer than {MOST_NAME} characters"
            raise InvalidInput(source=SOURCE, field=f"{where}.metadata.{field}", value=value, problem=problem)
    try:
        pods.requests(pod)
    except QuantityError as error:
        raise InvalidInput(
            source=SOURCE, field=f"{where}.spec.containers[].resources", value=pod.metadata.name, problem=str(error)
        ) from error
    return True


def _copy(pod: Pod, position: int, number: int) -> Pod:
    meta = pod.metadata
    name = meta.name or f"pod-{position}"
    owner = OwnerReference(kind="Plan", name=name, uid=f"plan-{position}", controller=True)
    return with_fields(
        pod,
        metadata=with_fields(
            meta,
            name=f"{name}-{number}",
            namespace=meta.namespace or "default",
            creation_timestamp=None,
            owner_references=(owner,),
        ),
        status=PodStatus(phase="Pending", conditions=(_UNSCHEDULABLE,)),
    )


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
