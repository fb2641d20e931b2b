"""What a price model answers, and what it is asked about."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from shared.errors import HeadroomError
from shared.quantity import Amounts

GIB = 1 << 30
NVIDIA_GPU = "nvidia.com/gpu"
EPHEMERAL_STORAGE = "ephemeral-storage"


class Unpriced(HeadroomError):
    """The model knows no price of this machine or pod."""


class NotOffered(Unpriced):
    """The model has no prices of machines, or of pods, at all."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What of a Node decides its price."""

    capacity: Amounts
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


class PricingModel(Protocol):
    """Both prices are per hour. Raises Unpriced."""

    def node_price(self, machine: Machine) -> float:
        """What one such machine costs."""
        ...

    def pod_price(self, requests: Amounts) -> float:
        """What these requests would cost on a machine that fits them perfectly."""
        ...


@dataclass(frozen=True, slots=True)
class UnitPrices:
    """Prices per hour of a core, a GiB of memory, a GPU, and a GiB of local disk."""

    cpu: float
    memory_gib: float
    gpu: float
    disk_gib: float

    def price(self, amounts: Amounts) -> float:
        """The price of all of these together."""
        return (
            amounts.get("cpu", 0) / 1000 * self.cpu
            + amounts.get("memory", 0) / GIB * self.memory_gib
            + amounts.get(EPHEMERAL_STORAGE, 0) / GIB * self.disk_gib
            + amounts.get(NVIDIA_GPU, 0) * self.gpu
        )


# Those of "Cost-based node group ranking function for Cluster Autoscaler", whose tables do without a pod's disk.
SEED_PRICES = UnitPrices(cpu=0.033174, memory_gib=0.004446, gpu=0.7, disk_gib=0.0)


class FirstOffered:
    """Several models, of which the first that has prices of machines says all of them, and likewise of pods; see
    `PricingModel`. What it cannot price no other does, for prices out of two lists do not compare.
    """

    def __init__(self, models: Sequence[PricingModel]) -> None:
        self._models = models

    def node_price(self, machine: Machine) -> float:
        return self._first(lambda model: model.node_price(machine))

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
