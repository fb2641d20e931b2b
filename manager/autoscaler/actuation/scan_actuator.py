"""Carries out one group's scan: turns the decision into writes, and returns the decision as carried out.

Every write checks leadership first, and reads its object again: a node that has changed since the decision is passed
over, and the next candidate taken if there is one.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from manager.autoscaler import taints
from manager.autoscaler.actuation.node_writer import NodeVanished, NodeWriter, UnreadablePod
from manager.autoscaler.cloudprovider.contract import InstanceState, NodeRef
from manager.autoscaler.cloudprovider.errors import ProviderError, Refused
from manager.autoscaler.iteration import Action, ActionKind
from manager.autoscaler.modes import Mode
from manager.autoscaler.scale_up.decisions import Increase
from manager.autoscaler.taints import NodePatch, Taints
from manager.autoscaler.utilization import classes, reaping, reasons
from manager.autoscaler.utilization import memory as memories
from manager.autoscaler.utilization.decisions import Picks, ScanDecision
from manager.autoscaler.utilization.memory import Mark
from manager.autoscaler.utilization.observation import GroupNode, Observation, Observer
from manager.autoscaler.utilization.reaping import Reaping, TaintedNodeReason, TaintedNodeStatus
from manager.autoscaler.utilization.rules import ScanRules
from shared.api.core import Node, Pod
from shared.errors import HeadroomError
from shared.kube.errors import ApiError, NotFound, ServerError, TooManyRequests, Unreachable

logger = logging.getLogger(__name__)

MOST_FAILURES = 10  # of consecutive node writes, after which the next scan takes over
MOST_NAMED = 3  # of many, in an error
LOST = "its machine is gone"
_SILENT = (Unreachable, ServerError, TooManyRequests)  # another call would get no answer either

Grow = Callable[[Increase], HeadroomError | None]
_Judge = Callable[[Observation], tuple[TaintedNodeStatus, ...]]


class PassedOver(HeadroomError):
    """The node is not in the state of the decision, and is left alone."""


@dataclass(frozen=True)
class ScanClients:
    """The clients of a scan. `grow` raises a target, and returns the error."""

    nodes: NodeWriter
    grow: Grow


@dataclass
class ScanActuator:
    """One decision. `actions` are those done or advised; `marks` are by node, as in `Memory`."""

    rules: ScanRules
    mode: Mode
    seen: Observation
    decision: ScanDecision
    hands: ScanClients
    now: float
    actions: list[Action] = field(default_factory=list)
    marks: Mapping[str, Mark] = field(default_factory=dict)

    @property
    def group(self) -> str:
        return self.rules.group.cloud_provider_group_name

    def execute(self) -> ScanDecision:
        """The decision as carried out; unchanged in dry or advisory mode."""
        decision = self.decision
        if decision.dry or self.mode is not Mode.ENFORCE:
            self._advise()
            return decision
        why = reasons.of_delta(self.rules, decision)
        health_taints = self._tainted(
            decision.health_taints, len(decision.health_taints), reasons.of_health(self.rules)
        )
        untainted = self._each(
            ActionKind.UNTAINT, decision.untaint.candidates, decision.untaint.count, why, self._untaint
        )
        wanted = self.decision.increase_after(len(untainted))
        # A deletion that fails does not stop a growth that does not need its place.
        waits = wanted > self.decision.most_increase - self._places(self.decision)
        grown = decision if waits else self._increased(decision, wanted, why)
        forced = self._deleted(decision.forced, self._forced_verdict)
        reaped = self._drained(self._deleted(decision.reaped, self._verdict), decision.drains)
        tainted = self._tainted(decision.taint.candidates, decision.taint.count, why)
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
        kept = self._places(self.decision) - self._places(done)
        return self._increased(done, min(wanted, self.decision.most_increase - kept), why)

    def _places(self, decision: ScanDecision) -> int:
        """How many of its deletions the decision counts as room."""
        return len(decision.deletions) if self.rules.fixes.counts_deletions else 0

    def _advise(self) -> None:
        """Records the actions that would be done."""
        decision = self.decision
        why = reasons.of_delta(self.rules, decision)
        self._tell(ActionKind.TAINT, decision.health_taints, reasons.of_health(self.rules))
        for each in (decision.forced, decision.reaped):
            self._tell(ActionKind.DELETE_NODES, each.nodes, reasons.of_deletion(each), change=-len(each.nodes))
        self._tell(ActionKind.REMOVE_NODES, decision.drains, reasons.of_drain(decision.reaped))
        self._tell(ActionKind.TAINT, decision.taint.planned, why)
        self._tell(ActionKind.UNTAINT, decision.untaint.planned, why)
        if decision.increase:
            self._tell(ActionKind.INCREASE, (), why, change=decision.increase)

    def _tell(
        self,
        what: ActionKind,
        nodes: Sequence[GroupNode],
        why: str,
        *,
        change: int = 0,
        done: bool = False,
        errors: Iterable[str] = (),
    ) -> None:
        """`change` of the target is still to come, or was refused; with `done` it has come."""
        told = list(errors)
        if not nodes and not change and not told:
            return
        size = self._target_size
        before, after = (size - change, size) if done else (size, size + change)
        names = tuple(each.name for each in nodes)
        error = "; ".join(told[:MOST_NAMED]) + (f"; and {len(told) - MOST_NAMED} more" * (len(told) > MOST_NAMED))
        most = self.seen.cloud.max_size
        self.actions.append(Action(what, self.group, self.mode, before, after, most, names, why, done, error))
        if done:
            logger.info("%s: %s", what, why, extra={"group": self.group, "nodes": ", ".join(names)})
        elif error:
            logger.error("%s failed: %s", what, error, extra={"group": self.group})

    @property
    def _target_size(self) -> int:
        """The cloud's present target, including writes since the observation."""
        found = self.hands.nodes.guard.observed.groups.get(self.group)
        return self.seen.cloud.target_size if found is None else found.group.target_size

    def _tainted(self, candidates: Sequence[GroupNode], count: int, why: str) -> tuple[GroupNode, ...]:
        return self._each(ActionKind.TAINT, candidates, count, why, self._taint)

    def _each(
        self,
        what: ActionKind,
        candidates: Sequence[GroupNode],
        count: int,
        why: str,
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
                self.hands.nodes.check_leads()
                self._check_member(node)
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
        self._tell(what, done, why, done=bool(done))
        self._tell(what, [node for node, _ in failed], why, errors=[error for _, error in failed])
        return tuple(done)

    def _taint(self, node: GroupNode) -> None:
        effect = self.rules.group.taint_effect
        self._change(node, lambda given: taints.with_scan_taint(given, now=self.now, effect=effect))

    def _untaint(self, node: GroupNode) -> None:
        self._change(node, taints.without_scan_taint)

    def _change(self, node: GroupNode, taints_of: Callable[[Taints], Taints | None]) -> None:
        def patch_of(found: Node) -> NodePatch | None:
            return taints.taints_patch(taints_of(_unchanged(found, node).spec.taints or ()))

        try:
            self.hands.nodes.change(node.name, patch_of)
        except NodeVanished as error:
            raise PassedOver(f"{node.name}: it is gone") from error

    def _deleted(self, planned: Reaping, judge: _Judge) -> Reaping:
        """Deletes machines and then their Nodes, up to the first that stays."""
        if not planned.nodes:
            return planned
        why = reasons.of_deletion(planned)
        found: dict[str, Node] = {}
        lost: set[str] = set()
        failed: dict[str, str] = {}
        for node in planned.nodes:
            try:
                if self._is_lost(node):
                    lost.add(node.name)
                else:
                    self._check_member(node)
                found[node.name], now, _ = self._looked_again(node, judge, lambda verdict: verdict.goes)
                if node.name in lost and now.nodes[0].ready:
                    raise PassedOver(f"{node.name}: its machine is gone, and it is ready")
            except HeadroomError as error:
                failed[node.name] = str(error)
                if isinstance(error, _SILENT):
                    failed |= {each.name: str(error) for each in planned.nodes if each.name not in failed}
                    break
        going = [each for name, each in found.items() if name not in failed and name not in lost]
        if self.rules.fixes.clamps_deletions:
            room = self._deletable
            failed |= {
                each.metadata.name: f"{each.metadata.name}: {TaintedNodeReason.AT_MINIMUM}" for each in going[room:]
            }
            going = going[:room]
        failed |= self._delete(going)
        lost -= failed.keys()
        gone = found.keys() - failed.keys() - lost
        done = [each for each in planned.nodes if each.name in gone]
        self._tell(ActionKind.DELETE_NODES, done, why, change=-len(done), done=bool(done))
        self._tell(
            ActionKind.DELETE_NODES, [each for each in planned.nodes if each.name in lost], LOST, done=bool(lost)
        )
        stay = [each for each in planned.nodes if each.name in failed]
        self._tell(ActionKind.DELETE_NODES, stay, why, change=-len(stay), errors=list(dict.fromkeys(failed.values())))
        self._delete_nodes([each for name, each in found.items() if name not in failed])
        return planned.pass_over(failed)

    def _delete(self, going: Sequence[Node]) -> dict[str, str]:
        """Deletes the nodes in one cloud call; returns the errors by node.

        If the call is refused, each node gets a call of its own, so that a node that cannot go keeps no other.
        """
        if not going:
            return {}
        guard, before, many = self.hands.nodes.guard, self._members, len(going) > 1
        error = self._asked_to_delete(going)
        if error is None:
            return {}
        if guard.is_in_doubt(self.group):
            going = self._still_there(going, before)
        alone = isinstance(error, Refused) and many and self.rules.fixes.clamps_deletions
        alone = alone and not guard.is_in_doubt(self.group)
        failed: dict[str, str] = {}
        for node in going:
            if alone and len(failed) < MOST_FAILURES:
                last = self._asked_to_delete([node])
                if last is None:
                    continue
                error, alone = last, isinstance(last, Refused)
            failed[node.metadata.name] = str(error)
        return failed

    def _asked_to_delete(self, nodes: Sequence[Node]) -> HeadroomError | None:
        try:
            with self.hands.nodes.cloud_lock:
                self.hands.nodes.delete_machines(self.group, [NodeRef.from_node(each) for each in nodes])
        except HeadroomError as error:
            return error
        return None

    def _still_there(self, going: Sequence[Node], before: Mapping[str, InstanceState]) -> Sequence[Node]:
        """The nodes that the cloud still has after a failed deletion; all of them if it does not answer."""
        try:
            with self.hands.nodes.cloud_lock:
                observed = self.hands.nodes.guard.observe_again()
        except HeadroomError as error:
            logger.warning("what became of a deletion is not known: %s", error, extra={"group": self.group})
            return going
        if self.group not in observed.groups:
            return going
        after = self._members
        gone = {each for each in before if after.get(each, InstanceState.DELETING) is InstanceState.DELETING}
        return [each for each in going if each.spec.provider_id not in gone]

    @property
    def _members(self) -> Mapping[str, InstanceState]:
        """The states of the cloud's instances, by provider id."""
        seen = self.hands.nodes.guard.observed.groups.get(self.group)
        return {} if seen is None else {each.provider_id: each.state for each in seen.instances}

    @property
    def _deletable(self) -> int:
        """How many nodes may go under the cloud's minimum."""
        seen = self.hands.nodes.guard.observed.groups.get(self.group)
        return 0 if seen is None else max(0, seen.group.settled_size - seen.group.min_size)

    def _is_member(self, node: GroupNode) -> bool:
        return (
            node.provider_id in self._members
            or self.hands.nodes.guard.observed.group_of_node.get(node.name) == self.group
        )

    def _is_lost(self, node: GroupNode) -> bool:
        """Whether the cloud says that the machine no longer exists.

        A tainted, unready node without a machine has only its Node left, which needs no cloud call.
        """
        if node.ready or not taints.has_taint(node.taints, taints.TO_BE_REMOVED) or self._is_member(node):
            return False
        try:
            with self.hands.nodes.cloud_lock:
                return self.hands.nodes.guard.launched_at(NodeRef(node.name, node.provider_id)) is None
        except ProviderError:
            return False

    def _check_member(self, node: GroupNode) -> None:
        """Nodes of no group, or of another one, are not ours, whatever their labels say."""
        if self._members.get(node.provider_id) is InstanceState.DELETING:
            raise PassedOver(f"{node.name}: the cloud is deleting it")
        if not self._is_member(node):
            raise PassedOver(f"{node.name} ({node.provider_id}) is not in the cloud's group")

    def _delete_nodes(self, gone: Sequence[Node]) -> None:
        """Deletes their Node objects. If that fails, the cloud's own controllers do it later."""
        for node in gone:
            try:
                self.hands.nodes.delete_node(node.metadata.name, node.metadata.uid)
            except NotFound:
                continue
            except HeadroomError as error:
                logger.warning("Node left behind: %s", error, extra={"node": node.metadata.name})
                return

    def _drained(self, planned: Reaping, nodes: Sequence[GroupNode]) -> Reaping:
        """Drains the nodes; returns the reaping as carried out."""
        evicted = self._each(ActionKind.REMOVE_NODES, nodes, len(nodes), reasons.of_drain(planned), self._evict)
        return planned.pass_over({each.name for each in nodes} - {each.name for each in evicted})

    def _evict(self, node: GroupNode) -> None:
        """Evicts all pods that keep the node; pods that may not be evicted yet are tried again later.

        A pod that cannot be evicted does not stop the eviction of others, on this node or the next.
        """
        _, seen, pods = self._looked_again(node, self._verdict, lambda verdict: verdict.drains)
        there = reaping.pods_that_keep_nodes(self.rules, seen).by_node[node.name]
        leaving = {each.name for each in there if not each.of_node}
        kept, refused = [], []
        for pod in pods:
            meta = pod.metadata
            if meta.key not in leaving or meta.deletion_timestamp is not None:
                continue
            try:
                self.hands.nodes.evict(meta.namespace, meta.name, meta.uid)
            except NotFound:
                continue
            except TooManyRequests:
                kept.append(meta.key)
            except ApiError as error:  # because of the pod: several budgets, or a webhook
                refused.append(f"{meta.key} stays: {error}")
        if kept:
            refused.insert(0, f"disruption budgets keep {', '.join(kept[:MOST_NAMED])}")
        if refused:
            raise PassedOver(f"{node.name}: {'; '.join(refused[:MOST_NAMED])}")

    def _looked_again(
        self, node: GroupNode, judge: _Judge, still: Callable[[TaintedNodeStatus], bool]
    ) -> tuple[Node, Observation, tuple[Pod, ...]]:
        """The present node and its pods, for which the verdict must still hold. Raises PassedOver."""
        try:
            found = _unchanged(self.hands.nodes.node(node.name), node)
            pods = self.hands.nodes.pods_on(node.name)
        except NodeVanished as error:
            raise PassedOver(f"{node.name}: it is gone") from error
        except UnreadablePod as error:
            raise PassedOver(str(error)) from error
        seen = Observer(self.rules).observe([found], pods, self.seen.cloud)
        seen = memories.dated(seen, memories.marks_on(seen.nodes, self.marks, now=self.now))
        verdicts = judge(seen)
        if not verdicts:
            raise PassedOver(f"{node.name}: it is not marked any more")
        if not still(verdicts[0]):
            raise PassedOver(f"{node.name}: {verdicts[0].why}")
        return found, seen, pods

    def _forced_verdict(self, seen: Observation) -> tuple[TaintedNodeStatus, ...]:
        marked = classes.classify(seen.nodes).force_tainted
        return reaping.force_tainted_statuses(marked, reaping.pods_that_keep_nodes(self.rules, seen))

    def _verdict(self, seen: Observation) -> tuple[TaintedNodeStatus, ...]:
        marked = classes.classify(seen.nodes).tainted
        pods = reaping.pods_that_keep_nodes(self.rules, seen)
        may_go = self.decision.healthy is not False
        return reaping.tainted_statuses(self.rules, marked, pods, healthy_may_go=may_go, now=self.now)

    def _increased(self, decision: ScanDecision, wanted: int, why: str) -> ScanDecision:
        if wanted <= 0:
            return replace(decision, increase=0)
        size = self._target_size
        error = self.hands.grow(Increase(self.group, size, size + wanted, self.seen.cloud.max_size))
        if error is None:
            self._tell(ActionKind.INCREASE, (), why, change=wanted, done=True)
            return replace(decision, increase=wanted)
        self._tell(ActionKind.INCREASE, (), why, change=wanted, errors=[str(error)])
        in_doubt = isinstance(error, ProviderError) and error.leaves_doubt
        locks = in_doubt and self.rules.fixes.locks_in_doubt
        return replace(decision, increase=wanted if locks else 0, refusals=(*decision.refusals, str(error)))


def _unchanged(found: Node, node: GroupNode) -> Node:
    """The Node as it is now.

    Raises PassedOver if it is another machine, or is cordoned: cordoned nodes are left to the person who cordoned them.
    """
    if found.spec.provider_id != node.provider_id:
        raise PassedOver(f"{node.name}: it is another machine by now")
    if found.spec.unschedulable:
        raise PassedOver(f"{node.name}: it is cordoned")
    return found
