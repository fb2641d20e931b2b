"""The lower bound of Mid and Batch: what the newest prediction leaves, where the Node's status may still say more.

A Node is written less often than it is decided about, and a scheduler sees it later still. The manager knows the offer
as it was last decided, so a pod that would not fit into that is kept off. What the scheduler has placed and nobody has
seen bound yet is not known here: it is held against the Node's status by the scheduler itself.
"""

from collections.abc import Mapping
from typing import NamedTuple

from manager.noderesource.explain import Decision
from shared import explanation, names
from shared.api import pods
from shared.api.core import Pod
from shared.names import Tier
from shared.quantity import Resources

NOTHING = Resources()

_RESOURCES = ((names.CPU, "milli"), (names.MEMORY, "bytes"))


class ResourceShortfall(NamedTuple):
    """One resource of a tier that does not suffice: what is on offer, held by the node's pods, and asked for.

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
        """The same for every node, so that a scheduler can count the nodes."""
        return f"node(s) {self.tier.capitalize()} {self.resource} has shrunk below what the pod asks for"

    @property
    def detailed(self) -> str:
        """With the node's own amounts."""
        offered, held, asked = (explanation.amount(each, self.unit) for each in (self.offered, self.held, self.asked))
        return (
            f"{self.tier.capitalize()} {self.resource} has shrunk: offers {offered}, pods hold {held}, pod asks {asked}"
        )


def asked(pod: Pod) -> Mapping[Tier, Resources]:
    """What the pod requests of each tier it requests anything of. Raises QuantityError."""
    requested = pods.requests(pod)
    amounts = {
        tier: Resources(requested.get(cpu, 0), requested.get(memory, 0))
        for tier, (cpu, memory) in names.TIER_RESOURCES.items()
    }
    return {tier: amount for tier, amount in amounts.items() if amount != NOTHING}


def shortfall(
    asked: Mapping[Tier, Resources], held: Mapping[Tier, Resources], decision: Decision | None, now: float
) -> ResourceShortfall | None:
    """What is missing for the pod by the decision as it stands; None when nothing is, or nobody can tell.

    Of a tier that is not managed, or that nothing was decided about, only the Node's status tells.
    """
    if decision is None or decision.hold:
        return None
    is_stale = decision.expires_at is not None and now > decision.expires_at
    for tier, amount in asked.items():
        offer = decision.offers.get(tier)
        if offer is None:
            continue
        offered = NOTHING if is_stale or offer.resources is None else offer.resources
        for index, (resource, unit) in enumerate(_RESOURCES):
            if amount[index] > 0 and amount[index] + held[tier][index] > offered[index]:
                return ResourceShortfall(tier, resource, unit, offered[index], held[tier][index], amount[index])
    return None
