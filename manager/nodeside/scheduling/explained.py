"""The scheduling advice on one node, term by term: `GET /api/v1/scheduling/{name}`."""

from dataclasses import dataclass

import msgspec
from fastapi import APIRouter, HTTPException, Response

from manager.nodeside.answers import Amount
from manager.nodeside.scheduling import loadaware
from manager.nodeside.scheduling.advice import Advisor
from manager.nodeside.scheduling.args import Percents
from manager.nodeside.scheduling.loadaware import Incoming, NodeLoad
from shared import durations, errors
from shared.quantity import Resources

_NOBODY = Incoming(Resources())


@dataclass(frozen=True)
class UsageThresholds:
    """Percentages of allocatable, 0: off; against the aggregate of that type and time where there is a type."""

    cpu: int
    memory: int
    prod_cpu: int
    prod_memory: int
    aggregation: str
    aggregated_seconds: float


@dataclass(frozen=True)
class Load:
    """The node's load, each amount with what pods that are not measured yet are expected to add.

    `used` is held against the thresholds, and `prod_used` where prod pods have their own; `scored_used` and
    `predicted_peak` (null: not known well enough) make the score, 0..100, which is that for a pod that uses nothing.
    `refusal` is why even such a pod is refused.
    """

    reported_at: str | None
    allocatable: Amount
    thresholds: UsageThresholds
    used: Amount | None
    prod_used: Amount | None
    scored_used: Amount | None
    predicted_peak: Amount | None
    score: int
    refusal: str | None


@dataclass(frozen=True)
class TierBound:
    """What a tier offers by the newest decision (null: it is taken off the node), and what the node's pods request."""

    offered: Amount | None
    requested: Amount


@dataclass(frozen=True)
class SchedulingExplained:
    """`load` is null without a NodeMetric; `tiers` are those that something was decided about."""

    node: str
    load: Load | None
    tiers: dict[str, TierBound]


def router(advisor: Advisor) -> APIRouter:
    """The route."""
    routes = APIRouter()

    @routes.get(
        "/api/v1/scheduling/{name}",
        summary="The data by which the scheduler extender judges one node",
        response_model=SchedulingExplained,
        responses={404: {"description": "There is no such node"}},
    )
    def scheduling(name: str) -> Response:
        found = explained(advisor, name)
        if found is None:
            raise HTTPException(404, f"nothing is known of a Node {errors.shown(name)}")
        return Response(msgspec.json.encode(found), media_type="application/json")

    return routes


def explained(advisor: Advisor, name: str) -> SchedulingExplained | None:
    """None for an unknown node, or one with an invalid allocatable."""
    view = advisor.view(name)
    if view is None:
        return None
    decision = advisor.decision(name)
    offers = {} if decision is None else decision.offers
    return SchedulingExplained(
        name,
        None if view.load is None else _load(advisor, view.load),
        {tier.value: _bound(offer.lent, view.held[tier].held) for tier, offer in offers.items()},
    )


def _bound(offered: Resources | None, held: Resources) -> TierBound:
    return TierBound(None if offered is None else Amount(*offered), Amount(*held))


def _load(advisor: Advisor, load: NodeLoad) -> Load:
    now, limits = advisor.now(), load.limits
    prod: Percents = limits.prod
    return Load(
        reported_at=None if load.reported_at is None else durations.timestamp(load.reported_at),
        allocatable=Amount(*load.allocatable),
        thresholds=UsageThresholds(
            limits.usage.cpu, limits.usage.memory, prod.cpu, prod.memory, limits.aggregation, limits.seconds
        ),
        used=Amount(*load.used) if load.is_known else None,
        prod_used=Amount(*load.prod_used)
        if load.is_known and (prod or advisor.args.score_according_prod_usage)
        else None,
        scored_used=Amount(*load.scored_used) if load.is_known else None,
        predicted_peak=None if load.peak is None else Amount(*load.peak),
        score=loadaware.score(load, _NOBODY, advisor.args, now),
        refusal=loadaware.why_refused(load, _NOBODY, advisor.args, now),
    )
