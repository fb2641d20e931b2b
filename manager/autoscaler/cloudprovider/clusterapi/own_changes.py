"""Numbers of replicas that we wrote, and groups where something else has put the old one back.

The topology of a Cluster that names replicas does that at once, and so may a tool that applies manifests. A group that
is written to in each round, and undone in each, would make and delete machines without an end.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from manager.autoscaler.cloudprovider.clusterapi.groups import ScalableGroup

WATCHED_SECONDS = 300.0  # after a write; a change that comes later is a decision of others, as any
HOLD_SECONDS = 600.0


@dataclass(frozen=True)
class _Change:
    before: int
    after: int
    at: float


class OwnChanges:
    """All times are monotonic, in seconds."""

    def __init__(self) -> None:
        self._changes: dict[str, _Change] = {}
        self._held: dict[str, float] = {}  # until when

    def note(self, group: str, before: int, after: int, now: float) -> None:
        self._changes[group] = _Change(before, after, now)

    def compare(self, groups: Mapping[str, ScalableGroup], now: float) -> dict[str, str]:
        """What is new, by the groups that are left alone from now on."""
        self._held = {name: until for name, until in self._held.items() if until > now}
        found = {}
        for name, change in list(self._changes.items()):
            group = groups.get(name)
            if now - change.at > WATCHED_SECONDS:
                del self._changes[name]
            elif group is not None and group.replicas == change.before:
                del self._changes[name]
                self._held[name] = now + HOLD_SECONDS
                found[name] = f"its replicas were made {change.after}, and something else has made them {change.before}"
        return found

    def refusal(self, group: str, now: float) -> str:
        """Why the group is left alone; empty if it is not."""
        left = self._held.get(group, now) - now
        if left <= 0:
            return ""
        return f"something else, such as a Cluster's topology, has undone our last change; tried again in {left:.0f} s"
