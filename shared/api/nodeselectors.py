"""Which of several node selectors overlap, as far as the selectors alone show."""

import itertools
from collections.abc import Iterator, Mapping, Sequence

from shared.api.selectors import LabelSelector

_MOST_EXAMPLES = 64  # of the nodes that a selector matches


def selects_by_label(selector: LabelSelector | None) -> bool:
    """Whether the selector narrows: an empty one matches every node, and None matches no node."""
    return selector is not None and bool(selector.match_labels or selector.match_expressions)


def overlaps(selectors: Sequence[LabelSelector | None]) -> Iterator[tuple[int, int]]:
    """Pairs of selectors that match the same node, the earlier first; only of selectors that select by a label.

    Each is tested on minimal nodes that match the other.
    """
    known = [(at, each, _examples(each)) for at, each in enumerate(selectors) if each and selects_by_label(each)]
    for (first, earlier, earlier_nodes), (second, later, later_nodes) in itertools.combinations(known, 2):
        if any(map(later.matches, earlier_nodes)) or any(map(earlier.matches, later_nodes)):
            yield first, second


def _examples(selector: LabelSelector) -> list[Mapping[str, str]]:
    """Labels of minimal nodes that match the selector."""
    fixed = dict(selector.match_labels or {})
    choices: list[list[tuple[str, str]]] = []
    for requirement in selector.match_expressions or ():
        if requirement.operator == "In":
            choices.append([(requirement.key, value) for value in requirement.values or ()])
        elif requirement.operator == "Exists":
            fixed.setdefault(requirement.key, "")
    return [fixed | dict(chosen) for chosen in itertools.islice(itertools.product(*choices), _MOST_EXAMPLES)]
