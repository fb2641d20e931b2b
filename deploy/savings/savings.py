"""`headroom savings`: the cost of a cluster, where it goes, and what could be saved, each amount counted once."""

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from deploy.plan_sources import WHAT_TO_DUMP
from deploy.prices.book import PriceBook
from deploy.rendering import HOURS_PER_MONTH
from deploy.savings import owners, simulation, stages
from deploy.savings import reclaimed as reclaiming
from deploy.savings.cluster import LookedAt
from deploy.savings.lendable import LendableAnswer
from deploy.savings.lending_record import LendingRecordAnswer
from deploy.savings.priced import PricedNodes, cents
from deploy.savings.reclaimed import ReclaimedCapacity
from deploy.savings.recommending import ContainerRecommendation, RecommendationRules
from deploy.savings.recommending import recommend as recommended
from deploy.savings.rows import (
    BillRow,
    GroupSavingsRow,
    KnowledgeRow,
    ObstacleRow,
    ReplacementRow,
    Savings,
    StageRow,
)
from deploy.savings.simulation import Removable, SimulatedCluster
from deploy.savings.stages import LENDABLE, SavingsStages
from deploy.savings.workloads import ContainerRole
from manager.autoscaler.pricing import gce, list_prices
from manager.autoscaler.pricing.model import GIB
from shared import durations, quantity
from shared.errors import InvalidInput
from shared.quantity import MILLI_PER_CORE, Resources


@dataclass(frozen=True)
class SavingsQuestion:
    """The question: rules of right-sizing, prices, and the label that defines groups."""

    rules: RecommendationRules
    book: PriceBook
    group_label: str = ""


def answer(
    found: LookedAt,
    asked: SavingsQuestion,
    lendable: LendableAnswer | None = None,
    record: LendingRecordAnswer | None = None,
) -> Savings:
    objects, book = found.seen.objects, asked.book
    if not objects.nodes:
        problem = f"it contains no Node: {WHAT_TO_DUMP} prints what is needed"
        raise InvalidInput(source="headroom savings", field="nodes", value=found.seen.source, problem=problem)
    unknown = _unknown(found)
    made = recommended(found.listed.containers, found.known, asked.rules)
    nodes = PricedNodes.of(objects.nodes, book)
    cluster = simulation.prepare(objects, asked.group_label, book)
    staged = SavingsStages(cluster, nodes, made, found.listed.owner_of, unknown)
    requested = owners.workloads(staged, found.listed.owner_of)
    offered = reclaiming.reclaimed(found)
    last = _lendable(staged, lendable, offered, nodes)
    rows = [*staged.rows, staged.skipped(LENDABLE, unknown) if unknown else last]
    return Savings(
        cluster=found.cluster,
        time=durations.timestamp(found.now),
        currency=book.currency,
        bill=_bill(found, nodes, made, offered, staged),
        stages=rows,
        without_headroom=_total(row for row in rows if not row.needs_headroom),
        with_headroom=_total(rows),
        groups=_groups(cluster, nodes, staged, unknown),
        namespaces=owners.rows(owners.namespaces(requested), nodes),
        workloads=owners.rows(requested, nodes),
        obstacles=_obstacles(staged.then, nodes),
        replacements=[] if unknown else _replacements(cluster, nodes),
        knowledge=_knowledge(made),
        lendable=[] if lendable is None else list(lendable.rows),
        since=None if unknown else reclaiming.since(offered, found, cluster, nodes, record and record.record),
        assumptions=_assumptions(found, nodes, asked),
        notes=[*_notes(found, nodes), *found.notes, *([record.problem] if record and record.problem else [])],
    )


def _unknown(found: LookedAt) -> str:
    """Why nothing can be said about what pods request; empty where something can."""
    return "" if found.seen.tells_of_pods else f"there is no Pod in {found.seen.source}"


def _total(rows: Iterable[StageRow]) -> float | None:
    """None if no stage has a sum."""
    sums = [row.saved for row in rows if row.saved is not None]
    return round(sum(sums), 2) if sums else None


def _amount(both: Resources) -> str:
    return f"{both.cpu_milli / MILLI_PER_CORE:,.1f} cores and {both.memory_bytes / GIB:,.1f} GiB"


def _lendable(
    staged: SavingsStages,
    lendable: LendableAnswer | None,
    offered: ReclaimedCapacity,
    nodes: PricedNodes,
) -> StageRow:
    """What the nodes of the last stage can still lend: the new requests above the promised peak."""
    if lendable is None or not lendable.rows:
        if lendable is not None and lendable.problem:
            return staged.skipped(LENDABLE, lendable.problem)
        why = "no recorded usage to predict from"
        if offered.exists and nodes.units is not None:
            return staged.skipped(LENDABLE, f"{why}; present offers are shown separately")
        if offered.exists:
            now, held = _amount(offered.offered), _amount(offered.held)
            return staged.skipped(LENDABLE, f"{why}; {now} are on offer now, and pods request {held} of that")
        return staged.skipped(LENDABLE, f"{why}: name a Prometheus")
    promised = {row.resource: row for row in lendable.rows}
    amounts = []
    for resource, before, after in zip(("cpu", "memory"), staged.requested_today, staged.requested, strict=True):
        row = promised.get(resource)
        if row is None or not row.requested:
            amounts.append(0)
            continue
        # The recorded pods keep their present share of all requests.
        share = after / before if before else 1.0
        amounts.append(max(0, int(min(after, row.requested * share)) - row.promised))
    amount = Resources(*amounts)
    whole, part = nodes.worth(*staged.capacity), nodes.worth(*amount)
    saved = None
    if whole is not None and part is not None:
        saved = staged.bill * min(1.0, part / whole) if whole else 0.0
    row = lendable.rows[0]
    how = (
        f"{row.model} at {row.target_percent:g} % for {row.horizon_hours} h over {row.days:g} recorded days: requests "
        "above the promised peak, as far as Mid pods use them in place of nodes"
    )
    return staged.row(LENDABLE, saved, amount, how)


def _bill(
    found: LookedAt,
    nodes: PricedNodes,
    made: Sequence[ContainerRecommendation],
    reclaimed: ReclaimedCapacity,
    staged: SavingsStages,
) -> BillRow:
    """The bill, split as the nodes' capacity is: unrequested capacity is idle, unused requests are unused. Without pods
    no part is known.
    """
    total = nodes.bill()
    objects = found.seen.objects
    all_nodes = BillRow(
        total=round(total, 2),
        used=None,
        unused=None,
        idle=None,
        offered=None,
        lent=None,
        nodes=len(objects.nodes),
        spot_nodes=sum(list_prices.is_spot_machine(machine) for machine, _ in nodes.machines.values()),
        unpriced_nodes=len(nodes.unpriced),
        unpriced_types=nodes.unpriced_types,
        estimated_nodes=len(nodes.estimated),
        estimated_types=nodes.estimated_types,
        prices_remedy=nodes.remedy,
    )
    if not found.seen.tells_of_pods:
        return all_nodes
    there = quantity.total([stages.allocatable(node) for node in objects.nodes if node.metadata.name in nodes.machines])
    asked = staged.requested_today
    if nodes.unpriced:
        asked = stages.sum_requests(pod for pod in objects.pods if pod.spec.node_name in nodes.machines)
    weight = nodes.worth(*there)

    def share(amount: Resources) -> float:
        return total * max(0.0, nodes.worth(*amount.floored()) or 0.0) / weight if weight else 0.0

    idle = share(there.minus(asked))
    used = _used(made)
    lent = min(share(reclaimed.held), total - idle)
    offered = min(share(reclaimed.offered.minus(reclaimed.held)), total - idle - lent)
    in_use = None if used is None else min(share(used.least(asked)), total - idle - lent - offered)
    return replace(
        all_nodes,
        used=cents(in_use),
        unused=None if in_use is None else round(total - idle - lent - offered - in_use, 2),
        idle=round(idle, 2),
        offered=round(offered, 2),
        lent=round(lent, 2),
    )


def _used(made: Iterable[ContainerRecommendation]) -> Resources | None:
    """The typical usage of containers, all replicas; None if nothing is known. Containers without data count with their
    requests.
    """
    cpu = memory = 0.0
    known = False
    for each in made:
        now, use = each.container, each.use
        if now.role is ContainerRole.INIT:
            continue
        known = known or use is not None
        asked, replicas = now.requested, now.replicas
        cpu += asked.cpu_milli if use is None or use.cpu is None else use.cpu.median * MILLI_PER_CORE * replicas
        memory += asked.memory_bytes if use is None or use.memory is None else use.memory.median * replicas
    return Resources(int(cpu), int(memory)) if known else None


def _groups(
    cluster: SimulatedCluster, nodes: PricedNodes, staged: SavingsStages, unknown: str
) -> list[GroupSavingsRow]:
    of_node = {node.metadata.name: group for group, members in cluster.members.items() for node in members}
    grouped: dict[str, list[str]] = {}
    for node in cluster.objects.nodes:
        grouped.setdefault(of_node.get(node.metadata.name, ""), []).append(node.metadata.name)
    labels = {node.metadata.name: node.metadata.labels or {} for node in cluster.objects.nodes}
    rows = []
    for group, names in sorted(grouped.items()):
        each = next((nodes.machines[name][1] for name in names if name in nodes.machines), None)
        kept, added = [name for name in names if name not in staged.gone], staged.added.get(group, 0)
        cost = nodes.cost(names)
        after = (nodes.cost(kept) or 0.0) + (each or 0.0) * added * HOURS_PER_MONTH
        rows.append(
            GroupSavingsRow(
                group,
                gce.machine_type(labels[names[0]]),
                len(names),
                None if each is None else round(each, 6),
                cents(cost),
                None if unknown else len(staged.then.nodes & set(names)),
                None if staged.mix is None else len(kept) + added,
                None if cost is None or unknown else round(cost - after, 2),
                nodes.rests_on_estimate(names),
            )
        )
    return sorted(rows, key=lambda row: (-(row.cost or 0.0), row.group))


def _obstacles(then: Removable, nodes: PricedNodes) -> list[ObstacleRow]:
    rows = [
        ObstacleRow(reason, len(names), cents(nodes.cost(names)), names[0], detail, nodes.rests_on_estimate(names))
        for reason, (names, detail) in then.stay.items()
    ]
    return sorted(rows, key=lambda row: -(row.cost or 0.0))


def _replacements(cluster: SimulatedCluster, nodes: PricedNodes) -> list[ReplacementRow]:
    """The replacements in the present cluster, the largest saving first; none without prices."""
    rows = [
        ReplacementRow(
            each.node,
            cents(nodes.cost([each.node])),
            cents(each.replacement_saves_per_month),
            each.replacement,
            each.replacement_saves_at_most,
            each.node in nodes.estimated,
        )
        for each in (simulation.find_replacements(cluster) if nodes.machines else ())
    ]
    return sorted(rows, key=lambda row: (row.saves_at_most, -(row.saves or 0.0), -(row.cost or 0.0), row.node))


def _knowledge(made: Sequence[ContainerRecommendation]) -> KnowledgeRow:
    running = [each for each in made if each.container.role is not ContainerRole.INIT]
    uses = [each.use for each in running if each.use is not None]
    known = Counter(str(use.source) for use in uses)
    days, gaps = [use.days for use in uses], max((use.gaps for use in uses), default=0)
    least, middle = (min(days), statistics.median(days)) if days else (0.0, 0.0)
    share = len(days) / len(running) if running else 0.0
    if not running:
        sure = "pods are unknown"
    elif not days:
        sure = "requests and nodes only: usage is unknown"
    elif middle < 1:
        sure = f"low: less than a day of {share:.0%} of containers"
    elif middle < 7 or share < 0.8:
        sure = f"medium: {middle:.1f} days of {share:.0%} of containers"
    else:
        sure = f"high: {middle:.1f} days of {share:.0%} of containers"
    return KnowledgeRow(len(running), dict(known), round(least, 2), round(middle, 2), gaps, sure)


def _assumptions(found: LookedAt, nodes: PricedNodes, asked: SavingsQuestion) -> list[str]:
    book = asked.book
    spot = sum(list_prices.is_spot_machine(machine) for machine, _ in nodes.machines.values())
    said = [
        f"prices: {nodes.source}, in {book.currency}, {HOURS_PER_MONTH} hours a month",
        f"{spot} of {len(nodes.machines)} priced nodes are spot",
        "a node's price is divided between cores and memory in proportion to their usual prices",
        "nodes are deleted by the planner's scale-down rules, whatever their utilization; groups keep their minimum",
    ]
    if book.agreements.rate != 1.0:
        said.append(f"a dollar is {book.agreements.rate:g} {book.currency}")
    if book.agreements.discounts:
        said.append(f"discounts: {', '.join(f'{each.percent:g} %' for each in book.agreements.discounts)}")
    if book.agreements.commitments:
        paid = sum(each.per_hour for each in book.agreements.commitments) * HOURS_PER_MONTH
        said.append(f"commitments of {paid:,.2f} {book.currency} a month are paid in any case")
    if found.seen.tells_of_pods and not found.seen.objects.budgets:
        said.append("no disruption budget is known")
    return said


def _notes(found: LookedAt, nodes: PricedNodes) -> list[str]:
    notes = nodes.note_unpriced(": they count separately and are not deleted")
    if unknown := _unknown(found):
        notes.insert(0, f"{unknown}, so savings are unknown: {WHAT_TO_DUMP} includes pods")
    known = {node.metadata.name for node in found.seen.objects.nodes}
    places = Counter(not pod.spec.node_name for pod in found.seen.objects.pods if pod.spec.node_name not in known)
    if places[True]:
        notes.append(f"{places[True]} pods without a node are ignored")
    if places[False]:
        notes.append(f"{places[False]} pods on nodes that are not in {found.seen.source} are ignored")
    return notes
