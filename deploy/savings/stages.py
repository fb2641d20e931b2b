"""The stages of savings. Each starts from the bill after the one before, so that they add up and never exceed the bill.
Pure but for the planner's iterations.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, repeat

from deploy import rendering
from deploy.savings import simulation
from deploy.savings.priced import PricedNodes, cents
from deploy.savings.recommending import ContainerRecommendation
from deploy.savings.rows import StageRow
from deploy.savings.simulation import CheaperMix, Removable, SimulatedCluster
from shared import quantity
from shared.api import pods as api_pods
from shared.api.core import Node, Pod, PodStatus
from shared.names import CPU, MEMORY
from shared.quantity import QuantityError, Resources

NOT_NEEDED = "nodes not needed today"
RIGHTSIZING = "right-sizing"
NODES_GO = "nodes not needed then"
CHEAPER_MIX = "cheaper node mix"
LENDABLE = "lendable to Mid pods"
LEAST_SAVING = 0.005  # a smaller amount of money is rounding

NOTHING = Resources()


class SavingsStages:
    """All states of the cluster; the attributes describe the last one. `rows` holds every stage except lending."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        nodes: PricedNodes,
        made: Sequence[ContainerRecommendation],
        owner_of: Mapping[str, tuple[str, str, str]],
        unknown: str = "",
    ) -> None:
        """`unknown` says why nothing can be said about any stage; "" where something can."""
        self._nodes = nodes
        self._capacity = {node.metadata.name: allocatable(node) for node in cluster.objects.nodes}
        self._templates = cluster.templates
        self.rows: list[StageRow] = []
        self.mix: CheaperMix | None = None
        self.gone: frozenset[str] = frozenset()
        self.added: Mapping[str, int] = {}
        self.bill = nodes.bill()
        self.pods_today = self.pods_then = cluster.objects.pods
        self.requested_today = self.requested = sum_requests(self.pods_today)
        if unknown:
            self.then = Removable(frozenset(), {}, frozenset())
            self.rows += (self.skipped(stage, unknown) for stage in (NOT_NEEDED, RIGHTSIZING, NODES_GO, CHEAPER_MIX))
            return
        self.then = self._let_go(NOT_NEEDED, cluster, "the planner moves all of their pods to other nodes")
        if any(each.changes for each in made):
            cluster = cluster.with_pods(simulation.rightsize(cluster.objects.pods, made, owner_of))
            self.pods_then = cluster.objects.pods
            self.requested = sum_requests(self.pods_then)
            freed = self.requested_today.minus(self.requested)
            money = nodes.worth(*freed)
            worth = "" if money is None else f", worth {self._nodes.shown(money)} a month at the nodes' prices"
            how = f"freed requests{worth}; this saves money only once nodes are deleted"
            self.rows.append(self.row(RIGHTSIZING, 0.0, freed, how))
            self.then = self._let_go(NODES_GO, cluster, "one iteration of the planner with the recommended requests")
        else:
            why = "no request should change by the known usage"
            self.rows += (self.skipped(stage, why) for stage in (RIGHTSIZING, NODES_GO))
        self.rows.append(self._mixed(cluster))

    @property
    def left(self) -> int:
        """The remaining nodes, including bought ones."""
        return len(self._capacity) - len(self.gone) + sum(self.added.values())

    @property
    def capacity(self) -> Resources:
        kept = (amount for name, amount in self._capacity.items() if name not in self.gone)
        return quantity.total([*kept, *map(allocatable, self._bought(self.added))])

    def row(self, stage: str, saved: float | None, amount: Resources, how: str) -> StageRow:
        """The stage that led to this state."""
        money = cents(saved) if self._nodes.machines else None
        return StageRow(stage, money, round(self.bill, 2), self.left, *amount, stage == LENDABLE, "", how)

    def skipped(self, stage: str, why: str) -> StageRow:
        return StageRow(stage, None, round(self.bill, 2), self.left, 0, 0, stage == LENDABLE, why, "")

    def _let_go(self, stage: str, cluster: SimulatedCluster, how: str) -> Removable:
        """Removes a plan's nodes; nodes of an earlier plan that this one keeps come back, and cost again."""
        removable = simulation.find_removable(cluster)
        gone = self._nodes.leaving(removable.nodes)
        bill = self._nodes.bill(gone)
        amount = self._sum(gone).minus(self._sum(self.gone))
        saved, more = self.bill - bill, len(gone) - len(self.gone)
        self.bill, self.gone = bill, gone
        verb = "is" if abs(more) == 1 else "are"
        goes = f"{verb} deleted" if more >= 0 else f"{verb} needed again"
        text = f"{rendering.count(abs(more), 'node')} {goes}: {how}"
        if not more and abs(saved) >= LEAST_SAVING:
            text = f"the same number of nodes is deleted, cheaper or more expensive ones: {how}"
        self.rows.append(self.row(stage, saved, amount, text))
        return removable

    def _mixed(self, cluster: SimulatedCluster) -> StageRow:
        """Buys all nodes with movable pods anew, each group's machine at its price, if that is cheaper."""
        nodes, templates = self._nodes, self._templates
        if not nodes.machines:
            return self.skipped(CHEAPER_MIX, "no node has a known price")
        if nodes.unpriced.keys() & {node.metadata.name for node in templates.values()}:
            return self.skipped(CHEAPER_MIX, "a group's machine has no known price")
        if len({_kind(node, nodes) for node in templates.values()}) < 2:
            return self.skipped(CHEAPER_MIX, "the cluster has only one kind of machine")
        replaceable = self.then.replaceable - nodes.unpriced.keys() - self.gone
        mix = self.mix = simulation.find_cheaper_mix(cluster, self.gone, replaceable)
        if mix.unplaced or mix.problem:
            why = mix.problem or f"{mix.unplaced} pods would not fit on new nodes of these groups"
            return self.skipped(CHEAPER_MIX, why)
        bought = self._bought(mix.added)
        gone = self.gone | mix.replaced
        bill = nodes.bill(gone, [nodes.machines[node.metadata.name] for node in bought])
        saved = self.bill - bill
        if saved < LEAST_SAVING:
            return self.row(CHEAPER_MIX, 0.0, NOTHING, "these nodes are the cheapest mix of their groups")
        self.bill, self.gone, self.added = bill, gone, mix.added
        amount = self._sum(mix.replaced).minus(quantity.total(list(map(allocatable, bought))))
        named = ", ".join(f"{number} of {group}" for group, number in sorted(mix.added.items()))
        how = f"{named or 'none'} in place of {len(mix.replaced)} nodes; every pod that may move is moved once"
        return self.row(CHEAPER_MIX, saved, amount, how)

    def _bought(self, added: Mapping[str, int]) -> list[Node]:
        """A node like each of these."""
        return list(chain.from_iterable(repeat(self._templates[group], count) for group, count in added.items()))

    def _sum(self, names: Iterable[str]) -> Resources:
        return quantity.total([self._capacity[name] for name in names])


def _kind(node: Node, nodes: PricedNodes) -> tuple[float, Resources]:
    """Machines of equal price and size are interchangeable."""
    machine, price = nodes.machines[node.metadata.name]
    return price, Resources(machine.capacity.get(CPU, 0), machine.capacity.get(MEMORY, 0))


def sum_requests(pods: Iterable[Pod]) -> Resources:
    """The requests of all pods on nodes; unreadable ones count as nothing. Equal pods of a dump share their sum."""
    cpu = memory = 0
    known: dict[tuple[int, ...], tuple[Pod, Resources]] = {}  # with the pod: ids are unique among living objects only
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
    """Whether a resize may have allocated other amounts than the requests."""
    reports = (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
    return any(each.resources is not None for each in reports)


def allocatable(node: Node) -> Resources:
    try:
        return node.allocatable
    except QuantityError:
        return NOTHING
