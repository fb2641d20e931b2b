"""`headroom savings`: what a cluster costs, where that goes, and what it could save, each thing counted once."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from deploy import rendering
from deploy.prices import book as prices
from deploy.prices.book import PriceBook
from deploy.rendering import HOURS_PER_MONTH
from deploy.savings import reclaimed as reclaiming
from deploy.savings import recommend, simulation, stages
from deploy.savings.cluster import LookedAt
from deploy.savings.from_metrics_server import NodesMoment
from deploy.savings.lendable import LendableAnswer
from deploy.savings.lending_record import LendingRecordAnswer
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
from deploy.savings.stages import PricedNodes, Staged
from deploy.savings.usage import Source
from deploy.savings.workloads import ContainerRole
from manager.autoscaler.pricing import gce, list_prices
from manager.autoscaler.pricing.model import GIB, Machine
from shared import durations
from shared.quantity import MILLI_PER_CORE, Resources


@dataclass(frozen=True)
class SavingsQuestion:
    """What is asked: rules of right-sizing, prices, the label that makes groups."""

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
    split = recommend.units(objects.nodes, book)
    cluster = simulation.prepare(objects, asked.group_label, book)
    staged = stages.simulate(cluster, nodes, made, found.listed.owner_of, split)
    rows = list(staged.rows)
    offered = reclaiming.reclaimed(found)
    rows.append(_lendable(staged, lendable, offered, split, found.moment))
    without = sum(row.saved or 0.0 for row in rows if not row.needs_headroom)
    both = sum(row.saved or 0.0 for row in rows)
    return Savings(
        cluster=found.cluster,
        time=durations.timestamp(found.now),
        currency=book.currency,
        bill=_bill(found, nodes, made, split, offered, staged),
        stages=rows,
        without_headroom=round(without, 2),
        with_headroom=round(both, 2),
        groups=_groups(cluster, nodes, staged),
        namespaces=_owners(made, split, by_workload=False),
        workloads=_owners(made, split, by_workload=True),
        obstacles=_obstacles(staged.then, nodes),
        replacements=_replacements(cluster, nodes),
        knowledge=_knowledge(made),
        lendable=[] if lendable is None else list(lendable.rows),
        since=reclaiming.since(offered, found, split, cluster, nodes, None if record is None else record.record),
        assumptions=_assumptions(found, nodes, asked),
        notes=[*found.notes, *_notes(found, nodes), *([record.problem] if record and record.problem else [])],
    )


def _amount(both: Resources) -> str:
    return f"{both.cpu_milli / MILLI_PER_CORE:,.1f} cores and {both.memory_bytes / GIB:,.1f} GiB"


def _lendable(
    staged: Staged,
    lendable: LendableAnswer | None,
    offered: ReclaimedCapacity,
    split: recommend.OwnUnits | None,
    moment: NodesMoment | None,
) -> StageRow:
    """What is left to lend on the nodes of the last stage: requests as they would be, above the promised peak."""
    nodes = staged.rows[-1].nodes

    def skipped(why: str) -> StageRow:
        return StageRow(stages.LENDABLE, None, round(staged.bill, 2), nodes, 0, 0, True, why, "")

    if lendable is None or not lendable.rows:
        if lendable is not None and lendable.problem:
            return skipped(lendable.problem)
        if offered.exists and split is not None:
            return skipped("no recorded usage to predict from; what is offered now is told apart")
        if offered.exists:
            now, held = _amount(offered.offered), _amount(offered.held)
            return skipped(f"no recorded usage to predict from; {now} are on offer now, and pods hold {held} of that")
        why = "no recorded usage to predict from: name a Prometheus"
        if moment is not None:
            nodes_used = f"{rendering.count(moment.nodes, 'node')} used {_amount(moment.used)}"
            why += f"; in metrics-server's one look {nodes_used}, and a promise takes days of history"
        return skipped(why)
    promised = {row.resource: row for row in lendable.rows}
    amounts = []
    for resource, before, after in zip(("cpu", "memory"), staged.requested_today, staged.requested, strict=True):
        row = promised.get(resource)
        if row is None or not row.requested:
            amounts.append(0)
            continue
        # Of what all pods request in the end, those of the recording hold the share that they hold now.
        share = after / before if before else 1.0
        amounts.append(max(0, int(min(after, row.requested * share)) - row.promised))
    amount = Resources(*amounts)
    saved = None if split is None else 0.0
    if split is not None and any(staged.capacity):
        weight = split.month(*staged.capacity)
        saved = staged.bill * min(1.0, split.month(*amount) / weight) if weight else 0.0
    row = lendable.rows[0]
    how = (
        f"{row.model} at {row.target_percent:g} % for {row.horizon_hours} h over {row.days:g} recorded days: requests "
        "above the promised peak, as far as Mid pods use them in place of nodes"
    )
    return StageRow(
        stages.LENDABLE,
        None if saved is None else round(saved, 2),
        round(staged.bill, 2),
        nodes,
        *amount,
        True,
        "",
        how,
    )


def _bill(
    found: LookedAt,
    nodes: PricedNodes,
    made: Sequence[ContainerRecommendation],
    split: recommend.OwnUnits | None,
    reclaimed: ReclaimedCapacity,
    staged: Staged,
) -> BillRow:
    """Money follows the split of what nodes have: what is not requested is idle, what is not used is unused."""
    total = nodes.bill()
    there = stages.sum_of(
        stages.allocatable(node) for node in found.seen.objects.nodes if node.metadata.name in nodes.machines
    )
    asked = staged.requested_today
    if nodes.unpriced:
        asked = stages.sum_requests(pod for pod in found.seen.objects.pods if pod.spec.node_name in nodes.machines)
    weight = 0.0 if split is None else split.month(*there)

    def share(amount: Resources) -> float:
        if split is None or not weight:
            return 0.0
        return total * max(0.0, split.month(*amount.floored())) / weight

    idle = share(there.minus(asked))
    used = _used(made)
    lent = min(share(reclaimed.held), total - idle)
    offered = min(share(reclaimed.offered.minus(reclaimed.held)), total - idle - lent)
    in_use = None if used is None else min(share(used.least(asked)), total - idle - lent - offered)
    spot = sum(list_prices.is_spot_machine(machine) for machine, _ in nodes.machines.values())
    return BillRow(
        total=round(total, 2),
        used=None if in_use is None else round(in_use, 2),
        unused=None if in_use is None else round(total - idle - lent - offered - in_use, 2),
        idle=round(idle, 2),
        offered=round(offered, 2),
        lent=round(lent, 2),
        nodes=len(found.seen.objects.nodes),
        spot_nodes=spot,
        unpriced_nodes=len(nodes.unpriced),
        unpriced_types=sorted({kind or "(none)" for kind in nodes.unpriced.values()}),
    )


def _used(made: Iterable[ContainerRecommendation]) -> Resources | None:
    """What containers use as a rule, all replicas; None where nothing is known. Those of which nothing is known use
    what they request.
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


def _groups(cluster: SimulatedCluster, nodes: PricedNodes, staged: Staged) -> list[GroupSavingsRow]:
    of_node = simulation.group_of(cluster)
    members: dict[str, list[str]] = {}
    for node in cluster.objects.nodes:
        members.setdefault(of_node.get(node.metadata.name, ""), []).append(node.metadata.name)
    labels = {node.metadata.name: node.metadata.labels or {} for node in cluster.objects.nodes}
    going = staged.then.nodes if staged.then is not None else frozenset()
    rows = []
    for group, names in sorted(members.items()):
        priced = [nodes.machines[name][1] for name in names if name in nodes.machines]
        then = len([name for name in names if name not in staged.gone]) + staged.added.get(group, 0)
        each = priced[0] if priced else None
        cost = sum(priced) * HOURS_PER_MONTH if priced else None
        left = sum(nodes.machines[name][1] for name in names if name in nodes.machines and name not in staged.gone)
        after = (left + (each or 0.0) * staged.added.get(group, 0)) * HOURS_PER_MONTH
        rows.append(
            GroupSavingsRow(
                group,
                gce.machine_type(labels[names[0]]),
                len(names),
                None if each is None else round(each, 6),
                None if cost is None else round(cost, 2),
                len(going & set(names)),
                then if staged.mix is not None else None,
                None if cost is None else round(cost - after, 2),
            )
        )
    return sorted(rows, key=lambda row: (-(row.cost or 0.0), row.group))


def _owners(
    made: Iterable[ContainerRecommendation], split: recommend.OwnUnits | None, *, by_workload: bool
) -> list[OwnerSavingsRow]:
    sums: dict[tuple[str, str, str], list[int]] = {}
    for each in made:
        now = each.container
        if now.role is ContainerRole.INIT:
            continue
        key = now.key[:3] if by_workload else (now.key.namespace, "", "")
        found = sums.setdefault(key, [0, 0, 0, 0, 0])
        cpu, memory = each.saved
        amounts = ((now.cpu_request or 0) * now.replicas, (now.memory_request or 0) * now.replicas, cpu, memory)
        found[0] = max(found[0], now.replicas) if by_workload else 0
        for place, amount in enumerate(amounts, 1):
            found[place] += amount
    rows = [
        OwnerSavingsRow(
            *key,
            replicas,
            cpu,
            memory,
            None if split is None else round(split.month(cpu, memory), 2),
            cpu_freed,
            memory_freed,
            None if split is None else round(split.month(cpu_freed, memory_freed), 2),
        )
        for key, (replicas, cpu, memory, cpu_freed, memory_freed) in sums.items()
    ]
    return sorted(rows, key=lambda row: (-(row.freed or 0.0), -(row.cost or 0.0), row.namespace, row.workload))


def _obstacles(then: Removable | None, nodes: PricedNodes) -> list[ObstacleRow]:
    rows = []
    for reason, (names, detail) in (then.stay if then is not None else {}).items():
        priced = [nodes.machines[name][1] for name in names if name in nodes.machines]
        cost = round(sum(priced) * HOURS_PER_MONTH, 2) if priced else None
        rows.append(ObstacleRow(reason, len(names), cost, names[0], detail))
    return sorted(rows, key=lambda row: -(row.cost or 0.0))


def _replacements(cluster: SimulatedCluster, nodes: PricedNodes) -> list[ReplacementRow]:
    """Of the cluster as it is, the largest saving first; none where no node has a price."""
    found = simulation.find_replacements(cluster) if nodes.machines else {}
    rows = []
    for name, each in found.items():
        cost = round(nodes.machines[name][1] * HOURS_PER_MONTH, 2) if name in nodes.machines else None
        saves = None if each.saves_per_month is None else round(each.saves_per_month, 2)
        rows.append(ReplacementRow(name, cost, saves, each.sentence))
    return sorted(rows, key=lambda row: (-(row.saves or 0.0), -(row.cost or 0.0), row.node))


def _knowledge(made: Sequence[ContainerRecommendation]) -> KnowledgeRow:
    known: dict[str, int] = {}
    days, gaps, looks = [], 0, 0
    running = [each for each in made if each.container.role is not ContainerRole.INIT]
    for each in running:
        if each.use is not None:
            known[each.use.source] = known.get(each.use.source, 0) + 1
            if each.use.source is Source.SNAPSHOT:
                looks += 1
                continue
            days.append(each.use.days)
            gaps = max(gaps, each.use.gaps)
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
    return KnowledgeRow(len(running), known, round(least, 2), round(middle, 2), gaps, sure)


def _assumptions(found: LookedAt, nodes: PricedNodes, asked: SavingsQuestion) -> list[str]:
    book = asked.book
    machines = [machine for machine, _ in nodes.machines.values()]
    spot = sum(map(list_prices.is_spot_machine, machines))
    said = [
        f"prices: {book.source(machines)}, in {book.currency}, {HOURS_PER_MONTH} hours a month",
        f"{spot} of {len(machines)} priced nodes are spot",
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
    notes = []
    if nodes.unpriced:
        kinds = ", ".join(sorted({kind or "(none)" for kind in nodes.unpriced.values()})[:3])
        notes.append(
            f"{len(nodes.unpriced)} nodes have no known price (machine type {kinds}): they count apart and stay; "
            + prices.how_to_price(
                Machine({}, node.metadata.labels or {})
                for node in found.seen.objects.nodes
                if node.metadata.name in nodes.unpriced
            )
        )
    waiting = sum(not pod.spec.node_name for pod in found.seen.objects.pods)
    if waiting:
        notes.append(f"{waiting} pods without a node are left out")
    return notes
