"""Pod disruption budgets, which the evictions that one pass foresees use up."""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from shared.api.selectors import LabelSelector

_Label = tuple[str, str]


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """`allowed` is the number of evictions allowed now. A budget without a selector covers no pod."""

    namespace: str
    name: str
    selector: LabelSelector | None
    allowed: int

    def covers(self, namespace: str, labels: Mapping[str, str]) -> bool:
        return self.namespace == namespace and self.selector is not None and self.selector.matches(labels)


class RemainingDisruptions:
    """The budgets and the disruptions that remain of each."""

    def __init__(self, budgets: Iterable[DisruptionBudget] = ()) -> None:
        self.budgets = tuple(sorted(budgets, key=lambda each: (each.namespace, each.name)))
        self._left = [budget.allowed for budget in self.budgets]
        self._by_label = _by_label(self.budgets)
        self._covering: dict[tuple[str, frozenset[_Label]], tuple[int, ...]] = {}

    def covering(self, namespace: str, labels: Mapping[str, str]) -> tuple[int, ...]:
        """The numbers of the budgets that cover such a pod."""
        by_label = self._by_label.get(namespace)
        if by_label is None:
            return ()
        alike = namespace, frozenset(labels.items())
        if alike not in self._covering:
            numbers = itertools.chain.from_iterable(by_label.get(label, ()) for label in (None, *labels.items()))
            self._covering[alike] = tuple(
                sorted(each for each in numbers if self.budgets[each].covers(namespace, labels))
            )
        return self._covering[alike]

    def exhausted(self, namespace: str, labels: Mapping[str, str]) -> DisruptionBudget | None:
        """The first budget that does not allow the eviction of one such pod."""
        for number in self.covering(namespace, labels):
            if self._left[number] < 1:
                return self.budgets[number]
        return None

    def short_for(self, numbers: Iterable[int]) -> DisruptionBudget | None:
        """The first budget that does not allow one eviction per mention in `numbers`."""
        wanted: dict[int, int] = {}
        for number in numbers:
            wanted[number] = wanted.get(number, 0) + 1
            if wanted[number] > self._left[number]:
                return self.budgets[number]
        return None

    def take(self, numbers: Iterable[int]) -> None:
        """Takes one eviction off a budget for each of its mentions in `numbers`."""
        for number in numbers:
            self._left[number] -= 1


def _by_label(budgets: Sequence[DisruptionBudget]) -> dict[str, dict[_Label | None, list[int]]]:
    """The numbers of the budgets, by namespace and by the label of their selector that the fewest other budgets want.

    Budgets that want no particular label are under None.
    """
    wanted = [_wanted(each) for each in budgets]
    counts = Counter((each.namespace, label) for each, labels in zip(budgets, wanted, strict=True) for label in labels)
    found: dict[str, dict[_Label | None, list[int]]] = {}
    for number, (budget, labels) in enumerate(zip(budgets, wanted, strict=True)):
        rarest = min(labels, key=lambda label: counts[budget.namespace, label], default=None)
        found.setdefault(budget.namespace, {}).setdefault(rarest, []).append(number)
    return found


def _wanted(budget: DisruptionBudget) -> tuple[_Label, ...]:
    return () if budget.selector is None else tuple((budget.selector.match_labels or {}).items())
