"""Whether the nodes that stay can hold the predicted usage, and not only the requests.

A node's predicted peak moves with its pods, in proportion to their requests. The whole peak moves, system and
DaemonSets included, which errs on the safe side. The requests of Mid pods come on top of that peak, because Mid lends
the capacity above it. When a node goes, its Mid goes too, and its Mid pods count in full on the node that takes them.
"""

from collections.abc import Container, Iterable, Mapping, Sequence

from manager.autoscaler.scale_down.pods_on_nodes import PodOnNode
from shared import quantity
from shared.names import CPU, MEMORY, MID_CPU, MID_MEMORY
from shared.quantity import Amounts, Resources

NO_LOAD = Resources()

_Owner = tuple[str, str, str]  # a controller by namespace, kind and name


def mid_requests(requests: Amounts) -> Resources:
    """The Mid that a pod requests, in native units."""
    return Resources(requests.get(MID_CPU, 0), requests.get(MID_MEMORY, 0))


def peaks_with_new_pods(
    told: Mapping[str, Resources], on_node: Mapping[str, Sequence[PodOnNode]], untold: Container[str]
) -> dict[str, Resources]:
    """The nodes' peaks in `told`, plus those of pods that the reports do not cover: `untold` pods, by key, and pods
    about to come. Each adds its requests, as agents count a pod without history; or the share of its node's peak that
    another pod of its controller has, where that is more.
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
    """For each wanted controller, the largest share of a peak that one of its pods has."""
    found: dict[_Owner | None, Resources] = {}
    for node, pods in known.items() if wanted else ():
        movable = [each for each in pods if not each.facts.of_node]
        if any(_owner(each) in wanted for each in movable):
            for each, part in zip(movable, _parts(told[node], [one.facts.requests for one in movable]), strict=True):
                found[_owner(each)] = found.get(_owner(each), NO_LOAD).most(part)
    return found


def room(allocatable: Amounts, peak: Resources, placed: Iterable[Amounts], margin_percent: int) -> Resources:
    """What a node can still take: its allocatable without the margin (0 to 100 percent), less its predicted peak and
    the Mid of the pods placed there. Negative where the node is overcommitted.
    """
    usable = Resources(*(allocatable.get(name, 0) * (100 - margin_percent) // 100 for name in (CPU, MEMORY)))
    for requests in placed:
        usable = usable.minus(mid_requests(requests))
    return usable.minus(peak)


def shares(peak: Resources, moving: Sequence[Amounts]) -> list[Resources]:
    """The load of each pod that moves: its share of the peak, rounded up, plus its Mid."""
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
    """The amount split by weight, in equal parts where all weights are zero; each part rounded up."""
    total = sum(weights)
    if total:
        return [-(-amount * weight // total) for weight in weights]
    return [-(-amount // len(weights)) for _ in weights]
