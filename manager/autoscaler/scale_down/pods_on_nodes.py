"""The pods of a node, what happens to each when the node goes, and whether the nodes that stay can hold their predicted
usage, and not only their requests.

A node's predicted peak moves with its pods, in proportion to their requests. The whole peak moves, system and
DaemonSets included, which errs on the safe side. The requests of Mid pods come on top of that peak, because Mid lends
the capacity above it. When a node goes, its Mid goes too, and its Mid pods count in full on the node that takes them.
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from manager.autoscaler.scale_down import drain
from manager.autoscaler.scale_down.drain import (
    DisruptionBudget,
    Drainability,
    DrainInfo,
    DrainOutcome,
    PodController,
    RemainingDisruptions,
)
from manager.autoscaler.scale_down.removal_status import BlockingReason
from manager.autoscaler.settings.scale_down import DrainRules
from manager.autoscaler.snapshot import equivalence_groups, pod_info
from manager.autoscaler.snapshot.pod_info import PodInfo
from manager.autoscaler.snapshot.referenced_objects import ReferencedObjects
from shared import durations, quantity
from shared.api import podgroup
from shared.api import pods as podrules
from shared.api.core import DaemonSet, Pod
from shared.api.workloads import Job, PodDisruptionBudget, ReplicaSet, ReplicationController, StatefulSet
from shared.errors import InvalidInput
from shared.names import CPU, MEMORY, MID_CPU, MID_MEMORY
from shared.quantity import Amounts, Resources

Controllers = Mapping[str, PodController]  # the existing controllers by key
# The kinds that are watched; an owner of any other kind counts as existing.
FOLLOWED = frozenset({"ReplicationController", "ReplicaSet", "StatefulSet", "Job", equivalence_groups.DAEMON_SET})


class PodOnNode(msgspec.Struct, frozen=True, eq=False):
    """A pod by its key "namespace/name", on its node. Pods that are alike share their facts.

    A pod without `drain_info` only waits for that node: it needs a place, and is not drained.
    """

    key: str
    node: str
    facts: PodInfo
    drain_info: DrainInfo | None = None

    def needs_a_place(self, now: float) -> bool:
        """Whether it needs another node once its own is gone."""
        return self.drain_info is None or self.drain_info.needs_a_place(now)

    @property
    def is_awaited(self) -> bool:
        """Whether the removal of its node waits until it has ended."""
        return self.drain_info is not None and self.drain_info.safe_to_evict == drain.ON_COMPLETION


@dataclass(frozen=True, slots=True)
class BlockingPod:
    """A pod that blocks the removal of its node."""

    pod: str
    why: BlockingReason
    detail: str

    def __str__(self) -> str:
        return f"pod {self.pod} {self.detail} ({self.why})"


@dataclass(frozen=True, slots=True)
class DrainPlan:
    """The plan for a node's pods: pods that need another place, the evicted ones among them, awaited pods, and the
    budgets and gangs in use, one entry per eviction. All other pods go with the node.
    """

    moving: tuple[PodOnNode, ...] = ()
    evicted: tuple[PodOnNode, ...] = ()
    awaited: tuple[PodOnNode, ...] = ()
    disruptions: tuple[int, ...] = ()


class _Verdict(NamedTuple):
    """What does not change about a pod within a pass; `lasting` is None where the budgets decide."""

    lasting: Drainability | None
    needs_a_place: bool
    covering: tuple[int, ...]
    used: tuple[int, ...]


class DrainPlanner:
    """The plans of one pass. What does not depend on other removals is found once for all pods that share it."""

    def __init__(self, rules: DrainRules, now: float) -> None:
        self._rules = rules
        self._now = now
        self._verdicts: dict[int, _Verdict] = {}  # by the identity of a DrainInfo, which pods of the pass keep alive

    def plan(self, residents: Iterable[PodOnNode], disruptions: RemainingDisruptions) -> DrainPlan | BlockingPod:
        """The plan for one node, by what remains of the pass's budgets. The pods are in the order of their keys: of
        several that block the node, the first is returned.
        """
        moving: list[PodOnNode] = []
        evicted: list[PodOnNode] = []
        awaited: list[PodOnNode] = []
        taken: list[int] = []
        for each in residents:
            who = each.drain_info
            if who is None:
                moving.append(each)
                continue
            verdict = self._verdict(who, disruptions)
            found = verdict.lasting or drain.drainability_by_budgets(who, disruptions)
            if found.outcome is DrainOutcome.BLOCKED:
                return _blocker(each, found)
            if found.outcome is DrainOutcome.WAIT:
                awaited.append(each)
            elif verdict.needs_a_place:
                if len(verdict.covering) > 1:
                    detail = f"is under {len(verdict.covering)} disruption budgets, and then no eviction is possible"
                    return BlockingPod(each.key, BlockingReason.NOT_ENOUGH_PDB, detail)
                moving.append(each)
                evicted.append(each)
                taken += verdict.used
                short = disruptions.short_for(taken) if verdict.used else None
                if short is not None:
                    return BlockingPod(each.key, short.why, f"would be one more eviction than {short} allows now")
        return DrainPlan(tuple(moving), tuple(evicted), tuple(awaited), tuple(taken))

    def _verdict(self, who: DrainInfo, disruptions: RemainingDisruptions) -> _Verdict:
        found = self._verdicts.get(id(who))
        if found is None:
            lasting = drain.lasting_drainability(who, self._rules, disruptions, self._now)
            covering = disruptions.covering(who.namespace, who.labels)
            used = disruptions.used_by(who)
            found = self._verdicts[id(who)] = _Verdict(lasting, who.needs_a_place(self._now), covering, used)
        return found


def forced_drain_plan(residents: Iterable[PodOnNode], now: float) -> DrainPlan:
    """The plan for a node that goes in the end regardless of its pods' protection."""
    moving = tuple(each for each in residents if each.needs_a_place(now))
    return DrainPlan(moving, tuple(each for each in moving if each.drain_info is not None))


def _blocker(resident: PodOnNode, found: Drainability) -> BlockingPod:
    assert found.why is not None
    return BlockingPod(resident.key, found.why, found.detail)


@dataclass(frozen=True)
class NodePods:
    """The pods on nodes, and by node the problem with a pod that could not be read."""

    residents: tuple[PodOnNode, ...]
    unreadable: Mapping[str, str]


def needs_attention(pod: Pod, expendable_below: int) -> bool:
    """Whether the pod matters when its node goes; an ended or expendable pod does not."""
    return podrules.is_active(pod) and not equivalence_groups.is_expendable(pod, expendable_below)


def read_pods(pods: Iterable[Pod], surroundings: ReferencedObjects, controllers: Controllers | None = None) -> NodePods:
    """Pods in their wire form. Without `controllers` every controller counts as existing.

    DaemonSet pods are read only as far as it matters on their node.
    """
    return PodReadings().read(pods, surroundings, controllers)


@dataclass(frozen=True, slots=True)
class _Reading:
    """What was read of all pods that one controller made, and whether any of it is of other objects."""

    pods: list[Pod]
    controller: PodController | None
    residents: list[PodOnNode]
    unreadable: dict[str, str]
    refers: bool


@dataclass(frozen=True, slots=True)
class _Pass:
    """What was asked, and what was found: all of it, and by controller."""

    pods: list[Pod]
    surroundings: ReferencedObjects
    controllers: Controllers | None
    found: NodePods
    known: Mapping[tuple[bool, str], _Reading]


class PodReadings:
    """Pods as they were read last. A pass reads nothing where nothing has changed, and else again those of controllers
    with a pod that has come, gone or changed, or that refers to objects of which some have changed. It forgets what it
    does not meet.
    """

    def __init__(self) -> None:
        self._last: _Pass | None = None

    def copy(self) -> "PodReadings":
        """Another that starts with the same; for any thread."""
        made = PodReadings()
        made._last = self._last
        return made

    def read(
        self, pods: Iterable[Pod], surroundings: ReferencedObjects, controllers: Controllers | None = None
    ) -> NodePods:
        """The same as `read_pods`."""
        listed, last = list(pods), self._last
        moved = last is None or not last.surroundings.mean_the_same_for_pods(surroundings)
        if last is not None and not moved and last.controllers == controllers and last.pods == listed:
            return last.found
        made_by: defaultdict[tuple[bool, str], list[Pod]] = defaultdict(list)
        for pod in listed:
            if pod.spec.node_name:
                made_by[equivalence_groups.is_of_node(pod), equivalence_groups.controller_of(pod)].append(pod)
        before = {kind: each for kind, each in (last.known if last else {}).items() if not (moved and each.refers)}
        known: dict[tuple[bool, str], _Reading] = {}
        residents: list[PodOnNode] = []
        unreadable: dict[str, str] = {}
        for kind, alike in made_by.items():
            reading, controller = before.get(kind), _controller(alike[0], controllers)
            if reading is None or reading.controller != controller or reading.pods != alike:
                reading = _read(alike, kind[0], surroundings, controllers)
            known[kind] = reading
            residents += reading.residents
            unreadable |= reading.unreadable
        found = NodePods(tuple(residents), unreadable)
        self._last = _Pass(listed, surroundings, controllers, found, known)
        return found


def _read(pods: list[Pod], stays: bool, surroundings: ReferencedObjects, controllers: Controllers | None) -> _Reading:
    """`stays`: they go with their node."""
    found: list[PodOnNode] = []
    unreadable: dict[str, str] = {}
    refers = False
    for alike in equivalence_groups.group_placed(pods) if stays else equivalence_groups.group_equivalent(pods):
        try:
            facts = (
                pod_info.read_placed(alike[0], surroundings, of_node=True)
                if stays
                else pod_info.read_pending(alike[0], surroundings)
            )
        except InvalidInput as problem:
            unreadable |= dict.fromkeys([pod.spec.node_name for pod in alike], str(problem))
            refers = True
            continue
        refers = refers or pod_info.refers(alike[0], facts)
        read = drain_info if stays else _SharedDrainInfo()
        found += [PodOnNode(pod.metadata.key, pod.spec.node_name, facts, read(pod, controllers)) for pod in alike]
    return _Reading(pods, _controller(pods[0], controllers), found, unreadable, refers)


def drain_info(pod: Pod, controllers: Controllers | None = None) -> DrainInfo:
    """The facts of a pod in wire form that decide whether it may be evicted."""
    meta, spec = pod.metadata, pod.spec
    grace = spec.termination_grace_period_seconds
    listed = (meta.annotation(drain.ANNOTATION_SAFE_LOCAL_VOLUMES) or "").split(",")
    return DrainInfo(
        namespace=meta.namespace,
        labels=meta.labels or {},
        controller=_controller(pod, controllers),
        phase=pod.status.phase,
        restart_policy=spec.restart_policy,
        created_at=meta.created_at,
        deleted_at=durations.instant(meta.deletion_timestamp) if meta.deletion_timestamp else None,
        grace_seconds=drain.DEFAULT_GRACE_SECONDS if grace is None else float(grace),
        is_mirror=equivalence_groups.is_mirror(pod),
        is_daemon=equivalence_groups.is_daemon(pod),
        safe_to_evict=meta.annotation(drain.ANNOTATION_SAFE_TO_EVICT) or "",
        local_volumes=tuple(volume.name for volume in spec.volumes or () if volume.is_local),
        safe_local_volumes=frozenset(name.strip() for name in listed if name.strip()),
        pod_group=podgroup.pod_group_of(pod),
    )


class _SharedDrainInfo:
    """The same for pods of one equivalence group, read once for all pods that agree in the other relevant facts."""

    def __init__(self) -> None:
        self._known: dict[object, DrainInfo] = {}

    def __call__(self, pod: Pod, controllers: Controllers | None) -> DrainInfo:
        meta = pod.metadata
        annotations = meta.annotations or {}
        apart = (
            meta.namespace,
            meta.owner_references,
            pod.status.phase,
            meta.deletion_timestamp,
            meta.creation_timestamp if meta.namespace == drain.KUBE_SYSTEM else "",
            annotations.get(drain.ANNOTATION_SAFE_TO_EVICT),
            annotations.get(drain.ANNOTATION_SAFE_LOCAL_VOLUMES),
        )
        found = self._known.get(apart)
        if found is None:
            found = self._known[apart] = drain_info(pod, controllers)
        return found


def replication_controller(found: ReplicationController) -> PodController:
    return _restarting("ReplicationController", found)


def replica_set(found: ReplicaSet) -> PodController:
    return _restarting("ReplicaSet", found)


def stateful_set(found: StatefulSet) -> PodController:
    return PodController("StatefulSet", found.metadata.name, namespace=found.metadata.namespace)


def job(found: Job) -> PodController:
    return PodController("Job", found.metadata.name, namespace=found.metadata.namespace)


def daemon_set(found: DaemonSet) -> PodController:
    return PodController(equivalence_groups.DAEMON_SET, found.metadata.name, namespace=found.metadata.namespace)


def disruption_budgets(found: Iterable[PodDisruptionBudget]) -> list[DisruptionBudget]:
    """The disruptions that the budgets allow now."""
    return [
        DisruptionBudget(each.metadata.namespace, each.metadata.name, each.spec.selector, each.allowed)
        for each in found
    ]


def _restarting(kind: str, found: ReplicationController | ReplicaSet) -> PodController:
    meta, wanted = found.metadata, found.spec.replicas
    return PodController(kind, meta.name, replicas=1 if wanted is None else wanted, namespace=meta.namespace)


def _controller(pod: Pod, controllers: Controllers | None) -> PodController | None:
    for owner in pod.metadata.owner_references or ():
        if owner.controller:
            known = (controllers or {}).get(f"{pod.metadata.namespace}/{owner.kind}/{owner.name}")
            is_there = controllers is None or owner.kind not in FOLLOWED
            return known or PodController(owner.kind, owner.name, exists=is_there)
    return None


def pods_by_node(residents: Sequence[PodOnNode]) -> dict[str, list[PodOnNode]]:
    """All pods of each node, in no particular order."""
    found: defaultdict[str, list[PodOnNode]] = defaultdict(list)
    for each in residents:
        found[each.node].append(each)
    return found


NO_LOAD = Resources()

_Owner = tuple[str, str, str]  # a controller by namespace, kind and name


def mid_requests(requests: Amounts) -> Resources:
    """The Mid that a pod requests, in native units."""
    return Resources(requests.get(MID_CPU, 0), requests.get(MID_MEMORY, 0))


def peaks_with_new_pods(
    told: Mapping[str, Resources], on_node: Mapping[str, Sequence[PodOnNode]], untold: Container[str]
) -> dict[str, Resources]:
    """The nodes' peaks in `told`, plus those of pods that the reports do not cover: `untold` pods, by key, and pods
    about to come. Each adds its requests, as agents count a pod without history; or the share of its node's peak that
    another pod of its controller has, where that is more.
    """
    known: dict[str, list[PodOnNode]] = {}
    new: dict[str, list[PodOnNode]] = {}
    for node in told:
        for each in on_node.get(node, ()):
            is_new = each.drain_info is None or each.key in untold
            (new if is_new else known).setdefault(node, []).append(each)
    most = _most_brought(told, known, {_owner(each) for found in new.values() for each in found} - {None})
    added = {
        node: [_native(each.facts.requests).most(most.get(_owner(each), NO_LOAD)) for each in found]
        for node, found in new.items()
    }
    return {node: quantity.total([peak, *added.get(node, ())]) for node, peak in told.items()}


def _most_brought(
    told: Mapping[str, Resources], known: Mapping[str, Sequence[PodOnNode]], wanted: Container[_Owner | None]
) -> dict[_Owner | None, Resources]:
    """The largest share of a peak that one pod of each wanted controller has."""
    found: dict[_Owner | None, Resources] = {}
    for node, pods in known.items() if wanted else ():
        movable = [each for each in pods if not each.facts.of_node]
        if any(_owner(each) in wanted for each in movable):
            for each, part in zip(movable, _parts(told[node], [one.facts.requests for one in movable]), strict=True):
                found[_owner(each)] = found.get(_owner(each), NO_LOAD).most(part)
    return found


def room(allocatable: Amounts, peak: Resources, placed: Iterable[Amounts], margin_percent: int) -> Resources:
    """The remaining room of a node: its allocatable without the margin (0 to 100 percent), less its predicted peak and
    the Mid of the pods placed there. Negative where the node is overcommitted.
    """
    usable = Resources(*(allocatable.get(name, 0) * (100 - margin_percent) // 100 for name in (CPU, MEMORY)))
    for requests in placed:
        usable = usable.minus(mid_requests(requests))
    return usable.minus(peak)


def shares(peak: Resources, moving: Sequence[Amounts]) -> list[Resources]:
    """The load of each pod that moves: its share of the peak, rounded up, plus its Mid."""
    return [part.plus(mid_requests(requests)) for part, requests in zip(_parts(peak, moving), moving, strict=True)]


def _parts(peak: Resources, pods: Sequence[Amounts]) -> list[Resources]:
    native = [_native(requests) for requests in pods]
    cpu = _divided(peak.cpu_milli, [each.cpu_milli for each in native])
    memory = _divided(peak.memory_bytes, [each.memory_bytes for each in native])
    return [Resources(*part) for part in zip(cpu, memory, strict=True)]


def _native(requests: Amounts) -> Resources:
    return Resources(requests.get(CPU, 0), requests.get(MEMORY, 0))


def requested(pods: Iterable[Amounts]) -> Resources:
    """The sum of their native requests: the peak of pods without history."""
    return quantity.total([_native(each) for each in pods])


def _owner(of: PodOnNode) -> _Owner | None:
    who = of.drain_info
    return None if who is None or who.controller is None else (who.namespace, who.controller.kind, who.controller.name)


def _divided(amount: int, weights: Sequence[int]) -> list[int]:
    """The amount split by weight, in equal parts where all weights are zero; each part rounded up."""
    total = sum(weights)
    if total:
        return [-(-amount * weight // total) for weight in weights]
    return [-(-amount // len(weights)) for _ in weights]
