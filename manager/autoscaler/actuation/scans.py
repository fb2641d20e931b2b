"""The scans of groups that scale by utilization: when they are due, what is remembered of them, and what is done.

The memory of a group's next scan stays in this process, as in Escalator; the time of a taint stands on the node. For
nodes already upcoming when a process starts, see `memory.taken_over`.

Nodes are deleted by the deletion machine. Every other write checks leadership first, and reads its object again: a node
that has changed since the decision is skipped, and the next candidate taken if there is one.
"""

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from manager.autoscaler.actuation.actuator import Actuator
from manager.autoscaler.actuation.node_writer import NodeVanished, NodeWriter
from manager.autoscaler.cloudprovider.contract import InstanceState, NodeRef
from manager.autoscaler.cloudprovider.errors import ProviderError
from manager.autoscaler.cluster_state.actions import Action, ActionKind
from manager.autoscaler.cluster_state.state import Increase
from manager.autoscaler.decision_settings import DecisionSettings
from manager.autoscaler.planning.iteration import ScanResult
from manager.autoscaler.settings.modes import Mode
from manager.autoscaler.snapshot import taints
from manager.autoscaler.snapshot.taints import NodePatch, Taints
from manager.autoscaler.utilization import decisions, review, scan
from manager.autoscaler.utilization import memory as memories
from manager.autoscaler.utilization.decisions import Picks, ScanDecision
from manager.autoscaler.utilization.memory import Memory, ScaleLock
from manager.autoscaler.utilization.observation import GroupNode
from manager.autoscaler.utilization.reaping import Reaping
from manager.autoscaler.utilization.review import NodeReview
from manager.autoscaler.utilization.scan import DueScans, PlannedScan
from manager.autoscaler.utilization.scan_context import ScanInputs
from shared.api.core import Node
from shared.errors import HeadroomError
from shared.explanation import ScaleExplanation
from shared.kube.errors import ApiError, ServerError, TooManyRequests, Unreachable

logger = logging.getLogger(__name__)

MOST_FAILURES = 10  # of node writes, after which the next scan takes over
MOST_NAMED = 3  # of many, in an error
LOST = ScaleExplanation("its machine is gone")
_SILENT = (Unreachable, ServerError, TooManyRequests)  # another call would get no answer either

Grow = Callable[[Increase], HeadroomError | None]


@dataclass(frozen=True)
class ScanAccess:
    """What a scan acts through. `grow` raises a target, and returns the error."""

    writer: NodeWriter
    actuator: Actuator
    grow: Grow


class Scans:
    """The groups of the file that scale by utilization, in its order. For one thread."""

    def __init__(self, settings: DecisionSettings, *, interval_seconds: float, dry_run: bool = False) -> None:
        self._settings = settings
        self._interval_seconds = interval_seconds
        self._dry_run = dry_run
        self._memories: dict[str, Memory] = {}
        self._scanned_at: float | None = None

    def due_in(self, now: float) -> float:
        """Seconds until the next scan is due; infinite without any group to scan."""
        if not self._settings.scanned:
            return math.inf
        if not memories.is_within(self._interval_seconds, since=self._scanned_at, now=now):
            return 0.0
        assert self._scanned_at is not None
        return self._scanned_at + self._interval_seconds - now

    def request(self) -> DueScans:
        """What the plan of an iteration needs to scan the groups."""
        return DueScans(dict(self._memories), self._dry_run)

    def forget(self) -> None:
        """Drops the memory: another replica leads and scans."""
        self._memories.clear()
        self._scanned_at = None

    def shift(self, seconds: float) -> None:
        """Adjusts to a clock jump of `seconds`."""
        if not seconds:
            return
        self._memories = {name: memories.shifted(each, seconds) for name, each in self._memories.items()}
        if self._scanned_at is not None:
            self._scanned_at += seconds

    def carry_out(
        self, planned: Iterable[PlannedScan], access: ScanAccess, nodes: Iterable[Node], now: float
    ) -> ScanResult:
        """Acts on every decision, and remembers it. An error in one group does not affect the others."""
        self._scanned_at = now
        by_name = {node.metadata.name: node for node in nodes}
        found: list[ScanDecision] = []
        actions: list[Action] = []
        for each in planned:
            done = each.decision
            if each.inputs is not None:
                mode = self._settings.scan_mode_of(each.inputs.rules.group)
                # Completed actions stand, whatever happens to the rest.
                work = _ScanWork(each.inputs, done, mode, access, by_name)
                done = self._carried_out(work)
                actions += work.actions
            found.append(done)
        return ScanResult(tuple(found), tuple(actions))

    def _carried_out(self, work: "_ScanWork") -> ScanDecision:
        inputs = work.inputs
        rules, seen, name = inputs.rules, inputs.seen, inputs.rules.group.name
        try:
            done = work.execute()
            if not seen.unlisted:
                self._memories[name] = scan.remember(rules, seen, inputs.memory, done, now=inputs.now)
        except Exception as error:
            logger.exception("the scan broke down", extra={"group": name})
            asked = sum(each.change for each in work.actions if each.done and each.kind is ActionKind.INCREASE)
            if asked:  # it waits for the nodes that it requested before it failed
                lock = ScaleLock(inputs.now, asked)
                self._memories[name] = replace(self._memories.get(name, Memory()), lock=lock)
            return scan.broken_down(rules, error)
        if done.error:
            logger.warning("scan: %s", done.error, extra={"group": name})
        return done


@dataclass
class _ScanWork:
    """One decision, and in `actions` what is done or advised. `nodes` are the Nodes that the decision has seen."""

    inputs: ScanInputs
    decision: ScanDecision
    mode: Mode
    access: ScanAccess
    nodes: Mapping[str, Node]
    actions: list[Action] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rules = self.inputs.rules
        self.group = self.rules.group.cloud_provider_group_name
        self.guard = self.access.writer.guard

    def execute(self) -> ScanDecision:
        """The decision as carried out; unchanged in dry or advisory mode."""
        decision = self.decision
        if decision.dry or self.mode is not Mode.ENFORCE:
            self._advise()
            return decision
        why = decisions.explain_delta(self.rules, decision)
        health_taints = self._taint(
            decision.health_taints, len(decision.health_taints), decisions.health_reason(self.rules)
        )
        untainted = self._write_each(
            ActionKind.UNTAINT,
            decision.untaint.candidates,
            decision.untaint.count,
            why,
            lambda node: self._change(node, taints.without_scan_taint),
        )
        wanted = decision.increase_after(len(untainted))
        # A deletion that fails does not stop a growth that does not need its place.
        waits = wanted > decision.most_increase - len(decision.deletions)
        grown = decision if waits else self._increase(decision, wanted, why)
        forced = self._delete(decision.forced)
        reaped = self._drain(self._delete(decision.reaped), decision.drains)
        tainted = self._taint(decision.taint.candidates, decision.taint.count, why)
        done = replace(
            grown,
            health_taints=health_taints,
            forced=forced,
            reaped=reaped,
            taint=Picks(tainted, len(tainted)),
            untaint=Picks(untainted, len(untainted)),
        )
        if not waits:
            return done
        kept = len(decision.deletions) - len(done.deletions)
        return self._increase(done, min(wanted, decision.most_increase - kept), why)

    def _advise(self) -> None:
        """Records the actions that would be done."""
        decision = self.decision
        why = decisions.explain_delta(self.rules, decision)
        self._log(ActionKind.TAINT, decision.health_taints, decisions.health_reason(self.rules))
        for each in (decision.forced, decision.reaped):
            self._log(ActionKind.DELETE_NODES, each.nodes, decisions.deletion_reason(each), change=-len(each.nodes))
        self._log(ActionKind.REMOVE_NODES, decision.drains, decisions.drain_reason(decision.reaped))
        self._log(ActionKind.TAINT, decision.taint.planned, why)
        self._log(ActionKind.UNTAINT, decision.untaint.planned, why)
        if decision.increase:
            self._log(ActionKind.INCREASE, (), why, change=decision.increase)

    def _taint(self, candidates: Sequence[GroupNode], count: int, why: ScaleExplanation) -> tuple[GroupNode, ...]:
        def taints_of(given: Taints) -> Taints | None:
            return taints.with_scan_taint(given, now=self.inputs.now, effect=self.rules.group.taint_effect)

        return self._write_each(ActionKind.TAINT, candidates, count, why, lambda node: self._change(node, taints_of))

    def _write_each(
        self,
        what: ActionKind,
        candidates: Sequence[GroupNode],
        count: int,
        why: ScaleExplanation,
        write: Callable[[GroupNode], str],
    ) -> tuple[GroupNode, ...]:
        """The first `count` nodes on which the write succeeded; it returns why a node was left alone."""
        done: list[GroupNode] = []
        failed: list[tuple[GroupNode, str]] = []
        failures = 0
        for node in candidates:
            if len(done) == count or failures == MOST_FAILURES:
                break
            try:
                self.access.writer.check_leads()
                problem = self._not_in_group(node) or write(node)
            except ApiError as error:
                problem = f"{node.name}: {error}"
                failures = MOST_FAILURES if isinstance(error, _SILENT) else failures + 1
            except HeadroomError as error:  # no answer, or another process leads
                problem, failures = f"{node.name}: {error}", MOST_FAILURES
            if problem:
                failed.append((node, problem))
            else:
                done.append(node)
        self._log(what, done, why, done=bool(done))
        self._log(what, [node for node, _ in failed], why, errors=[error for _, error in failed])
        return tuple(done)

    def _not_in_group(self, node: GroupNode) -> str:
        """Why the node is left alone, whatever its labels say: the cloud deletes it, or has it in no such group."""
        state = self._member(node)
        if state is None:
            return f"{node.name} ({node.provider_id}) is not in the cloud's group"
        return f"{node.name}: the cloud is deleting it" if state is InstanceState.DELETING else ""

    def _member(self, node: GroupNode) -> InstanceState | None:
        return self.guard.observed.member(self.group, NodeRef(node.name, node.provider_id))

    def _change(self, node: GroupNode, taints_of: Callable[[Taints], Taints | None]) -> str:
        """Why the node was left alone; empty if its taints are as they should be."""
        changed = ""

        def patch_of(found: Node) -> NodePatch | None:
            nonlocal changed
            changed = review.changes(found, node)
            return None if changed else taints.taints_patch(taints_of(found.spec.taints or ()))

        try:
            self.access.writer.change(node.name, patch_of)
        except NodeVanished:
            return f"{node.name}: it is gone"
        return changed

    def _reviews(self, planned: Reaping, nodes: Iterable[GroupNode]) -> list[NodeReview]:
        healthy_may_go, names = self.decision.healthy is not False, {node.name for node in nodes}
        return [
            NodeReview(self.inputs, each.node, each.why, healthy_may_go)
            for each in planned.statuses
            if each.node.name in names
        ]

    def _delete(self, planned: Reaping) -> Reaping:
        """Deletes the machines and then their Nodes, as far as the scan's verdicts still hold."""
        if not planned.nodes:
            return planned
        why = decisions.deletion_reason(planned)
        lost = {node.name for node in planned.nodes if self._member(node) is None}
        failed = self.access.actuator.delete_tainted(self.group, self._reviews(planned, planned.nodes), self.nodes)
        gone = [node for node in planned.nodes if node.name not in failed]
        done = [node for node in gone if node.name not in lost]
        self._log(ActionKind.DELETE_NODES, done, why, change=-len(done), done=bool(done))
        self._log(ActionKind.DELETE_NODES, [node for node in gone if node.name in lost], LOST, done=bool(gone))
        stay = [node for node in planned.nodes if node.name in failed]
        errors = dict.fromkeys(failed[node.name] for node in stay)
        self._log(ActionKind.DELETE_NODES, stay, why, change=-len(stay), errors=errors)
        return planned.pass_over(failed)

    def _drain(self, planned: Reaping, nodes: Sequence[GroupNode]) -> Reaping:
        """Evicts the pods of these nodes; returns the reaping as carried out."""
        reviews = {each.node.name: each for each in self._reviews(planned, nodes)}
        evicted = self._write_each(
            ActionKind.REMOVE_NODES,
            nodes,
            len(nodes),
            decisions.drain_reason(planned),
            lambda node: self.access.actuator.evict_tainted(reviews[node.name]),
        )
        return planned.pass_over({each.name for each in nodes} - {each.name for each in evicted})

    def _increase(self, decision: ScanDecision, wanted: int, why: ScaleExplanation) -> ScanDecision:
        if wanted <= 0:
            return replace(decision, increase=0)
        size = self._target_size
        error = self.access.grow(Increase(self.group, size, size + wanted, self.inputs.seen.cloud.max_size))
        if error is None:
            self._log(ActionKind.INCREASE, (), why, change=wanted, done=True)
            return replace(decision, increase=wanted)
        self._log(ActionKind.INCREASE, (), why, change=wanted, errors=[str(error)])
        in_doubt = isinstance(error, ProviderError) and error.leaves_doubt
        return replace(decision, increase=wanted if in_doubt else 0, refusals=(*decision.refusals, str(error)))

    @property
    def _target_size(self) -> int:
        """The cloud's present target, including writes since the observation."""
        found = self.guard.observed.groups.get(self.group)
        return self.inputs.seen.cloud.target_size if found is None else found.group.target_size

    def _log(
        self,
        what: ActionKind,
        nodes: Sequence[GroupNode],
        why: ScaleExplanation,
        *,
        change: int = 0,
        done: bool = False,
        errors: Iterable[str] = (),
    ) -> None:
        """Adds an action. `change` of the target is still to come, or was refused; with `done` it has come."""
        told = list(errors)
        if not nodes and not change and not told:
            return
        size = self._target_size
        before, after = (size - change, size) if done else (size, size + change)
        names = tuple(each.name for each in nodes)
        error = "; ".join(told[:MOST_NAMED]) + (f"; and {len(told) - MOST_NAMED} more" * (len(told) > MOST_NAMED))
        most = self.inputs.seen.cloud.max_size
        why = msgspec.structs.replace(why, result=change)
        self.actions.append(Action(what, self.group, self.mode, before, after, most, names, why, done, error))
        if done:
            logger.info("%s: %s", what, why, extra={"group": self.group, "nodes": ", ".join(names)})
        elif error:
            logger.error("%s failed: %s", what, error, extra={"group": self.group})
