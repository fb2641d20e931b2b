"""Whether the nodes that stay hold what is predicted, and not only what is requested.

The predicted peak of a node goes with its pods, by what they request: all of it, the part of its system and its
DaemonSets too, which is on the safe side. What Mid pods request is on top of that peak, as it is lent out of what lies
above; where a node goes, its Mid goes, and its Mid pods count in full on the node that takes them.
"""

from collections.abc import Iterable, Sequence

from shared.names import CPU, MEMORY, MID_CPU, MID_MEMORY
from shared.quantity import Amounts, Resources

NO_LOAD = Resources()


def of_mid(requests: Amounts) -> Resources:
    """What a pod holds of Mid, in native units."""
    return Resources(requests.get(MID_CPU, 0), requests.get(MID_MEMORY, 0))


def room(allocatable: Amounts, peak: Resources, placed: Iterable[Amounts], margin_percent: int) -> Resources:
    """What a node can take on: its allocatable without the margin (0 to 100), less its predicted peak and the
    Mid that the pods placed there hold. Negative where it has too much already."""
    usable = Resources(*(allocatable.get(name, 0) * (100 - margin_percent) // 100 for name in (CPU, MEMORY)))
    for requests in placed:
        usable = usable.minus(of_mid(requests))
    return usable.minus(peak)


def shares(peak: Resources, moving: Sequence[Amounts]) -> list[Resources]:
    """What each pod that moves brings along: its share of the peak, rounded up, and the Mid it holds."""
    native = [Resources(requests.get(CPU, 0), requests.get(MEMORY, 0)) for requests in moving]
    cpu = _divided(peak.cpu_milli, [each.cpu_milli for each in native])
    memory = _divided(peak.memory_bytes, [each.memory_bytes for each in native])
    return [
        Resources(*share).plus(of_mid(requests))
        for share, requests in zip(zip(cpu, memory, strict=True), moving, strict=True)
    ]


def _divided(amount: int, weights: Sequence[int]) -> list[int]:
    """The amount by weight, in equal parts where nothing weighs anything; each part rounded up."""
    total = sum(weights)
    if total:
        return [-(-amount * weight // total) for weight in weights]
    return [-(-amount // len(weights)) for _ in weights]
