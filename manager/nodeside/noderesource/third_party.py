"""Batch shared with allocators outside Kubernetes, such as Hadoop YARN.

They record their allocations on the Node (`thirdPartyAllocations`), and read the total there
(`originExtendedAllocatable`). Kubernetes gets the rest. The wire forms are Koordinator's.
"""

from collections.abc import Iterable
from functools import lru_cache

import msgspec

from manager.nodeside.noderesource import annotations
from shared import names, quantity
from shared.api.core import Node, Quantities
from shared.api.meta import Wire
from shared.names import PriorityClass, Tier
from shared.quantity import QuantityError, Resources

_CPU, _MEMORY = names.TIER_RESOURCES[Tier.BATCH]


class Allocation(Wire, frozen=True):
    """The allocations of one allocator, to pods of one priority class."""

    name: str = ""
    priority: str = ""
    resources: Quantities | None = None


class _Allocations(Wire, frozen=True):
    allocations: tuple[Allocation, ...] | None = None


class _Origin(Wire, frozen=True):
    resources: Quantities | None = None


_ALLOCATIONS = msgspec.json.Decoder(_Allocations)
_ORIGIN = msgspec.json.Decoder(_Origin)
_UNREADABLE = (ValueError, RecursionError)


def allocated(node: Node) -> Resources | None:
    """The Batch that other allocators have allocated on the node, None without any. Raises InvalidInput."""
    name = names.ANNOTATION_THIRD_PARTY_ALLOCATIONS
    found = annotations.read(node, name, _ALLOCATIONS)
    try:
        return None if found is None else total(found.allocations or ())
    except ValueError as error:  # a QuantityError, or more digits than Python reads
        raise annotations.refused(node, name, node.metadata.annotation(name), str(error)) from error


def total(allocations: Iterable[Allocation]) -> Resources:
    """The sum of the allocations of class batch. Raises QuantityError."""
    sums = Resources()
    for each in allocations:
        if each.priority == PriorityClass.BATCH:
            amount = _batch(each.resources or {})
            if min(amount) < 0:
                raise QuantityError(f"{each.name or 'an allocation'} has less than nothing")
            sums = sums.plus(amount)
    return sums


def remaining(batch: int, given_away: int) -> int:
    """The rest for Kubernetes."""
    return max(0, batch - given_away)


def origin(node: Node, batch: Resources | None) -> str:
    """The annotation with the amount before other allocators took theirs; 0 where Batch is not offered.

    Its other resources stay.
    """
    cpu, memory = batch or Resources()
    text = node.metadata.annotation(names.ANNOTATION_ORIGIN_EXTENDED_ALLOCATABLE)
    try:
        others = _published(text) if text else {}
    except _UNREADABLE:
        others = {}  # this manager owns it, so it is rewritten
    own = {_CPU: quantity.format_decimal(cpu), _MEMORY: quantity.format_bytes(memory)}
    return msgspec.json.encode({"resources": others | own}, order="sorted").decode()


def says_less(origin_was: str, origin_is: str, tolerance: float) -> bool:
    """Whether the new amount is lower than the published one by more than that share; true if unreadable."""
    try:
        was, now = (_batch(_published(each)) for each in (origin_was, origin_is))
    except _UNREADABLE:
        return True
    return any(before - after > before * tolerance for before, after in zip(was, now, strict=True))


@lru_cache(maxsize=1024)
def _published(text: str) -> Quantities:
    """The resources of such an annotation, which one decision reads twice. Raises one of `_UNREADABLE`."""
    return _ORIGIN.decode(text).resources or {}


def _batch(resources: Quantities) -> Resources:
    return Resources(quantity.whole(resources.get(_CPU, 0)), quantity.whole(resources.get(_MEMORY, 0)))
