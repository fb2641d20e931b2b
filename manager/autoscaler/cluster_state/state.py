"""What of every group is there, on its way, missing or failed, beside what was asked for, and what has happened since.

`reconciliation.reconcile` works it out, from one observation and the `registry` of what was asked before.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from manager.autoscaler.cloudprovider.contract import Group, GroupOptions, InstanceError
from manager.autoscaler.cluster_state.backoff import GroupBackoff
from manager.autoscaler.cluster_state.health import AcceptableRange, Readiness
from manager.autoscaler.modes import Mode


@dataclass(frozen=True)
class ScaleUpRequest:
    """An increase that is under way: so many nodes since `started_at`, given up at `deadline`, in Unix seconds.

    `to_size` is the target that was asked for, less what has failed of it since.
    """

    group: str
    nodes: int
    started_at: float
    deadline: float
    to_size: int = 0


class IncidentKind(enum.StrEnum):
    """What may have become of an increase, or of a group that failed."""

    REGISTERED = "registered"  # all nodes that were asked for are up
    TIMED_OUT = "timed out"  # `nodes` of them did not come in time
    TAKEN_BACK = "taken back"  # nothing is on its way any more, and the target is below what was asked for
    CREATION_FAILED = "creation failed"  # the cloud could not make `nodes` of them, with `error`
    BACKOFF_ENDED = "backoff ended"  # the group may grow again


@dataclass(frozen=True)
class Incident:
    """Told once, when it is first seen. `seconds` since the increase was asked for, or that a backoff took."""

    kind: IncidentKind
    group: str
    nodes: int = 0
    seconds: float = 0.0
    error: InstanceError | None = None


@dataclass(frozen=True)
class GroupStatus:
    """One managed group. `upcoming` nodes were requested and are not up yet; the target size that the cloud reports
    lacks the `unconfirmed` ones among them. `nodes` names the registered nodes.
    """

    group: Group
    mode: Mode
    readiness: Readiness
    acceptable: AcceptableRange
    healthy: bool
    upcoming: int = 0
    unconfirmed: int = 0
    request: ScaleUpRequest | None = None
    backoff: GroupBackoff | None = None
    errors: tuple[InstanceError, ...] = ()
    options: GroupOptions = field(default_factory=GroupOptions)
    nodes: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return self.group.id


@dataclass(frozen=True)
class ClusterState:
    """All groups of ours by id. `refused` are those that cannot be judged, each with the reason; `ungrouped` nodes are
    in none. `readiness` counts the nodes of the whole cluster.
    """

    groups: Mapping[str, GroupStatus] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    unmanaged: frozenset[str] = frozenset()
    ungrouped: tuple[str, ...] = ()
    readiness: Readiness = field(default_factory=Readiness)
    healthy: bool = True
