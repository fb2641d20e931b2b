"""The lower bound of Mid and Batch: the newest prediction's amount, where the Node's status may still show more.

The manager writes a Node less often than it decides, and a scheduler sees the write still later. The manager knows the
last decision, so it rejects pods that would not fit into that.

Of pods whose binding has not been observed yet (`assumed`) the manager does not know the node, but the scheduler does:
it counts them against the Node's status, and names a node only if the pod fits there besides. So the pods that may be
on the node are those that the status has room for.
"""

import sys
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from manager.nodeside.noderesource.explain import Decision
from manager.nodeside.noderesource.holdings import Holding
from manager.pods import NOTHING, UNITS, PodRecord, held_of, sum_held
from shared import explanation
from shared.names import Tier
from shared.quantity import Resources

MOST_SUMS = 64  # of pods with different requests; beyond it, they may hold as much as the status has room for
NOTHING_SHOWN: Mapping[Tier, Resources] = {}


class ResourceShortfall(NamedTuple):
    """One resource of a tier that does not suffice: the amounts offered, held by the node's pods, and requested.

    cpu in milli-cores, memory in bytes.
    """

    tier: Tier
    resource: str
    unit: str
    offered: int
    held: int
    asked: int

    @property
    def brief(self) -> str:
        """The same text for every node, so that a scheduler can count the nodes."""
        return f"node(s) {self.tier.capitalize()} {self.resource} is now less than the pod requests"

    @property
    def detailed(self) -> str:
        """The text with the node's own amounts."""
        offered, held, asked = (explanation.amount(each, self.unit) for each in (self.offered, self.held, self.asked))
        amounts = f"offers {offered}, pods request {held}, this pod requests {asked}"
        return f"{self.tier.capitalize()} {self.resource} has shrunk: {amounts}"


def asked(pod: PodRecord) -> Mapping[Tier, Resources]:
    """The pod's requests by tier, for tiers with any."""
    return {tier: amount for tier, amount in sum_held([pod]).items() if amount != NOTHING}


def shortfall(
    asked: Mapping[Tier, Resources],
    held: Mapping[Tier, Holding],
    decision: Decision | None,
    now: float,
    *,
    shown: Mapping[Tier, Resources] = NOTHING_SHOWN,
    assumed: Collection[PodRecord] = (),
) -> ResourceShortfall | None:
    """The amount that the pod lacks under the decision; None if nothing, or if unknown.

    For a tier that is not managed, or that has no decision, only the Node's status counts. `assumed` pods may be bound
    to the node besides those that hold, as far as the status, which is `shown`, has room for them and the pod.
    """
    if decision is None or decision.hold:
        return None
    is_stale = decision.expires_at is not None and now > decision.expires_at
    for tier, amount in asked.items():
        offer = decision.offers.get(tier)
        if offer is None:
            continue
        offered = NOTHING if is_stale or offer.lent is None else offer.lent
        possible = [held[tier].held]
        status = shown.get(tier, NOTHING)
        if assumed and status.least(offered) != status:
            others = [held_of(each, tier) for each in assumed]
            possible = _possible(possible[0], others, _most_beside(amount, status))
        for there in possible:
            for index, (resource, unit) in enumerate(UNITS):
                if amount[index] > 0 and amount[index] + there[index] > offered[index]:
                    return ResourceShortfall(tier, resource, unit, offered[index], there[index], amount[index])
    return None


def _most_beside(amount: Resources, status: Resources) -> Resources:
    """The most that pods may hold on a node for which a scheduler has asked; no limit where nothing is requested."""
    return Resources(*(most - more if more > 0 else sys.maxsize for most, more in zip(status, amount, strict=True)))


def _possible(held: Resources, others: Iterable[Resources], most: Resources) -> list[Resources]:
    """What the node's pods hold with any of the others, up to `most`; the least first."""
    found = {held}
    for other in others:
        found |= {more for each in found if (more := each.plus(other)).least(most) == more}
        if len(found) > MOST_SUMS:
            return [held, held.most(most)]
    return sorted(found)
