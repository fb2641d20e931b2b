"""`headroom recommend`: requests and limits per container, from recorded usage. It applies nothing."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from deploy.plan_sources import WHAT_TO_DUMP
from deploy.prices import book as prices
from deploy.prices.book import PriceBook
from deploy.savings import recommending
from deploy.savings.cluster import LookedAt
from deploy.savings.priced import PricedNodes, cents
from deploy.savings.recommending import ContainerRecommendation, Proposal, RecommendationRules
from deploy.savings.rows import ContainerRecommendationRow, Recommendations, RecommendedAmountRow
from deploy.savings.usage import ResourceUse
from deploy.savings.workloads import ContainerRole
from shared import durations
from shared.errors import InvalidInput
from shared.quantity import MILLI_PER_CORE, Resources


@dataclass(frozen=True)
class ContainerChoice:
    """The chosen containers; empty for all."""

    namespaces: Sequence[str] = ()
    workload: str = ""

    def takes(self, of: ContainerRecommendation) -> bool:
        key = of.container.key
        if self.namespaces and key.namespace not in self.namespaces:
            return False
        return not self.workload or self.workload in (key.owner, key.workload, f"{key.kind}/{key.workload}")


def answer(
    found: LookedAt, rules: RecommendationRules, book: PriceBook, *, only: ContainerChoice | None = None
) -> tuple[Recommendations, list[ContainerRecommendation]]:
    """The answer, and the data behind it."""
    chosen = only or ContainerChoice()
    if not found.seen.tells_of_pods:
        problem = f"it contains no Pod: {WHAT_TO_DUMP} prints what is needed"
        raise InvalidInput(source="headroom recommend", field="pods", value=found.seen.source, problem=problem)
    made = [each for each in recommending.recommend(found.listed.containers, found.known, rules) if chosen.takes(each)]
    nodes = PricedNodes.of(found.seen.objects.nodes, book)
    rows = sorted(
        (_row(each, nodes) for each in made),
        key=lambda row: (-(row.saved or 0.0), f"{row.namespace}/{row.kind}/{row.workload}/{row.container}"),
    )
    known = Counter(str(each.use.source) for each in made if each.use is not None)
    cpu, memory = (sum(each.saved[place] for each in made) for place in (0, 1))
    notes = [*([nodes.remedy] if nodes.remedy else []), *found.notes, *_price_notes(nodes)]
    if not found.known.uses:
        notes.append("no usage is known: give --prometheus or --agent, or include VPA's checkpoints in the dump")
    return (
        Recommendations(
            cluster=found.cluster,
            time=durations.timestamp(found.now),
            estimator=rules.estimator,
            currency=book.currency,
            prices=book.said if nodes.units is None else nodes.source,
            containers=rows,
            known=dict(known),
            unknown=sum(each.use is None for each in made),
            cpu_saved=cpu,
            memory_saved=memory,
            saved_per_month=cents(nodes.worth(cpu, memory)),
            estimated=bool(nodes.estimated),
            notes=notes,
        ),
        made,
    )


def _price_notes(nodes: PricedNodes) -> list[str]:
    if nodes.units is None and nodes.unpriced:
        how = prices.how_to_price(nodes.unpriced.values())
        return [f"no node has a known price, so no savings are shown: {how}"]
    return nodes.note_unpriced(" and count separately")


def _row(of: ContainerRecommendation, nodes: PricedNodes) -> ContainerRecommendationRow:
    now, use = of.container, of.use
    requested = Resources() if now.role is ContainerRole.INIT else now.requested
    before, after = nodes.worth(*requested), nodes.worth(*requested.minus(Resources(*of.saved)))
    return ContainerRecommendationRow(
        *now.key,
        role=now.role,
        replicas=now.replicas,
        scaling="" if now.scaling is None else f"{now.scaling.name} {now.scaling.least}-{now.scaling.most}",
        source="" if use is None else use.source,
        days=0.0 if use is None else round(use.days, 2),
        points=0 if use is None else use.points,
        gap_days=0 if use is None else use.gaps,
        confidence=of.confidence,
        risk=of.risk,
        changes=of.changes,
        cpu=_amounts(of.cpu, now.cpu_request, now.cpu_limit, None if use is None else use.cpu, MILLI_PER_CORE),
        memory=_amounts(of.memory, now.memory_request, now.memory_limit, None if use is None else use.memory, 1),
        cost_now=cents(before),
        cost_then=cents(after),
        saved=None if before is None or after is None else round(before - after, 2),
    )


def _amounts(
    made: Proposal, request: int | None, limit: int | None, use: ResourceUse | None, scale: int
) -> RecommendedAmountRow:
    def used(amount: float) -> float:
        return round(amount * scale, 3) if math.isfinite(amount) else 0.0

    return RecommendedAmountRow(
        request,
        limit,
        made.request,
        made.limit,
        made.wanted,
        None if use is None else used(use.median),
        None if use is None else used(use.quantile),
        None if use is None else used(use.most),
        made.reason,
        made.detail,
    )
