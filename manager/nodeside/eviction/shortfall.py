"""Whether the pods of a tier hold more than their node has for them, and which of them would have to go.

A tier has the decided amount plus the buffer: the buffer prevents evictions for the usual change of a prediction. A
hundredth of the held amount may be missing, since no prediction is more precise. Terminating pods are already leaving,
and hold nothing. Pods that request more than was on offer, and that no kubelet has admitted, hold nothing either: they
must not have others evicted.
"""

import enum
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from manager.nodeside.noderesource.explain import Decision, Offer
from manager.nodeside.noderesource.report import ReportedUsage
from manager.nodeside.noderesource.writing import SAFETY_TOLERANCE
from manager.pods import NOTHING, Dispensability, PodRecord, held_of
from shared import explanation
from shared.names import Tier
from shared.quantity import Resources

_NONE_SHORT: Mapping[Tier, "Shortfall"] = {}
_NO_USAGE: Mapping[str, ReportedUsage] = {}
_MAX_NAMED = 10  # pods in a sentence


class Cause(enum.StrEnum):
    """Why there is less than the pods hold."""

    SHRUNK = "shrunk"  # the formula leaves less: the only cause for evictions
    DISABLED = "disabled"  # nothing is offered, by configuration; operators decide about running pods
    UNKNOWN = "unknown"  # too little is known about the node
    BEYOND = "beyond"  # nothing is missing, but a pod was bound that requests more than was on offer


@dataclass(frozen=True, slots=True)
class Shortfall:
    """The amounts that the pods of one tier hold of a node, and that there is for them (None: unknown).

    `missing` is the difference. `pods`, in eviction order, is the smallest set of pods whose eviction leaves nothing
    missing, or as little as possible. `beyond` are the requests of pods that do not count, by "namespace/name".
    """

    cause: Cause
    held: Resources
    there_is: Resources | None
    missing: Resources
    pods: tuple[PodRecord, ...] = ()
    beyond: Mapping[str, Resources] = field(default_factory=dict)

    @property
    def reason(self) -> str:
        """On one line, with the pods in eviction order."""
        said = [] if self.cause is Cause.BEYOND else [self._why_short]
        if self.beyond:
            named = [f"{pod} ({_amount(asked, only_positive=True)})" for pod, asked in self.beyond.items()]
            said.append(
                f"pods bound to the node request more than was on offer, and count for nothing until their kubelet "
                f"admits them: {explanation.first_names(named, _MAX_NAMED)}"
            )
        return "; ".join(said)

    @property
    def _why_short(self) -> str:
        if self.there_is is None:
            return f"pods request {_amount(self.held)}, and the offer is not known"
        missing = _amount(self.missing, only_positive=True)
        head = f"pods request {_amount(self.held)}, the node can offer {_amount(self.there_is)}: {missing} is missing"
        if not self.pods:
            return f"{head}; no pod may be evicted"
        named = explanation.first_names([f"{pod.key} (priority {pod.priority})" for pod in self.pods], _MAX_NAMED)
        return f"{head}; in eviction order: {named}"


def find(
    decision: Decision, pods: Iterable[PodRecord], *, spared: Container[str] = frozenset()
) -> Mapping[Tier, Shortfall]:
    """The shortfall of each tier that has one; none for a node without a decision.

    `spared` are UIDs of pods that may not be evicted now, so that others have to go.
    """
    holding = [pod for pod in pods if (known := pod.dispensability) and pod.active and not known.terminating]
    if not holding or decision.hold:
        return _NONE_SHORT
    found = {}
    for tier, offer in decision.offers.items():
        uncounted = {pod.key for pod in offer.beyond}
        beyond = {pod.key: held_of(pod, tier) for pod in holding if pod.key in uncounted}
        held_by = [pod for pod in holding if pod.held_tier is tier and pod.key not in beyond]
        shortfall = _find_one(offer, held_by, _usages(decision), spared) if held_by else None
        if beyond and shortfall is None:
            shortfall = Shortfall(Cause.BEYOND, _sum_held(held_by), _there_is(offer), NOTHING)
        if shortfall is not None:
            found[tier] = replace(shortfall, beyond=beyond) if beyond else shortfall
    return found


def in_order(pods: Iterable[PodRecord], usages: Mapping[str, ReportedUsage], short: Resources) -> list[PodRecord]:
    """The pods in eviction order.

    Koordinator's order: eviction priority, spec.priority and priority label, ascending; then those that use the most of
    what they hold, of the resources that are `short`. Among equals the youngest goes first, having least to lose.
    """

    def rank(pod: PodRecord) -> _Rank:
        known = pod.dispensability or _UNKNOWN
        usage = usages.get(pod.key)
        used = 0.0 if usage is None else _used(usage.usage, pod.held, short)
        return _Rank(known.priority, pod.priority, known.sub_priority, -used, -known.created_at, pod.key)

    return sorted(pods, key=rank)


def least(candidates: Sequence[PodRecord], missing: Resources) -> list[PodRecord]:
    """The `candidates`, which come in eviction order, whose eviction leaves nothing `missing`.

    Every pod whose eviction is not needed is spared, starting with the last candidate; so no remaining pod can be
    spared. If all of them are not enough, it returns those that hold some of the missing resource.
    """
    going = _sum_held(candidates)
    enough = missing.least(going)
    chosen = []
    for pod in reversed(candidates):
        without = going.minus(pod.held)
        if min(without.minus(enough)) >= 0:
            going = without
        else:
            chosen.append(pod)
    return chosen[::-1]


class _Rank(NamedTuple):
    eviction_priority: int
    priority: int
    sub_priority: int
    spare: float
    age: float
    key: str


_UNKNOWN = Dispensability(0, 0, 0.0, evictable=True, terminating=False)


def _find_one(
    offer: Offer, held_by: Collection[PodRecord], usages: Mapping[str, ReportedUsage], spared: Container[str]
) -> Shortfall | None:
    held, there_is = _sum_held(held_by), _there_is(offer)
    if there_is is None:
        return Shortfall(Cause.UNKNOWN, held, None, NOTHING)
    if held.cpu_milli <= there_is.cpu_milli and held.memory_bytes <= there_is.memory_bytes:
        return None  # as nearly always
    missing = Resources(*map(_beyond_tolerance, held.minus(there_is), held))
    if missing == NOTHING:
        return None
    cause = Cause.DISABLED if offer.resources is None else Cause.SHRUNK
    candidates = [pod for pod in held_by if pod.dispensability and pod.dispensability.evictable]
    ordered = in_order((pod for pod in candidates if pod.uid not in spared), usages, missing)
    return Shortfall(cause, held, there_is, missing, tuple(least(ordered, missing)))


def _there_is(offer: Offer) -> Resources | None:
    """The amount that the node has for the tier's pods; None if unknown."""
    if offer.resources is not None:
        return offer.resources.plus(offer.held_back)
    return None if offer.is_degraded else NOTHING


def _usages(decision: Decision) -> Mapping[str, ReportedUsage]:
    report = None if decision.observed is None else decision.observed.report
    return _NO_USAGE if report is None else report.pods


def _used(usage: Resources, held: Resources, short: Resources) -> float:
    """The largest share of its held amount that a pod uses, over the short resources."""
    shares = (used / of for used, of, missing in zip(usage, held, short, strict=True) if missing > 0 and of > 0)
    return max(shares, default=0.0)


def _sum_held(pods: Iterable[PodRecord]) -> Resources:
    cpu, memory = 0, 0
    for pod in pods:
        held = pod.held
        cpu, memory = cpu + held[0], memory + held[1]
    return Resources(cpu, memory)


def _beyond_tolerance(missing: int, held: int) -> int:
    return missing if missing > SAFETY_TOLERANCE * held else 0


def _amount(of: Resources, *, only_positive: bool = False) -> str:
    parts = (("cpu", of.cpu_milli, "milli"), ("memory", of.memory_bytes, "bytes"))
    shown = (f"{name} {explanation.amount(value, unit)}" for name, value, unit in parts if value or not only_positive)
    return " and ".join(shown)
