"""One round of the autoscaler: what was seen, what was decided and why, and what became of it.

Log, Events, metrics, the API, `headroom plan` and the page all tell what stands here.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from manager.autoscaler.cost import Cost
from manager.autoscaler.decisions import Decision
from manager.autoscaler.modes import Mode
from manager.autoscaler.state import ClusterState, Incident
from shared.errors import InvalidInput


class What(enum.StrEnum):
    """What is done to a group."""

    INCREASE = "increase"
    DECREASE_TARGET = "decrease target"
    DELETE_NODES = "delete nodes"
    CREATE_GROUP = "create group"
    DELETE_GROUP = "delete group"


@dataclass(frozen=True)
class Act:
    """One thing to do, and what became of it. `nodes` are those to delete, by provider id; sizes are targets.

    It was not tried where `done` is False and `error` is empty: its group's mode, a dry run, or an error before it.
    """

    what: What
    group: str
    mode: Mode = Mode.ENFORCE
    from_size: int = 0
    to_size: int = 0
    max_size: int = 0
    nodes: tuple[str, ...] = ()
    reason: str = ""
    done: bool = False
    error: str = ""


@dataclass(frozen=True)
class Round:
    """`number` counts up over the life of one process; `time` in Unix seconds.

    `held` says why nothing was decided, and is empty when something was. `aside` are pending pods that the round is not
    about, each with the reason; `unread` objects that could not be read. `incidents` happened since the round before.
    """

    number: int
    time: float
    state: ClusterState = field(default_factory=ClusterState)
    held: str = ""
    aside: Mapping[str, str] = field(default_factory=dict)
    unread: Mapping[str, InvalidInput] = field(default_factory=dict)
    decision: Decision | None = None
    acts: tuple[Act, ...] = ()
    cost: Cost = field(default_factory=Cost)
    dry_run: bool = False
    further: tuple[Decision, ...] = ()
    incidents: tuple[Incident, ...] = ()
