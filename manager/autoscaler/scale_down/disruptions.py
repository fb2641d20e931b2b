"""Pod disruption budgets, used up within one pass by the evictions it foresees."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shared.api.selectors import LabelSelector


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """How many evictions of these pods are `allowed` now. Without a selector it is about no pod."""

    namespace: str
    name: str
    selector: LabelSelector | None
    allowed: int

    def covers(self, namespace: str, labels: Mapping[str, str]) -> bool:
        return self.namespace == namespace and self.selector is not None and self.selector.matches(labels)


class Disruptions:
    """The budgets and what is left of each."""

    def __init__(self, budgets: Iterable[DisruptionBudget] = ()) -> None:
        self.budgets = tuple(sorted(budgets, key=lambda each: (each.namespace, each.name)))
        self._left = [budget.allowed for budget in self.budgets]
        self._of_namespace: dict[str, list[int]] = {}
        for number, budget in enumerate(self.budgets):
            self._of_namespace.setdefault(budget.namespace, []).append(number)
        self._covering: dict[tuple[str, frozenset[tuple[str, str]]], tuple[int, ...]] = {}

    def covering(self, namespace: str, labels: Mapping[str, str]) -> tuple[int, ...]:
        """The budgets such a pod is under, by number."""
        numbers = self._of_namespace.get(namespace)
        if not numbers:
            return ()
        alike = namespace, frozenset(labels.items())
        if alike not in self._covering:
            self._covering[alike] = tuple(each for each in numbers if self.budgets[each].covers(namespace, labels))
        return self._covering[alike]

    def exhausted(self, namespace: str, labels: Mapping[str, str]) -> DisruptionBudget | None:
        """The first budget that does not allow one such pod to go."""
        for number in self.covering(namespace, labels):
            if self._left[number] < 1:
                return self.budgets[number]
        return None

    def short_for(self, numbers: Iterable[int]) -> DisruptionBudget | None:
        """The first budget that does not allow one eviction for each time that it is named here."""
        wanted: dict[int, int] = {}
        for number in numbers:
            wanted[number] = wanted.get(number, 0) + 1
            if wanted[number] > self._left[number]:
                return self.budgets[number]
        return None

    def take(self, numbers: Iterable[int]) -> None:
        """One eviction off a budget for each time that it is named."""
        for number in numbers:
            self._left[number] -= 1
