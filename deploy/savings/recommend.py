"""`headroom recommend`: requests and limits per container, out of what it used. Nothing is applied."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from deploy.prices import book as prices
from deploy.prices.book import PriceBook
from deploy.rendering import HOURS_PER_MONTH
from deploy.savings import recommending
from deploy.savings.cluster import LookedAt
from deploy.savings.recommending import ContainerRecommendation, Proposal, RecommendationRules
from deploy.savings.rows import ContainerRecommendationRow, Recommendations, RecommendedAmountRow
from deploy.savings.usage import ResourceUse, Source
from deploy.savings.workloads import ContainerRole
from manager.autoscaler.pricing.list_prices import UNITS
from manager.autoscaler.pricing.model import GIB, Machine
from shared import durations
from shared.api import pods as api_pods
from shared.api.core import Node
from shared.names import CPU, MEMORY
from shared.quantity import MILLI_PER_CORE, QuantityError


@dataclass(frozen=True)
class OwnUnits:
    """What a core and a GiB cost per hour on this cluster's nodes, so that all of them together cost what nodes do.

    `unpriced` nodes are in none of it.
    """

    core: float
    gib: float
    priced: int
    unpriced: Mapping[str, str]
    source: str

    def month(self, cpu_milli: float, memory_bytes: float) -> float:
        return (cpu_milli / MILLI_PER_CORE * self.core + memory_bytes / GIB * self.gib) * HOURS_PER_MONTH


def machine(node: Node) -> Machine:
    """What its price depends on. Raises QuantityError."""
    return Machine(
        api_pods.amounts(node.status.capacity or node.status.allocatable or {}),
        node.metadata.labels or {},
        node.metadata.annotations or {},
    )


def units(nodes: Iterable[Node], book: PriceBook) -> OwnUnits | None:
    """The split of nodes' prices between cores and memory by what both cost elsewhere; None without any price."""
    total = weight = 0.0
    machines: list[Machine] = []
    unpriced: dict[str, str] = {}
    for node in nodes:
        try:
            found = machine(node)
            cores, gib = found.capacity.get(CPU, 0) / MILLI_PER_CORE, found.capacity.get(MEMORY, 0) / GIB
        except QuantityError as error:
            unpriced[node.metadata.name] = str(error)
            continue
        cost = prices.price(book, found)
        if cost is None:
            unpriced[node.metadata.name] = (node.metadata.labels or {}).get("node.kubernetes.io/instance-type", "")
            continue
        machines.append(found)
        total += cost
        weight += cores * UNITS.cpu + gib * UNITS.memory_gib
    if not weight:
        return None
    core, gib = UNITS.cpu * total / weight, UNITS.memory_gib * total / weight
    return OwnUnits(core, gib, len(machines), unpriced, book.source(machines))


@dataclass(frozen=True)
class ContainerChoice:
    """Which containers are wanted; empty for all."""

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
    """The answer, and what it was made of."""
    chosen = only or ContainerChoice()
    made = [each for each in recommending.recommend(found.listed.containers, found.known, rules) if chosen.takes(each)]
    split = units(found.seen.objects.nodes, book)
    rows = sorted((_row(each, split) for each in made), key=lambda row: (-(row.saved or 0.0), _name(row)))
    saved = [each.saved for each in made]
    known: dict[str, int] = {}
    for each in made:
        if each.use is not None:
            known[each.use.source] = known.get(each.use.source, 0) + 1
    cpu, memory = sum(each[0] for each in saved), sum(each[1] for each in saved)
    notes = [*found.notes, *_price_notes(split, found.seen.objects.nodes)]
    if known and known.keys() == {Source.SNAPSHOT}:
        notes.append(
            "usage is one look of metrics-server, from which nothing is recommended: name a Prometheus or agents"
        )
    if not found.known.uses:
        notes.append("nothing is known of usage: name a Prometheus, agents, or dump VPA's checkpoints, too")
    return (
        Recommendations(
            cluster=found.cluster,
            time=durations.timestamp(found.now),
            estimator=rules.estimator,
            currency=book.currency,
            prices=book.said if split is None else split.source,
            containers=rows,
            known=known,
            unknown=sum(each.use is None for each in made),
            cpu_saved=cpu,
            memory_saved=memory,
            saved_per_month=None if split is None else round(split.month(cpu, memory), 2),
            notes=notes,
        ),
        made,
    )


def _price_notes(split: OwnUnits | None, nodes: Iterable[Node]) -> list[str]:
    unpriced = [
        Machine({}, node.metadata.labels or {})
        for node in nodes
        if split is None or node.metadata.name in split.unpriced
    ]
    if not unpriced:
        return []
    if split is None:
        return [f"no node has a known price, so nothing is said of money: {prices.how_to_price(unpriced)}"]
    kinds = ", ".join(sorted({kind or "(none)" for kind in split.unpriced.values()})[:3])
    how = prices.how_to_price(unpriced)
    return [f"{len(unpriced)} nodes have no known price (machine type {kinds}) and count apart; {how}"]


def _name(row: ContainerRecommendationRow) -> str:
    return f"{row.namespace}/{row.kind}/{row.workload}/{row.container}"


def _row(of: ContainerRecommendation, split: OwnUnits | None) -> ContainerRecommendationRow:
    now, use = of.container, of.use
    counts = now.role is not ContainerRole.INIT
    money = None
    if split is not None:
        before = split.month(now.cpu_request or 0, now.memory_request or 0) * now.replicas * counts
        after = split.month(of.cpu.request or 0, of.memory.request or 0) * now.replicas * counts
        money = round(before, 2), round(after, 2), round(before - after, 2)
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
        cost_now=None if money is None else money[0],
        cost_then=None if money is None else money[1],
        saved=None if money is None else money[2],
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
