"""Claims that are asked for and not created yet. Pure.

A claim that Karpenter cannot launch keeps all of Karpenter waiting, so an offering that has never launched, be it for a
typo in the catalogue, is tried with one claim, and the others follow once that one has a machine. They are kept in
memory alone: after a restart the target lacks them, their pods ask for nodes again, and a replacement that lacks them
is given up.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from manager.autoscaler.cloudprovider.contract import CloudNotice, ErrorClass, InstanceError, NoticeKind
from manager.autoscaler.cloudprovider.karpenter import claims
from manager.autoscaler.cloudprovider.karpenter.catalogue import Catalogue, Offering
from manager.autoscaler.cloudprovider.karpenter.claims import NodeClaim
from manager.autoscaler.cloudprovider.karpenter.ended_claims import FailedClaim

NOT_TRIED = "NotTried"


@dataclass(frozen=True)
class SettledClaims:
    """`ready` are to be created now, `staying` wait on, and `failed` never will be created."""

    ready: Sequence[NodeClaim] = ()
    staying: Sequence[NodeClaim] = ()
    failed: Sequence[FailedClaim] = ()


def launched_offerings(before: Iterable[str], known: Iterable[NodeClaim], catalogue: Catalogue) -> tuple[str, ...]:
    """The offerings of the catalogue of which some claim has got a machine, as text."""
    found = {*before, *(str(each.offering) for each in known if each.has_machine)}
    return tuple(sorted(found & catalogue.all_offerings()))


def count_at_once(offering: Offering, many: int, launched: Collection[str], known: Iterable[NodeClaim]) -> int:
    """How many of `many` claims of an offering may be created now: one where it is to be tried, none while it is."""
    if str(offering) in launched:
        return many
    return 0 if is_tried(offering, known) else min(many, 1)


def is_tried(offering: Offering, known: Iterable[NodeClaim]) -> bool:
    """Whether a claim of the offering is there that may yet launch."""
    return any(each.offering == offering and not each.is_leaving for each in known)


def settle(
    waiting: Iterable[NodeClaim],
    launched: Collection[str],
    known: Collection[NodeClaim],
    errors: Mapping[Offering, InstanceError],
    refusal: Callable[[NodeClaim], str],
    now: float,
) -> SettledClaims:
    """What becomes of the claims at `now`, in Unix seconds. `errors` are those of claims that have failed, by offering:
    what waits for such a claim fails as it has. `refusal` says why a claim may not be created.
    """
    ready, staying, failed = [], [], []
    for each in waiting:
        error = errors.get(each.offering)
        if error is None and (problem := refusal(each)):
            error = InstanceError(ErrorClass.OTHER, NOT_TRIED, problem)
        if error is not None:
            failed.append(FailedClaim(each, error, now))
        elif str(each.offering) in launched:
            ready.append(each)
        elif is_tried(each.offering, known):
            staying.append(each)
        else:
            problem = f"the NodeClaim that was to show whether {each.offering} launches was deleted"
            failed.append(FailedClaim(each, InstanceError(ErrorClass.OTHER, NOT_TRIED, problem), now))
    return SettledClaims(ready, staying, failed)


def errors_of(failed: Iterable[FailedClaim], stuck: Iterable[NodeClaim]) -> dict[Offering, InstanceError]:
    """Why offerings did not launch: their claims have gone, or have been there without a machine for too long."""
    return {each.claim.offering: each.error for each in failed} | {
        each.offering: claims.launch_error(each) for each in stuck
    }


def notices(staying: Iterable[NodeClaim]) -> list[CloudNotice]:
    """A sentence for each group about what it waits for."""
    counts = Counter((each.group, each.offering) for each in staying)
    return [
        CloudNotice(
            NoticeKind.DELAYED,
            group,
            many,
            f"{many} of its nodes wait until the first one of {offering} has a machine",
        )
        for (group, offering), many in sorted(counts.items())
    ]
