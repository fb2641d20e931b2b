"""What became of NodeClaims between two looks: those that vanished before they were nodes, and those others removed.

Pure. Karpenter deletes a claim that it cannot launch within a second, so only the one who made it knows that it was
there.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from manager.autoscaler.cloudprovider.contract import (
    CloudNotice,
    ErrorClass,
    Instance,
    InstanceError,
    InstanceState,
    NoticeKind,
)
from manager.autoscaler.cloudprovider.karpenter import claims
from manager.autoscaler.cloudprovider.karpenter.claims import SCHEME, NodeClaim

STOCK_OUT = "InsufficientCapacityError"
VANISHED = "Vanished"
ENDED_BEFORE_REGISTRATION = "EndedBeforeRegistration"


@dataclass(frozen=True)
class FailedClaim:
    """A claim that is gone, and never was a node. `at`: when that was seen, in Unix seconds."""

    claim: NodeClaim
    error: InstanceError
    at: float

    @property
    def instance(self) -> Instance:
        """It counts towards the target until it is given up."""
        return Instance(SCHEME + self.claim.metadata.name, InstanceState.CREATING, self.error)

    @property
    def is_stock_out(self) -> bool:
        return self.error.kind is ErrorClass.OUT_OF_RESOURCES


@dataclass(frozen=True)
class DeletionByOthers:
    """A node that goes, and not on our word."""

    name: str
    group: str
    node: str
    reason: str

    @property
    def notice(self) -> CloudNotice:
        message = f"a node was deleted, but not by Headroom: NodeClaim {self.name}, node {self.node}. {self.reason}"
        return CloudNotice(NoticeKind.DELETED_BY_OTHERS, self.group, 1, message.rstrip())


def failures(
    known: Mapping[str, NodeClaim],
    listed: Mapping[str, NodeClaim],
    ours: Collection[str],
    events: Mapping[str, Sequence[tuple[str, str]]],
    now: float,
) -> list[FailedClaim]:
    """Claims that vanished without ever having been nodes, and that we did not delete (`ours`).

    `events` are reasons and messages of Warnings by claim. Without any, a claim that was never launched was out of
    stock: that is how Karpenter says it.
    """
    found = []
    for name, each in sorted(known.items()):
        if name in listed or name in ours or each.holds(claims.REGISTERED):
            continue
        said = events.get(name, ())
        stock_out = next((message for reason, message in said if reason == STOCK_OUT), None)
        if stock_out is not None:
            error = InstanceError(ErrorClass.OUT_OF_RESOURCES, STOCK_OUT, stock_out)
        elif said:
            error = InstanceError(ErrorClass.OTHER, *said[-1])
        elif each.holds(claims.LAUNCHED):
            message = f"{each.offering} was launched, and deleted before its node registered"
            error = InstanceError(ErrorClass.OTHER, ENDED_BEFORE_REGISTRATION, message)
        else:
            message = f"Karpenter deleted the NodeClaim for {each.offering} without a reason"
            error = InstanceError(ErrorClass.OUT_OF_RESOURCES, VANISHED, message)
        found.append(FailedClaim(each, error, now))
    return found


def deletions_by_others(
    known: Mapping[str, NodeClaim], listed: Mapping[str, NodeClaim], ours: Collection[str]
) -> list[DeletionByOthers]:
    """Nodes that others have begun to delete, or have deleted, since the last look: people, expiry, garbage
    collection, repair, or the cloud.
    """
    found = []
    for name, each in sorted(known.items()):
        now = listed.get(name)
        was_node = each.holds(claims.REGISTERED) or (now is not None and now.holds(claims.REGISTERED))
        if not was_node or each.is_leaving or name in ours or not (now is None or now.is_leaving):
            continue
        node = each.status.node_name or (now.status.node_name if now is not None else "")
        found.append(DeletionByOthers(name, each.group, node, "" if now is None else _why(now)))
    return found


def _why(claim: NodeClaim) -> str:
    for kind in (claims.DISRUPTION_REASON, claims.DRIFTED):
        condition = claim.condition(kind)
        if condition is not None and condition.status == "True":
            return f"{condition.reason} {condition.message}".strip()
    return ""
