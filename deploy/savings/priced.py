"""The cost of a cluster's nodes, and of a core and a GiB on them. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from deploy import rendering
from deploy.prices import book as prices
from deploy.prices.book import PriceBook
from deploy.rendering import HOURS_PER_MONTH
from manager.autoscaler.pricing.list_prices import UNITS
from manager.autoscaler.pricing.model import GIB, Machine
from shared.api import pods as api_pods
from shared.api.core import Node
from shared.names import CPU, MEMORY
from shared.quantity import MILLI_PER_CORE, QuantityError

_TYPE = "node.kubernetes.io/instance-type"


@dataclass(frozen=True)
class OwnUnits:
    """The hourly cost of a core and a GiB on this cluster's nodes, such that all of them together cost what the nodes
    do.
    """

    core: float
    gib: float

    def month(self, cpu_milli: float, memory_bytes: float) -> float:
        return (cpu_milli / MILLI_PER_CORE * self.core + memory_bytes / GIB * self.gib) * HOURS_PER_MONTH


@dataclass(frozen=True)
class PricedNodes:
    """Machines by node, with their prices per hour. Nodes without a price count apart, and stay in every state of the
    cluster that has a bill. If no node has a price, there are no `units`, and states show only nodes and resources. The
    `estimated` nodes have a price by their size.
    """

    book: PriceBook
    machines: Mapping[str, tuple[Machine, float]]
    unpriced: Mapping[str, Machine]
    units: OwnUnits | None
    estimated: frozenset[str] = frozenset()

    @classmethod
    def of(cls, nodes: Iterable[Node], book: PriceBook) -> "PricedNodes":
        """The price of each node is divided between cores and memory in proportion to what both cost elsewhere."""
        machines: dict[str, tuple[Machine, float]] = {}
        unpriced: dict[str, Machine] = {}
        estimated: set[str] = set()
        total = weight = 0.0
        for node in nodes:
            name, labels = node.metadata.name, node.metadata.labels or {}
            try:
                capacity = api_pods.amounts(node.status.capacity or node.status.allocatable or {})
            except QuantityError:
                unpriced[name] = Machine({}, labels)
                continue
            machine = Machine(capacity, labels, node.metadata.annotations or {})
            price = prices.price(book, machine)
            if price is None:
                unpriced[name] = machine
                continue
            machines[name] = machine, price
            if book.is_estimate(machine):
                estimated.add(name)
            total += price
            weight += (
                capacity.get(CPU, 0) / MILLI_PER_CORE * UNITS.cpu + capacity.get(MEMORY, 0) / GIB * UNITS.memory_gib
            )
        units = OwnUnits(UNITS.cpu * total / weight, UNITS.memory_gib * total / weight) if weight else None
        return cls(book, machines, unpriced, units, frozenset(estimated))

    @property
    def source(self) -> str:
        """The source of these nodes' prices."""
        return self.book.source(machine for machine, _ in self.machines.values())

    @property
    def unpriced_types(self) -> list[str]:
        return sorted({machine.labels.get(_TYPE) or "(none)" for machine in self.unpriced.values()})

    @property
    def estimated_types(self) -> list[str]:
        return sorted({self.machines[name][0].labels.get(_TYPE) or "(none)" for name in self.estimated})

    @property
    def remedy(self) -> str:
        """How to give the machines with estimated prices a known one; empty without any."""
        machines = [self.machines[name][0] for name in self.estimated]
        return prices.remedy(machines, self.estimated_types) if machines else ""

    def shown(self, money: float) -> str:
        """A sum over all nodes."""
        return rendering.approximate(f"{money:,.2f}", estimated=bool(self.estimated))

    def rests_on_estimate(self, names: Iterable[str]) -> bool:
        return not self.estimated.isdisjoint(names)

    def note_unpriced(self, consequence: str) -> list[str]:
        """A sentence about nodes without a price, if any, and how to give them one."""
        if not self.unpriced:
            return []
        kinds, how = ", ".join(self.unpriced_types[:3]), prices.how_to_price(self.unpriced.values())
        return [f"{len(self.unpriced)} nodes have no known price (machine type {kinds}){consequence}; {how}"]

    def leaving(self, names: Iterable[str]) -> frozenset[str]:
        """The `names` without unpriced nodes, which stay; all of them if no node has a price."""
        return frozenset(names) - self.unpriced.keys() if self.machines else frozenset(names)

    def bill(self, without: Iterable[str] = (), also: Sequence[tuple[Machine, float]] = ()) -> float:
        """The bill of a month, commitments included."""
        gone = set(without)
        left = [each for name, each in self.machines.items() if name not in gone]
        return self.book.bill([*left, *also]) * HOURS_PER_MONTH

    def cost(self, names: Iterable[str]) -> float | None:
        """The cost of a month by list prices; None if none of these nodes has a price."""
        priced = [self.machines[name][1] for name in names if name in self.machines]
        return sum(priced) * HOURS_PER_MONTH if priced else None

    def worth(self, cpu_milli: float, memory_bytes: float) -> float | None:
        """The monthly value of these amounts; None without any price."""
        return None if self.units is None else self.units.month(cpu_milli, memory_bytes)


def cents(amount: float | None) -> float | None:
    """Money as answers show it."""
    return None if amount is None else round(amount, 2)
