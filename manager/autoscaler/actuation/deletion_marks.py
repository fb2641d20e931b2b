"""The marks of scale-down on Nodes: as Cluster Autoscaler's, so that schedulers and people know them.

Every write is about one version of one Node: what others write meanwhile stays.
"""

from collections.abc import Callable, Iterable

from manager.autoscaler.actuation import node_writes
from manager.autoscaler.snapshot.cluster import TAINT_TO_BE_DELETED
from manager.autoscaler.snapshot.templates import TAINT_DELETION_CANDIDATE
from shared.api.core import Node, Taint
from shared.clock import Clock
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.errors import NotFound
from shared.kube.resources import NODES

# Tells a node that was cordoned here from one that somebody else wants cordoned, and keeps cordoned.
ANNOTATION_CORDONED = "headroom.io/cordoned-for-scale-down"

_ATTEMPT_SECONDS = 10.0


class Vanished(HeadroomError):
    """The Node is not there any more, or another one has its name."""


class DeletionMarks:
    """Every write raises Vanished, and what the client raises: Conflict where others keep writing."""

    def __init__(self, client: Client, clock: Clock, *, cordons: bool) -> None:
        self._client = client.single_attempt(_ATTEMPT_SECONDS)
        self._clock = clock
        self._cordons = cordons

    def mark(self, name: str, uid: str) -> None:
        """The node is being deleted: nothing is to come to it any more."""
        taint = Taint(TAINT_TO_BE_DELETED, str(int(self._clock.now())), "NoSchedule")
        self._change(name, uid, lambda node: self._marked(node, taint))

    def unmark(self, name: str, uid: str = "") -> None:
        """It stays; without a `uid`, whichever Node has that name."""
        self._change(name, uid, _unmarked)

    def soften(self, name: str) -> None:
        """It is likely to be deleted: others are to be preferred."""
        taint = Taint(TAINT_DELETION_CANDIDATE, str(int(self._clock.now())), "PreferNoSchedule")
        self._change(name, "", lambda node: _with(node, taint))

    def harden(self, name: str) -> None:
        """It is not likely to be deleted any more."""
        self._change(name, "", lambda node: _without(node, (TAINT_DELETION_CANDIDATE,)))

    def fresh(self, name: str, uid: str) -> Node:
        """The Node as the API server has it. Raises Vanished, and what the client raises."""
        try:
            node = self._client.get(NODES, name, into=Node)
        except NotFound as error:
            raise Vanished(f"Node {name} is not there any more") from error
        if uid and node.metadata.uid != uid:
            raise Vanished(f"another Node is called {name} by now")
        return node

    def _marked(self, node: Node, taint: Taint) -> dict[str, object] | None:
        patch = _with(node, taint) or {}
        if self._cordons and not node.spec.unschedulable:
            patch |= {"unschedulable": True}
        return patch or None

    def _change(self, name: str, uid: str, spec_of: Callable[[Node], dict[str, object] | None]) -> None:
        """`spec_of` gives what is to be otherwise of the spec, None where all is as it should be."""

        def change(node: Node) -> dict[str, dict[str, object]] | None:
            spec = spec_of(node)
            if spec is None or "unschedulable" not in spec:
                return None if spec is None else {"spec": spec}
            cordoned = {ANNOTATION_CORDONED: "true" if spec["unschedulable"] else None}
            return {"metadata": {"annotations": cordoned}, "spec": spec}

        try:
            node_writes.changed(self._client, lambda: self.fresh(name, uid), change)
        except NotFound as error:
            raise Vanished(f"Node {name} is not there any more") from error


def is_marked(node: Node) -> bool:
    return any(taint.key == TAINT_TO_BE_DELETED for taint in node.spec.taints or ())


def _unmarked(node: Node) -> dict[str, object] | None:
    """Also without the softer mark: it is decided anew whether the node may go."""
    patch = _without(node, (TAINT_TO_BE_DELETED, TAINT_DELETION_CANDIDATE)) or {}
    if node.metadata.annotation(ANNOTATION_CORDONED) is not None:
        patch |= {"unschedulable": None}
    return patch or None


def _with(node: Node, taint: Taint) -> dict[str, object] | None:
    taints = node.spec.taints or ()
    return None if any(each.key == taint.key for each in taints) else {"taints": (*taints, taint)}


def _without(node: Node, keys: Iterable[str]) -> dict[str, object] | None:
    taints = node.spec.taints or ()
    rest = tuple(taint for taint in taints if taint.key not in keys)
    return None if len(rest) == len(taints) else {"taints": rest}
