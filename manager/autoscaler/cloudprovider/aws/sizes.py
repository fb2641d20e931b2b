"""The limits on changes of a group's size. The words are Escalator's; all raise Refused."""

from manager.autoscaler.cloudprovider.aws import NAME
from manager.autoscaler.cloudprovider.errors import Refused


def raised_size(group: str, delta: int, *, target: int, most: int) -> int:
    """The new target."""
    if delta <= 0:
        raise Refused(NAME, group, "size increase must be positive")
    if target + delta > most:
        raise Refused(NAME, group, "increasing size will breach maximum node size")
    return target + delta


def lowered_size(group: str, delta: int, *, target: int, least: int, staying: int = 0) -> int:
    """The new target, `delta` < 0 lower; never below the present instances, because AWS would terminate some to reach
    it.
    """
    if delta >= 0:
        raise Refused(NAME, group, "size decrease delta must be negative")
    if target + delta < least:
        raise Refused(NAME, group, "decreasing target size will breach minimum node size")
    if target + delta < staying:
        raise Refused(NAME, group, f"decreasing target size would end some of its {staying} instances")
    return target + delta


def deletable(group: str, count: int, *, target: int, least: int) -> None:
    """Checks whether so many instances may go, together with their places."""
    if target <= least:
        raise Refused(NAME, group, "min sized reached, nodes will not be deleted")
    if target - count < least:
        raise Refused(NAME, group, "terminating nodes will breach minimum node size")
