"""kube-scheduler's HTTP extender protocol (k8s.io/kube-scheduler/extender/v1): filter and prioritize.

The field names are those of the Go types, which have no JSON tags. A scheduler sends node names if its configuration
sets `nodeCacheCapable`, else whole nodes; the answer has the same form.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry
from starlette.concurrency import run_in_threadpool

from manager.nodeside.scheduling import loadaware
from manager.nodeside.scheduling.advice import Advisor
from shared import web
from shared.api import pods
from shared.api.core import Pod
from shared.api.meta import ObjectMeta, prepared
from shared.errors import MAX_SHOWN_VALUE, InvalidInput
from shared.metric_families import CounterFamily, HistogramFamily
from shared.quantity import QuantityError

MAX_PRIORITY = 10  # of the protocol; the scheduler scales it to its own 100
MAX_BODY_BYTES = 64 << 20  # several thousand whole nodes, or all names in a cluster
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5)


class _Named(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


class NodeList(msgspec.Struct, frozen=True):
    """Nodes as received, returned unchanged."""

    items: list[msgspec.Raw]


@prepared
class ExtenderArgs(msgspec.Struct, frozen=True, rename="pascal"):
    """The pod, and the nodes it fits on so far."""

    pod: Pod
    nodes: NodeList | None = None
    node_names: list[str] | None = None


class FilterResult(msgspec.Struct, frozen=True, rename="pascal"):
    """The remaining nodes, and why the others are refused."""

    nodes: NodeList | None
    node_names: list[str] | None
    failed_nodes: dict[str, str]
    failed_and_unresolvable_nodes: dict[str, str] = {}
    error: str = ""


class HostPriority(msgspec.Struct, frozen=True, rename="pascal"):
    """The score of a node, 0..10."""

    host: str
    score: int


_ARGS = msgspec.json.Decoder(ExtenderArgs)
_NODE = msgspec.json.Decoder(_Named)


@dataclass(frozen=True)
class Question:
    """A pod and the names of the nodes it may go to; `nodes` are the nodes themselves, if they were sent whole."""

    pod: Pod
    names: Sequence[str]
    nodes: Sequence[msgspec.Raw] | None = None


_REQUESTS = CounterFamily(
    "headroom_manager_extender_requests", "Requests of schedulers to the extender.", ("verb", "code")
)
_REFUSALS = CounterFamily(
    "headroom_manager_extender_refusals", "Nodes that the scheduler extender rejected for a pod.", ("cause",)
)
_ANSWER_SECONDS = HistogramFamily(
    "headroom_manager_extender_seconds", "Duration of an extender's answer in seconds.", ("verb",)
)


class ExtenderCounters:
    """Counters of requests and answers."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = _REQUESTS.register(registry)
        self.refusals = _REFUSALS.register(registry)
        self.seconds = _ANSWER_SECONDS.register(registry, _SECONDS)


_NAMES = {"type": ["array", "null"], "items": {"type": "string"}}
_ARGUMENTS = {
    "type": "object",
    "description": "ExtenderArgs of kube-scheduler: a v1 Pod, and the nodes by name or as a v1 NodeList",
    "properties": {"Pod": {"type": "object"}, "NodeNames": _NAMES, "Nodes": {"type": ["object", "null"]}},
    "required": ["Pod"],
}
_DESCRIBED: dict[str, Any] = {
    "openapi_extra": {"requestBody": {"required": True, "content": {web.JSON: {"schema": _ARGUMENTS}}}},
    "responses": {
        400: {"description": "The body is no ExtenderArgs"},
        413: {"description": "The body is too large"},
        415: {"description": "The body is not JSON"},
    },
}


def router(advisor: Advisor, registry: CollectorRegistry) -> APIRouter:
    """The routes of a scheduler's `urlPrefix`, `filterVerb` and `prioritizeVerb`."""
    routes, counters = APIRouter(prefix="/scheduler"), ExtenderCounters(registry)

    async def answered(request: Request, verb: str, answer: Callable[[Question], object]) -> Response:
        began = time.perf_counter()
        try:
            body = await web.body(request, MAX_BODY_BYTES)
            status, value = await run_in_threadpool(_answered, body, f"POST /scheduler/{verb}", answer)
        except web.TooLarge:
            status, value = 413, {"detail": f"the body is larger than {MAX_BODY_BYTES} bytes"}
        counters.requests.labels(verb, status).inc()
        counters.seconds.labels(verb).observe(time.perf_counter() - began)
        return Response(msgspec.json.encode(value), status, media_type="application/json")

    @routes.post(
        "/filter", summary="Scheduler extender: which of the nodes the pod should not go to, and why", **_DESCRIBED
    )
    async def filter_(request: Request) -> Response:
        return await answered(request, "filter", lambda question: filter_nodes(advisor, question, counters))

    @routes.post(
        "/prioritize", summary="Scheduler extender: how good each of the nodes is for the pod, 0..10", **_DESCRIBED
    )
    async def prioritize(request: Request) -> Response:
        return await answered(request, "prioritize", lambda question: priorities(advisor, question))

    return routes


def filter_nodes(advisor: Advisor, question: Question, counters: ExtenderCounters) -> FilterResult:
    """The remaining nodes, in their order."""
    refused = advisor.refused(question.pod, question.names)
    for refusal in refused.values():
        counters.refusals.labels(refusal.cause).inc()
    failed = {name: refusal.message for name, refusal in refused.items()}
    if question.nodes is None:
        return FilterResult(None, [name for name in question.names if name not in refused], failed)
    left = [node for name, node in zip(question.names, question.nodes, strict=True) if name not in refused]
    return FilterResult(NodeList(left), None, failed)


def priorities(advisor: Advisor, question: Question) -> list[HostPriority]:
    """The nodes with their scores."""
    scores = advisor.scores(question.pod, question.names)
    step = loadaware.MAX_SCORE // MAX_PRIORITY
    return [HostPriority(name, (score + step // 2) // step) for name, score in zip(question.names, scores, strict=True)]


def decode(body: bytes, *, source: str) -> Question:
    """A scheduler's request. Raises InvalidInput."""
    try:
        args = _ARGS.decode(body)
        pods.requests(args.pod)
        if args.node_names is not None:
            return Question(args.pod, args.node_names)
        if args.nodes is not None:
            return Question(args.pod, [_NODE.decode(node).metadata.name for node in args.nodes.items], args.nodes.items)
    except QuantityError as error:
        raise InvalidInput(source=source, field="Pod.spec", value=args.pod.metadata.key, problem=str(error)) from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        problem, _, path = str(error).partition(" - at `$")
        field = path.rstrip("`").lstrip(".") or "(body)"
        raise InvalidInput(source=source, field=field, value=body[:MAX_SHOWN_VALUE], problem=problem) from error
    raise InvalidInput(source=source, field="NodeNames", value=None, problem="neither NodeNames nor Nodes are given")


def _answered(body: bytes, source: str, answer: Callable[[Question], object]) -> tuple[int, object]:
    try:
        return 200, answer(decode(body, source=source))
    except InvalidInput as problem:
        return 400, {"detail": str(problem)}
