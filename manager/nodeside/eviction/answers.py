"""What is answered of a node under pressure; the dataclasses are the JSON that is sent."""

from dataclasses import dataclass

from manager.nodeside.eviction.reliever import Pressed


@dataclass(frozen=True)
class NeedRow:
    """What of a resource is to be released, in milli-cores or bytes, and how much of that is leaving already."""

    resource: str
    amount: int
    released: int
    why: str


@dataclass(frozen=True)
class ReleaseRow:
    """A pod that is to be evicted for want of a resource, and what that releases."""

    pod: str
    resource: str
    releases: int
    why: str


@dataclass(frozen=True)
class PressureRow:
    """The node is under pressure since then (RFC 3339): what is needed, and which pods go for it, in this order."""

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
