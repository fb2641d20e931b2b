"""Reads from a cloud besides the observation: with deadlines and checked answers, each cached."""

from collections.abc import Sequence

from manager.autoscaler.cloudprovider import checks
from manager.autoscaler.cloudprovider.contract import Gpus, GroupSpec, Provider, Theoretical
from manager.autoscaler.cloudprovider.deadline import Caller
from manager.autoscaler.cloudprovider.prices import GuardedPrices
from manager.autoscaler.pricing.model import PricingModel
from shared.api.core import Node


class CloudReader:
    """Reads from one provider for one thread. Every call raises ProviderError."""

    def __init__(self, provider: Provider, caller: Caller) -> None:
        self.name = provider.name
        self._provider = provider
        self._caller = caller
        self._templates: dict[str, Node] = {}
        self._gpus: Gpus | None = None
        self._prices: GuardedPrices | None = None

    def forget(self) -> None:
        """Templates and prices may have changed."""
        self._templates.clear()
        if self._prices is not None:
            self._prices.forget()

    def template(self, group: str) -> Node:
        """The next Node of the group; cached until `forget`."""
        found = self._templates.get(group)
        if found is None:
            found = self._caller.call("template", lambda: self._provider.template(group), group=group)
            checks.template(self.name, group, found)
            self._templates[group] = found
        return found

    def gpus(self) -> Gpus:
        if self._gpus is None:
            self._gpus = self._caller.call("gpus", self._provider.gpus)
        return self._gpus

    def pricing(self) -> PricingModel | None:
        """The cloud's own prices, cached until `forget`."""
        if self._prices is None:
            model = self._caller.call("pricing", self._provider.pricing)
            self._prices = None if model is None else GuardedPrices(model, self._caller)
        return self._prices

    def machine_types(self) -> Sequence[str]:
        return self._caller.call("machine types", self._provider.machine_types)

    def theoretical(self, spec: GroupSpec) -> Theoretical:
        """The group that `create_group` would make."""
        found = self._caller.call("theoretical group", lambda: self._provider.theoretical(spec))
        checks.template(self.name, found.id, found.template)
        return found
