"""What became of NodeClaims between two looks: those that vanished before they were nodes, and those others removed.

Pure. Karpenter deletes a claim that it cannot launch within a second, so only the one who made it knows that it was
there.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from manager.autoscaler.cloudprovider.contract import ErrorClass, Instance, InstanceError, InstanceState
from manager.autoscaler.cloudprovider.karpenter import claims
from manager.autoscaler.cloudprovider.karpenter.catalogue import Offering
from manager.autoscaler.cloudprovider.karpenter.claims import SCHEME, NodeClaim

STOCK_OUT = "InsufficientCapacityError"
VANISHED = "Vanished"
ENDED_BEFORE_REGISTRATION = "EndedBeforeRegistration"


@dataclass(frozen=True)
class KnownClaim:
    """What is remembered of a claim that was made or seen."""

    name: str
    group: str
    offering: Offering
    node: str = ""
    launched: bool = False
    registered: bool = False
    leaving: bool = False


@dataclass(frozen=True)
class FailedClaim:
    """A claim that is gone, and never was a node. `at`: when that was seen, in Unix seconds."""

    name: str
    group: str
    offering: Offering
    error: InstanceError
    at: float

    @property
    def instance(self) -> Instance:
        """It counts towards the target until it is given up."""
        return Instance(SCHEME + self.name, InstanceState.CREATING, self.error)

    @property
    def is_stock_out(self) -> bool:
        return self.error.kind is ErrorClass.OUT_OF_RESOURCES


@dataclass(frozen=True)
class ForeignDeletion:
    """A node that goes, and not on our word."""

    name: str
    group: str
    node: str
    reason: str


def remember(claim: NodeClaim) -> KnownClaim:
    return KnownClaim(
        claim.metadata.name,
        claim.group,
        claim.offering,
        claim.status.node_name,
        claim.holds(claims.LAUNCHED),
        claim.holds(claims.REGISTERED),
        claim.is_leaving,
    )


def failures(
    known: Mapping[str, KnownClaim],
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
        if name in listed or name in ours or each.registered:
            continue
        said = events.get(name, ())
        stock_out = next((message for reason, message in said if reason == STOCK_OUT), None)
        if stock_out is not None:
            error = InstanceError(ErrorClass.OUT_OF_RESOURCES, STOCK_OUT, stock_out)
        elif said:
            error = InstanceError(ErrorClass.OTHER, *said[-1])
        elif each.launched:
            message = f"{each.offering} was launched, and deleted before a node had registered"
            error = InstanceError(ErrorClass.OTHER, ENDED_BEFORE_REGISTRATION, message)
        else:
            message = f"Karpenter deleted the NodeClaim for {each.offering} without a word"
            error = InstanceError(ErrorClass.OUT_OF_RESOURCES, VANISHED, message)
        found.append(FailedClaim(name, each.group, each.offering, error, now))
    return found


def foreign_deletions(
    known: Mapping[str, KnownClaim], listed: Mapping[str, NodeClaim], ours: Collection[str]
) -> list[ForeignDeletion]:
    """Nodes that others have begun to delete, or have deleted, since the last look: people, expiry, garbage
    collection, repair, or the cloud.
    """
    found = []
    for name, each in sorted(known.items()):
        claim = listed.get(name)
        was_node = each.registered or (claim is not None and claim.holds(claims.REGISTERED))
        if not was_node or each.leaving or name in ours or not (claim is None or claim.is_leaving):
            continue
        found.append(ForeignDeletion(name, each.group, each.node or _node_of(claim), _why(claim)))
    return found


def _node_of(claim: NodeClaim | None) -> str:
    return claim.status.node_name if claim is not None else ""


def _why(claim: NodeClaim | None) -> str:
    for kind in (claims.DISRUPTION_REASON, claims.DRIFTED) if claim is not None else ():
        condition = claim.condition(kind) if claim is not None else None
        if condition is not None and condition.status == "True":
            return f"{condition.reason} {condition.message}".strip()
    return ""
