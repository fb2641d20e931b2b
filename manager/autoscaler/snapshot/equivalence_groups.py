"""Groups pods that are equal in all facts that scheduling reads (Cluster Autoscaler's equivalence groups).

Pods share a class if one controller made them and labels and spec agree, except for projected volumes. A controller has
at most ten classes; further different pods stand alone, as do pods of DaemonSets, and pods with ephemeral volumes, each
of which may be somewhere else. Equal pods of a namespace that no controller made are one class, too; to Cluster
Autoscaler each of them is one, which multiplies the work.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

import msgspec

from manager.autoscaler.snapshot import devices, pod_info, volumes
from manager.autoscaler.snapshot.pod_info import PodInfo
from manager.autoscaler.snapshot.referenced_objects import ReferencedObjects
from shared import names
from shared.api import pods as podrules
from shared.api.core import Pod
from shared.api.meta import OwnerReference
from shared.errors import InvalidInput

MAX_GROUPS_PER_CONTROLLER = 10
EXPENDABLE_BELOW = -10
ANNOTATION_DAEMON_SET_POD = "cluster-autoscaler.kubernetes.io/daemonset-pod"
DAEMON_SET = "DaemonSet"

_by_key = attrgetter("metadata.namespace", "metadata.name")
_ENCODER = msgspec.msgpack.Encoder(order="deterministic")


class EquivalenceGroup(NamedTuple):
    """Pending pods of one class: their facts, their keys in order, and the uid of their controller."""

    facts: PodInfo
    pods: tuple[str, ...]
    controller: str = ""


@dataclass(frozen=True)
class EquivalenceGroups:
    """The classes in the order of their first pods, and the unreadable pods, each with its problem."""

    classes: tuple[EquivalenceGroup, ...]
    refused: Mapping[str, InvalidInput]


def build_equivalence_groups(pods: Iterable[Pod], surroundings: ReferencedObjects) -> EquivalenceGroups:
    """All classes of these pods. The order of the pods does not matter."""
    classes: list[EquivalenceGroup] = []
    refused: dict[str, InvalidInput] = {}
    groups = group_equivalent(pods)
    claiming = [members for members in groups if members[0].spec.resource_claims]
    carriers = devices.first_carriers(itertools.chain.from_iterable(claiming))
    for members in _by_claims(groups, surroundings, carriers):
        keys = tuple(sorted([f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in members]))
        controller = controller_of(members[0])
        try:
            facts = pod_info.read_pending(members[0], surroundings, carriers)
            classes.append(EquivalenceGroup(facts, keys, controller))
        except InvalidInput as problem:
            refused |= dict.fromkeys(keys, problem)
    classes.sort(key=lambda each: each.pods[0])
    return EquivalenceGroups(tuple(classes), refused)


def _by_claims(
    groups: Iterable[list[Pod]], surroundings: ReferencedObjects, carriers: Mapping[str, str]
) -> Iterator[list[Pod]]:
    """The groups, split where the claims of equal pods require different nodes."""
    for members in groups:
        if not members[0].spec.resource_claims:
            yield members
            continue
        found: defaultdict[object, list[Pod]] = defaultdict(list)
        for pod in members:
            found[surroundings.devices.likeness(pod, carriers)].append(pod)
        yield from found.values()


def group_equivalent(pods: Iterable[Pod]) -> list[list[Pod]]:
    """The pods of each class."""
    alone: list[list[Pod]] = []
    bare: list[Pod] = []
    by_controller: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        owner = _controller(pod)
        if _made_by_daemon_set(pod, owner):
            alone.append([pod])
        elif owner is None:
            bare.append(pod)
        else:
            by_controller[owner.uid or _name_of(pod, owner)].append(pod)
    for made in by_controller.values():
        groups = _alike(made, _of_pending)
        if len(groups) > MAX_GROUPS_PER_CONTROLLER:  # which pods stand alone must not depend on the order
            groups = _alike(sorted(made, key=_by_key), _of_pending)
        alone += groups
    return alone + _equal(bare, _of_pending)


def controller_of(pod: Pod) -> str:
    """The uid of the controller that made the pod; empty without one."""
    owner = _controller(pod)
    return "" if owner is None else owner.uid or _name_of(pod, owner)


def is_daemon(pod: Pod) -> bool:
    """Whether a DaemonSet made the pod, or its annotation says that it counts as such."""
    return _made_by_daemon_set(pod, _controller(pod))


def is_mirror(pod: Pod) -> bool:
    """Whether the pod mirrors a static pod, which its kubelet runs from a file."""
    return pod.metadata.annotation(names.ANNOTATION_MIRROR) is not None


def is_of_node(pod: Pod) -> bool:
    """Whether the pod goes with its node, and needs no other place."""
    return is_daemon(pod) or is_mirror(pod)


def is_expendable(pod: Pod, cutoff: int = EXPENDABLE_BELOW) -> bool:
    """Whether no node is bought for the pod, and its place counts as free.

    A pod without a priority never is expendable.
    """
    return pod.spec.priority is not None and pod.spec.priority < cutoff


def scheduling_gate_reason(pod: Pod) -> str:
    """Why the scheduler does not consider the pod yet, in its words; empty when it does."""
    gates = pod.spec.scheduling_gates
    return f"waiting for scheduling gates: [{' '.join(gate.name for gate in gates)}]" if gates else ""


def group_placed(pods: Iterable[Pod]) -> list[list[Pod]]:
    """Placed pods that agree in all facts that still matter: labels, requests, ports, disks in the
    spec and anti-affinity.
    """
    by_controller: defaultdict[str, list[Pod]] = defaultdict(list)
    bare: list[Pod] = []
    for pod in pods:
        controller = controller_of(pod)
        if controller:
            by_controller[controller].append(pod)
        else:
            bare.append(pod)
    kinds = _equal(bare, lambda pod: (is_mirror(pod), is_daemon(pod), _of_placed(pod)))
    for made in by_controller.values():
        kinds += _alike(made, _of_placed)
    return kinds


def _controller(pod: Pod) -> OwnerReference | None:
    for owner in pod.metadata.owner_references or ():
        if owner.controller:
            return owner
    return None


def _name_of(pod: Pod, owner: OwnerReference) -> str:
    """The identity of an owner without a uid."""
    return f"{pod.metadata.namespace}/{owner.kind}/{owner.name}"


def _made_by_daemon_set(pod: Pod, owner: OwnerReference | None) -> bool:
    if owner is not None and owner.kind == DAEMON_SET:
        return True
    annotations = pod.metadata.annotations
    return annotations is not None and annotations.get(ANNOTATION_DAEMON_SET_POD) == "true"


def _of_pending(pod: Pod) -> object:
    spec = pod.spec
    if spec.volumes is not None or spec.node_name:
        mounted = tuple([volume for volume in spec.volumes or () if volume.projected is None])
        if any(volume.ephemeral is not None for volume in mounted):
            return pod.metadata.name
        spec = msgspec.structs.replace(spec, volumes=mounted or None, node_name="")
    return spec, pod.metadata.labels, podrules.resizing(pod)


def _of_placed(pod: Pod) -> object:
    spec = pod.spec
    keeps_away = spec.affinity.pod_anti_affinity if spec.affinity else None
    terminating = pod.metadata.deletion_timestamp is not None
    asking = spec.containers, spec.init_containers, spec.resources, spec.overhead
    found = asking, volumes.inline_disks(pod), podrules.resizing(pod), keeps_away, pod.metadata.labels, terminating
    if spec.resource_claims is None and pod.status.extended_resource_claim_status is None:
        return found
    return found, pod.metadata.name  # its claims have devices of their own


def _equal(pods: Iterable[Pod], facts: Callable[[Pod], object]) -> list[list[Pod]]:
    """Groups of pods of one namespace whose facts are equal, however many groups there are."""
    found: defaultdict[object, list[Pod]] = defaultdict(list)
    for pod in pods:
        key: object
        try:
            key = _ENCODER.encode((pod.metadata.namespace, facts(pod)))
        except (OverflowError, ValueError):  # a number or a text that has no encoding: the pod stands alone
            key = id(pod)
        found[key].append(pod)
    return list(found.values())


def _alike(pods: list[Pod], facts: Callable[[Pod], object]) -> list[list[Pod]]:
    """Groups of pods whose facts agree; beyond the maximum of groups, each pod that fits no group stands alone."""
    groups: list[list[Pod]] = []
    known: list[object] = []
    for pod in pods:
        found = facts(pod)
        for other, group in zip(known, groups, strict=False):
            if other == found:
                group.append(pod)
                break
        else:
            if len(known) < MAX_GROUPS_PER_CONTROLLER:
                known.append(found)
            groups.append([pod])
    return groups
