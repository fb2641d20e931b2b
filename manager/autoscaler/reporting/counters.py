"""The counters since the start, Headroom's own and Cluster Autoscaler's: one walk over an iteration says what it adds
to all of them.
"""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from prometheus_client import CollectorRegistry, Counter, Gauge

from manager.autoscaler.cloudprovider.contract import InstanceError
from manager.autoscaler.cloudprovider.errors import ProviderError
from manager.autoscaler.cluster_state import reconciliation
from manager.autoscaler.cluster_state.actions import Action, ActionKind
from manager.autoscaler.cluster_state.state import Incident, IncidentKind
from manager.autoscaler.estimator.limits import CPU, MEMORY
from manager.autoscaler.iteration import Iteration
from manager.autoscaler.reporting.gauges import OURS, THEIRS
from manager.autoscaler.scale_down.removal_status import DeletionProgress, DeletionStage, ScaleDownReason
from manager.autoscaler.scale_down.rules import UnremovableReason
from shared.kube.errors import ApiError, InvalidResponse, Unreachable

MOST_CODES = 30
CLOUD, API, INTERNAL = "cloudProviderError", "apiCallError", "internalError"
_NO_GPU = ("", "")  # the labels of GPUs, which are not told apart

Count: TypeAlias = tuple[str, tuple[str, ...], float]  # a counter's name, its labels' values, and what is added


class Counters:
    """For the loop's thread."""

    def __init__(self, registry: CollectorRegistry, *, cluster_autoscaler: bool) -> None:
        """With `cluster_autoscaler` also under that system's names."""
        self._counters: dict[str, Counter | Gauge] = {}
        self._has_theirs = cluster_autoscaler
        self._evicted: dict[str, int] = {}  # by node under deletion, the pods to evict
        self._codes: set[str] = set()

        def ours(name: str, about: str, *labels: str) -> None:
            self._counters[f"{OURS}_{name}"] = Counter(f"{OURS}_{name}", about, labels, registry=registry)

        def theirs(name: str, about: str, *labels: str) -> None:
            self._counters[f"{THEIRS}_{name}"] = Counter(f"{THEIRS}_{name}", about, labels, registry=registry)

        def their_gauge(name: str, about: str, *labels: str) -> None:
            """A counter there without the suffix that this library requires of its counters."""
            self._counters[f"{THEIRS}_{name}"] = Gauge(f"{THEIRS}_{name}", about, labels, registry=registry)

        ours("rounds", "Rounds by whether anything could be decided", "result")
        ours("decisions", "Decisions by what came of them", "outcome")
        ours("acts", "What was done to groups; advised: it was only recommended", "what", "result")
        ours("nodes_added", "Nodes that were asked for", "group")
        ours("nodes_removed", "Nodes that were deleted, or not waited for any more", "reason")
        ours("groups_created", "Groups that were created")
        ours("groups_deleted", "Groups that were deleted")
        ours("failures", "Nodes that failed to come, by reason", "reason")
        ours("node_removals", "Nodes that were drained and deleted", "kind", "result")
        ours("evicted_pods", "Pods that were evicted, or not, so that nodes go", "result")
        ours("node_taints", "Taints of scans put on nodes and taken off", "group", "what", "result")
        ours("replacements", "Replacements of nodes that ended", "reason", "result")
        ours("scans", "Scans of groups that scale by utilization", "group", "result")
        if not cluster_autoscaler:
            return
        gpu = ("gpu_resource_name", "gpu_name")
        theirs("errors", "The number of loops failed due to an error", "type")
        theirs("scaled_up_nodes", "Number of nodes added", *gpu)
        theirs("scaled_down_nodes", "Number of nodes removed by CA", "reason", *gpu)
        theirs("failed_scale_ups", "Number of times scale-up has failed", "reason", *gpu)
        theirs("failed_node_creations", "Number of nodes that failed to be created", "reason")
        theirs("created_node_groups", "Number of node groups created", "group_type")
        theirs("deleted_node_groups", "Number of node groups deleted", "group_type")
        theirs("evicted_pods", "Number of pods evicted by CA", "eviction_result")
        skipped = "Count of scaling events skipped for a limit"
        their_gauge("skipped_scale_events_count", skipped, "direction", "reason")
        their_gauge("old_unregistered_nodes_removed_count", "Number of unregistered nodes removed by CA")

    def note(self, made: Iteration, failure: Exception | None) -> None:
        """Counts an iteration, and the failure that ended it."""
        for name, labels, amount in self._counts(made, failure):
            if self._has_theirs or not name.startswith(THEIRS):
                counter = self._counters[name]
                (counter.labels(*labels) if labels else counter).inc(amount)
        for action in made.actions:
            if action.kind is ActionKind.DELETE_GROUP and action.done:
                self._counters[f"{OURS}_nodes_added"].remove(action.group)  # created groups get ever new names

    def _counts(self, made: Iteration, failure: Exception | None) -> Iterator[Count]:
        if failure is not None:
            yield f"{THEIRS}_errors", (error_type(failure),), 1
        yield f"{OURS}_rounds", ("held" if made.blocked_reason else "decided",), 1
        for decision in made.decisions:
            yield f"{OURS}_decisions", (decision.outcome.value,), 1
        for action in made.actions:
            yield from _of_action(action, is_ripe=made.deleted_by_scans.issuperset(action.nodes))
        for incident in made.incidents:
            yield from self._of_incident(incident)
        for going, evicted in self._ended(made):
            yield from _of_deletion(going, evicted)
        if made.consolidation is not None and made.consolidation.ended:
            result = "done" if made.consolidation.is_done else "failed"
            yield f"{OURS}_replacements", (made.consolidation.reason.value, result), 1
        for scan in made.scans:
            yield f"{OURS}_scans", (scan.group, "failed" if scan.error else "decided"), 1
        below = resources_below_limits(made)
        skipped = () if made.decision is None else made.decision.skipped
        for resource, reason in ((CPU, "CPULimitReached"), (MEMORY, "MemoryLimitReached")):
            if any(_exceeds(each.reason, resource) for each in skipped):
                yield f"{THEIRS}_skipped_scale_events_count", ("up", reason), 1
            if resource in below:
                yield f"{THEIRS}_skipped_scale_events_count", ("down", reason), 1

    def _of_incident(self, incident: Incident) -> Iterator[Count]:
        """A cloud's own codes are unbounded: they are no labels of ours, and of Cluster Autoscaler's only the first."""
        if incident.kind is IncidentKind.TIMED_OUT:
            our_reason, reason = reconciliation.TIMEOUT, "timeout"
        elif incident.kind is IncidentKind.CREATION_FAILED and incident.error is not None:
            our_reason, reason = incident.error.kind.value, self._code(incident.error)
        else:
            return
        yield f"{OURS}_failures", (our_reason,), incident.nodes
        if reason:
            yield f"{THEIRS}_failed_scale_ups", (reason, *_NO_GPU), 1
            yield f"{THEIRS}_failed_node_creations", (reason,), incident.nodes

    def _code(self, error: InstanceError) -> str:
        """A cloud's own code; after too many different ones, only the kind of the error."""
        if error.code not in self._codes and len(self._codes) >= MOST_CODES:
            return error.kind.value
        self._codes.add(error.code)
        return error.code

    def _ended(self, made: Iteration) -> Sequence[tuple[DeletionProgress, int]]:
        """The ended deletions, each once, with the number of pods evicted from the node."""
        if made.scale_down is not None:
            self._evicted |= {each.node: len(each.evicted) for each in made.scale_down.removals}
        over = [each for each in made.leaving if each.stage.is_over]
        ended = [(each, max(0, self._evicted.pop(each.node, 0) - len(each.waits_for))) for each in over]
        begun = (each.nodes for each in made.actions if each.kind is ActionKind.REMOVE_NODES and each.done)
        known = {each.node for each in made.leaving if not each.stage.is_over}.union(*begun)
        self._evicted = {node: pods for node, pods in self._evicted.items() if node in known}
        return ended


def _of_action(action: Action, *, is_ripe: bool) -> Iterator[Count]:
    """`is_ripe`: the scan of its group found the nodes ripe for deletion."""
    kind, group, change, result = action.kind, action.group, action.change, action.result
    yield f"{OURS}_acts", (kind.value, result), 1
    if action.error:
        yield f"{THEIRS}_errors", (CLOUD,), 1
        if kind is ActionKind.INCREASE:
            yield f"{OURS}_failures", ("refused",), change
            if not action.done:
                yield f"{THEIRS}_failed_scale_ups", (CLOUD, *_NO_GPU), 1
    if kind in (ActionKind.TAINT, ActionKind.UNTAINT) and (action.done or action.error) and not action.is_soft_taint:
        yield f"{OURS}_node_taints", (group, kind.value, result), len(action.nodes)
    if not action.done:
        return
    match kind:
        case ActionKind.INCREASE:
            yield f"{OURS}_nodes_added", (group,), change
            yield f"{THEIRS}_scaled_up_nodes", _NO_GPU, change
        case ActionKind.CREATE_GROUP:
            yield f"{OURS}_groups_created", (), 1
            yield f"{THEIRS}_created_node_groups", ("autoprovisioned",), 1
        case ActionKind.DELETE_GROUP:
            yield f"{OURS}_groups_deleted", (), 1
            yield f"{THEIRS}_deleted_node_groups", ("autoprovisioned",), 1
        case ActionKind.DECREASE_TARGET | ActionKind.DELETE_NODES:
            yield f"{OURS}_nodes_removed", (action.reason,), -change
    if kind is ActionKind.DELETE_NODES:
        if action.reason == reconciliation.UNREGISTERED:
            yield f"{THEIRS}_old_unregistered_nodes_removed_count", (), len(action.nodes)
        if is_ripe:
            yield f"{THEIRS}_scaled_down_nodes", (ScaleDownReason.UNDERUTILIZED.value, *_NO_GPU), len(action.nodes)


def _of_deletion(going: DeletionProgress, evicted: int) -> Iterator[Count]:
    is_gone, left = going.stage is DeletionStage.GONE, len(going.waits_for)
    yield f"{OURS}_node_removals", (going.kind.value, "done" if is_gone else "failed"), 1
    if is_gone:
        yield f"{THEIRS}_scaled_down_nodes", (going.kind.value, *_NO_GPU), 1
    for name, results in ((OURS, ("done", "failed")), (THEIRS, ("succeeded", "failed"))):
        for result, pods in zip(results, (evicted, left), strict=True):
            yield f"{name}_evicted_pods", (result,), pods


def error_type(error: Exception) -> str:
    """Cluster Autoscaler's word for the cause of a failed iteration."""
    if isinstance(error, ProviderError):
        return CLOUD
    return API if isinstance(error, ApiError | InvalidResponse | Unreachable) else INTERNAL


def resources_below_limits(made: Iteration) -> frozenset[str]:
    """The resources in which the cluster would fall below its bounds without some node."""
    statuses = () if made.scale_down is None else made.scale_down.statuses.values()
    details = [each.detail for each in statuses if each.reason is UnremovableReason.BELOW_LIMIT]
    return frozenset((CPU, MEMORY)).intersection(" ".join(details).replace(",", "").split())


def _exceeds(reason: str, resource: str) -> bool:
    """Whether a group was skipped because of a quota (see `limits.Exceeded`) of this resource."""
    quotas = [each for each in reason.split("; ") if each.startswith("exceeded quota")]
    return any(resource in each.rpartition("resources: ")[2].split(", ") for each in quotas)
