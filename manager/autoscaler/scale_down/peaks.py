"""Whether the nodes that stay hold what is predicted, and not only what is requested.

The predicted peak of a node goes with its pods, by what they request: all of it, the part of its system and its
DaemonSets too, which is on the safe side. What Mid pods request is on top of that peak, as it is lent out of what lies
above; where a node goes, its Mid goes, and its Mid pods count in full on the node that takes them.
"""

from collections.abc import Container, Iterable, Mapping, Sequence

from manager.autoscaler.scale_down.pods_on_nodes import PodOnNode
from shared import quantity
from shared.names import CPU, MEMORY, MID_CPU, MID_MEMORY
from shared.quantity import Amounts, Resources

NO_LOAD = Resources()

_Owner = tuple[str, str, str]  # a controller by namespace, kind and name


def mid_requests(requests: Amounts) -> Resources:
    """What a pod holds of Mid, in native units."""
    return Resources(requests.get(MID_CPU, 0), requests.get(MID_MEMORY, 0))


def peaks_with_new_pods(
    told: Mapping[str, Resources], on_node: Mapping[str, Sequence[PodOnNode]], untold: Container[str]
) -> dict[str, Resources]:
    """The peaks of nodes as they were `told`, with what those pods add that these do not tell of: `untold` ones, by
    their keys, and those that are only about to come. Each adds what it requests, as agents count a pod they know
    nothing of; or what others of its controller have of their nodes' peaks, where that is more.
    """
    known: dict[str, list[PodOnNode]] = {}
    new: dict[str, list[PodOnNode]] = {}
    for node in told:
        for each in on_node.get(node, ()):
            is_new = each.drain_info is None or each.key in untold
            (new if is_new else known).setdefault(node, []).append(each)
    most = _most_brought(told, known, {_owner(each) for found in new.values() for each in found} - {None})
    added = {
        node: [_native(each.facts.requests).most(most.get(_owner(each), NO_LOAD)) for each in found]
        for node, found in new.items()
    }
    return {node: quantity.total([peak, *added.get(node, ())]) for node, peak in told.items()}


def _most_brought(
    told: Mapping[str, Resources], known: Mapping[str, Sequence[PodOnNode]], wanted: Container[_Owner | None]
) -> dict[_Owner | None, Resources]:
    """The largest share of a peak that a pod of each wanted controller has."""
    found: dict[_Owner | None, Resources] = {}
    for node, pods in known.items() if wanted else ():
        movable = [each for each in pods if not each.facts.of_node]
        if any(_owner(each) in wanted for each in movable):
            for each, part in zip(movable, _parts(told[node], [one.facts.requests for one in movable]), strict=True):
                found[_owner(each)] = found.get(_owner(each), NO_LOAD).most(part)
    return found


def room(allocatable: Amounts, peak: Resources, placed: Iterable[Amounts], margin_percent: int) -> Resources:
    """What a node can take on: its allocatable without the margin (0 to 100), less its predicted peak and the
    Mid that the pods placed there hold. Negative where it has too much already."""
    usable = Resources(*(allocatable.get(name, 0) * (100 - margin_percent) // 100 for name in (CPU, MEMORY)))
    for requests in placed:
        usable = usable.minus(mid_requests(requests))
    return usable.minus(peak)


def shares(peak: Resources, moving: Sequence[Amounts]) -> list[Resources]:
    """What each pod that moves brings along: its share of the peak, rounded up, and the Mid it holds."""
    return [part.plus(mid_requests(requests)) for part, requests in zip(_parts(peak, moving), moving, strict=True)]


def _parts(peak: Resources, pods: Sequence[Amounts]) -> list[Resources]:
    native = [_native(requests) for requests in pods]
    cpu = _divided(peak.cpu_milli, [each.cpu_milli for each in native])
    memory = _divided(peak.memory_bytes, [each.memory_bytes for each in native])
    return [Resources(*part) for part in zip(cpu, memory, strict=True)]


def _native(requests: Amounts) -> Resources:
    return Resources(requests.get(CPU, 0), requests.get(MEMORY, 0))


def _owner(of: PodOnNode) -> _Owner | None:
    who = of.drain_info
    return None if who is None or who.controller is None else (who.namespace, who.controller.kind, who.controller.name)


def _divided(amount: int, weights: Sequence[int]) -> list[int]:
    """The amount by weight, in equal parts where nothing weighs anything; each part rounded up."""
    total = sum(weights)
    if total:
        return [-(-amount * weight // total) for weight in weights]
    return [-(-amount // len(weights)) for _ in weights]
