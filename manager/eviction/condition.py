"""How a Node says that pods of a tier hold more than it has for them: a condition of its own for each tier.

A Node's conditions are a list that kubelets write too, so a patch of them has to be a strategic one, which merges by
type. What was said last can be read from the Node, so each change is said once, whoever leads.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from manager.eviction.shortfall import Cause, Shortfall
from shared import durations, names
from shared.api.core import Condition, Node
from shared.kube.events import NORMAL, WARNING
from shared.names import Tier

TYPES = {Tier.MID: names.CONDITION_MID_SHORTFALL, Tier.BATCH: names.CONDITION_BATCH_SHORTFALL}
TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"

_REASONS = {
    Cause.SHRUNK: "OfferShrunk",
    Cause.DISABLED: "ColocationDisabled",
    Cause.UNKNOWN: "NodeMetricAbnormal",
}
_SUFFICES = "OfferSuffices"
_EVENTS = {TRUE: "Short", UNKNOWN: "Unknown", FALSE: "Suffices"}


@dataclass(frozen=True, slots=True)
class Said:
    """What the Node says of one tier, apart from when."""

    status: str
    reason: str
    message: str = ""

    @property
    def event_type(self) -> Literal["Normal", "Warning"]:
        return NORMAL if self.status == FALSE else WARNING

    def event_reason(self, tier: Tier) -> str:
        """One CamelCase word: MidResourceShort and the like."""
        return f"{tier.capitalize()}Resource{_EVENTS[self.status]}"


@dataclass(frozen=True, slots=True)
class Notice:
    """What is due to be said on a Node; of the tiers that `turned` it is news, so that an Event says it too."""

    node: Node
    said: Mapping[Tier, Said]
    turned: frozenset[Tier]

    def patch(self, now: float) -> dict[str, object]:
        """The strategic patch of the Node's status that says it at `now`, in Unix seconds."""
        moment = durations.timestamp(now)
        conditions = [_entry(TYPES[tier], each, on(self.node, tier), moment) for tier, each in self.said.items()]
        metadata = {"resourceVersion": self.node.metadata.resource_version}
        return {"metadata": metadata, "status": {"conditions": conditions}}


SUFFICES = Said(FALSE, _SUFFICES, "what pods hold is there")


def of(shortfall: Shortfall, *, patience_seconds: int | None) -> Said:
    """What is said of a shortfall; after `patience_seconds` of it pods are evicted, None is never."""
    becomes = "none is evicted" if patience_seconds is None else f"eviction begins after {patience_seconds} s"
    status = UNKNOWN if shortfall.cause is Cause.UNKNOWN else TRUE
    return Said(status, _REASONS[shortfall.cause], f"{shortfall.reason}; {becomes}")


def on(node: Node, tier: Tier) -> Condition | None:
    """The condition as the Node has it."""
    found = (each for each in node.status.conditions or () if each.type == TYPES[tier])
    return next(found, None)


def _entry(type_: str, said: Said, before: Condition | None, now: str) -> dict[str, str]:
    turned = now
    if before is not None and before.status == said.status and before.last_transition_time:
        turned = before.last_transition_time
    return {
        "type": type_,
        "status": said.status,
        "reason": said.reason,
        "message": said.message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": turned,
    }
