"""The status ConfigMap, in Cluster Autoscaler's format.

It also says since when each part has its status. A new process reads that from the stored text.
"""

import datetime as dt
from collections import Counter
from collections.abc import Collection
from typing import TypeVar

import msgspec
import yaml
from msgspec.structs import replace

from manager.autoscaler.cloudprovider.simulated import state_store
from manager.autoscaler.cluster_state.state import ClusterState, GroupStatus, Readiness
from manager.autoscaler.expander import priority
from manager.autoscaler.planning.iteration import Iteration
from shared import durations, names, yaml_file
from shared.api.meta import Wire, prepared
from shared.errors import InvalidInput

KEY = "status"  # in the ConfigMap's data
ANNOTATION_LAST_UPDATED = "cluster-autoscaler.kubernetes.io/last-updated"
MOST_MESSAGE = 500
CUT = "<truncated>"

# Other ConfigMaps of this manager, and of its users.
RESERVED = (state_store.CONFIG_MAP, priority.CONFIG_MAP, names.CONFIG_MAP)

_Dumper: type = yaml.CSafeDumper if yaml.__with_libyaml__ else yaml.SafeDumper

INITIALIZING, RUNNING = "Initializing", "Running"
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"
IN_PROGRESS, NO_ACTIVITY, BACKOFF = "InProgress", "NoActivity", "Backoff"
NO_CANDIDATES, CANDIDATES = "NoCandidates", "CandidatesPresent"


def checked_name(name: str, *, others: Collection[str]) -> str:
    """The name of the ConfigMap. Raises InvalidInput for a reserved one, whose text it would replace."""
    if name in (*others, *RESERVED):
        problem = "something else is kept under this name"
        raise InvalidInput(source="--status-config-map-name", field="statusConfigMapName", value=name, problem=problem)
    return name


class Part(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The status of one part, and since when it holds."""

    status: str
    last_probe_time: str = ""
    last_transition_time: str = ""


class Unready(msgspec.Struct, frozen=True, rename="camel"):
    total: int = 0
    resource_unready: int = 0


class Registered(msgspec.Struct, frozen=True, rename="camel"):
    total: int = 0
    ready: int = 0
    not_started: int = 0
    suspended: int = 0
    being_deleted: int = 0
    unready: Unready = Unready()


class NodeCounts(msgspec.Struct, frozen=True, rename="camel"):
    registered: Registered = Registered()
    long_unregistered: int = 0
    unregistered: int = 0


class Health(Part, frozen=True, rename="camel", kw_only=True):
    node_counts: NodeCounts = NodeCounts()


class GroupHealth(Health, frozen=True, rename="camel", kw_only=True):
    cloud_provider_target: int = 0
    min_size: int = 0
    max_size: int = 0


class BackoffInfo(Wire, frozen=True):
    error_code: str = ""
    error_message: str = ""


class ScaleUp(Part, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    backoff_info: BackoffInfo | None = None


class ScaleDown(Part, frozen=True, rename="camel", kw_only=True):
    candidates: int = 0


class ClusterWide(msgspec.Struct, frozen=True, rename="camel"):
    health: Health
    scale_up: ScaleUp
    scale_down: ScaleDown


class GroupStatusEntry(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    health: GroupHealth
    scale_up: ScaleUp
    scale_down: ScaleDown


@prepared
class AutoscalerStatus(Wire, frozen=True):
    """The complete status. `message` names the problems, if any."""

    time: str
    autoscaler_status: str
    message: str = ""
    cluster_wide: ClusterWide | None = None
    node_groups: tuple[GroupStatusEntry, ...] = ()


PartT = TypeVar("PartT", bound=Part)
PartsT = TypeVar("PartsT", ClusterWide, GroupStatusEntry)


def autoscaler_status(iteration: Iteration, before: AutoscalerStatus | None = None) -> AutoscalerStatus:
    """The status of an iteration. An unchanged part keeps its time from `before`; without any observation all do."""
    state, probed = iteration.state, durations.timestamp(iteration.time)
    if iteration.blocked_reason and state == ClusterState():
        seen = before or AutoscalerStatus("", INITIALIZING)
        return replace(
            seen,
            time=go_time(iteration.time),
            autoscaler_status=INITIALIZING,
            message=_truncate(iteration.blocked_reason),
        )
    known = {entry.name: entry for entry in before.node_groups} if before is not None else {}
    growing = any(group.request is not None or group.upcoming for group in state.groups.values())
    candidates = Counter[str]() if iteration.scale_down is None else iteration.scale_down.unneeded_by_group
    troubles = [iteration.blocked_reason] if iteration.blocked_reason else []
    troubles += [f"node group {group} is skipped: {why}" for group, why in state.refused.items()]
    wide = ClusterWide(
        Health(status=HEALTHY if state.healthy else UNHEALTHY, node_counts=_counts(state.readiness)),
        ScaleUp(status=IN_PROGRESS if growing else NO_ACTIVITY),
        _shrinking(candidates.total()),
    )
    groups = [_entry(group, candidates[name]) for name, group in sorted(state.groups.items())]
    return AutoscalerStatus(
        go_time(iteration.time),
        RUNNING,
        message=_truncate("; ".join(troubles)),
        cluster_wide=_dated(wide, before.cluster_wide if before is not None else None, probed),
        node_groups=tuple(_dated(each, known.get(each.name), probed) for each in groups),
    )


def document(status: AutoscalerStatus) -> str:
    return yaml.dump(msgspec.to_builtins(status), Dumper=_Dumper, sort_keys=False, width=1 << 20)


def read_status(text: str) -> AutoscalerStatus | None:
    """Reads the text of `document`; None for any other text, because only the transition times depend on it."""
    try:
        return msgspec.convert(yaml_file.parse(text), AutoscalerStatus)
    except (yaml.YAMLError, msgspec.ValidationError):
        return None


def go_time(now: float) -> str:
    """Unix seconds in the form that Go prints."""
    moment = dt.datetime.fromtimestamp(now, dt.UTC)
    fraction = f".{moment.microsecond:06}".rstrip("0.")
    return f"{moment:%Y-%m-%d %H:%M:%S}{fraction} +0000 UTC"


def _truncate(text: str) -> str:
    return text if len(text) <= MOST_MESSAGE else text[: MOST_MESSAGE - len(CUT)] + CUT


def _dated(now: PartsT, before: PartsT | None, probed: str) -> PartsT:
    """The parts with their times: one whose status has not changed has it since what `before` says."""

    def dated(part: PartT, known: PartT) -> PartT:
        since = known.last_transition_time if known.status == part.status else ""
        return replace(part, last_probe_time=probed, last_transition_time=since or probed)

    last = before or now
    return replace(
        now,
        health=dated(now.health, last.health),
        scale_up=dated(now.scale_up, last.scale_up),
        scale_down=dated(now.scale_down, last.scale_down),
    )


def _counts(found: Readiness) -> NodeCounts:
    registered = Registered(
        total=found.registered,
        ready=found.ready,
        not_started=found.not_started,
        suspended=found.suspended,
        being_deleted=found.being_deleted,
        unready=Unready(found.unready),
    )
    return NodeCounts(registered, found.long_unregistered, found.unregistered)


def _shrinking(candidates: int) -> ScaleDown:
    return ScaleDown(status=CANDIDATES if candidates else NO_CANDIDATES, candidates=candidates)


def _entry(of: GroupStatus, candidates: int) -> GroupStatusEntry:
    backoff, group = of.backoff, of.group
    if of.request is not None or of.upcoming:
        growing = IN_PROGRESS
    elif not of.healthy:
        growing = UNHEALTHY
    else:
        growing = NO_ACTIVITY if backoff is None else BACKOFF
    info = BackoffInfo(backoff.code, _truncate(backoff.reason)) if backoff is not None and growing == BACKOFF else None
    health = GroupHealth(
        status=HEALTHY if of.healthy else UNHEALTHY,
        node_counts=_counts(of.readiness),
        cloud_provider_target=group.target_size,
        min_size=group.min_size,
        max_size=group.max_size,
    )
    return GroupStatusEntry(group.id, health, ScaleUp(status=growing, backoff_info=info), _shrinking(candidates))
