"""The prices of one decision, or of a salvo: each machine and each kind of pods is priced once."""

from manager.autoscaler.pricing.model import Machine, PricingModel
from shared.quantity import Amounts


class RememberedPrices:
    """Another model, asked once for each object; see `PricingModel`.

    Objects are compared by identity, and stay alive as long as this, which must not outlive the decisions of one
    observation. What has no price is asked for again.
    """

    def __init__(self, model: PricingModel) -> None:
        self._model = model
        self._nodes: dict[int, tuple[Machine, float]] = {}
        self._pods: dict[int, tuple[Amounts, float]] = {}

    @classmethod
    def around(cls, model: PricingModel) -> "RememberedPrices":
        """The model, if it remembers its prices already."""
        return model if isinstance(model, cls) else cls(model)

    def node_price(self, machine: Machine) -> float:
        known = self._nodes.get(id(machine))
        if known is None:
            known = self._nodes[id(machine)] = machine, self._model.node_price(machine)
        return known[1]

    def pod_price(self, requests: Amounts) -> float:
        known = self._pods.get(id(requests))
        if known is None:
            known = self._pods[id(requests)] = requests, self._model.pod_price(requests)
        return known[1]
