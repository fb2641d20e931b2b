"""The managed groups of a cloud: the listed ones, those with the auto-provisioning prefix, and, of a cloud where groups
ask for an autoscaler themselves, all.

All others stay untouched.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from manager.autoscaler.cloudprovider.contract import Group
from shared.errors import InvalidInput

DEFAULT_PREFIX = "nodeautoprovisioning"
FLAG = "--nodes"


@dataclass(frozen=True, slots=True)
class SizeBounds:
    min_size: int
    max_size: int


@dataclass(frozen=True, slots=True)
class Ownership:
    """`listed` groups by id, with the bounds that replace the cloud's, if any. An empty `prefix` matches no group.

    `opted_in`: the cloud names no group that has not asked for an autoscaler.
    """

    listed: Mapping[str, SizeBounds | None] = field(default_factory=dict)
    prefix: str = DEFAULT_PREFIX
    opted_in: bool = False

    def owns(self, group: str) -> bool:
        """Whether the group is managed. The prefix applies to the id's last part: ids may be paths."""
        return self.opted_in or group in self.listed or self.has_prefix(group)

    def has_prefix(self, group: str) -> bool:
        return bool(self.prefix) and group.rpartition("/")[2].startswith(self.prefix)

    def bounded(self, group: Group) -> Group:
        """The group with our own bounds."""
        bounds = self.listed.get(group.id)
        if bounds is None:
            return group
        return dataclasses.replace(group, min_size=bounds.min_size, max_size=bounds.max_size)


def parse_nodes(texts: Iterable[str]) -> dict[str, SizeBounds]:
    """`--nodes` flags, each "<min>:<max>:<id>"; an id may contain colons. Raises InvalidInput."""
    found: dict[str, SizeBounds] = {}
    for position, text in enumerate(texts):

        def refused(problem: str, position: int = position, text: str = text) -> InvalidInput:
            return InvalidInput(source=FLAG, field=f"nodes[{position}]", value=text, problem=problem)

        low, _, rest = text.partition(":")
        high, _, group = rest.partition(":")
        if not group.strip():
            raise refused("expected <min>:<max>:<group>")
        if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in (low, high)):
            raise refused("the bounds must be whole numbers of at least 0")
        bounds = SizeBounds(int(low), int(high))
        if bounds.min_size > bounds.max_size:
            raise refused(f"the minimum {bounds.min_size} is above the maximum {bounds.max_size}")
        if group in found:
            raise refused(f"group {group} is listed twice")
        found[group] = bounds
    return found
