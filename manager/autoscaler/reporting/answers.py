"""The answers of the API, `headroom plan` and the page about an iteration. docs/schemas has them as JSON Schema."""

from dataclasses import dataclass, field, replace

from manager.autoscaler.cluster_state.state import Incident
from manager.autoscaler.planning.iteration import Iteration
from manager.autoscaler.pod_injection.buffer_planning import BufferPlan
from manager.autoscaler.pod_injection.request_planning import RequestPlan
from manager.autoscaler.reporting import group_rows, node_rows, scale_up_rows
from manager.autoscaler.reporting.group_rows import CostRow, DecisionRow
from manager.autoscaler.reporting.node_rows import DeletionRow, ScaleDownRow, ScanRow
from manager.autoscaler.reporting.rows import by_value, row_of
from manager.autoscaler.reporting.scale_up_rows import (
    BufferRow,
    ComparisonRow,
    FurtherRow,
    OptionRow,
    PendingRow,
    ProvisioningRequestRow,
    SkippedRow,
    UnplacedRow,
)
from manager.autoscaler.scale_up.decisions import Cap, ExpanderStep, ScaleUpDecision, ScaleUpOutcome
from manager.autoscaler.scale_up.disagreements import Disagreement
from manager.autoscaler.settings.modes import Mode
from shared import durations

NOTHING_DECIDED = "nothing was decided"
BRIEF_NAMES = 3  # of pods of one class, in brief answers


@dataclass(frozen=True)
class SkippedPodsRow:
    """Pending pods that the iteration does not consider, and why."""

    reason: str
    pods: list[str]
    count: int


@dataclass(frozen=True)
class IncidentRow:
    """The result of a scale-up, or the failure of a group, reported once. `seconds` is the time since the scale-up was
    requested.
    """

    what: str
    group: str
    nodes: int
    seconds: float
    code: str
    message: str


@dataclass(frozen=True)
class InvalidObjectRow:
    """An object that could not be read and is ignored."""

    object: str
    problem: str


@dataclass(frozen=True)
class DisagreementRow:
    """Pods that the scheduler refuses although they fit by the autoscaler's predicates: on `nodes` ready nodes, and on
    new nodes of `groups`. These do not count as a place for the pods until then. `message` has the scheduler's words.
    """

    pods: list[str]
    count: int
    message: str
    nodes: int
    groups: list[str]
    since: str
    until: str


@dataclass(frozen=True)
class Plan:
    """One iteration: the actions, every option with every term of its rank, and the pods that get no node.

    `cluster` is the name of the cluster, empty if it has none. `options` are sorted by rank, the best first. `outcome`
    is the result. `blocked_reason` says why nothing was decided, and is empty otherwise. If `advice` is true, the
    decision scales up groups in recommend mode: it is not carried out, and `further` has the decisions without these
    groups.

    `preferred_cpu_milli` is the machine size that suits the cluster best. `incidents` happened since the previous
    iteration. `scale_down` says why each node is still here (null: no node was judged). `leaving` are the nodes being
    deleted. `scans` have the utilization of the groups that scale by it.

    `buffers` are the CapacityBuffers. `buffer_decisions` were made for them after the decisions for pods; their
    positions are those of `buffers`. `requests` are the ProvisioningRequests, and `request_decisions` the decisions for
    one of them, with the positions of `requests`. `disagreements` are pods that the scheduler refuses although they
    fit by the predicates.
    """

    iteration: int
    time: str
    dry_run: bool
    outcome: str
    blocked_reason: str
    decisions: list[DecisionRow]
    options: list[OptionRow]
    unplaced: list[UnplacedRow]
    cost_per_hour: CostRow
    pending: list[PendingRow]
    skipped_pods: list[SkippedPodsRow]
    skipped: list[SkippedRow]
    steps: tuple[ExpanderStep, ...]
    comparison: ComparisonRow | None
    caps: tuple[Cap, ...]
    advice: bool
    further: list[FurtherRow]
    preferred_cpu_milli: int | None
    incidents: list[IncidentRow]
    invalid_objects: list[InvalidObjectRow]
    scale_down: ScaleDownRow | None
    leaving: list[DeletionRow]
    scans: list[ScanRow]
    cluster: str = ""
    buffers: list[BufferRow] = field(default_factory=list)
    buffer_decisions: list[FurtherRow] = field(default_factory=list)
    requests: list[ProvisioningRequestRow] = field(default_factory=list)
    request_decisions: list[FurtherRow] = field(default_factory=list)
    disagreements: list[DisagreementRow] = field(default_factory=list)


@dataclass(frozen=True)
class Decisions:
    """`latest` is the last iteration (null: there was none yet). `iterations` are those with an action or a change, the
    newest first.

    In a brief answer the lists of pods and nodes are cut, and `count` has the full number. `earlier` are iterations of
    earlier managers, always brief. The numbers of iterations start anew with each manager.
    """

    cluster: str
    latest: Plan | None
    iterations: list[Plan]
    earlier: list[Plan]


@dataclass(frozen=True)
class NodesLeft:
    """Why each node of a cluster is still here, as of one iteration. `time` is null if there was none yet.

    `blocked_reason` says why the iteration decided nothing, and is empty if it did decide.
    """

    cluster: str
    time: str | None
    blocked_reason: str
    dry_run: bool
    scale_down: ScaleDownRow | None
    leaving: list[DeletionRow]
    scans: list[ScanRow]


def plan(of: Iteration) -> Plan:
    """The complete answer about an iteration."""
    decision = of.decision or ScaleUpDecision(ScaleUpOutcome.NOT_NEEDED)
    positions = {
        pod: position
        for position, demand in enumerate(decision.demands)
        for pod in (demand.pods if of.further else demand.pods[:1])
    }
    first, *further = (scale_up_rows.further_row(each, positions) for each in (decision, *of.further))
    unplaced = scale_up_rows.unplaced_rows((decision, *of.further)[-1], positions)
    actions = group_rows.decision_rows(of)
    buffers, buffer_decisions = scale_up_rows.buffer_rows(of.buffers or BufferPlan())
    requests, request_decisions = scale_up_rows.request_rows(of.requests or RequestPlan())
    return row_of(
        Plan,
        first,
        iteration=of.number,
        time=durations.timestamp(of.time),
        dry_run=of.dry_run,
        outcome=NOTHING_DECIDED if of.decision is None else first.outcome,
        blocked_reason=of.blocked_reason,
        decisions=actions,
        unplaced=unplaced,
        cost_per_hour=group_rows.cost_row(of.cost, _counted(actions)),
        pending=scale_up_rows.pending_rows(decision, unplaced),
        skipped_pods=[
            SkippedPodsRow(reason, pods, len(pods)) for reason, pods in by_value(of.skipped_pods.items()).items()
        ],
        advice=decision.advice,
        further=further,
        preferred_cpu_milli=decision.preferred_cpu_milli,
        incidents=[_incident(each) for each in of.incidents],
        invalid_objects=[InvalidObjectRow(name, str(problem)) for name, problem in sorted(of.invalid_objects.items())],
        scale_down=node_rows.scale_down_row(of),
        leaving=node_rows.deletion_rows(of.leaving),
        scans=node_rows.scan_rows(of.scans),
        cluster=of.cluster,
        buffers=buffers,
        buffer_decisions=buffer_decisions,
        requests=requests,
        request_decisions=request_decisions,
        disagreements=[_disagreement(each) for each in of.disagreements],
    )


def without_untouched_nodes(of: Plan) -> Plan:
    """The form that is remembered: nodes that nothing happens to are only counted."""
    return replace(of, scale_down=node_rows.without_staying_nodes(of.scale_down))


def brief(of: Plan) -> Plan:
    """The same with only the first names of many pods and nodes; the counts stay complete."""
    return replace(
        of,
        pending=[replace(each, pods=each.pods[:BRIEF_NAMES]) for each in of.pending],
        unplaced=[replace(each, pods=each.pods[:BRIEF_NAMES]) for each in of.unplaced],
        skipped_pods=[replace(each, pods=each.pods[:BRIEF_NAMES]) for each in of.skipped_pods],
        disagreements=[replace(each, pods=each.pods[:BRIEF_NAMES]) for each in of.disagreements],
        scale_down=node_rows.first_rows(of.scale_down),
    )


def nodes_answer(of: Plan | None, cluster: str = "") -> NodesLeft:
    """Without any iteration yet, that of the `cluster`."""
    return NodesLeft(cluster, None, "", False, None, [], []) if of is None else row_of(NodesLeft, of)


def _incident(of: Incident) -> IncidentRow:
    code, message = ("", of.message) if of.error is None else (of.error.code, of.error.message)
    return IncidentRow(of.kind, of.group, of.nodes, of.seconds, code, message)


def _disagreement(of: Disagreement) -> DisagreementRow:
    since, until = durations.timestamp(of.since), durations.timestamp(of.until)
    return DisagreementRow(list(of.pods), len(of.pods), of.message, of.nodes, list(of.groups), since, until)


def _counted(actions: list[DecisionRow]) -> list[DecisionRow]:
    """Advice has no cost beside the actions that are carried out instead."""
    enforced = [each for each in actions if each.mode != Mode.RECOMMEND]
    return enforced if any(each.cost_per_hour != 0.0 for each in enforced) else actions
