"""Whether a node accepts a pod by its labels, its name and its taints, by kube-scheduler's rules."""

import re
from collections.abc import Callable, Iterable, Mapping

from shared.api.core import NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration

FIELD_NAME = "metadata.name"
BLOCKING_EFFECTS = frozenset({"NoSchedule", "NoExecute"})
UNSCHEDULABLE_TAINT = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")

# Reasons for a refusal, in kube-scheduler's words.
UNSCHEDULABLE = "node(s) were unschedulable"
UNTOLERATED = "node(s) had untolerated taint(s)"
AFFINITY = "node(s) didn't match Pod's node affinity/selector"
TOO_MANY_PODS = "Too many pods"

_INTEGER = re.compile(r"[+-]?[0-9]{1,64}")
_COMPARISONS: dict[str, Callable[[int, int], bool]] = {"Gt": int.__gt__, "Lt": int.__lt__}


def all_tolerated(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> bool:
    """Whether these tolerations tolerate every taint."""
    return all(taint.effect not in BLOCKING_EFFECTS or tolerated(taint, tolerations) for taint in taints)


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def matches_any_term(terms: Iterable[NodeSelectorTerm], name: str, labels: Mapping[str, str]) -> bool:
    """Whether a node matches at least one of the terms of a node selector."""
    return any(_matches_term(term, name, labels) for term in terms)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    """An empty effect means all effects, an empty key with Exists all keys."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator or "Equal":
        case "Exists":
            return True
        case "Equal":
            return bool(toleration.key) and toleration.value == taint.value
        case _:
            return False


def _matches_term(term: NodeSelectorTerm, name: str, labels: Mapping[str, str]) -> bool:
    """A term is the conjunction of its requirements; one without any matches nothing."""
    of_labels, of_fields = term.match_expressions or (), term.match_fields or ()
    return (
        bool(of_labels or of_fields)
        and all(_matches(requirement, labels) for requirement in of_labels)
        and all(_matches(requirement, {FIELD_NAME: name}) for requirement in of_fields)
    )


def _matches(requirement: NodeSelectorRequirement, values: Mapping[str, str]) -> bool:
    value = values.get(requirement.key)
    wanted = requirement.values or ()
    match requirement.operator:
        case "In":
            return value is not None and value in wanted
        case "NotIn":
            return value is None or value not in wanted
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return len(wanted) == 1 and _compares(value, wanted[0], _COMPARISONS[requirement.operator])
        case _:
            return False


def _compares(value: str | None, bound: str, holds: Callable[[int, int], bool]) -> bool:
    """A value that is no 64-bit integer satisfies no comparison."""
    one, other = _integer(value or ""), _integer(bound)
    return one is not None and other is not None and holds(one, other)


def _integer(text: str) -> int | None:
    found = int(text) if _INTEGER.fullmatch(text) else None
    return found if found is not None and -(1 << 63) <= found < 1 << 63 else None
