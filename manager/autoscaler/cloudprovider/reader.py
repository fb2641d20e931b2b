"""Reads from a cloud besides the observation: with deadlines and checked answers, each cached."""

import math
from collections.abc import Callable, Mapping, Sequence

from manager.autoscaler.cloudprovider import checks
from manager.autoscaler.cloudprovider.contract import Gpus, GroupSpec, Provider, Theoretical
from manager.autoscaler.cloudprovider.deadline import Caller
from manager.autoscaler.cloudprovider.errors import Later, NoAnswer, ProviderError, Unsupported
from manager.autoscaler.pricing.model import Machine, NotOffered, PricingModel, Unpriced
from shared.api.core import Node
from shared.quantity import Amounts

_Key = tuple[frozenset[tuple[str, object]], ...]


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


class GuardedPrices:
    """A cloud's prices, asked for once until `forget`; see `PricingModel`. A failure leaves a machine or pod unpriced,
    and so does an implausible price.

    Until `forget`, prices of machines are either offered or not; the same applies to prices of pods.
    """

    def __init__(self, model: PricingModel, caller: Caller) -> None:
        self._model = model
        self._caller = caller
        self._known: dict[_Key, float] = {}
        self._unpriced: dict[_Key, str] = {}
        self._offered: set[str] = set()
        self._not_offered: dict[str, str] = {}
        self._silent = ""  # why no more calls are made: each would wait as long again

    def node_price(self, machine: Machine) -> float:
        key = (_key(machine.capacity), _key(machine.labels), _key(machine.annotations))
        return self._price("node price", key, lambda: self._model.node_price(machine))

    def pod_price(self, requests: Amounts) -> float:
        return self._price("pod price", (_key(requests),), lambda: self._model.pod_price(requests))

    def forget(self) -> None:
        """Prices may have changed."""
        self._known.clear()
        self._unpriced.clear()
        self._offered.clear()
        self._not_offered.clear()
        self._silent = ""

    def _price(self, what: str, key: _Key, ask: Callable[[], float]) -> float:
        if key in self._known:
            return self._known[key]
        if what in self._not_offered:
            raise NotOffered(self._not_offered[what])
        if why := self._unpriced.get(key) or self._silent:
            raise Unpriced(why)
        try:
            price = self._caller.call(what, ask)
        except ProviderError as error:
            why = str(error)
            if isinstance(error, Unsupported) and what not in self._offered:
                self._not_offered[what] = why
                raise NotOffered(why) from error
            self._unpriced[key] = why
            if isinstance(error, NoAnswer | Later):
                self._silent = why
            raise Unpriced(why) from error
        self._offered.add(what)
        if not math.isfinite(price) or price < 0:
            why = self._unpriced[key] = f"{what}: {price!r} is not a price"
            raise Unpriced(why)
        self._known[key] = price
        return price


def _key(values: Mapping[str, object]) -> frozenset[tuple[str, object]]:
    return frozenset(values.items())
