"""The state of every group: present, upcoming, missing and failed nodes, requests, and incidents.

`reconciliation.reconcile` computes it, from one observation and the `registry` of earlier requests.
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
    """An increase under way: `nodes` nodes since `started_at`, given up at `deadline`, in Unix seconds.

    `to_size` is the requested target, less the nodes that have failed since.
    """

    group: str
    nodes: int
    started_at: float
    deadline: float
    to_size: int = 0


class IncidentKind(enum.StrEnum):
    """The result of an increase, or the end of a group's backoff."""

    REGISTERED = "registered"  # all requested nodes are up
    TIMED_OUT = "timed out"  # `nodes` of them did not come in time
    TAKEN_BACK = "taken back"  # nothing is upcoming any more, and the target is below the requested one
    CREATION_FAILED = "creation failed"  # the cloud could not make `nodes` of them, with `error`
    BACKOFF_ENDED = "backoff ended"  # the group may grow again


@dataclass(frozen=True)
class Incident:
    """Reported once, when first seen. `seconds` since the increase was requested, or the duration of a backoff."""

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
    """All managed groups by id.

    `refused` are those that cannot be judged, each with the reason; `ungrouped` nodes are in none. `readiness` counts
    the nodes of the whole cluster.
    """

    groups: Mapping[str, GroupStatus] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    unmanaged: frozenset[str] = frozenset()
    ungrouped: tuple[str, ...] = ()
    readiness: Readiness = field(default_factory=Readiness)
    healthy: bool = True
