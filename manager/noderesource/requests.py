"""The requests of each node's pods, kept as running sums so that no decision walks over pods."""

import logging
import threading
from collections import defaultdict

from manager.noderesource import situation
from manager.noderesource.situation import Requested
from shared.api.core import Pod
from shared.errors import InvalidInput
from shared.kube.informer import Change

logger = logging.getLogger(__name__)

_NONE = Requested()


class RequestSums:
    """Written by the pod informer's thread, read by all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_pod: dict[str, tuple[str, Requested]] = {}
        self._by_node: defaultdict[str, Requested] = defaultdict(Requested)

    def of(self, node: str) -> Requested:
        """What the node's pods request."""
        with self._lock:
            return self._by_node.get(node, _NONE)

    def apply(self, change: Change[Pod]) -> set[str]:
        """Takes one change in, and names the nodes whose sums it moved."""
        held = None if change.new is None else _held(change.new)
        with self._lock:
            before = self._by_pod.pop(change.key, None)
            if held is not None:
                self._by_pod[change.key] = held
            if before == held:
                return set()
            if before is not None:
                self._by_node[before[0]] = self._by_node[before[0]].minus(before[1])
            if held is not None:
                self._by_node[held[0]] = self._by_node[held[0]].plus(held[1])
        return {each[0] for each in (before, held) if each is not None}

    def forget(self, node: str) -> None:
        """Drops the sum of a node that is gone, unless pods still name it."""
        with self._lock:
            if self._by_node.get(node) == _NONE:
                del self._by_node[node]


def _held(pod: Pod) -> tuple[str, Requested] | None:
    """The node and the request; None for a pod that holds nothing on any node."""
    if not pod.spec.node_name:
        return None
    try:
        amount = situation.requested_by(pod)
    except InvalidInput as problem:
        logger.error("requests that mean nothing count as none: %s", problem, extra={"pod": pod.metadata.key})
        return None
    return None if amount == _NONE else (pod.spec.node_name, amount)
