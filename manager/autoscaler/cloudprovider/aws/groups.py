"""Auto Scaling groups as AWS describes them, and as values of the contract: states, ids, and limits of their size."""

from collections.abc import Iterable

import msgspec

from manager.autoscaler.cloudprovider.aws import NAME, messages
from manager.autoscaler.cloudprovider.aws.config import Tags
from manager.autoscaler.cloudprovider.aws.messages import Ask, Call, ScalingGroup
from manager.autoscaler.cloudprovider.contract import InstanceState
from manager.autoscaler.cloudprovider.errors import Refused
from shared.errors import InvalidInput

NAMES_AT_ONCE = 50  # maximum of the call
PAGE = 100  # maximum of an answer

_ID_PREFIX = "aws:///"  # of provider ids, `aws:///<zone>/<instance id>`, which link a Node to its instance

_WARM = "Warmed:"  # kept beside the group, and not part of it
_LEAVING = ("Terminating", "Terminated", "Detaching", "Detached")


def describe_groups(ask: Ask, listed: Iterable[str], discover: Iterable[Tags]) -> dict[str, ScalingGroup]:
    """The existing listed groups, and those with all tags of one of `discover`; all groups of the region if both are
    empty.

    Raises ProviderError.
    """
    queries: list[dict[str, object]] = []
    names = sorted(listed)
    while names:
        queries.append({"AutoScalingGroupNames": names[:NAMES_AT_ONCE]})
        names = names[NAMES_AT_ONCE:]
    queries += ({"Filters": [_filter(key, value) for key, value in tags.items()]} for tags in discover)
    return {
        group.auto_scaling_group_name: _without_warm(group)
        for query in queries or [{}]
        for page in messages.pages(ask, Call.DESCRIBE_GROUPS, **query, MaxRecords=PAGE)
        for group in page.auto_scaling_groups
        if not group.status
    }


def one(ask: Ask, name: str) -> ScalingGroup | None:
    """The present group. Raises ProviderError."""
    return describe_groups(ask, (name,), ()).get(name)


def state(lifecycle: str) -> InstanceState:
    """The state of an instance, from its lifecycle state in the group."""
    if lifecycle.startswith(_LEAVING):
        return InstanceState.DELETING
    if lifecycle.startswith("Pending"):
        return InstanceState.CREATING
    return InstanceState.RUNNING if lifecycle else InstanceState.UNKNOWN


def staying(group: ScalingGroup) -> int:
    """The number of its instances that are present or upcoming."""
    return sum(state(each.lifecycle_state) is not InstanceState.DELETING for each in group.instances)


def is_weighted(group: ScalingGroup) -> bool:
    """Whether its sizes count something other than instances."""
    return any(each.weighted_capacity not in ("", "1") for each in group.overrides)


def provider_id(zone: str, instance: str) -> str:
    return f"{_ID_PREFIX}{zone}/{instance}"


def instance_id(given: str) -> str:
    """Raises InvalidInput for an invalid provider id, in Escalator's words."""

    def refused(problem: str) -> InvalidInput:
        return InvalidInput(source="Node spec.providerID", field="providerID", value=given, problem=problem)

    if not given:
        raise refused("empty providerID, it may be set later by cloud controller")
    parts = given.split("/")
    if len(parts) < 5:
        raise refused(f"malformed providerID {given}: expected at least 4 slashes")
    return parts[4]


def raised_size(group: str, delta: int, *, target: int, most: int) -> int:
    """The new target. Raises Refused in Escalator's words, as the next two."""
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
    """Checks whether `count` instances may be deleted, and the target size reduced by as many."""
    if target <= least:
        raise Refused(NAME, group, "min sized reached, nodes will not be deleted")
    if target - count < least:
        raise Refused(NAME, group, "terminating nodes will breach minimum node size")


def _without_warm(group: ScalingGroup) -> ScalingGroup:
    members = tuple(each for each in group.instances if not each.lifecycle_state.startswith(_WARM))
    return msgspec.structs.replace(group, instances=members)


def _filter(key: str, value: str) -> dict[str, object]:
    return {"Name": f"tag:{key}", "Values": [value]} if value else {"Name": "tag-key", "Values": [key]}
