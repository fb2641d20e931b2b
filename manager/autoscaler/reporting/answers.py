"""The answers of the API, `headroom plan` and the page about an iteration. docs/schemas has them as JSON Schema."""

from dataclasses import dataclass, field, replace

from manager.autoscaler.cluster_state.state import Incident
from manager.autoscaler.iteration import Iteration
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
from manager.autoscaler.settings.modes import Mode
from shared import durations

HELD = "nothing was decided"
BRIEF_NAMES = 3  # of pods of one class, in brief answers


@dataclass(frozen=True)
class AsideRow:
    """Pending pods that the round is not about."""

    reason: str
    pods: list[str]
    count: int


@dataclass(frozen=True)
class IncidentRow:
    """What has become of an increase, or of a group that failed, told once. `seconds` since it was asked for."""

    what: str
    group: str
    nodes: int
    seconds: float
    code: str
    message: str


@dataclass(frozen=True)
class UnreadRow:
    """An object that could not be read, and so does not count."""

    object: str
    problem: str


@dataclass(frozen=True)
class Plan:
    """One round: what is to be done, every option with every term of its rank, and the pods that get no node.

    `cluster` is the name of the cluster it is about, and empty where it has none.

    `options` stand in the order of their ranks, the best first. `outcome` says how it ended; `held` why nothing was
    decided, and is empty when something was. With `advice` the decision would have groups grow that are only
    recommended: nothing of it is done, and `further` is what is done without them. `preferred_cpu_milli` is the size of
    machine that suits the cluster best, `incidents` have happened since the round before. `scale_down` says why every
    node is still here (null: there is no word on any), `leaving` are nodes on their way out, and `scans` say of groups
    that scale by utilization how full they are. `buffers` are the CapacityBuffers, and `buffer_decisions` what was
    decided about those after the pods; positions are those of `buffers`. `requests` are the ProvisioningRequests, and
    `request_decisions` what was bought for one of those, likewise.
    """

    round: int
    time: str
    dry_run: bool
    outcome: str
    held: str
    decisions: list[DecisionRow]
    options: list[OptionRow]
    unplaced: list[UnplacedRow]
    cost_per_hour: CostRow
    pending: list[PendingRow]
    aside: list[AsideRow]
    skipped: list[SkippedRow]
    steps: tuple[ExpanderStep, ...]
    comparison: ComparisonRow | None
    caps: tuple[Cap, ...]
    advice: bool
    further: list[FurtherRow]
    preferred_cpu_milli: int | None
    incidents: list[IncidentRow]
    unread: list[UnreadRow]
    scale_down: ScaleDownRow | None
    leaving: list[DeletionRow]
    scans: list[ScanRow]
    cluster: str = ""
    buffers: list[BufferRow] = field(default_factory=list)
    buffer_decisions: list[FurtherRow] = field(default_factory=list)
    requests: list[ProvisioningRequestRow] = field(default_factory=list)
    request_decisions: list[FurtherRow] = field(default_factory=list)


@dataclass(frozen=True)
class Decisions:
    """`latest` is the last round (null: there was none yet), `rounds` those that did or changed something, the newest
    first. Where only what is brief was wanted, lists of pods and nodes are cut, and `count` says how many there are.

    `earlier` are such rounds of managers before this one, always brief; numbers of rounds begin anew with each manager.
    """

    cluster: str
    latest: Plan | None
    rounds: list[Plan]
    earlier: list[Plan]


@dataclass(frozen=True)
class NodesLeft:
    """Why every node of a cluster is still here, as of one round (null: there was none yet). `held` says why that
    decided nothing, and is empty when it did.
    """

    cluster: str
    time: str | None
    held: str
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
        round=of.number,
        time=durations.timestamp(of.time),
        dry_run=of.dry_run,
        outcome=HELD if of.decision is None else first.outcome,
        held=of.blocked_reason,
        decisions=actions,
        unplaced=unplaced,
        cost_per_hour=group_rows.cost_row(of.cost, _counted(actions)),
        pending=scale_up_rows.pending_rows(decision, unplaced),
        aside=[AsideRow(reason, pods, len(pods)) for reason, pods in by_value(of.skipped_pods.items()).items()],
        advice=decision.advice,
        further=further,
        preferred_cpu_milli=decision.preferred_cpu_milli,
        incidents=[_incident(each) for each in of.incidents],
        unread=[UnreadRow(name, str(problem)) for name, problem in sorted(of.invalid_objects.items())],
        scale_down=node_rows.scale_down_row(of),
        leaving=node_rows.deletion_rows(of.leaving),
        scans=node_rows.scan_rows(of.scans),
        cluster=of.cluster,
        buffers=buffers,
        buffer_decisions=buffer_decisions,
        requests=requests,
        request_decisions=request_decisions,
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
        aside=[replace(each, pods=each.pods[:BRIEF_NAMES]) for each in of.aside],
        scale_down=node_rows.first_rows(of.scale_down),
    )


def nodes_answer(of: Plan | None, cluster: str = "") -> NodesLeft:
    """Without any round yet, that of the `cluster`."""
    return NodesLeft(cluster, None, "", False, None, [], []) if of is None else row_of(NodesLeft, of)


def _incident(of: Incident) -> IncidentRow:
    code, message = ("", of.message) if of.error is None else (of.error.code, of.error.message)
    return IncidentRow(of.kind, of.group, of.nodes, of.seconds, code, message)


def _counted(actions: list[DecisionRow]) -> list[DecisionRow]:
    """Advice has no cost beside the actions that are carried out instead."""
    enforced = [each for each in actions if each.mode != Mode.RECOMMEND]
    return enforced if any(each.cost_per_hour != 0.0 for each in enforced) else actions
