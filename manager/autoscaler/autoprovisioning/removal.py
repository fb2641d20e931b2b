"""Which groups to delete again: empty autoprovisioned ones."""

from collections.abc import Iterable, Mapping

from manager.autoscaler.cloudprovider.contract import Group
from manager.autoscaler.cloudprovider.ownership import Ownership


def unneeded_groups(groups: Iterable[Group], instances: Mapping[str, int], ownership: Ownership) -> list[str]:
    """The managed groups without a target and without instances, in order.

    `instances` counts by group; a group without an entry may have some.
    """
    return sorted(
        group.id
        for group in groups
        if group.autoprovisioned
        and ownership.owns(group.id)
        and group.target_size == 0
        and instances.get(group.id, 1) == 0
    )
