"""`headroom savings`: the cost of a cluster, where it goes, and what could be saved, each amount counted once."""

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from deploy import rendering
from deploy.prices.book import PriceBook
from deploy.rendering import HOURS_PER_MONTH
from deploy.savings import reclaimed as reclaiming
from deploy.savings import simulation, stages
from deploy.savings.cluster import LookedAt
from deploy.savings.from_metrics_server import NodesMoment
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
    OwnerSavingsRow,
    ReplacementRow,
    Savings,
    StageRow,
)
from deploy.savings.simulation import Removable, SimulatedCluster
from deploy.savings.stages import LENDABLE, SavingsStages
from deploy.savings.usage import Source
from deploy.savings.workloads import ContainerRole
from manager.autoscaler.pricing import gce, list_prices
from manager.autoscaler.pricing.model import GIB
from shared import durations, quantity
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
    made = recommended(found.listed.containers, found.known, asked.rules)
    nodes = PricedNodes.of(objects.nodes, book)
    cluster = simulation.prepare(objects, asked.group_label, book)
    staged = SavingsStages(cluster, nodes, made, found.listed.owner_of)
    offered = reclaiming.reclaimed(found)
    rows = [*staged.rows, _lendable(staged, lendable, offered, nodes, found.moment)]
    without = sum(row.saved or 0.0 for row in rows if not row.needs_headroom)
    both = sum(row.saved or 0.0 for row in rows)
    return Savings(
        cluster=found.cluster,
        time=durations.timestamp(found.now),
        currency=book.currency,
        bill=_bill(found, nodes, made, offered, staged),
        stages=rows,
        without_headroom=round(without, 2),
        with_headroom=round(both, 2),
        groups=_groups(cluster, nodes, staged),
        namespaces=_owners(made, nodes, by_workload=False),
        workloads=_owners(made, nodes, by_workload=True),
        obstacles=_obstacles(staged.then, nodes),
        replacements=_replacements(cluster, nodes),
        knowledge=_knowledge(made),
        lendable=[] if lendable is None else list(lendable.rows),
        since=reclaiming.since(offered, found, cluster, nodes, None if record is None else record.record),
        assumptions=_assumptions(found, nodes, asked),
        notes=[*found.notes, *_notes(found, nodes), *([record.problem] if record and record.problem else [])],
    )


def _amount(both: Resources) -> str:
    return f"{both.cpu_milli / MILLI_PER_CORE:,.1f} cores and {both.memory_bytes / GIB:,.1f} GiB"


def _lendable(
    staged: SavingsStages,
    lendable: LendableAnswer | None,
    offered: ReclaimedCapacity,
    nodes: PricedNodes,
    moment: NodesMoment | None,
) -> StageRow:
    """What the nodes of the last stage can still lend: the new requests above the promised peak."""
    if lendable is None or not lendable.rows:
        if lendable is not None and lendable.problem:
            return staged.skipped(LENDABLE, lendable.problem)
        why = "no recorded usage to predict from"
        if offered.exists and nodes.units is not None:
            return staged.skipped(LENDABLE, f"{why}; what is offered now is told apart")
        if offered.exists:
            now, held = _amount(offered.offered), _amount(offered.held)
            return staged.skipped(LENDABLE, f"{why}; {now} are on offer now, and pods hold {held} of that")
        why += ": name a Prometheus"
        if moment is not None:
            nodes_used = f"{rendering.count(moment.nodes, 'node')} used {_amount(moment.used)}"
            why += f"; in metrics-server's one look {nodes_used}, and a promise takes days of history"
        return staged.skipped(LENDABLE, why)
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
    """The bill, split as the nodes' capacity is: unrequested capacity is idle, unused requests are unused."""
    total = nodes.bill()
    objects = found.seen.objects
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
    return BillRow(
        total=round(total, 2),
        used=cents(in_use),
        unused=None if in_use is None else round(total - idle - lent - offered - in_use, 2),
        idle=round(idle, 2),
        offered=round(offered, 2),
        lent=round(lent, 2),
        nodes=len(objects.nodes),
        spot_nodes=sum(list_prices.is_spot_machine(machine) for machine, _ in nodes.machines.values()),
        unpriced_nodes=len(nodes.unpriced),
        unpriced_types=nodes.unpriced_types,
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
        cores = (now.cpu_request or 0) if use is None or use.cpu is None else use.cpu.median * MILLI_PER_CORE
        held = (now.memory_request or 0) if use is None or use.memory is None else use.memory.median
        cpu, memory = cpu + cores * now.replicas, memory + held * now.replicas
    return Resources(int(cpu), int(memory)) if known else None


def _groups(cluster: SimulatedCluster, nodes: PricedNodes, staged: SavingsStages) -> list[GroupSavingsRow]:
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
                len(staged.then.nodes & set(names)),
                None if staged.mix is None else len(kept) + added,
                None if cost is None else round(cost - after, 2),
            )
        )
    return sorted(rows, key=lambda row: (-(row.cost or 0.0), row.group))


def _owners(made: Iterable[ContainerRecommendation], nodes: PricedNodes, *, by_workload: bool) -> list[OwnerSavingsRow]:
    sums: dict[tuple[str, str, str], list[int]] = {}
    for each in made:
        now = each.container
        if now.role is ContainerRole.INIT:
            continue
        key = now.key[:3] if by_workload else (now.key.namespace, "", "")
        found = sums.setdefault(key, [0, 0, 0, 0, 0])
        amounts = ((now.cpu_request or 0) * now.replicas, (now.memory_request or 0) * now.replicas, *each.saved)
        found[0] = max(found[0], now.replicas) if by_workload else 0
        for place, amount in enumerate(amounts, 1):
            found[place] += amount
    rows = [
        OwnerSavingsRow(
            *key,
            replicas,
            cpu,
            memory,
            cents(nodes.worth(cpu, memory)),
            cpu_freed,
            memory_freed,
            cents(nodes.worth(cpu_freed, memory_freed)),
        )
        for key, (replicas, cpu, memory, cpu_freed, memory_freed) in sums.items()
    ]
    return sorted(rows, key=lambda row: (-(row.freed or 0.0), -(row.cost or 0.0), row.namespace, row.workload))


def _obstacles(then: Removable, nodes: PricedNodes) -> list[ObstacleRow]:
    rows = [
        ObstacleRow(reason, len(names), cents(nodes.cost(names)), names[0], detail)
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
        )
        for each in (simulation.find_replacements(cluster) if nodes.machines else ())
    ]
    return sorted(rows, key=lambda row: (row.saves_at_most, -(row.saves or 0.0), -(row.cost or 0.0), row.node))


def _knowledge(made: Sequence[ContainerRecommendation]) -> KnowledgeRow:
    running = [each for each in made if each.container.role is not ContainerRole.INIT]
    uses = [each.use for each in running if each.use is not None]
    known = Counter(str(use.source) for use in uses)
    with_history = [use for use in uses if use.source is not Source.SNAPSHOT]
    looks = len(uses) - len(with_history)
    days, gaps = [use.days for use in with_history], max((use.gaps for use in with_history), default=0)
    least, middle = (min(days), statistics.median(days)) if days else (0.0, 0.0)
    share = len(days) / len(running) if running else 0.0
    if not days and looks:
        sure = f"very low: one look at {looks / len(running):.0%} of containers, no history"
    elif not days:
        sure = "requests and nodes only: nothing is known of usage"
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
        "a node's price is divided between cores and memory as both cost elsewhere, so that the parts are its price",
        "nodes go by the planner's rules of scale-down, however full they are; groups keep the minimum that they state",
    ]
    if book.agreements.rate != 1.0:
        said.append(f"a dollar is {book.agreements.rate:g} {book.currency}")
    if book.agreements.discounts:
        said.append(f"discounts: {', '.join(f'{each.percent:g} %' for each in book.agreements.discounts)}")
    if book.agreements.commitments:
        paid = sum(each.per_hour for each in book.agreements.commitments) * HOURS_PER_MONTH
        said.append(f"commitments of {paid:,.2f} {book.currency} a month are paid whatever goes")
    if not found.seen.objects.budgets:
        said.append("no disruption budget is known, so none keeps a node")
    return said


def _notes(found: LookedAt, nodes: PricedNodes) -> list[str]:
    notes = nodes.note_unpriced(": they count apart and stay")
    waiting = sum(not pod.spec.node_name for pod in found.seen.objects.pods)
    if waiting:
        notes.append(f"{waiting} pods without a node are left out")
    return notes
