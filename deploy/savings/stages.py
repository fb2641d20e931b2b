"""The stages of savings: each begins with the bill that the one before it leaves, so that they add up and never come to
more than the bill. Pure but for the planner's rounds.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from deploy import rendering
from deploy.prices import book as prices
from deploy.prices.book import PriceBook
from deploy.rendering import HOURS_PER_MONTH
from deploy.savings import recommend, simulation
from deploy.savings.recommending import ContainerRecommendation
from deploy.savings.rows import StageRow
from deploy.savings.simulation import CheaperMix, Removable, SimulatedCluster
from manager.autoscaler.pricing.model import Machine
from shared.api import pods as api_pods
from shared.api.core import Node, Pod, PodStatus
from shared.names import CPU, MEMORY
from shared.quantity import QuantityError, Resources

NOT_NEEDED = "nodes not needed today"
RIGHTSIZING = "right-sizing"
NODES_GO = "nodes not needed then"
CHEAPER_MIX = "cheaper node mix"
LENDABLE = "lendable to Mid pods"
LEAST_SAVING = 0.005  # of money: less is rounding

NOTHING = Resources()


@dataclass(frozen=True)
class PricedNodes:
    """Machines by node; those without a price count apart, and stay in every state of the cluster that has a bill.
    Where no node has a price, states tell of nodes and resources alone.
    """

    book: PriceBook
    machines: Mapping[str, tuple[Machine, float]]
    unpriced: Mapping[str, str]

    @classmethod
    def of(cls, nodes: Iterable[Node], book: PriceBook) -> "PricedNodes":
        machines: dict[str, tuple[Machine, float]] = {}
        unpriced: dict[str, str] = {}
        for node in nodes:
            name = node.metadata.name
            kind = (node.metadata.labels or {}).get("node.kubernetes.io/instance-type", "")
            try:
                machine = recommend.machine(node)
            except QuantityError:
                unpriced[name] = kind
                continue
            price = prices.price(book, machine)
            if price is None:
                unpriced[name] = kind
            else:
                machines[name] = machine, price
        return cls(book, machines, unpriced)

    def leaving(self, names: Iterable[str]) -> frozenset[str]:
        """Those of these nodes that count as gone."""
        return frozenset(names) - self.unpriced.keys() if self.machines else frozenset(names)

    def saved(self, amount: float) -> float | None:
        """None where no sum can be said."""
        return round(amount, 2) if self.machines else None

    def bill(self, without: Iterable[str] = (), also: Sequence[tuple[Machine, float]] = ()) -> float:
        """Of a month, commitments included."""
        gone = set(without)
        return (
            self.book.bill([*(each for name, each in self.machines.items() if name not in gone), *also])
            * HOURS_PER_MONTH
        )


@dataclass
class Staged:
    """All states of the cluster, the last one as it would be."""

    rows: list[StageRow] = field(default_factory=list)
    today: Removable | None = None
    then: Removable | None = None
    mix: CheaperMix | None = None
    gone: frozenset[str] = frozenset()
    added: dict[str, int] = field(default_factory=dict)
    bill: float = 0.0
    capacity: Resources = NOTHING
    requested_today: Resources = NOTHING
    requested: Resources = NOTHING


def simulate(
    cluster: SimulatedCluster,
    nodes: PricedNodes,
    made: Sequence[ContainerRecommendation],
    owner_of: Mapping[str, tuple[str, str, str]],
    split: recommend.OwnUnits | None,
) -> Staged:
    """Every stage but what can be lent."""
    whole = cluster.objects.nodes
    capacity = {node.metadata.name: allocatable(node) for node in whole}
    found = Staged(bill=nodes.bill())
    found.today = simulation.find_removable(cluster)
    _let_go(found, NOT_NEEDED, found.today, nodes, capacity, "the planner moves all of their pods to other nodes")

    pods = simulation.rightsize(cluster.objects.pods, made, owner_of)
    found.requested_today = found.requested = sum_requests(cluster.objects.pods)
    if any(each.changes for each in made):
        found.requested = sum_requests(pods)
    freed = found.requested_today.minus(found.requested)
    if any(each.changes for each in made):
        worth = "" if split is None else f", worth {split.month(*freed):,.2f} a month at the nodes' prices"
        how = f"freed requests{worth}; that alone saves nothing, nodes have to go for it"
        found.rows.append(_row(found, RIGHTSIZING, nodes.saved(0.0), whole, freed, how))
        fitted = cluster.with_pods(pods)
        found.then = simulation.find_removable(fitted)
        _let_go(found, NODES_GO, found.then, nodes, capacity, "the planner's round with the recommended requests")
    else:
        fitted, found.then = cluster, found.today
        why = "no request should change, as far as usage is known"
        for stage in (RIGHTSIZING, NODES_GO):
            found.rows.append(_skipped(stage, found.bill, len(whole) - len(found.gone), why))
    _mix(found, fitted, nodes, capacity)
    left = [amount for name, amount in capacity.items() if name not in found.gone]
    template = simulation.template_of(cluster)
    left += [allocatable(template[group]) for group, count in found.added.items() for _ in range(count)]
    found.capacity = sum_of(left)
    return found


def _let_go(
    found: Staged, stage: str, removable: Removable, nodes: PricedNodes, capacity: Mapping[str, Resources], how: str
) -> None:
    """The nodes of a plan go; those of an earlier one that this one keeps come back, and cost again."""
    gone = nodes.leaving(removable.nodes)
    bill = nodes.bill(gone)
    amount = sum_of(capacity[name] for name in gone).minus(sum_of(capacity[name] for name in found.gone))
    saved, more = found.bill - bill, len(gone) - len(found.gone)
    found.bill, found.gone = bill, gone
    left = len(capacity) - len(gone)
    goes = ("goes" if more == 1 else "go") if more >= 0 else ("is" if more == -1 else "are") + " needed again"
    text = f"{rendering.count(abs(more), 'node')} {goes}: {how}"
    if not more and abs(saved) >= LEAST_SAVING:
        text = f"cheaper or dearer nodes go than before, as many: {how}"
    found.rows.append(StageRow(stage, nodes.saved(saved), round(bill, 2), left, *amount, False, "", text))


def _mix(found: Staged, cluster: SimulatedCluster, nodes: PricedNodes, capacity: Mapping[str, Resources]) -> None:
    """All nodes whose pods may move are bought anew, each group's machine at its price, if that is cheaper."""
    assert found.then is not None
    left = len(capacity) - len(found.gone)
    if not nodes.machines:
        found.rows.append(_skipped(CHEAPER_MIX, found.bill, left, "no node has a known price"))
        return
    replaceable = found.then.replaceable - nodes.unpriced.keys() - found.gone
    template = simulation.template_of(cluster)
    if nodes.unpriced.keys() & {node.metadata.name for node in template.values()}:
        found.rows.append(_skipped(CHEAPER_MIX, found.bill, left, "a group's machine has no known price"))
        return
    if len({_kind(node, nodes) for node in template.values()}) < 2:
        found.rows.append(
            _skipped(CHEAPER_MIX, found.bill, left, "there is one kind of machine, and no other to compare")
        )
        return
    mix = found.mix = simulation.find_cheaper_mix(cluster, found.gone, replaceable)
    if mix.unplaced or mix.problem:
        why = mix.problem or f"{mix.unplaced} pods would find no place on new nodes of these groups"
        found.rows.append(_skipped(CHEAPER_MIX, found.bill, left, why))
        return
    bought = [nodes.machines[template[group].metadata.name] for group, count in mix.added.items() for _ in range(count)]
    gone = found.gone | mix.replaced
    bill = nodes.bill(gone, bought)
    saved = found.bill - bill
    if saved < LEAST_SAVING:
        found.rows.append(
            StageRow(
                CHEAPER_MIX,
                0.0,
                round(found.bill, 2),
                left,
                0,
                0,
                False,
                "",
                "these nodes are the cheapest mix of their groups",
            )
        )
        return
    amount = sum_of(capacity[name] for name in mix.replaced).minus(
        sum_of(allocatable(template[group]) for group, count in mix.added.items() for _ in range(count))
    )
    count = len(capacity) - len(gone) + len(bought)
    found.bill, found.gone, found.added = bill, gone, dict(mix.added)
    named = ", ".join(f"{number} of {group}" for group, number in sorted(mix.added.items()))
    how = f"{named or 'none'} in place of {len(mix.replaced)} nodes, every pod that may move being moved once"
    found.rows.append(StageRow(CHEAPER_MIX, round(saved, 2), round(bill, 2), count, *amount, False, "", how))


def _kind(node: Node, nodes: PricedNodes) -> tuple[float, Resources]:
    """Machines of one price and size are as good as each other."""
    machine, price = nodes.machines[node.metadata.name]
    return price, Resources(machine.capacity.get(CPU, 0), machine.capacity.get(MEMORY, 0))


def _row(
    found: Staged, stage: str, saved: float | None, nodes: Sequence[Node], amount: Resources, how: str
) -> StageRow:
    return StageRow(stage, saved, round(found.bill, 2), len(nodes) - len(found.gone), *amount, False, "", how)


def _skipped(stage: str, bill: float, nodes: int, why: str) -> StageRow:
    return StageRow(stage, None, round(bill, 2), nodes, 0, 0, False, why, "")


def sum_requests(pods: Iterable[Pod]) -> Resources:
    """Of all pods on nodes; those that cannot be read count as nothing. Equal pods of a dump share their sum."""
    cpu = memory = 0
    known: dict[tuple[int, ...], tuple[Pod, Resources]] = {}  # with the pod, as an id is one object's while that lives
    for pod in pods:
        spec = pod.spec
        if not spec.node_name or not api_pods.is_active(pod):
            continue
        of = tuple(map(id, (spec.containers, spec.init_containers, spec.resources, spec.overhead)))
        says_more = _tells_of_resources(pod.status)
        found = None if says_more else known.get(of)
        if found is None:
            try:
                found = pod, api_pods.native_request(pod)
            except QuantityError:
                continue
            if not says_more:
                known[of] = found
        cpu, memory = cpu + found[1].cpu_milli, memory + found[1].memory_bytes
    return Resources(cpu, memory)


def _tells_of_resources(status: PodStatus) -> bool:
    """Whether a resize may have given the containers other amounts than they ask for."""
    reports = (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
    return any(each.resources is not None for each in reports)


def sum_of(amounts: Iterable[Resources]) -> Resources:
    total = NOTHING
    for each in amounts:
        total = total.plus(each)
    return total


def allocatable(node: Node) -> Resources:
    try:
        return node.allocatable
    except QuantityError:
        return NOTHING
