"""The taints of the groups made for pods, from the pods' tolerations.

"Node Auto-provisioning" sets no taints, because a toleration is no requirement; yet two of its own test scenarios
expect tainted nodes for pods with tolerations. So it is an option.
"""

import enum
from collections.abc import Iterable

from manager.autoscaler.expander.option import GPU_RESOURCES
from manager.autoscaler.snapshot.pod_info import NodeDemands
from manager.autoscaler.snapshot.templates import TaintRules
from shared.api.core import Taint, Toleration

NO_SCHEDULE = "NoSchedule"
_SYSTEM_PREFIXES = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "node-role.kubernetes.io/")


class TolerationMode(enum.StrEnum):
    """`separate`: a toleration makes a tainted group if the pod also selects the label of the same key and value, that
    is, asks for dedicated nodes. `never`: none does. `always`: every toleration of a specific taint does.
    """

    SEPARATE = "separate"
    NEVER = "never"
    ALWAYS = "always"


def taints_for(demands: NodeDemands, mode: TolerationMode, rules: TaintRules | None = None) -> tuple[Taint, ...]:
    """The taints, in order, of the group made for such pods, which tolerate all of them.

    If they tolerate several values of one key and effect, it is the value that they also select, else the first: a node
    has only one.
    """
    if mode is TolerationMode.NEVER:
        return ()
    wanted = _wanted(demands)
    found: dict[tuple[str, str], set[str]] = {}
    for toleration in demands.tolerations:
        value = _value(toleration)
        if not _is_own(toleration) or value is None:
            continue
        if mode is TolerationMode.SEPARATE or (value == "" and toleration.operator == "Exists"):
            same = sorted(
                each for each in wanted.get(toleration.key, ()) if toleration.operator == "Exists" or each == value
            )
            if same:
                value = same[0]
            elif mode is TolerationMode.SEPARATE:
                continue
        effect = toleration.effect or NO_SCHEDULE
        if (rules or TaintRules()).belongs(Taint(toleration.key, value, effect)):
            found.setdefault((toleration.key, effect), set()).add(value)
    return tuple(
        Taint(key, min(values & wanted.get(key, set()) or values), effect)
        for (key, effect), values in sorted(found.items())
    )


def _value(toleration: Toleration) -> str | None:
    """The value of the tolerated taint; empty if any value does."""
    match toleration.operator or "Equal":
        case "Equal":
            return toleration.value
        case "Exists":
            return ""
        case _:
            return None


def _is_own(toleration: Toleration) -> bool:
    """Whether the toleration is for a group of nodes, and not for a node condition, a device, or any taint at all."""
    key = toleration.key
    return bool(key) and not key.startswith(_SYSTEM_PREFIXES) and key not in GPU_RESOURCES


def _wanted(demands: NodeDemands) -> dict[str, set[str]]:
    """The labels that selector and required affinity ask for, with their values."""
    found: dict[str, set[str]] = {}
    for key, value in demands.selector:
        found.setdefault(key, set()).add(value)
    for key, values in _asked_by_affinity(demands):
        found.setdefault(key, set()).update(values)
    return found


def _asked_by_affinity(demands: NodeDemands) -> Iterable[tuple[str, tuple[str, ...]]]:
    terms = demands.terms or ()
    for term in terms if len(terms) == 1 else ():  # with several terms, another one may hold instead
        for requirement in term.match_expressions or ():
            if requirement.operator == "In":
                yield requirement.key, requirement.values or ()
