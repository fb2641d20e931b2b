"""The HTTPS server of the webhook: limits bodies, checks reviews strictly, and never makes an API request fail."""

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from manager.nodeside.webhook import reviews
from manager.nodeside.webhook.reviews import AdmissionAnswer
from shared import web
from shared.errors import InvalidInput
from shared.metric_families import CounterFamily
from shared.telemetry import OncePerMinute

if TYPE_CHECKING:
    from starlette.types import ASGIApp

logger = logging.getLogger(__name__)
logger.addFilter(OncePerMinute())

# Two objects of the largest size that the API server stores, with room for their encoding.
MAX_BODY_BYTES = 8 << 20

Review = Callable[[reviews.AdmissionRequest], AdmissionAnswer]

_WEBHOOK_REVIEWS = CounterFamily(
    "headroom_manager_webhook_reviews",
    "Admission reviews, by outcome. `refused`: not a valid review; `error`: the manager failed.",
    ("webhook", "outcome"),
)
_WEBHOOK_ERRORS = CounterFamily(
    "headroom_manager_webhook_errors",
    "Reviews that failed in the manager; the pods were allowed without change.",
    ("webhook",),
)


class WebhookCounters:
    """Counters of requests and outcomes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.reviews = _WEBHOOK_REVIEWS.register(registry)
        self.errors = _WEBHOOK_ERRORS.register(registry)


def application(webhooks: Mapping[str, Review], counters: WebhookCounters) -> "ASGIApp":
    """One route per webhook, named as the webhook."""
    routes = [_route(name, review, counters) for name, review in webhooks.items()]
    return Starlette(routes=routes)


def _route(name: str, review: Review, counters: WebhookCounters) -> Route:
    counters.errors.labels(name)  # visible from the start, as 0

    async def endpoint(request: Request) -> Response:
        try:
            body = await web.body(request, MAX_BODY_BYTES)
        except web.TooLarge:
            counters.reviews.labels(name, "refused").inc()
            return PlainTextResponse(f"a review has {MAX_BODY_BYTES} bytes at most\n", 413)
        return await run_in_threadpool(answer, body)

    def answer(body: bytes) -> Response:
        try:
            asked = reviews.decode(body)
        except InvalidInput as problem:
            counters.reviews.labels(name, "refused").inc()
            logger.warning("the admission review was not answered: %s", problem, extra={"webhook": name})
            return PlainTextResponse(f"{problem}\n", 400)
        try:
            given = review(asked)
            encoded = reviews.encode(asked.uid, given)
            outcome = given.outcome
        except Exception:
            logger.exception("review failed, so nothing was changed", extra={"webhook": name, "uid": asked.uid})
            counters.errors.labels(name).inc()
            encoded = reviews.encode(
                asked.uid, AdmissionAnswer(warnings=("headroom: an internal error; nothing was changed",))
            )
            outcome = "error"
        counters.reviews.labels(name, outcome).inc()
        return Response(encoded, media_type="application/json")

    return Route(f"/{name}", endpoint, methods=["POST"])
