"""What people are told by Events and log lines: a changed offer, a refused configuration."""

import logging
from typing import Literal

from manager.configuration import Configuration
from manager.noderesource import preparation
from manager.noderesource.explain import Decision
from manager.noderesource.writing import Write
from manager.pods import PodRecord
from shared import explanation
from shared.api.colocation import NodeStrategy
from shared.api.core import ConfigMap, Node
from shared.kube.events import NORMAL, WARNING, ObjectRef, Recorder
from shared.names import Tier
from shared.quantity import Resources

logger = logging.getLogger(__name__)

CONFIG_REFUSED = "ColocationCfgUnmarshalFailed"
CONFIG_PROBLEM = "ColocationCfgInvalid"
STRATEGY_REFUSED = "ColocationStrategyInvalid"
CHANGED = {Tier.MID: "MidResourceChanged", Tier.BATCH: "BatchResourceChanged"}
WITHDRAWN = {Tier.MID: "MidResourceReset", Tier.BATCH: "BatchResourceReset"}

_ABSENT = "absent"  # no resourceVersion looks like this


class Reporter:
    """Says each thing once, however often it is found."""

    def __init__(self, recorder: Recorder | None) -> None:
        self._recorder = recorder
        self._reported_config = ""
        self._reported_nodes: dict[str, tuple[str, ...]] = {}

    def configured(self, configuration: Configuration, config_map: ConfigMap | None) -> None:
        """A ConfigMap was read, or refused, or is not there."""
        version = _ABSENT if config_map is None else config_map.metadata.resource_version
        if version == self._reported_config:
            return
        self._reported_config = version
        if config_map is None:
            logger.warning("there is no ConfigMap, so colocation is disabled")
            return
        meta = config_map.metadata
        regarding = ObjectRef("v1", "ConfigMap", meta.name, meta.namespace, meta.uid)
        if configuration.problem is not None:
            logger.error("configuration refused, the last good one stays: %s", configuration.problem)
            self._event(regarding, WARNING, CONFIG_REFUSED, str(configuration.problem))
            return
        logger.info("configuration in effect", extra={"enabled": configuration.enabled})
        for problem in configuration.config.problems:
            logger.error("part of the configuration is not in effect: %s", problem)
            self._event(regarding, WARNING, CONFIG_PROBLEM, str(problem))

    def strategy(self, node: Node, strategy: NodeStrategy | None) -> None:
        """A node's own annotations and labels were read; what is wrong with them concerns that node alone."""
        found = (() if strategy is None else strategy.problems) + preparation.problems(node)
        reported = self._reported_nodes.get(node.metadata.name, ())
        if not found and not reported:
            return
        problems = tuple(map(str, found))
        if problems == reported:
            return
        self._reported_nodes[node.metadata.name] = problems
        for problem in problems:
            logger.error("part of the node's own annotations and labels is not in effect: %s", problem)
            self._event(_node(node), WARNING, STRATEGY_REFUSED, problem)

    def written(self, node: Node, write: Write, decision: Decision) -> None:
        """A Node's offers were written; small and periodic changes are for the log alone."""
        logger.info("Node written: %s", write.why, extra={"node": node.metadata.name, "reason": write.reason.value})
        for tier, change in write.changes.items():
            offer = decision.offers[tier]
            text = f"{tier} {_amount(change.old)} -> {_amount(change.new)}: {offer.reason}"
            if change.old == change.new:
                continue
            logger.info("%s", text, extra={"node": node.metadata.name})
            if not change.is_large:
                continue
            if change.new is None:
                self._event(_node(node), WARNING if offer.is_degraded else NORMAL, WITHDRAWN[tier], text)
            else:
                self._event(_node(node), NORMAL, CHANGED[tier], text)

    def node_event(self, node: Node, type_: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        """Something happened to a Node."""
        self._event(_node(node), type_, reason, message)

    def pod_event(self, pod: PodRecord, type_: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        """Something happened to a pod."""
        namespace, _, name = pod.key.partition("/")
        self._event(ObjectRef("v1", "Pod", name, namespace, pod.uid), type_, reason, message)

    def forget(self, name: str) -> None:
        """The node is gone."""
        self._reported_nodes.pop(name, None)

    def _event(self, regarding: ObjectRef, type_: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        if self._recorder is not None:
            self._recorder.event(regarding, type_, reason, message)


def _node(node: Node) -> ObjectRef:
    return ObjectRef("v1", "Node", node.metadata.name, "", node.metadata.uid)


def _amount(offer: Resources | None) -> str:
    if offer is None:
        return "none"
    return (
        f"cpu {explanation.amount(offer.cpu_milli, 'milli')} memory {explanation.amount(offer.memory_bytes, 'bytes')}"
    )
