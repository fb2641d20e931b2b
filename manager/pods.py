"""The manager's record of every pod, in integers, and the sums of each node, so that no decision reads a spec."""

import logging
import re
import sys
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, NamedTuple

import msgspec

from shared import durations, names
from shared.api import pods
from shared.api.core import Pod
from shared.names import PriorityClass, QoS, Tier
from shared.quantity import QuantityError, Resources

logger = logging.getLogger(__name__)

NOTHING = Resources()
UNITS = ((names.CPU, "milli"), (names.MEMORY, "bytes"))  # of the two resources of an amount
MAX_FACTOR_PERCENT = 1000  # of a pod's requests, as for all pods

_TIER_OF = {of: tier for tier, of in names.TIER_CLASSES.items()}

# Controllers whose pods belong to one node, whatever becomes of it; Node is that of static pods.
_BOUND_TO_NODE = frozenset({"DaemonSet", "Node"})

_INTEGER = re.compile(r"[+-]?\d{1,18}", re.ASCII)

_ESTIMATION_ANNOTATIONS = frozenset(
    {
        names.ANNOTATION_ESTIMATED_SCALING_FACTORS,
        names.ANNOTATION_ESTIMATED_SECONDS_AFTER_SCHEDULED,
        names.ANNOTATION_ESTIMATED_SECONDS_AFTER_INITIALIZED,
    }
)


class Estimation(NamedTuple):
    """A pod's own options for its estimated usage: percentages of its requests, and seconds."""

    cpu_factor: int | None = None
    memory_factor: int | None = None
    seconds_after_scheduled: int | None = None
    seconds_after_initialized: int | None = None


class Dispensability(NamedTuple):
    """How readily a Mid or Batch pod is evicted in a shortfall; lower priorities go first.

    `priority` is the eviction-priority annotation, `sub_priority` the priority label. `evictable` says whether it may
    be evicted at all, `terminating` whether it terminates anyway. `created_at` is in Unix seconds.
    """

    priority: int
    sub_priority: int
    created_at: float
    evictable: bool
    terminating: bool


class PodRecord(msgspec.Struct, frozen=True, gc=False):
    """One pod. `requests` are native; `held` are its requests of `held_tier`, None without any.

    A pod of any class may request resources of a tier; a pod that requests both counts under the tier of its class, and
    `held_beside` are its requests of the other. `limits` are of its tier's resources if it has such limits, else
    native. Only an `active` pod holds its requests: one that is neither finished nor failed. `admitted` is whether its
    kubelet has admitted it. Times are Unix seconds. `dispensability` is set for pods that hold resources. `workload` is
    "namespace/Kind/name" of what replaces the pod, empty without.
    """

    key: str
    uid: str
    node: str
    active: bool
    priority_class: PriorityClass
    qos: QoS
    priority: int
    requests: Resources = NOTHING
    held: Resources = NOTHING
    held_tier: Tier | None = None
    held_beside: Resources = NOTHING
    scheduled_at: float | None = None
    limits: Resources = NOTHING
    initialized_at: float | None = None
    estimation: Estimation | None = None
    dispensability: Dispensability | None = None
    workload: str = ""
    admitted: bool = False


@dataclass(frozen=True)
class NodeRequests:
    """Sums of native requests of the active pods: of all, and of those above Mid."""

    total: Resources = NOTHING
    prod: Resources = NOTHING

    def plus(self, other: "NodeRequests") -> "NodeRequests":
        return NodeRequests(self.total.plus(other.total), self.prod.plus(other.prod))

    def minus(self, other: "NodeRequests") -> "NodeRequests":
        return NodeRequests(self.total.minus(other.total), self.prod.minus(other.prod))


_NONE = NodeRequests()


def record(pod: Pod) -> PodRecord:
    """The record of a pod; invalid requests are logged, and count as none."""
    meta = pod.metadata
    try:
        priority_class, qos, asked = pods.priority_class(pod), pods.qos(pod), pods.requests(pod)
    except QuantityError as error:
        logger.error("invalid requests of a pod are ignored: %s", error, extra={"pod": meta.key})
        priority_class = pods.raw_priority_class(pod) or pods.asked_class(pod)
        qos, asked = QoS.NONE, {}
    tier = _TIER_OF.get(priority_class)
    cpu, memory = ("", "") if tier is None else names.TIER_RESOURCES[tier]
    (held_tier, held, beside), limited = _held_amounts(asked, tier), _limited(pod)
    return PodRecord(
        key=meta.key,
        uid=meta.uid,
        node=sys.intern(pod.spec.node_name),
        active=pods.is_active(pod),
        priority_class=priority_class,
        qos=qos,
        priority=pod.spec.priority or 0,
        requests=_amount(asked.get(names.CPU, 0), asked.get(names.MEMORY, 0)),
        held=held,
        held_tier=held_tier,
        held_beside=beside,
        scheduled_at=_true_since(pod, pods.SCHEDULED),
        limits=_amount(
            limited.get(cpu) or limited.get(names.CPU, 0), limited.get(memory) or limited.get(names.MEMORY, 0)
        ),
        initialized_at=_true_since(pod, "Initialized"),
        estimation=_estimation(pod),
        dispensability=None if held == NOTHING else _dispensability(pod),
        workload=sys.intern(pods.workload(pod)),
        admitted=pods.is_admitted(pod),
    )


def _held_amounts(asked: Mapping[str, int], own: Tier | None) -> tuple[Tier | None, Resources, Resources]:
    """The requested tier, its amount, and the amount of the other tier; the tier of the pod's class comes first."""
    found = []
    for tier in Tier if own is None else sorted(Tier, key=lambda each: each is not own):
        cpu, memory = names.TIER_RESOURCES[tier]
        if asked.get(cpu) or asked.get(memory):
            found.append((tier, _amount(asked.get(cpu, 0), asked.get(memory, 0))))
    if not found:
        return None, NOTHING, NOTHING
    return *found[0], found[1][1] if len(found) > 1 else NOTHING


@lru_cache(maxsize=4096)
def _amount(cpu_milli: int, memory_bytes: int) -> Resources:
    """One shared amount for all pods of a template."""
    return Resources(cpu_milli, memory_bytes)


def sum_held(running: Iterable[PodRecord]) -> Mapping[Tier, Resources]:
    """The amounts that the active ones of these pods hold of each tier."""
    sums = dict.fromkeys(Tier, NOTHING)
    for pod in running:
        if pod.held_tier is not None and pod.active:
            sums[pod.held_tier] = sums[pod.held_tier].plus(pod.held)
            if pod.held_beside != NOTHING:
                other = next(tier for tier in Tier if tier is not pod.held_tier)
                sums[other] = sums[other].plus(pod.held_beside)
    return sums


def held_of(pod: PodRecord, tier: Tier) -> Resources:
    """The pod's requests of the tier."""
    if pod.held_tier is None:
        return NOTHING
    return pod.held if pod.held_tier is tier else pod.held_beside


def requested_by(pod: PodRecord) -> NodeRequests:
    """The requests that one pod adds to its node's sums."""
    if not pod.active:
        return _NONE
    return NodeRequests(pod.requests, pod.requests if pod.priority_class in names.LENDING_CLASSES else NOTHING)


class PodLedger:
    """All pods on nodes, and each node's sums. Written by the pod informer's thread, read by all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pods: dict[str, dict[str, PodRecord]] = {}  # nodes with pods only
        self._sums: dict[str, NodeRequests] = {}
        self._collections: dict[str, Collection[PodRecord]] = {}

    def pods_on(self, node: str) -> Collection[PodRecord]:
        """The node's pods, in no order: the same object while they stay the same."""
        with self._lock:
            found = self._collections.get(node)
            if found is None and (there := self._pods.get(node)):
                found = self._collections[node] = tuple(there.values())
            return found or ()

    def requested(self, node: str) -> NodeRequests:
        """The requests of the node's pods."""
        with self._lock:
            return self._sums.get(node, _NONE)

    def replace(self, old: PodRecord | None, new: PodRecord | None) -> set[str]:
        """Applies one change; returns the names of the nodes that it affects."""
        if old == new:
            return set()
        concerned = [each for each in (old, new) if each is not None and each.node]
        with self._lock:
            for pod in concerned:
                self._take(pod.node, pod.key)
            if new is not None and new.node:
                self._pods.setdefault(new.node, {})[new.key] = new
                self._sums[new.node] = self._sums.get(new.node, _NONE).plus(requested_by(new))
        return {pod.node for pod in concerned}

    def _take(self, node: str, key: str) -> None:
        """Removes the recorded pod, which may be older than the last change."""
        self._collections.pop(node, None)
        there = self._pods.get(node, {})
        known = there.pop(key, None)
        if known is not None and there:
            self._sums[node] = self._sums[node].minus(requested_by(known))
        elif known is not None:
            del self._pods[node], self._sums[node]


def _true_since(pod: Pod, condition_type: str) -> float | None:
    for condition in pod.status.conditions or ():
        if condition.type == condition_type and condition.status == "True" and condition.last_transition_time:
            try:
                return durations.instant(condition.last_transition_time)
            except (ValueError, OverflowError):
                return None
    return None


def _limited(pod: Pod) -> dict[str, int]:
    """Invalid limits count as none; the API server permits no such limits."""
    containers = (*pod.spec.containers, *(pod.spec.init_containers or ()))
    try:
        return pods.limits(pod) if any(each.resources.limits for each in containers) else {}
    except QuantityError:
        return {}


def _estimation(pod: Pod) -> Estimation | None:
    """The options of its annotations; invalid ones are ignored, as upstream does."""
    annotations = pod.metadata.annotations or {}
    if not annotations.keys() & _ESTIMATION_ANNOTATIONS:
        return None
    try:
        factors = msgspec.json.decode(
            annotations.get(names.ANNOTATION_ESTIMATED_SCALING_FACTORS, "{}"),
            type=dict[str, Annotated[int, msgspec.Meta(ge=0, le=MAX_FACTOR_PERCENT)]],
        )
    except (msgspec.MsgspecError, RecursionError):
        factors = {}
    return Estimation(
        factors.get(names.CPU),
        factors.get(names.MEMORY),
        _seconds(annotations.get(names.ANNOTATION_ESTIMATED_SECONDS_AFTER_SCHEDULED)),
        _seconds(annotations.get(names.ANNOTATION_ESTIMATED_SECONDS_AFTER_INITIALIZED)),
    )


def _dispensability(pod: Pod) -> Dispensability:
    """The values of its annotations and labels; invalid ones count as absent.

    Upstream evicts some pods only with a label that permits it; here a strategy that enables eviction permits it, and
    the label can only forbid it. Pods that belong to the node itself would come back at once, so they are never
    evicted.
    """
    meta = pod.metadata
    of_node = meta.annotation(names.ANNOTATION_MIRROR) is not None or any(
        owner.controller and owner.kind in _BOUND_TO_NODE for owner in meta.owner_references or ()
    )
    try:
        created_at = meta.created_at
    except (ValueError, OverflowError):
        created_at = 0.0
    return Dispensability(
        priority=_integer(meta.annotation(names.ANNOTATION_EVICTION_PRIORITY)),
        sub_priority=_integer(meta.label(names.LABEL_PRIORITY)),
        created_at=created_at,
        evictable=not of_node and meta.label(names.LABEL_EVICTION_ENABLED) != "false",
        terminating=pods.is_terminating(pod),
    )


def _integer(text: str | None) -> int:
    return int(text) if text is not None and _INTEGER.fullmatch(text) else 0


def _seconds(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else None
