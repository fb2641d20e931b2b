"""One group's scan carried out: what was decided becomes writes, and the decision what was done of it.

Whether this process still leads is asked before every write. What is written is looked at once more before: a node that
has changed since is passed over, and the next candidate taken where there is one.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from manager.autoscaler import node_marks
from manager.autoscaler.bookkeeper import NOT_LEADING, Deposed
from manager.autoscaler.cloudprovider.contract import InstanceState, NodeRef
from manager.autoscaler.cloudprovider.errors import InvalidAnswer, Unavailable
from manager.autoscaler.cloudprovider.guard import Guard
from manager.autoscaler.decisions import Increase
from manager.autoscaler.modes import Mode
from manager.autoscaler.node_marks import PassedOver
from manager.autoscaler.rounds import Act, What
from manager.autoscaler.utilization import classes, reaping, reasons, taints
from manager.autoscaler.utilization.decisions import Decision, Picks
from manager.autoscaler.utilization.observation import GroupNode, Observation, Observer
from manager.autoscaler.utilization.reaping import Reaping, Verdict
from manager.autoscaler.utilization.rules import Rules
from shared.api.core import Node, Pod
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.errors import ApiError, NotFound, ServerError, TooManyRequests, Unreachable
from shared.kube.resources import NODES

logger = logging.getLogger(__name__)

MOST_FAILURES = 10  # of writes to nodes one after the other, after which the rest is left to the next scan
MOST_NAMED = 3  # of many, in an error
_SILENT = (Unreachable, ServerError, TooManyRequests)  # whoever else is asked gives no answer either

Grow = Callable[[Increase], HeadroomError | None]
_Judge = Callable[[Observation], tuple[Verdict, ...]]


@dataclass(frozen=True)
class Hands:
    """What acting takes. `grow` raises a target and says what went wrong; whoever writes to the cloud holds `lock`."""

    client: Client
    guard: Guard
    lock: threading.Lock
    may_write: Callable[[], bool]
    grow: Grow


@dataclass
class Work:
    """One decision. `acts` are what was, or would be, done about it."""

    rules: Rules
    mode: Mode
    seen: Observation
    decision: Decision
    hands: Hands
    now: float
    acts: list[Act] = field(default_factory=list)

    @property
    def group(self) -> str:
        return self.rules.group.cloud_provider_group_name

    def done(self) -> Decision:
        """The decision as it was done; the same one where nothing may be."""
        decision = self.decision
        if decision.dry or self.mode is not Mode.ENFORCE:
            self._advise()
            return decision
        health_taints = self._tainted(
            decision.health_taints, len(decision.health_taints), reasons.of_health(self.rules)
        )
        forced = self._deleted(decision.forced, self._forced_verdict)
        reaped = self._drained(self._deleted(decision.reaped, self._verdict), decision.drains)
        why = reasons.of_delta(self.rules, decision)
        tainted = self._tainted(decision.taint.candidates, decision.taint.count, why)
        untainted = self._each(What.UNTAINT, decision.untaint.candidates, decision.untaint.count, why, self._untaint)
        decision = replace(
            decision,
            health_taints=health_taints,
            forced=forced,
            reaped=reaped,
            taint=Picks(tainted, len(tainted)),
            untaint=Picks(untainted, len(untainted)),
        )
        return self._increased(decision, self.decision.increase_after(len(untainted)), why)

    def _advise(self) -> None:
        """What would be done."""
        decision = self.decision
        why = reasons.of_delta(self.rules, decision)
        self._tell(What.TAINT, decision.health_taints, reasons.of_health(self.rules))
        for each in (decision.forced, decision.reaped):
            self._tell(What.DELETE_NODES, each.nodes, reasons.of_deletion(each), change=-len(each.nodes))
        self._tell(What.REMOVE_NODES, decision.drains, reasons.of_drain(decision.reaped))
        self._tell(What.TAINT, decision.taint.planned, why)
        self._tell(What.UNTAINT, decision.untaint.planned, why)
        if decision.increase:
            self._tell(What.INCREASE, (), why, change=decision.increase)

    def _tell(
        self,
        what: What,
        nodes: Sequence[GroupNode],
        why: str,
        *,
        change: int = 0,
        done: bool = False,
        errors: Iterable[str] = (),
    ) -> None:
        """`change` of the target is to come, or was refused; one that is done has come."""
        told = list(errors)
        if not nodes and not change and not told:
            return
        size = self._target_size
        before, after = (size - change, size) if done else (size, size + change)
        names = tuple(each.name for each in nodes)
        error = "; ".join(told[:MOST_NAMED]) + (f"; and {len(told) - MOST_NAMED} more" * (len(told) > MOST_NAMED))
        most = self.seen.cloud.max_size
        self.acts.append(Act(what, self.group, self.mode, before, after, most, names, why, done, error))
        if done:
            logger.info("%s: %s", what, why, extra={"group": self.group, "nodes": ", ".join(names)})
        elif error:
            logger.error("%s failed: %s", what, error, extra={"group": self.group})

    @property
    def _target_size(self) -> int:
        """As the cloud has it now, with what was written since it was looked at."""
        found = self.hands.guard.observed.groups.get(self.group)
        return self.seen.cloud.target_size if found is None else found.group.target_size

    def _tainted(self, candidates: Sequence[GroupNode], count: int, why: str) -> tuple[GroupNode, ...]:
        return self._each(What.TAINT, candidates, count, why, self._taint)

    def _each(
        self,
        what: What,
        candidates: Sequence[GroupNode],
        count: int,
        why: str,
        write: Callable[[GroupNode], None],
    ) -> tuple[GroupNode, ...]:
        """The first so many that it could be done to."""
        done: list[GroupNode] = []
        failed: list[tuple[GroupNode, str]] = []
        failures = 0
        for node in candidates:
            if len(done) == count or failures == MOST_FAILURES:
                break
            try:
                self._check()
                self._check_member(node)
                write(node)
            except PassedOver as error:
                failed.append((node, str(error)))
            except ApiError as error:
                failed.append((node, f"{node.name}: {error}"))
                failures = MOST_FAILURES if isinstance(error, _SILENT) else failures + 1
            except HeadroomError as error:  # nobody answers, or somebody else leads
                failed.append((node, f"{node.name}: {error}"))
                break
            else:
                done.append(node)
        self._tell(what, done, why, done=bool(done))
        self._tell(what, [node for node, _ in failed], why, errors=[error for _, error in failed])
        return tuple(done)

    def _check(self) -> None:
        if not self.hands.may_write():
            raise Deposed(NOT_LEADING)

    def _taint(self, node: GroupNode) -> None:
        effect = self.rules.group.taint_effect
        node_marks.retaint(self.hands.client, node, lambda given: taints.added(given, now=self.now, effect=effect))

    def _untaint(self, node: GroupNode) -> None:
        node_marks.retaint(self.hands.client, node, taints.removed)

    def _deleted(self, planned: Reaping, judge: _Judge) -> Reaping:
        """All in one call of the cloud, and then their Nodes, up to the first that stays."""
        if not planned.nodes:
            return planned
        why = reasons.of_deletion(planned)
        going: list[Node] = []
        failed: dict[str, str] = {}
        for node in planned.nodes:
            try:
                self._check_member(node)
                going.append(self._looked_again(node, judge, lambda verdict: verdict.goes)[0])
            except HeadroomError as error:
                failed[node.name] = str(error)
                if isinstance(error, _SILENT):
                    failed |= {each.name: str(error) for each in planned.nodes if each.name not in failed}
                    going = []
                    break
        if going:
            try:
                self._check()
                with self.hands.lock:
                    self.hands.guard.delete_nodes(self.group, [NodeRef.of(each) for each in going])
            except HeadroomError as error:
                failed |= {each.metadata.name: str(error) for each in going}
                going = []
        gone = {each.metadata.name for each in going}
        done = [each for each in planned.nodes if each.name in gone]
        self._tell(What.DELETE_NODES, done, why, change=-len(done), done=bool(done))
        stay = [each for each in planned.nodes if each.name in failed]
        self._tell(What.DELETE_NODES, stay, why, change=-len(stay), errors=list(dict.fromkeys(failed.values())))
        self._delete_nodes(going)
        return planned.without(failed)

    def _check_member(self, node: GroupNode) -> None:
        """Nodes of no group, or of another one, are not ours, whatever their labels say."""
        observed = self.hands.guard.observed
        seen = observed.groups.get(self.group)
        members = {} if seen is None else {each.provider_id: each.state for each in seen.instances}
        if members.get(node.provider_id) is InstanceState.DELETING:
            raise PassedOver(f"{node.name}: the cloud is deleting it")
        if node.provider_id not in members and observed.group_of_node.get(node.name) != self.group:
            raise PassedOver(f"{node.name} ({node.provider_id}) is not in the cloud's group")

    def _delete_nodes(self, gone: Sequence[Node]) -> None:
        """What is left of them in the cluster. Where this fails, the cloud's own controllers do it later."""
        for node in gone:
            try:
                self._check()
                self.hands.client.delete(NODES, node.metadata.name, uid=node.metadata.uid)
            except NotFound:
                continue
            except HeadroomError as error:
                logger.warning("Node left behind: %s", error, extra={"node": node.metadata.name})
                return

    def _drained(self, planned: Reaping, nodes: Sequence[GroupNode]) -> Reaping:
        """With evictions asked for."""
        evicted = self._each(What.REMOVE_NODES, nodes, len(nodes), reasons.of_drain(planned), self._evict)
        return planned.without({each.name for each in nodes} - {each.name for each in evicted})

    def _evict(self, node: GroupNode) -> None:
        """Asks all pods to go for whose sake the node is still there; those that may not yet are asked again."""
        _, seen, pods = self._looked_again(node, self._verdict, lambda verdict: verdict.drains)
        there = reaping.pods_that_keep(self.rules, seen).by_node[node.name]
        leaving = {each.name for each in there if not each.of_node}
        kept = []
        for pod in pods:
            meta = pod.metadata
            if meta.key not in leaving or meta.deletion_timestamp is not None:
                continue
            self._check()
            try:
                self.hands.client.evict(meta.namespace, meta.name, uid=meta.uid)
            except NotFound:
                continue
            except TooManyRequests:
                kept.append(meta.key)
        if kept:
            raise PassedOver(f"{node.name}: disruption budgets keep {', '.join(kept[:MOST_NAMED])}")

    def _looked_again(
        self, node: GroupNode, judge: _Judge, still: Callable[[Verdict], bool]
    ) -> tuple[Node, Observation, tuple[Pod, ...]]:
        """The node and its pods as they are now, of which the same has to be true. Raises PassedOver."""
        found = node_marks.fresh(self.hands.client, node)
        pods = node_marks.pods_on(self.hands.client, node.name)
        seen = Observer(self.rules).observe([found], pods, self.seen.cloud)
        verdicts = judge(seen)
        if not verdicts:
            raise PassedOver(f"{node.name}: it is not marked any more")
        if not still(verdicts[0]):
            raise PassedOver(f"{node.name}: {verdicts[0].why}")
        return found, seen, pods

    def _forced_verdict(self, seen: Observation) -> tuple[Verdict, ...]:
        marked = classes.classify(seen.nodes).force_tainted
        return reaping.forced(marked, reaping.pods_that_keep(self.rules, seen))

    def _verdict(self, seen: Observation) -> tuple[Verdict, ...]:
        marked = classes.classify(seen.nodes).tainted
        pods = reaping.pods_that_keep(self.rules, seen)
        may_go = self.decision.healthy is not False
        return reaping.marked(self.rules, marked, pods, healthy_may_go=may_go, now=self.now)

    def _increased(self, decision: Decision, wanted: int, why: str) -> Decision:
        if wanted <= 0:
            return replace(decision, increase=0)
        size = self._target_size
        error = self.hands.grow(Increase(self.group, size, size + wanted, self.seen.cloud.max_size))
        if error is None:
            self._tell(What.INCREASE, (), why, change=wanted, done=True)
            return replace(decision, increase=wanted)
        self._tell(What.INCREASE, (), why, change=wanted, errors=[str(error)])
        in_doubt = isinstance(error, Unavailable | InvalidAnswer) and self.rules.fixes.locks_in_doubt
        return replace(decision, increase=wanted if in_doubt else 0, refusals=(*decision.refusals, str(error)))
