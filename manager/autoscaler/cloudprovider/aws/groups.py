"""Auto Scaling groups as AWS describes them, and as values of the contract."""

import itertools
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from manager.autoscaler.cloudprovider.aws import messages
from manager.autoscaler.cloudprovider.aws.calls import Ask, Call, Reply
from manager.autoscaler.cloudprovider.aws.discovery import Tags
from manager.autoscaler.cloudprovider.aws.messages import GroupsPage, ScalingGroup
from manager.autoscaler.cloudprovider.contract import InstanceState

NAMES_AT_ONCE = 50  # maximum of the call
PAGE = 100  # maximum of an answer

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
    found = itertools.chain.from_iterable(_groups(ask, query) for query in queries or [{}])
    return {group.auto_scaling_group_name: _without_warm(group) for group in found if not group.status}


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


def pages(ask: Ask, call: Call, query: Mapping[str, object]) -> Iterator[Reply]:
    """All pages of one call; each names the start of the next."""
    token: str | None = ""
    while token is not None:
        reply = ask(call, **query, **({"NextToken": token} if token else {}))
        yield reply
        token = reply.get("NextToken") or None


def _groups(ask: Ask, query: Mapping[str, object]) -> Iterator[ScalingGroup]:
    for reply in pages(ask, Call.DESCRIBE_GROUPS, {**query, "MaxRecords": PAGE}):
        yield from messages.read(Call.DESCRIBE_GROUPS, reply, GroupsPage).auto_scaling_groups


def _without_warm(group: ScalingGroup) -> ScalingGroup:
    members = tuple(each for each in group.instances if not each.lifecycle_state.startswith(_WARM))
    return msgspec.structs.replace(group, instances=members)


def _filter(key: str, value: str) -> dict[str, object]:
    return {"Name": f"tag:{key}", "Values": [value]} if value else {"Name": "tag-key", "Values": [key]}
