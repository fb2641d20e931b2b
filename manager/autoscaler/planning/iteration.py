"""One iteration of the autoscaler: the observed state, the decisions with their reasons, and the results.

Log, Events, metrics, the API, `headroom plan` and the page all report this one value.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from manager.autoscaler.cluster_state.actions import Action
from manager.autoscaler.cluster_state.cost import Cost
from manager.autoscaler.cluster_state.state import ClusterState, Incident
from manager.autoscaler.disruption.verdicts import ConsolidationDecision
from manager.autoscaler.pod_injection.buffer_planning import BufferPlan
from manager.autoscaler.pod_injection.request_planning import RequestPlan
from manager.autoscaler.scale_down import removal_status
from manager.autoscaler.scale_down.removal_status import DeletionProgress
from manager.autoscaler.scale_up.decisions import ScaleUpDecision
from manager.autoscaler.scale_up.disagreements import Disagreement
from manager.autoscaler.snapshot.interruptions import Interruption
from manager.autoscaler.utilization import decisions as utilization
from shared.errors import InvalidInput


@dataclass(frozen=True)
class ScanResult:
    """The decisions about all groups as carried out, in the order of the file, and the actions done or advised."""

    decisions: tuple[utilization.ScanDecision, ...] = ()
    actions: tuple[Action, ...] = ()


@dataclass(frozen=True)
class Iteration:
    """`number` counts the iterations of one process; `time` in Unix seconds. `cluster` is the cluster's name, if any.

    `blocked_reason` says why the iteration decided nothing; it is empty otherwise. `skipped_pods` are pending pods that
    scale-up does not consider, each with the reason; `invalid_objects` could not be read. `incidents` happened since
    the iteration before. `scale_down` has a verdict on every node (None: no node was considered). `leaving` are nodes
    under removal, and those whose removal ended since the iteration before; `scans` are the decisions about groups that
    scale by utilization. `consolidation` has a verdict on the nodes that might be replaced (None: none was considered).
    `buffers` has the state of the CapacityBuffers, and `requests` that of the ProvisioningRequests (None: none was
    considered). `interruptions` are the cloud's announcements, by node. `disagreements` are pods that the scheduler
    refuses although the predicates allow them.
    """

    number: int
    time: float
    state: ClusterState = field(default_factory=ClusterState)
    blocked_reason: str = ""
    skipped_pods: Mapping[str, str] = field(default_factory=dict)
    invalid_objects: Mapping[str, InvalidInput] = field(default_factory=dict)
    decision: ScaleUpDecision | None = None
    actions: tuple[Action, ...] = ()
    cost: Cost = field(default_factory=Cost)
    dry_run: bool = False
    further: tuple[ScaleUpDecision, ...] = ()
    incidents: tuple[Incident, ...] = ()
    scale_down: removal_status.ScaleDownDecision | None = None
    leaving: tuple[DeletionProgress, ...] = ()
    scans: tuple[utilization.ScanDecision, ...] = ()
    cluster: str = ""
    consolidation: ConsolidationDecision | None = None
    buffers: BufferPlan | None = None
    requests: RequestPlan | None = None
    interruptions: Mapping[str, Interruption] = field(default_factory=dict)
    disagreements: tuple[Disagreement, ...] = ()

    @property
    def decisions(self) -> tuple[ScaleUpDecision, ...]:
        """All scale-up decisions, in their order: those about pods, then those about requests, then about buffers."""
        requests = () if self.requests is None else self.requests.decisions
        return self.for_pods + requests + (() if self.buffers is None else self.buffers.decisions)

    @property
    def for_pods(self) -> tuple[ScaleUpDecision, ...]:
        return (() if self.decision is None else (self.decision,)) + self.further

    def with_decisions(self, decisions: Sequence[ScaleUpDecision]) -> "Iteration":
        """The same with these decisions, which are as many as there were."""
        pods = [each for each in decisions if not (each.for_buffers or each.for_requests)]
        buffers, requests = self.buffers, self.requests
        if buffers is not None:
            buffers = replace(buffers, decisions=tuple(each for each in decisions if each.for_buffers))
        if requests is not None:
            requests = replace(requests, decisions=tuple(each for each in decisions if each.for_requests))
        decision, further = pods[0] if pods else None, tuple(pods[1:])
        return replace(self, decision=decision, further=further, buffers=buffers, requests=requests)

    def latest_scans(self, before: Iterable[utilization.ScanDecision]) -> tuple[utilization.ScanDecision, ...]:
        """The last scan decision of each group, which stands until the next.

        A manager without groups has no scans either.
        """
        kept = {each.group: each for each in before} if self.state.groups else {}
        return tuple((kept | {each.group: each for each in self.scans}).values())

    @property
    def deleted_by_scans(self) -> frozenset[str]:
        """The nodes that scans of their groups found ripe for deletion."""
        return frozenset(node.name for scan in self.scans for node in scan.deletions)
