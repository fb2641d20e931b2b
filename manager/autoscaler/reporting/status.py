"""The status ConfigMap, in Cluster Autoscaler's format.

It also says since when each part has its status. A new process reads that from the stored text.
"""

import datetime as dt
from collections import Counter
from collections.abc import Collection, Iterable
from typing import TypedDict

import msgspec
import yaml
from msgspec.structs import replace

from manager.autoscaler.cloudprovider.simulated import ledger
from manager.autoscaler.cluster_state.state import ClusterState, GroupStatus, Readiness
from manager.autoscaler.expander import priority
from manager.autoscaler.iteration import Iteration
from shared import durations, names, yaml_file
from shared.api.meta import Wire, prepared
from shared.errors import InvalidInput

KEY = "status"  # in the ConfigMap's data
ANNOTATION_LAST_UPDATED = "cluster-autoscaler.kubernetes.io/last-updated"
MOST_MESSAGE = 500
CUT = "<truncated>"

# Other ConfigMaps of this manager, and of its users.
RESERVED = (ledger.CONFIG_MAP, priority.CONFIG_MAP, names.CONFIG_MAP)

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
    wide = before.cluster_wide if before is not None else None
    growing = any(group.request is not None or group.upcoming for group in state.groups.values())
    unneeded = () if iteration.scale_down is None else iteration.scale_down.unneeded
    candidates = (
        Counter(iteration.scale_down.statuses[node].group for node in unneeded) if iteration.scale_down else Counter()
    )
    return AutoscalerStatus(
        go_time(iteration.time),
        RUNNING,
        message=_truncate("; ".join(_troubles(iteration.blocked_reason, state))),
        cluster_wide=ClusterWide(
            Health(
                node_counts=_counts(state.readiness),
                **_since(HEALTHY if state.healthy else UNHEALTHY, wide.health if wide else None, probed),
            ),
            ScaleUp(**_since(IN_PROGRESS if growing else NO_ACTIVITY, wide.scale_up if wide else None, probed)),
            _shrinking(candidates.total(), wide.scale_down if wide else None, probed),
        ),
        node_groups=tuple(
            _entry(state.groups[name], candidates[name], known.get(name), probed) for name in sorted(state.groups)
        ),
    )


def document(status: AutoscalerStatus) -> str:
    return yaml.dump(msgspec.to_builtins(status), Dumper=_Dumper, sort_keys=False, width=1 << 20)


def read_status(text: str) -> AutoscalerStatus | None:
    """Reads the text of `document`; None for any other text, because only the transition times depend on it."""
    try:
        return msgspec.convert(yaml_file.parse(text, lambda text: yaml.load(text, _Loader)), AutoscalerStatus)
    except (yaml.YAMLError, msgspec.ValidationError):
        return None


def go_time(now: float) -> str:
    """Unix seconds in the form that Go prints."""
    moment = dt.datetime.fromtimestamp(now, dt.UTC)
    fraction = f".{moment.microsecond:06}".rstrip("0.")
    return f"{moment:%Y-%m-%d %H:%M:%S}{fraction} +0000 UTC"


_Dumper: type = yaml.CSafeDumper if yaml.__with_libyaml__ else yaml.SafeDumper
_Loader: type = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader


class _Since(TypedDict):
    status: str
    last_probe_time: str
    last_transition_time: str


def _troubles(blocked_reason: str, state: ClusterState) -> Iterable[str]:
    if blocked_reason:
        yield blocked_reason
    for group, why in state.refused.items():
        yield f"node group {group} is left alone: {why}"


def _truncate(text: str) -> str:
    return text if len(text) <= MOST_MESSAGE else text[: MOST_MESSAGE - len(CUT)] + CUT


def _since(status: str, before: Part | None, probed: str) -> _Since:
    same = before is not None and before.status == status and before.last_transition_time
    since = before.last_transition_time if before is not None and same else probed
    return {"status": status, "last_probe_time": probed, "last_transition_time": since}


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


def _shrinking(candidates: int, before: Part | None, probed: str) -> ScaleDown:
    return ScaleDown(candidates=candidates, **_since(CANDIDATES if candidates else NO_CANDIDATES, before, probed))


def _entry(group: GroupStatus, candidates: int, before: GroupStatusEntry | None, probed: str) -> GroupStatusEntry:
    backoff = group.backoff
    if group.request is not None or group.upcoming:
        growing = IN_PROGRESS
    elif not group.healthy:
        growing = UNHEALTHY
    else:
        growing = NO_ACTIVITY if backoff is None else BACKOFF
    info = BackoffInfo(backoff.code, _truncate(backoff.reason)) if backoff is not None and growing == BACKOFF else None
    return GroupStatusEntry(
        group.id,
        GroupHealth(
            node_counts=_counts(group.readiness),
            cloud_provider_target=group.group.target_size,
            min_size=group.group.min_size,
            max_size=group.group.max_size,
            **_since(HEALTHY if group.healthy else UNHEALTHY, before.health if before else None, probed),
        ),
        ScaleUp(backoff_info=info, **_since(growing, before.scale_up if before else None, probed)),
        _shrinking(candidates, before.scale_down if before else None, probed),
    )
