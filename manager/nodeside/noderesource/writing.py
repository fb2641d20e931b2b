"""When a Node's status is written, and the one conditional patch for all tiers.

There are two rules. Koordinator's (`upstream`) writes the decision when a quantity moved by more than a threshold, or
when the last write is too long ago. Our own (`damped`) adds what makes small steps safe and large ones rare:

* An offer beyond what there is, which is the decision plus the buffer or Batch's safety margin, is lowered at once. A
  hundredth of the offer may wait for the next write: no prediction is more precise, and a fleet that declines a little
  with each report must not delay the nodes that decline by much.
* What pods hold is shown at once and stays, whatever the decision (under either rule): see `Offer.shown`.
* Growth stops at the recent lows of the decision (see `damping`).
"""

import enum
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TypeAlias

import msgspec

from manager.nodeside.noderesource import holdings
from manager.nodeside.noderesource.damping import Damping
from manager.nodeside.noderesource.explain import Offer
from shared import names, quantity
from shared.api.colocation import ColocationStrategy
from shared.api.core import Node
from shared.names import Tier
from shared.quantity import QuantityError, Resources

Listed: TypeAlias = Mapping[str, str | int | float]

SAFETY_TOLERANCE = 0.01


class WriteRule(enum.StrEnum):
    """When a Node is written."""

    DAMPED = "damped"
    UPSTREAM = "upstream"


class WriteReason(enum.StrEnum):
    """Why a Node is written."""

    DIFFERENCE = "difference"  # a quantity moved by more than the threshold, came or went
    SAFETY = "safety"  # the Node offers more than there is
    AGE = "age"  # a small difference has lasted for longer than the update interval
    FIRST = "first"  # this process has not written the Node yet
    HELD = "held"  # pods hold more than is shown, and would not survive their kubelet's restart


class Waiting(enum.StrEnum):
    """Why a difference is not written."""

    THRESHOLD = "within_threshold"
    DAMPED = "damped"
    OUTAGE = "outage"


class OfferChange(msgspec.Struct, frozen=True):
    """One tier's offer on the Node before and after; None is none.

    `is_large` if it comes, goes, or moves by more than the threshold.
    """

    old: Resources | None
    new: Resources | None
    is_large: bool = True

    @property
    def shrinks(self) -> bool:
        """Whether a running pod could lose resources that it uses."""
        return self.old is not None and (self.new is None or min(self.new.minus(self.old)) < 0)


class Write(msgspec.Struct, frozen=True):
    """One patch of a Node's status, and the change of each tier; `say` makes the sentence of `why`."""

    patch: dict[str, object]
    reason: WriteReason
    say: Callable[[], str]
    changes: Mapping[Tier, OfferChange]

    @property
    def why(self) -> str:
        """The quantity that triggered the write."""
        return self.say()

    @property
    def shrinks(self) -> bool:
        return any(change.shrinks for change in self.changes.values())


class Wait(msgspec.Struct, frozen=True):
    """The decision differs from the Node, and is not written; until when, in monotonic seconds.

    `say` makes the sentence of `why`, lazily, since it is seldom read.
    """

    reason: Waiting
    say: Callable[[], str]
    until: float | None = None

    @property
    def why(self) -> str:
        """The difference, and why it is not enough."""
        return self.say()


class NodeWriteRule(msgspec.Struct, frozen=True):
    """The write rule for one node at one moment, in monotonic seconds."""

    kind: WriteRule
    threshold: float
    interval_seconds: float
    now: float
    last_write: float | None = None

    @classmethod
    def from_strategy(
        cls, strategy: ColocationStrategy, *, kind: WriteRule, now: float, last_write: float | None
    ) -> "NodeWriteRule":
        return cls(kind, strategy.resource_diff_threshold, strategy.update_time_threshold_seconds, now, last_write)

    @property
    def overdue(self) -> WriteReason | None:
        """The reason to write even a small difference, if any."""
        if self.last_write is None:
            return WriteReason.FIRST
        return WriteReason.AGE if self.now - self.last_write > self.interval_seconds else None


_NO_DAMPING: Mapping[Tier, Damping] = {}


def plan(
    node: Node,
    offers: Mapping[Tier, Offer],
    rule: NodeWriteRule,
    *,
    damping: Mapping[Tier, Damping] = _NO_DAMPING,
    obsolete: Collection[str] = (),
) -> Write | Wait | None:
    """The write that brings the offers to the Node, or the reason to wait; None if the Node is up to date.

    Only the given tiers change. `obsolete` annotations are removed by whatever write comes next: they are no reason to
    write before the interval is over, or another writer that puts them back would have the Node written each time.
    """
    allocatable = node.status.allocatable or {}
    if rule.kind is WriteRule.UPSTREAM:
        new = {name: value for tier, offer in offers.items() for name, value in listed(tier, offer.shown).items()}
        steps = [
            _upstream(name, allocatable, new, rule, offer.floor[position])
            for tier, offer in offers.items()
            for position, name in enumerate(names.TIER_RESOURCES[tier])
        ]
    else:
        steps = [step for tier, offer in offers.items() for step in _damped(tier, offer, allocatable, damping, rule)]
        new = {step.name: str(step.target) for step in steps if step.target is not None}
    cause = _cause(steps, rule)
    if cause is None:
        return _soonest(steps)
    removed = {key: None for key in obsolete if node.metadata.annotation(key) is not None}
    managed = [step.name for step in steps]
    status = {
        part: changes
        for part, before in (("capacity", node.status.capacity or {}), ("allocatable", allocatable))
        if (changes := changed(before, new, managed))
    }
    if not status and not removed:
        return _soonest(steps)
    metadata: dict[str, object] = {"resourceVersion": node.metadata.resource_version}
    if removed:
        metadata["annotations"] = removed
    patch: dict[str, object] = {"metadata": metadata}
    if status:
        patch["status"] = status
    large = {step.name for step in steps if step.reason is WriteReason.DIFFERENCE}
    changes_by_tier = {
        tier: OfferChange(
            holdings.on_offer(node, tier), _targets(tier, offer, new), not large.isdisjoint(names.TIER_RESOURCES[tier])
        )
        for tier, offer in offers.items()
    }
    return Write(patch, cause[0], cause[1], changes_by_tier)


def needed(old: Listed, new: Listed, resources: Iterable[str], rule: NodeWriteRule) -> WriteReason | None:
    """Koordinator's reason to write, whether or not that changes anything."""
    cause = _cause([_upstream(name, old, new, rule) for name in resources], rule)
    return None if cause is None else cause[0]


def differs(old: int | None, new: int | None, threshold: float) -> bool:
    """Whether a quantity, in thousandths, moved by more than `threshold` of its value; None is absent."""
    if old is None or new is None:
        return old is not new
    return abs(new - old) > old * threshold


def listed(tier: Tier, offer: Resources | None) -> dict[str, str]:
    """The offer in the form of Node status; without an offer the keys are absent."""
    return {} if offer is None else dict(zip(names.TIER_RESOURCES[tier], map(str, offer), strict=True))


def changed(before: Listed, after: Listed, resources: Iterable[str]) -> dict[str, str | int | float | None]:
    """The merge patch of one resource list: only values that differ, None for removed ones."""
    return {
        name: after.get(name)
        for name in resources
        if (name in before) != (name in after) or milli(before.get(name)) != milli(after.get(name))
    }


def milli(value: str | int | float | None) -> int | None:
    """The quantity in thousandths; None if it is invalid, so that it is overwritten."""
    try:
        return None if value is None else quantity.milli(value)
    except QuantityError:
        return None


class _Step(msgspec.Struct, frozen=True, gc=False):
    """One quantity on its way to `target`: why it is written now, or why it waits."""

    name: str
    old: int | None
    target: int | None
    reason: WriteReason | None = None
    wait: Wait | None = None


def _damped(
    tier: Tier, offer: Offer, allocatable: Listed, damping: Mapping[Tier, Damping], rule: NodeWriteRule
) -> Iterable[_Step]:
    known, shown = damping.get(tier), offer.shown
    for position, name in enumerate(names.TIER_RESOURCES[tier]):
        old = _whole(allocatable.get(name))
        if shown is None:
            yield _Step(name, old, None, WriteReason.DIFFERENCE if name in allocatable else None)
            continue
        new, floor = shown[position], offer.floor[position]
        if old is None:
            yield _Step(name, old, new, WriteReason.DIFFERENCE)
        elif new <= old:
            yield _fallen(name, old, new, new + offer.kept_back[position], rule)
        elif old < floor:
            target = floor if known is None else max(floor, min(new, known.ceiling_of(position)))
            yield _Step(name, old, target, WriteReason.HELD)
        else:
            yield _grown(name, old, new, known, position, rule)


def _fallen(name: str, old: int, new: int, there_is: int, rule: NodeWriteRule) -> _Step:
    if differs(old, new, rule.threshold):
        return _Step(name, old, new, WriteReason.DIFFERENCE)
    if old - there_is > old * SAFETY_TOLERANCE:
        return _Step(name, old, new, WriteReason.SAFETY)
    return _Step(name, old, new, wait=None if new == old else _wait_within(name, old, new, rule))


def _grown(name: str, old: int, new: int, damping: Damping | None, position: int, rule: NodeWriteRule) -> _Step:
    target = new if damping is None else max(old, min(new, damping.ceiling_of(position)))
    if differs(old, target, rule.threshold):
        return _Step(name, old, target, WriteReason.DIFFERENCE)
    if damping is None or target == new or not differs(old, new, rule.threshold):
        return _Step(name, old, target, wait=_wait_within(name, old, new, rule))
    ceiling, until = damping.ceiling_of(position), damping.lifted_at(rule.interval_seconds)
    return _Step(
        name,
        old,
        target,
        wait=Wait(
            Waiting.DAMPED,
            lambda: f"{name} {old} -> {new}: fell to {ceiling} lately, so growth has to last first",
            until,
        ),
    )


def _wait_within(name: str, old: int, new: int, rule: NodeWriteRule) -> Wait:
    until = None if rule.last_write is None else rule.last_write + rule.interval_seconds
    percent = 100 * rule.threshold
    return Wait(Waiting.THRESHOLD, lambda: f"{name} {old} -> {new}: within {percent:g} % of what is written", until)


def _upstream(name: str, before: Listed, after: Listed, rule: NodeWriteRule, floor: int = 0) -> _Step:
    old, new = milli(before.get(name)), milli(after.get(name))
    step = _Step(name, _whole(before.get(name)), _whole(after.get(name)))
    if step.old is not None and step.old < floor:
        return _Step(name, step.old, step.target, WriteReason.HELD)
    if differs(old, new, rule.threshold):
        return _Step(name, step.old, step.target, WriteReason.DIFFERENCE)
    if step.old is None or step.target is None or old == new:
        return step
    return _Step(name, step.old, step.target, wait=_wait_within(name, step.old, step.target, rule))


def _cause(steps: Iterable[_Step], rule: NodeWriteRule) -> tuple[WriteReason, Callable[[], str]] | None:
    """Why to write now."""
    for step in steps:
        if step.reason is not None:
            return step.reason, partial(_said, step, rule)
    if (overdue := rule.overdue) is WriteReason.FIRST:
        return overdue, lambda: "this manager has not written the Node yet"
    if overdue is None:
        return None
    return overdue, lambda: f"a difference, and no write for {rule.interval_seconds:g} s"


def _soonest(steps: Iterable[_Step]) -> Wait | None:
    known = [step.wait for step in steps if step.wait is not None]
    return min(known, key=lambda wait: math.inf if wait.until is None else wait.until, default=None)


def _said(step: _Step, rule: NodeWriteRule) -> str:
    moved = f"{step.name} {_or_absent(step.old)} -> {_or_absent(step.target)}"
    if step.reason is WriteReason.SAFETY:
        return f"{moved}: less than what is on offer"
    if step.reason is WriteReason.HELD:
        return f"{moved}: pods request more than is on offer"
    if step.old is None or step.target is None:
        return moved
    return f"{moved}: moved by more than {100 * rule.threshold:g} %"


def _or_absent(value: int | None) -> str:
    return "absent" if value is None else str(value)


def _targets(tier: Tier, offer: Offer, new: Mapping[str, str]) -> Resources | None:
    if offer.shown is None:
        return None
    cpu, memory = names.TIER_RESOURCES[tier]
    return Resources(int(new[cpu]), int(new[memory]))


def _whole(value: str | int | float | None) -> int | None:
    try:
        return None if value is None else quantity.whole(value)
    except QuantityError:
        return None
