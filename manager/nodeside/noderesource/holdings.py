"""The amounts of each tier that count as held by the pods of a node, which are the floor of what its Node shows.

A kubelet admits pods by the amounts of its Node, and does so again for running pods when it restarts. Anyone who may
create pods may also bind them, with `spec.nodeName` and any amount. So a pod counts once its kubelet has admitted it.
Until then it counts only if it fits into what the Node showed when a scheduler could have bound it.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from manager.nodeside.noderesource.situation import NodeFacts
from manager.pods import NOTHING, PodRecord, held_of, sum_held
from shared import names, quantity
from shared.api.core import Node
from shared.names import Tier
from shared.quantity import QuantityError, Resources

NOTHING_LATELY: Mapping[Tier, Resources] = {}


class Holding(NamedTuple):
    """What pods hold of one tier: `floor` is the part of `held` that the Node has capacity for.

    `beyond` are bound pods that do not count: no kubelet has admitted them, and they do not fit.
    """

    held: Resources = NOTHING
    floor: Resources = NOTHING
    beyond: tuple[PodRecord, ...] = ()


def find(
    node: Node,
    pods: Collection[PodRecord],
    facts: NodeFacts | None,
    lately: Mapping[Tier, Resources] = NOTHING_LATELY,
) -> dict[Tier, Holding]:
    """The holding of each tier.

    `lately` are the amounts that the Node showed before a recent write: a scheduler may not have seen that write yet.
    Without `facts`, the node's capacity is unknown, and the floor is never above what the Node shows.
    """
    admitted = sum_held(pod for pod in pods if pod.admitted)
    waiting = [pod for pod in pods if pod.held_tier is not None and pod.active and not pod.admitted]
    waiting.sort(key=_first_come)
    found = {}
    for tier in Tier:
        if admitted[tier] == NOTHING and not waiting:
            found[tier] = _NONE
            continue
        shown = on_offer(node, tier) or NOTHING
        capacity = shown if facts is None else _capacity(facts, shown)
        held, beyond = _counted(admitted[tier], tier, waiting, shown.most(lately.get(tier, NOTHING)).least(capacity))
        found[tier] = Holding(held, held.least(capacity), beyond)
    return found


def on_offer(node: Node, tier: Tier) -> Resources | None:
    """The tier's present amounts in the Node's status; None if it lists neither resource."""
    allocatable = node.status.allocatable or {}
    cpu, memory = (allocatable.get(name) for name in names.TIER_RESOURCES[tier])
    if cpu is None and memory is None:
        return None
    try:
        return Resources(quantity.whole(cpu or 0), quantity.whole(memory or 0))
    except QuantityError:
        return None


_NONE = Holding()


def _first_come(pod: PodRecord) -> tuple[float, str]:
    return 0.0 if pod.dispensability is None else pod.dispensability.created_at, pod.key


def _counted(
    held: Resources, tier: Tier, waiting: Iterable[PodRecord], offered: Resources
) -> tuple[Resources, tuple[PodRecord, ...]]:
    """`held` with the waiting pods that fit, in order, and those that do not; the rule of a kubelet's admission."""
    beyond = []
    for pod in waiting:
        asked = held_of(pod, tier)
        with_pod = held.plus(asked)
        if all(total <= most or more == 0 for total, most, more in zip(with_pod, offered, asked, strict=True)):
            held = with_pod
        else:
            beyond.append(pod)
    return held, tuple(beyond)


def _capacity(facts: NodeFacts, shown: Resources) -> Resources:
    """The most that the Node may ever show of a tier; as `shown` where no capacity is listed."""
    cpu, memory = facts.capacity
    return Resources(cpu or shown.cpu_milli, memory or shown.memory_bytes)
