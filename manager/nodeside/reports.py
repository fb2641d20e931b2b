"""Reports to people by Events and log lines: a changed offer, a refused policy."""

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from manager.nodeside.noderesource import situation
from manager.nodeside.noderesource.explain import Decision
from manager.nodeside.noderesource.writing import Write
from manager.nodeside.policy import ClusterPolicy
from manager.pods import PodRecord
from shared import explanation
from shared.api.colocation import NodeStrategy
from shared.api.core import ConfigMap, Node
from shared.kube.events import NORMAL, WARNING, EventReason, EventType, ObjectRef, Recorder
from shared.names import Tier
from shared.quantity import Resources

logger = logging.getLogger(__name__)

CONFIG_REFUSED = EventReason("ColocationCfgUnmarshalFailed", WARNING, "{problem}")
CONFIG_PROBLEM = EventReason("ColocationCfgInvalid", WARNING, "{problem}")
THRESHOLDS_REFUSED = EventReason("ResourceThresholdCfgUnmarshalFailed", WARNING, "{problem}")
STRATEGY_REFUSED = EventReason("ColocationStrategyInvalid", WARNING, "{problem}")
_MOVED = "{change}: {why}"
CHANGED = {tier: EventReason(f"{tier.capitalize()}ResourceChanged", NORMAL, _MOVED) for tier in Tier}
WITHDRAWN = {tier: EventReason(f"{tier.capitalize()}ResourceReset", NORMAL, _MOVED) for tier in Tier}
DEGRADED = {tier: EventReason(reason, WARNING, _MOVED) for tier, reason in WITHDRAWN.items()}

_ABSENT = "absent"  # no resourceVersion has this form
_CONFIG = "ConfigMap"


class ReportedProblem(NamedTuple):
    """The problem of an object, as in an Event."""

    regarding: ObjectRef
    reason: str
    message: str


class PersistentProblems:
    """Problems that persist until a person changes something: all replicas find them, the leader writes Events."""

    def __init__(self, recorder: Recorder | None, is_leader: Callable[[], bool]) -> None:
        self._recorder = recorder
        self._is_leader = is_leader
        self._known: dict[str, Sequence[ReportedProblem]] = {}

    def replace(self, about: str, problems: Sequence[ReportedProblem]) -> None:
        """Replaces the problems of one object, which `about` identifies."""
        if problems:
            self._known[about] = problems
        else:
            self._known.pop(about, None)
        if self._is_leader():
            self._say(problems)

    def say_all(self) -> None:
        """Writes the problems that were found while another replica led."""
        for problems in list(self._known.values()):
            self._say(problems)

    def _say(self, problems: Sequence[ReportedProblem]) -> None:
        if self._recorder is not None:
            for problem in problems:
                self._recorder.event(problem.regarding, WARNING, problem.reason, problem.message)


class EventReporter:
    """Reports each thing once, however often it is found. Without a `standing` no other replica could report it."""

    def __init__(self, recorder: Recorder | None, standing: PersistentProblems | None = None) -> None:
        self._recorder = recorder
        self._standing = standing or PersistentProblems(recorder, lambda: True)
        self._reported_config = ""
        self._reported_nodes: dict[str, tuple[str, ...]] = {}

    def configured(self, policy: ClusterPolicy, config_map: ConfigMap | None) -> None:
        """A ConfigMap was read or refused, or does not exist."""
        version = _ABSENT if config_map is None else config_map.metadata.resource_version
        if version == self._reported_config:
            return
        self._reported_config = version
        if config_map is None:
            logger.warning("the ConfigMap does not exist, so colocation is disabled")
            self._standing.replace(_CONFIG, ())
            return
        meta = config_map.metadata
        regarding = ObjectRef("v1", "ConfigMap", meta.name, meta.namespace, meta.uid)
        refused = []
        if policy.thresholds_problem is not None:
            logger.error("thresholds rejected, the last valid ones stay in effect: %s", policy.thresholds_problem)
            refused.append(ReportedProblem(regarding, THRESHOLDS_REFUSED, str(policy.thresholds_problem)))
        if policy.problem is not None:
            logger.error("configuration rejected, the last valid one stays in effect: %s", policy.problem)
            refused.append(ReportedProblem(regarding, CONFIG_REFUSED, str(policy.problem)))
            self._standing.replace(_CONFIG, refused)
            return
        logger.info("configuration in effect", extra={"enabled": policy.enabled})
        for problem in policy.config.problems:
            logger.error("a node config is invalid: %s", problem)
        problems = [ReportedProblem(regarding, CONFIG_PROBLEM, str(problem)) for problem in policy.config.problems]
        self._standing.replace(_CONFIG, refused + problems)

    def strategy(self, node: Node, strategy: NodeStrategy | None) -> None:
        """A node's own annotations and labels were read; their problems affect only that node."""
        found = (() if strategy is None else strategy.problems) + situation.problems(node)
        reported = self._reported_nodes.get(node.metadata.name, ())
        if not found and not reported:
            return
        problems = tuple(map(str, found))
        if problems == reported:
            return
        self._reported_nodes[node.metadata.name] = problems
        for problem in problems:
            logger.error("an annotation or label of the node is invalid and is ignored: %s", problem)
        regarding = _node(node)
        said = [ReportedProblem(regarding, STRATEGY_REFUSED, problem) for problem in problems]
        self._standing.replace(_about(node.metadata.name), said)

    def written(self, node: Node, write: Write, decision: Decision) -> None:
        """A Node's offers were written: logs a line (terms at debug level), with Events of large changes."""
        moved = {tier: change for tier, change in write.changes.items() if change.old != change.new}
        said = {tier: f"{tier} {_amount(change.old)} -> {_amount(change.new)}" for tier, change in moved.items()}
        extra = {"node": node.metadata.name, "reason": write.reason.value}
        logger.info("Node written: %s", "; ".join((write.why, *said.values())), extra=extra)
        for tier, change in moved.items():
            if not change.is_large and not logger.isEnabledFor(logging.DEBUG):
                continue
            offer = decision.offers[tier]
            withdrawn = DEGRADED if offer.is_degraded else WITHDRAWN
            event = (CHANGED if change.new is not None else withdrawn)[tier]
            type_, reason, text = event.say(change=said[tier], why=offer.reason)
            logger.debug("%s", text, extra=extra)
            if change.is_large:
                self._event(_node(node), type_, reason, text)

    def node_event(self, node: Node, type_: EventType, reason: str, message: str) -> None:
        self._event(_node(node), type_, reason, message)

    def pod_event(self, pod: PodRecord, type_: EventType, reason: str, message: str) -> None:
        """Writes an Event about a pod."""
        namespace, _, name = pod.key.partition("/")
        self._event(ObjectRef("v1", "Pod", name, namespace, pod.uid), type_, reason, message)

    def forget(self, name: str) -> None:
        """The node no longer exists."""
        if self._reported_nodes.pop(name, None) is not None:
            self._standing.replace(_about(name), ())

    def _event(self, regarding: ObjectRef, type_: EventType, reason: str, message: str) -> None:
        if self._recorder is not None:
            self._recorder.event(regarding, type_, reason, message)


def _about(node_name: str) -> str:
    return f"Node {node_name}"


def _node(node: Node) -> ObjectRef:
    return ObjectRef("v1", "Node", node.metadata.name, "", node.metadata.uid)


def _amount(offer: Resources | None) -> str:
    if offer is None:
        return "none"
    return (
        f"cpu {explanation.amount(offer.cpu_milli, 'milli')} memory {explanation.amount(offer.memory_bytes, 'bytes')}"
    )
