"""Binds waiting pods to nodes: the I/O around the pure filter and score.

One round decides on every waiting pod, highest priority first. It runs when a change may affect a decision. The
scheduler asks its extender about the nodes a pod fits on. There is no preemption.
"""

import logging
import math
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from deploy.local.scheduler import filtering, scoring
from deploy.local.scheduler.extender import Extender
from deploy.local.scheduler.filtering import SchedulableNode
from shared import durations
from shared.api import pods
from shared.api.core import Node, Pod
from shared.errors import HeadroomError
from shared.kube.client import Client, Patch
from shared.kube.errors import Conflict, NotFound
from shared.kube.events import NORMAL, WARNING, ObjectRef, Recorder
from shared.kube.informer import Informer
from shared.kube.object_cache import Change, ChangeKind
from shared.kube.resources import NODES, PODS
from shared.quantity import QuantityError
from shared.telemetry import Loops

logger = logging.getLogger(__name__)

NAME = "default-scheduler"
POD_SCHEDULED = "PodScheduled"
TICK_SECONDS = 0.5
_LISTING_SECONDS = 0.05  # between two checks whether the first lists of nodes and pods have arrived
RETRY_SECONDS = 2.0  # after a failed write
ASK_AGAIN_SECONDS = 5.0  # for pods that the extender refused


@dataclass(frozen=True)
class Cluster:
    """The nodes as one round sees them; `place` adds the bindings of the round itself."""

    states: dict[str, SchedulableNode]
    placed: dict[str, list[Pod]]

    def place(self, pod: Pod, node_name: str) -> None:
        self.placed[node_name].append(pod)
        self.states[node_name] = filtering.node_state(self.states[node_name].node, self.placed[node_name])


def waiting(candidates: list[Pod]) -> list[Pod]:
    """The pods that this scheduler must place, in its order: by priority, then by age."""
    chosen = [pod for pod in candidates if _is_ours(pod)]
    return sorted(chosen, key=lambda pod: (-(pod.spec.priority or 0), pod.metadata.created_at, pod.metadata.key))


def cluster_of(nodes: list[Node], existing: list[Pod]) -> Cluster:
    """The capacity and pods of every node; logs and omits nodes and pods with invalid quantities."""
    placed: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in existing:
        if pod.spec.node_name and pods.is_active(pod) and _has_readable_requests(pod):
            placed[pod.spec.node_name].append(pod)
    states: dict[str, SchedulableNode] = {}
    for node in nodes:
        try:
            states[node.metadata.name] = filtering.node_state(node, placed[node.metadata.name])
        except QuantityError as error:
            logger.warning("node left out: %s", error, extra={"node": node.metadata.name})
    return Cluster(states, placed)


class ScheduleResult(NamedTuple):
    """The node for a pod, or "" and why it fits nowhere; `again`: the extender may later allow it without notice."""

    node_name: str
    refusal: str = ""
    again: bool = False


def decide(pod: Pod, cluster: Cluster, extender: Extender | None = None) -> ScheduleResult:
    """The best of the nodes `pod` fits on."""
    try:
        fits, refusals = filtering.fitting(pod, cluster.states.values())
        if not fits:
            return ScheduleResult("", filtering.fit_error(refusals))
        asked = pods.requests(pod)
    except QuantityError as error:
        return ScheduleResult("", f"the pod's requests cannot be read: {error}")
    if extender is None:
        return ScheduleResult(scoring.best(asked, fits).name)
    say = extender.filtered(pod, [state.node for state in fits])
    if not say.left:
        refused = {name: [reason] for name, reason in say.refusals.items()}
        return ScheduleResult("", filtering.fit_error(refusals | refused), again=True)
    left = {node.metadata.name for node in say.left}
    extra = extender.scores(pod, say.left) if len(left) > 1 else scoring.NOTHING
    return ScheduleResult(scoring.best(asked, [state for state in fits if state.name in left], extra).name)


class Scheduler:
    """Watches nodes and pods and places waiting pods."""

    def __init__(self, client: Client, recorder: Recorder, extender: Extender | None = None) -> None:
        self._extender = extender
        self._client = client.single_attempt()
        self._recorder = recorder
        self._changed = threading.Event()
        self._nodes = Informer(client, NODES, Node, on_change=self._on_node)
        self._pods = Informer(client, PODS, Pod, on_change=self._on_pod)
        self._bound: dict[str, Pod] = {}  # by uid: bound by this scheduler, binding not yet seen in the watch

    def start(self, loops: Loops) -> None:
        """Runs until the loops are closed."""
        loops.start("scheduler-nodes", self._nodes.run)
        loops.start("scheduler-pods", self._pods.run)
        loops.start("scheduler", self.run)

    def run(self, stop: threading.Event) -> None:
        """Runs a round when something changes, or when a retry is due."""
        again_at = math.inf
        while not stop.is_set():
            if not self._changed.wait(TICK_SECONDS) and time.monotonic() < again_at:
                continue
            if not all(each.synced.is_set() for each in (self._nodes, self._pods)):
                stop.wait(_LISTING_SECONDS)
                continue
            self._changed.clear()
            seconds = self.round()
            again_at = math.inf if seconds is None else time.monotonic() + seconds

    def round(self) -> float | None:
        """Places every waiting pod it can; returns the seconds until the next try without a change, None for never."""
        known = self._with_bindings(self._pods.values())
        queue = waiting(known)
        if not queue:
            return None
        cluster = cluster_of(self._nodes.values(), known)
        return min((again for pod in queue if (again := self._schedule(pod, cluster)) is not None), default=None)

    def _schedule(self, pod: Pod, cluster: Cluster) -> float | None:
        """Returns the seconds until the next try; None to wait for a change."""
        try:
            placement = decide(pod, cluster, self._extender)
            if placement.node_name:
                self._bind(pod, placement.node_name, cluster)
            else:
                self._refuse(pod, placement.refusal)
        except (Conflict, NotFound):
            return None  # already bound or deleted; the watch delivers the change
        except HeadroomError as error:
            logger.warning("pod not scheduled: %s", error, extra={"pod": pod.metadata.key})
            return RETRY_SECONDS
        return ASK_AGAIN_SECONDS if placement.again else None

    def _bind(self, pod: Pod, node_name: str, cluster: Cluster) -> None:
        self._client.bind(pod.metadata.namespace, pod.metadata.name, node_name)
        bound = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node_name))
        self._bound[pod.metadata.uid] = bound
        cluster.place(bound, node_name)
        message = f"Successfully assigned {pod.metadata.key} to {node_name}"
        self._recorder.event(_reference(pod), NORMAL, "Scheduled", message)

    def _refuse(self, pod: Pod, message: str) -> None:
        """Reports on the pod why it waits, once per reason."""
        said = next((c for c in pod.status.conditions or () if c.type == POD_SCHEDULED), None)
        if said and (said.status, said.message) == ("False", message):
            return
        unchanged_since = said.last_transition_time if said and said.status == "False" else None
        condition = {
            "type": POD_SCHEDULED,
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastProbeTime": None,
            "lastTransitionTime": unchanged_since or durations.timestamp(self._client.clock.now()),
        }
        # A strategic patch merges conditions by type and keeps those of other clients.
        self._client.patch(
            PODS,
            pod.metadata.name,
            {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}},
            pod.metadata.namespace,
            kind=Patch.STRATEGIC,
            subresource="status",
        )
        self._recorder.event(_reference(pod), WARNING, "FailedScheduling", message)

    def _with_bindings(self, known: list[Pod]) -> list[Pod]:
        """`known`, with the bindings that the watch has not delivered yet."""
        unseen = {pod.metadata.uid for pod in known if not pod.spec.node_name}
        self._bound = {uid: pod for uid, pod in self._bound.items() if uid in unseen}
        return [self._bound.get(pod.metadata.uid, pod) for pod in known]

    def _on_node(self, change: Change[Node]) -> None:
        if change.kind is ChangeKind.SYNCED or _scheduling_face(change.old) != _scheduling_face(change.new):
            self._changed.set()

    def _on_pod(self, change: Change[Pod]) -> None:
        if change.kind is ChangeKind.SYNCED or _holding(change.old) != _holding(change.new):
            self._changed.set()


def _is_ours(pod: Pod) -> bool:
    return (
        not pod.spec.node_name
        and not pod.spec.scheduling_gates
        and pod.spec.scheduler_name in ("", NAME)
        and pods.is_active(pod)
        and not pods.is_terminating(pod)
    )


def _has_readable_requests(pod: Pod) -> bool:
    try:
        pods.requests(pod)
    except QuantityError as error:
        logger.warning("pod not reckoned with: %s", error, extra={"pod": pod.metadata.key})
        return False
    return True


def _scheduling_face(node: Node | None) -> object:
    """The parts of a node that the filter reads; heartbeats are not among them."""
    return node and (node.metadata.labels, node.spec, node.status.allocatable)


def _holding(pod: Pod | None) -> object:
    """The parts of a pod that the filter reads: its status matters only once the pod ends."""
    return pod and (pod.spec, pods.is_active(pod))


def _reference(pod: Pod) -> ObjectRef:
    return ObjectRef("v1", "Pod", pod.metadata.name, pod.metadata.namespace, pod.metadata.uid)
