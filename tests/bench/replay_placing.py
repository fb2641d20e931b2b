"""Where pods go and what follows from it: a scheduler in miniature, and the load of nodes. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shared import quantity
from shared.api.core import Node
from shared.quantity import Resources

_KEEPS_PODS_AWAY = ("NoSchedule", "NoExecute")


@dataclass(frozen=True)
class Placed:
    """A pod and where it is: on no node while it waits for one."""

    name: str
    owner: str
    request: Resources
    node: str = ""


def open_nodes(nodes: Iterable[Node]) -> dict[str, Resources]:
    """What those have that take pods which tolerate nothing."""
    return {
        node.metadata.name: Resources.parse(node.status.allocatable or {})
        for node in nodes
        if not node.spec.unschedulable
        and all(taint.effect not in _KEEPS_PODS_AWAY for taint in node.spec.taints or ())
        and any(each.type == "Ready" and each.status == "True" for each in node.status.conditions or ())
    }


def place(pods: Iterable[Placed], nodes: Mapping[str, Resources]) -> list[tuple[str, str]]:
    """Each pod that waits and finds room, in its turn, with its node.

    As kube-scheduler has it by default that is the one of which the least is taken, and owners' pods are spread: those
    of the same owner count twice. Of equal nodes it is the first.
    """
    left = dict(nodes)
    siblings: Counter[tuple[str, str]] = Counter()
    waiting = []
    for pod in pods:
        if not pod.node:
            waiting.append(pod)
        elif pod.node in left:
            left[pod.node] = left[pod.node].minus(pod.request)
            siblings[pod.owner, pod.node] += 1
    found = []
    for pod in waiting:
        fitting = [name for name, free in left.items() if pod.request.least(free) == pod.request]
        if not fitting:
            continue
        free = {name: left[name].cpu_milli - siblings[pod.owner, name] * pod.request.cpu_milli for name in fitting}
        chosen = max(fitting, key=lambda name: free[name] / nodes[name].cpu_milli)
        left[chosen] = left[chosen].minus(pod.request)
        siblings[pod.owner, chosen] += 1
        found.append((pod.name, chosen))
    return found


def sums(amounts: Iterable[tuple[str, Resources]]) -> dict[str, Resources]:
    """By node, of what pods there have."""
    by_node: dict[str, list[Resources]] = {}
    for node, amount in amounts:
        by_node.setdefault(node, []).append(amount)
    return {node: quantity.total(each) for node, each in by_node.items()}
