"""Carries out one group's scan: turns the decision into writes, and returns the decision as carried out.

Every write checks leadership first, and reads its object again: a node that has changed since the decision is passed
over, and the next candidate taken if there is one.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from manager.autoscaler.actuation import scanned_group
from manager.autoscaler.actuation.node_writer import NodeVanished, NodeWriter
from manager.autoscaler.actuation.scanned_group import (
    MOST_FAILURES,
    MOST_NAMED,
    JudgeNodes,
    NodeReview,
    PassedOver,
    ScannedGroup,
)
from manager.autoscaler.cloudprovider.errors import ProviderError
from manager.autoscaler.cluster_state.actions import Action, ActionKind
from manager.autoscaler.cluster_state.state import Increase
from manager.autoscaler.settings.modes import Mode
from manager.autoscaler.snapshot import taints
from manager.autoscaler.snapshot.taints import NodePatch, Taints
from manager.autoscaler.utilization import decisions
from manager.autoscaler.utilization.decisions import Picks, ScanDecision
from manager.autoscaler.utilization.observation import GroupNode
from manager.autoscaler.utilization.reaping import Reaping, TaintedNodeReason
from manager.autoscaler.utilization.scan_context import ScanInputs
from shared.api.core import Node
from shared.errors import HeadroomError
from shared.explanation import ScaleExplanation
from shared.kube.errors import ApiError, NotFound, ServerError, TooManyRequests, Unreachable

logger = logging.getLogger(__name__)

LOST = ScaleExplanation("its machine is gone")
_SILENT = (Unreachable, ServerError, TooManyRequests)  # another call would get no answer either

Grow = Callable[[Increase], HeadroomError | None]


@dataclass(frozen=True)
class ScanClients:
    """The clients of a scan. `grow` raises a target, and returns the error."""

    nodes: NodeWriter
    grow: Grow


class ActionLog:
    """The actions of a scan, done, advised or failed, in `actions`."""

    def __init__(self, group: ScannedGroup, mode: Mode, actions: list[Action]) -> None:
        self._group = group
        self._mode = mode
        self._actions = actions

    def add(
        self,
        what: ActionKind,
        nodes: Sequence[GroupNode],
        why: ScaleExplanation,
        *,
        change: int = 0,
        done: bool = False,
        errors: Iterable[str] = (),
    ) -> None:
        """`change` of the target is still to come, or was refused; with `done` it has come."""
        told = list(errors)
        if not nodes and not change and not told:
            return
        size = self._group.target_size
        before, after = (size - change, size) if done else (size, size + change)
        names = tuple(each.name for each in nodes)
        error = "; ".join(told[:MOST_NAMED]) + (f"; and {len(told) - MOST_NAMED} more" * (len(told) > MOST_NAMED))
        most = self._group.inputs.seen.cloud.max_size
        why = msgspec.structs.replace(why, result=change)
        self._actions.append(Action(what, self._group.id, self._mode, before, after, most, names, why, done, error))
        if done:
            logger.info("%s: %s", what, why, extra={"group": self._group.id, "nodes": ", ".join(names)})
        elif error:
            logger.error("%s failed: %s", what, error, extra={"group": self._group.id})


@dataclass
class ScanActuator:
    """One decision. `actions` gets those done or advised."""

    inputs: ScanInputs
    decision: ScanDecision
    mode: Mode
    clients: ScanClients
    actions: list[Action] = field(default_factory=list)

    def __post_init__(self) -> None:
        nodes = self.clients.nodes
        self.rules = self.inputs.rules
        self.group = ScannedGroup(self.inputs, nodes)
        self.review = NodeReview(self.inputs, nodes, self.decision.healthy is not False)
        self.log = ActionLog(self.group, self.mode, self.actions)

    def execute(self) -> ScanDecision:
        """The decision as carried out; unchanged in dry or advisory mode."""
        decision = self.decision
        if decision.dry or self.mode is not Mode.ENFORCE:
            self._advise()
            return decision
        why = decisions.explain_delta(self.rules, decision)
        health_taints = self._taint_nodes(
            decision.health_taints, len(decision.health_taints), decisions.health_reason(self.rules)
        )
        untainted = self._write_each(
            ActionKind.UNTAINT, decision.untaint.candidates, decision.untaint.count, why, self._untaint
        )
        wanted = self.decision.increase_after(len(untainted))
        # A deletion that fails does not stop a growth that does not need its place.
        waits = wanted > self.decision.most_increase - self._places_of(self.decision)
        grown = decision if waits else self._increase(decision, wanted, why)
        forced = self._delete_machines(decision.forced, self.review.judge_forced)
        reaped = self._drain(self._delete_machines(decision.reaped, self.review.judge_tainted), decision.drains)
        tainted = self._taint_nodes(decision.taint.candidates, decision.taint.count, why)
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
        kept = self._places_of(self.decision) - self._places_of(done)
        return self._increase(done, min(wanted, self.decision.most_increase - kept), why)

    def _places_of(self, decision: ScanDecision) -> int:
        """The number of places that the decision expects from its deletions."""
        return len(decision.deletions) if self.rules.fixes.counts_deletions else 0

    def _advise(self) -> None:
        """Records the actions that would be done."""
        decision = self.decision
        why = decisions.explain_delta(self.rules, decision)
        self.log.add(ActionKind.TAINT, decision.health_taints, decisions.health_reason(self.rules))
        for each in (decision.forced, decision.reaped):
            self.log.add(ActionKind.DELETE_NODES, each.nodes, decisions.deletion_reason(each), change=-len(each.nodes))
        self.log.add(ActionKind.REMOVE_NODES, decision.drains, decisions.drain_reason(decision.reaped))
        self.log.add(ActionKind.TAINT, decision.taint.planned, why)
        self.log.add(ActionKind.UNTAINT, decision.untaint.planned, why)
        if decision.increase:
            self.log.add(ActionKind.INCREASE, (), why, change=decision.increase)

    def _taint_nodes(self, candidates: Sequence[GroupNode], count: int, why: ScaleExplanation) -> tuple[GroupNode, ...]:
        return self._write_each(ActionKind.TAINT, candidates, count, why, self._taint)

    def _write_each(
        self,
        what: ActionKind,
        candidates: Sequence[GroupNode],
        count: int,
        why: ScaleExplanation,
        write: Callable[[GroupNode], None],
    ) -> tuple[GroupNode, ...]:
        """The first `count` nodes on which the write succeeded."""
        done: list[GroupNode] = []
        failed: list[tuple[GroupNode, str]] = []
        failures = 0
        for node in candidates:
            if len(done) == count or failures == MOST_FAILURES:
                break
            try:
                self.clients.nodes.check_leads()
                self.group.check_member(node)
                write(node)
            except PassedOver as error:
                failed.append((node, str(error)))
            except ApiError as error:
                failed.append((node, f"{node.name}: {error}"))
                failures = MOST_FAILURES if isinstance(error, _SILENT) else failures + 1
            except HeadroomError as error:  # no answer, or another process leads
                failed.append((node, f"{node.name}: {error}"))
                break
            else:
                done.append(node)
        self.log.add(what, done, why, done=bool(done))
        self.log.add(what, [node for node, _ in failed], why, errors=[error for _, error in failed])
        return tuple(done)

    def _taint(self, node: GroupNode) -> None:
        effect = self.rules.group.taint_effect
        self._change(node, lambda given: taints.with_scan_taint(given, now=self.inputs.now, effect=effect))

    def _untaint(self, node: GroupNode) -> None:
        self._change(node, taints.without_scan_taint)

    def _change(self, node: GroupNode, taints_of: Callable[[Taints], Taints | None]) -> None:
        def patch_of(found: Node) -> NodePatch | None:
            return taints.taints_patch(taints_of(scanned_group.check_unchanged(found, node).spec.taints or ()))

        try:
            self.clients.nodes.change(node.name, patch_of)
        except NodeVanished as error:
            raise PassedOver(f"{node.name}: it is gone") from error

    def _delete_machines(self, planned: Reaping, judge: JudgeNodes) -> Reaping:
        """Deletes machines and then their Nodes, up to the first that stays."""
        if not planned.nodes:
            return planned
        why = decisions.deletion_reason(planned)
        found: dict[str, Node] = {}
        lost: set[str] = set()
        failed: dict[str, str] = {}
        for node in planned.nodes:
            try:
                if self.group.is_lost(node):
                    lost.add(node.name)
                else:
                    self.group.check_member(node)
                found[node.name], now, _ = self.review.look_again(node, judge, lambda verdict: verdict.goes)
                if node.name in lost and now.nodes[0].ready:
                    raise PassedOver(f"{node.name}: its machine is gone, and it is ready")
            except HeadroomError as error:
                failed[node.name] = str(error)
                if isinstance(error, _SILENT):
                    failed |= {each.name: str(error) for each in planned.nodes if each.name not in failed}
                    break
        going = [each for name, each in found.items() if name not in failed and name not in lost]
        if self.rules.fixes.clamps_deletions:
            room = self.group.deletable
            failed |= {
                each.metadata.name: f"{each.metadata.name}: {TaintedNodeReason.AT_MINIMUM}" for each in going[room:]
            }
            going = going[:room]
        failed |= self.group.delete(going)
        lost -= failed.keys()
        gone = found.keys() - failed.keys() - lost
        done = [each for each in planned.nodes if each.name in gone]
        self.log.add(ActionKind.DELETE_NODES, done, why, change=-len(done), done=bool(done))
        self.log.add(
            ActionKind.DELETE_NODES, [each for each in planned.nodes if each.name in lost], LOST, done=bool(lost)
        )
        stay = [each for each in planned.nodes if each.name in failed]
        self.log.add(ActionKind.DELETE_NODES, stay, why, change=-len(stay), errors=list(dict.fromkeys(failed.values())))
        self._delete_nodes([each for name, each in found.items() if name not in failed])
        return planned.pass_over(failed)

    def _delete_nodes(self, gone: Sequence[Node]) -> None:
        """Deletes their Node objects. If that fails, the cloud's own controllers do it later."""
        for node in gone:
            try:
                self.clients.nodes.delete_node(node.metadata.name, node.metadata.uid)
            except NotFound:
                continue
            except HeadroomError as error:
                logger.warning("Node left behind: %s", error, extra={"node": node.metadata.name})
                return

    def _drain(self, planned: Reaping, nodes: Sequence[GroupNode]) -> Reaping:
        """Drains the nodes; returns the reaping as carried out."""
        evicted = self._write_each(
            ActionKind.REMOVE_NODES, nodes, len(nodes), decisions.drain_reason(planned), self.review.evict
        )
        return planned.pass_over({each.name for each in nodes} - {each.name for each in evicted})

    def _increase(self, decision: ScanDecision, wanted: int, why: ScaleExplanation) -> ScanDecision:
        if wanted <= 0:
            return replace(decision, increase=0)
        size = self.group.target_size
        error = self.clients.grow(Increase(self.group.id, size, size + wanted, self.inputs.seen.cloud.max_size))
        if error is None:
            self.log.add(ActionKind.INCREASE, (), why, change=wanted, done=True)
            return replace(decision, increase=wanted)
        self.log.add(ActionKind.INCREASE, (), why, change=wanted, errors=[str(error)])
        in_doubt = isinstance(error, ProviderError) and error.leaves_doubt
        locks = in_doubt and self.rules.fixes.locks_in_doubt
        return replace(decision, increase=wanted if locks else 0, refusals=(*decision.refusals, str(error)))
