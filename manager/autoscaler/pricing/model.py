"""The interface of price models."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from shared.errors import HeadroomError
from shared.quantity import Amounts

GIB = 1 << 30
NVIDIA_GPU = "nvidia.com/gpu"
EPHEMERAL_STORAGE = "ephemeral-storage"


class Unpriced(HeadroomError):
    """The model has no price for this machine or pod."""


class NotOffered(Unpriced):
    """The model has no prices for machines, or for pods, at all."""


class GuessedPrice(Unpriced):
    """The model has no more than a guess: enough to rank options, too little to replace a node for."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The facts of a Node that decide its price."""

    capacity: Amounts
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


class PricingModel(Protocol):
    """Both prices are per hour. Raises Unpriced.

    A model of which some prices of machines are guesses also has `known_node_price`: as `node_price`, but it raises
    GuessedPrice for a guess.
    """

    def node_price(self, machine: Machine) -> float:
        """The price of one such machine."""
        ...

    def pod_price(self, requests: Amounts) -> float:
        """What these requests would cost on a machine that fits them perfectly."""
        ...


def known_node_price(model: PricingModel, machine: Machine) -> float:
    """The price of one such machine per hour, above 0. Raises Unpriced, for a guess and for a price of 0, too."""
    # To ask for the protocol of such a model would take 200 times as long, for each node of each iteration.
    ask: Callable[[Machine], float] = getattr(model, "known_node_price", model.node_price)
    price = ask(machine)
    if price <= 0:
        raise GuessedPrice(f"it has a price of {price:g}, and no machine is free")
    return price


@dataclass(frozen=True, slots=True)
class UnitPrices:
    """Prices per hour of a core, a GiB of memory, a GPU, and a GiB of local disk."""

    cpu: float
    memory_gib: float
    gpu: float
    disk_gib: float

    def price(self, amounts: Amounts) -> float:
        """The sum of the prices."""
        return (
            amounts.get("cpu", 0) / 1000 * self.cpu
            + amounts.get("memory", 0) / GIB * self.memory_gib
            + amounts.get(EPHEMERAL_STORAGE, 0) / GIB * self.disk_gib
            + amounts.get(NVIDIA_GPU, 0) * self.gpu
        )


# From "Cost-based node group ranking function for Cluster Autoscaler", whose tables ignore a pod's disk.
SEED_PRICES = UnitPrices(cpu=0.033174, memory_gib=0.004446, gpu=0.7, disk_gib=0.0)


class FirstOffered:
    """Several models: the first with prices for machines prices all machines, and the same for pods; see
    `PricingModel`. What it cannot price stays unpriced, because prices from two lists do not compare.
    """

    def __init__(self, models: Sequence[PricingModel]) -> None:
        self._models = models

    def node_price(self, machine: Machine) -> float:
        return self._first(lambda model: model.node_price(machine))

    def known_node_price(self, machine: Machine) -> float:
        return self._first(lambda model: known_node_price(model, machine))

    def pod_price(self, requests: Amounts) -> float:
        return self._first(lambda model: model.pod_price(requests))

    def _first(self, ask: Callable[[PricingModel], float]) -> float:
        problems = []
        for model in self._models:
            try:
                return ask(model)
            except NotOffered as problem:
                problems.append(str(problem))
        raise NotOffered("; ".join(problems))
