"""The lower bound of Mid and Batch: the newest prediction's amount, where the Node's status may still show more.

The manager writes a Node less often than it decides, and a scheduler sees the write still later. The manager knows the
last decision, so it rejects pods that would not fit into that. It does not know pods that the scheduler has placed but
whose binding has not been observed: the scheduler itself counts those against the Node's status.
"""

from collections.abc import Mapping
from typing import NamedTuple

from manager.nodeside.noderesource.explain import Decision
from manager.pods import NOTHING, UNITS, PodRecord, sum_held
from shared import explanation
from shared.names import Tier
from shared.quantity import Resources


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
        return f"node(s) {self.tier.capitalize()} {self.resource} has shrunk below what the pod asks for"

    @property
    def detailed(self) -> str:
        """The text with the node's own amounts."""
        offered, held, asked = (explanation.amount(each, self.unit) for each in (self.offered, self.held, self.asked))
        return (
            f"{self.tier.capitalize()} {self.resource} has shrunk: offers {offered}, pods hold {held}, pod asks {asked}"
        )


def asked(pod: PodRecord) -> Mapping[Tier, Resources]:
    """The pod's requests by tier, for tiers with any."""
    return {tier: amount for tier, amount in sum_held([pod]).items() if amount != NOTHING}


def shortfall(
    asked: Mapping[Tier, Resources], held: Mapping[Tier, Resources], decision: Decision | None, now: float
) -> ResourceShortfall | None:
    """The amount that the pod lacks under the decision; None if nothing, or if unknown.

    For a tier that is not managed, or that has no decision, only the Node's status counts.
    """
    if decision is None or decision.hold:
        return None
    is_stale = decision.expires_at is not None and now > decision.expires_at
    for tier, amount in asked.items():
        offer = decision.offers.get(tier)
        if offer is None:
            continue
        offered = NOTHING if is_stale or offer.resources is None else offer.resources
        for index, (resource, unit) in enumerate(UNITS):
            if amount[index] > 0 and amount[index] + held[tier][index] > offered[index]:
                return ResourceShortfall(tier, resource, unit, offered[index], held[tier][index], amount[index])
    return None
