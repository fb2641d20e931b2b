"""What is answered of a node under pressure; the dataclasses are the JSON that is sent."""

from dataclasses import dataclass

from manager.nodeside.eviction.reliever import Pressed


@dataclass(frozen=True)
class NeedRow:
    """How much of a resource must be released, in milli-cores or bytes, and how much of that terminating pods already
    release.
    """

    resource: str
    amount: int
    released: int
    why: str


@dataclass(frozen=True)
class ReleaseRow:
    """A pod to evict because a resource is short, and how much its eviction releases."""

    pod: str
    resource: str
    releases: int
    why: str


@dataclass(frozen=True)
class PressureRow:
    """The node has been under pressure since `since` (RFC 3339): what must be released, and which pods are evicted, in
    this order.
    """

    since: str
    reason: str
    needs: list[NeedRow]
    evictions: list[ReleaseRow]


def pressure_row(of: Pressed) -> PressureRow:
    relief = of.relief
    return PressureRow(
        since=of.began,
        reason=relief.reason,
        needs=[NeedRow(each.resource, each.amount, each.released, each.why) for each in relief.needs],
        evictions=[ReleaseRow(each.pod.key, each.resource, each.releases, each.why) for each in relief.evictions],
    )
