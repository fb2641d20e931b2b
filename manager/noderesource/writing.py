"""When a Node's status is rewritten, and the one conditional patch that does it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from shared import names, quantity
from shared.api.colocation import ColocationStrategy
from shared.api.core import Node
from shared.quantity import QuantityError, Resources

Listed: TypeAlias = Mapping[str, str | int | float]

MID_RESOURCES = (names.MID_CPU, names.MID_MEMORY)


@dataclass(frozen=True)
class Write:
    """`reason` is "difference", "age" or "first"; `shrinks` when a running pod could lose what it counts on."""

    patch: dict[str, object]
    reason: str
    shrinks: bool
    old: Resources | None
    new: Resources | None


def differs(old: int | None, new: int | None, threshold: float) -> bool:
    """Whether a quantity, in thousandths, moved by more than `threshold` of what it was; None is absent."""
    if old is None or new is None:
        return old is not new
    return abs(new - old) > old * threshold


def needed(
    old: Listed,
    new: Listed,
    *,
    resources: Iterable[str],
    strategy: ColocationStrategy,
    since_last_seconds: float | None,
) -> str | None:
    """Why the status should be written: one resource moved, or this process wrote it too long ago or never."""
    threshold = strategy.resource_diff_threshold
    if any(differs(_milli(old.get(name)), _milli(new.get(name)), threshold) for name in resources):
        return "difference"
    if since_last_seconds is None:
        return "first"
    return "age" if since_last_seconds > strategy.update_time_threshold_seconds else None


def plan(
    node: Node, offer: Resources | None, *, strategy: ColocationStrategy, since_last_seconds: float | None
) -> Write | None:
    """The write that brings `offer` to the Node; None while the rule says no, or when it would change nothing."""
    old, new = node.status.allocatable or {}, listed(offer)
    reason = needed(old, new, resources=MID_RESOURCES, strategy=strategy, since_last_seconds=since_last_seconds)
    status = {
        part: changes
        for part, before in (("capacity", node.status.capacity or {}), ("allocatable", old))
        if (changes := changed(before, new, MID_RESOURCES))
    }
    if not status or reason is None:
        return None
    before = on_offer(node)
    shrinks = before is not None and (offer is None or min(offer.minus(before)) < 0)
    patch: dict[str, object] = {"metadata": {"resourceVersion": node.metadata.resource_version}, "status": status}
    return Write(patch, reason, shrinks, before, offer)


def listed(offer: Resources | None) -> dict[str, str]:
    """The offer as Node status has it; without an offer the keys are absent."""
    if offer is None:
        return {}
    return {names.MID_CPU: str(offer.cpu_milli), names.MID_MEMORY: str(offer.memory_bytes)}


def changed(before: Listed, after: Listed, resources: Iterable[str]) -> dict[str, str | int | float | None]:
    """The merge patch of one resource list: only what differs in value, None for what goes."""
    return {
        name: after.get(name)
        for name in resources
        if (name in before) != (name in after) or _milli(before.get(name)) != _milli(after.get(name))
    }


def on_offer(node: Node) -> Resources | None:
    """What the Node's status now gives to Mid; None when it names neither resource."""
    allocatable = node.status.allocatable or {}
    cpu, memory = (allocatable.get(name) for name in MID_RESOURCES)
    if cpu is None and memory is None:
        return None
    try:
        return Resources(quantity.whole(cpu or 0), quantity.whole(memory or 0))
    except QuantityError:
        return None


def _milli(value: str | int | float | None) -> int | None:
    """None also for what is no quantity, so that it is overwritten."""
    try:
        return None if value is None else quantity.milli(value)
    except QuantityError:
        return None
