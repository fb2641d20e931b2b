"""The cloud for whoever is not the thread that makes rounds: what that has observed, and one question at a time.

Between two questions rounds go on, so that a question about the future does not keep the present waiting.
"""

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from manager.autoscaler.cloudprovider.contract import Gpus, GroupSpec, Theoretical
from manager.autoscaler.cloudprovider.guard import Guard, Observed
from manager.autoscaler.pricing.model import Machine, PricingModel
from shared.api.core import Node
from shared.quantity import Amounts

T = TypeVar("T")


class SharedCloud:
    """See `outlook.Cloud`. `lock` is held when the guard is asked."""

    def __init__(self, guard: Guard, lock: threading.Lock) -> None:
        """Raises ProviderError where nothing is observed."""
        self._guard = guard
        self._lock = lock
        with lock:
            self._observed = guard.observed

    @property
    def observed(self) -> Observed:
        return self._observed

    def template(self, group: str) -> Node:
        return self._asked(lambda: self._guard.template(group))

    def gpus(self) -> Gpus:
        return self._asked(self._guard.gpus)

    def pricing(self) -> PricingModel | None:
        model = self._asked(self._guard.pricing)
        return None if model is None else _SharedPrices(model, self._lock)

    def machine_types(self) -> Sequence[str]:
        return self._asked(self._guard.machine_types)

    def theoretical(self, spec: GroupSpec) -> Theoretical:
        return self._asked(lambda: self._guard.theoretical(spec))

    def _asked(self, ask: Callable[[], T]) -> T:
        with self._lock:
            return ask()


class _SharedPrices:
    def __init__(self, model: PricingModel, lock: threading.Lock) -> None:
        self._model = model
        self._lock = lock

    def node_price(self, machine: Machine) -> float:
        with self._lock:
            return self._model.node_price(machine)

    def pod_price(self, requests: Amounts) -> float:
        with self._lock:
            return self._model.pod_price(requests)
