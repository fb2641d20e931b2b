"""The volumes of pods: where a claim that waits for its first pod gets one, and what a node attaches for a pod.

The rules are those of kube-scheduler's VolumeBinding and NodeVolumeLimits.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from shared import quantity
from shared.api.core import (
    InTreeDisks,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    Quantities,
    Volume,
)
from shared.api.placement import FIELD_NAME
from shared.api.selectors import LabelSelector
from shared.api.storage import (
    ATTACHABLE_PREFIX,
    NO_PROVISIONER,
    WAIT_FOR_FIRST_CONSUMER,
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    StorageClass,
)
from shared.cached_property import cached_property
from shared.quantity import QuantityError

ANNOTATION_SELECTED_NODE = "volume.kubernetes.io/selected-node"
NOT_INSTALLED = -(1 << 40)  # the limit of a driver that is not on a node, where it keeps pods away from such nodes
_STORAGE = "storage"
_AVAILABLE = frozenset({"", "Available"})  # a handwritten volume has no phase
_AWS_SCHEME = "aws://"
# The driver that attaches the disks of each plug-in that was part of Kubernetes.
_MIGRATED = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
}

Terms: TypeAlias = tuple[NodeSelectorTerm, ...]


class AttachedVolume(NamedTuple):
    """A volume as its driver knows it; one that does not exist yet goes by its claim."""

    driver: str
    handle: str


class InlineDisk(NamedTuple):
    """A disk in the spec of a pod that may be used once per node, or by any number of pods that only read it.

    `image` identifies it for each of the `hosts` that serve it; a disk of a cloud has the empty host.
    """

    kind: str
    image: str
    hosts: frozenset[str] = frozenset({""})
    read_only: bool = False

    def conflicts(self, other: "InlineDisk") -> bool:
        """Whether pods with these disks cannot be on one node (kube-scheduler's `isVolumeConflict`)."""
        return (
            self.image == other.image
            and self.kind == other.kind
            and not self.hosts.isdisjoint(other.hosts)
            and not (self.read_only and other.read_only)
        )


class FreeVolume(NamedTuple):
    """A PersistentVolume without a claim, and the nodes that reach it; None stands for every node."""

    name: str
    size_bytes: int
    nodes: Terms | None


@dataclass(frozen=True, eq=False)
class FreeVolumes:
    """The volumes that any of some equal claims may be bound to, the smallest first."""

    volumes: tuple[FreeVolume, ...]

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(each.name for each in self.volumes)


class UnboundClaim(NamedTuple):
    """A claim that gets its volume when its pod is placed.

    `existing` has the nodes that reach a matching volume, and `provisioned` those for which the class provisions one,
    if they are among the `roomy`, too. None stands for every node. `free` are the existing volumes, if the claim needs
    one of them on some node; another pod's claim may take each.
    """

    claim: str
    storage_class: str
    existing: Terms | None
    provisioned: Terms | None
    roomy: Terms | None
    size_bytes: int = 0
    free: FreeVolumes | None = None


def volume_claims(pod: Pod) -> Iterator[tuple[str, Volume]]:
    """The names of the claims behind the pod's volumes, each with its volume."""
    for volume in pod.spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            yield volume.persistent_volume_claim.claim_name, volume
        elif volume.ephemeral is not None:
            yield f"{pod.metadata.name}-{volume.name}", volume


def inline_disks(pod: Pod) -> tuple[InlineDisk, ...]:
    """The disks in the pod's spec that kube-scheduler's VolumeRestrictions judges."""
    return tuple([disk for volume in pod.spec.volumes or () for disk in _inline_disks(volume)])


def _inline_disks(volume: Volume) -> Iterator[InlineDisk]:
    if volume.gce_persistent_disk is not None:
        disk = volume.gce_persistent_disk
        yield InlineDisk("gce-pd", disk.pd_name, read_only=disk.read_only)
    elif volume.aws_elastic_block_store is not None:
        yield InlineDisk("aws-ebs", volume.aws_elastic_block_store.volume_id)
    elif volume.iscsi is not None:
        yield InlineDisk("iscsi", volume.iscsi.iqn, read_only=volume.iscsi.read_only)
    elif volume.rbd is not None:
        image = volume.rbd
        hosts = frozenset(image.monitors or ())
        yield InlineDisk("rbd", f"{image.pool}/{image.image}", hosts, image.read_only)


class VolumeIndex:
    """Answers about claims. Without `classes` it is not known how claims get their volumes, and without `volumes` not
    which ones exist.
    """

    def __init__(
        self,
        volumes: Mapping[str, PersistentVolume] | None,
        classes: Mapping[str, StorageClass] | None,
        drivers: Mapping[str, CSIDriver],
        capacities: Iterable[CSIStorageCapacity],
    ) -> None:
        self._volumes, self._classes, self._drivers = volumes, classes, drivers
        self._free: defaultdict[str, list[_SizedVolume]] = defaultdict(list)
        self._reserved: dict[str, PersistentVolume] = {}
        self._rooms: defaultdict[str, list[tuple[int, LabelSelector]]] = defaultdict(list)
        self._existing: dict[object, Terms | None] = {}
        self._matched: dict[object, FreeVolumes] = {}
        for volume in (volumes or {}).values():
            reference = volume.spec.claim_ref
            if reference is not None:
                self._reserved[f"{reference.namespace}/{reference.name}"] = volume
            elif volume.status.phase in _AVAILABLE and volume.metadata.deletion_timestamp is None:
                self._free[volume.storage_class].append(_SizedVolume(_bytes(volume.spec.capacity), volume))
        for each in capacities:
            limit = each.capacity if each.maximum_volume_size is None else each.maximum_volume_size
            if limit is not None and each.node_topology is not None and each.node_topology.problem is None:
                self._rooms[each.storage_class_name].append((_bytes({_STORAGE: limit}), each.node_topology))

    def waits_for_pod(self, claim: PersistentVolumeClaim) -> bool | None:
        """Whether the claim gets its volume when its pod is placed, and not before; None if that is not known."""
        if self._classes is None:
            return None
        found = self._classes.get(claim.storage_class)
        return found is not None and found.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER

    def unbound_claim(self, claim: PersistentVolumeClaim) -> UnboundClaim:
        """Where a claim that waits for its pod can get its volume."""
        name, storage_class = claim.metadata.name, (self._classes or {})[claim.storage_class]
        topologies = _topologies(storage_class)
        selected = claim.metadata.annotation(ANNOTATION_SELECTED_NODE)
        existing: Terms | None
        if selected:
            existing = ()
            topologies = (NodeSelectorTerm(match_fields=(NodeSelectorRequirement(FIELD_NAME, "In", (selected,)),)),)
        elif self._volumes is None:
            existing = None if topologies == () else ()
        else:
            existing = self._reachable(claim)
        roomy, free = self._roomy(claim, storage_class), None
        if existing != () and not selected and self._reserved_for(claim) is None:
            free = None if topologies is None and roomy is None else self._matching(claim)
        return UnboundClaim(name, claim.storage_class, existing, topologies, roomy, _requested(claim), free)

    def attached_volume(self, claim: PersistentVolumeClaim) -> AttachedVolume | None:
        """The volume that a node attaches for the claim; None if no CSI driver attaches one."""
        volume = (self._volumes or {}).get(claim.spec.volume_name)
        if volume is not None:
            source = volume.spec.csi
            return in_tree_disk(volume.spec) if source is None else AttachedVolume(source.driver, source.volume_handle)
        found = (self._classes or {}).get(claim.storage_class)
        if found is None or not found.provisioner:
            return None
        return AttachedVolume(_MIGRATED.get(found.provisioner, found.provisioner), f"claim {claim.metadata.key}")

    def _reachable(self, claim: PersistentVolumeClaim) -> Terms | None:
        """The nodes that reach a volume which exists and matches the claim."""
        reserved = self._reserved_for(claim)
        if reserved is not None:
            return _nodes_of(reserved)
        free = self._matching(claim)
        if free not in self._existing:
            self._existing[free] = _merged(each.nodes for each in free.volumes)
        return self._existing[free]

    def _reserved_for(self, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        """The volume that is kept for the claim."""
        reserved = self._reserved.get(claim.metadata.key)
        if reserved is None or reserved.spec.claim_ref is None:
            return None
        fits = _bytes(reserved.spec.capacity) >= _requested(claim)
        fits = fits and reserved.spec.volume_mode == claim.spec.volume_mode
        return reserved if fits and reserved.spec.claim_ref.uid in ("", claim.metadata.uid) else None

    def _matching(self, claim: PersistentVolumeClaim) -> FreeVolumes:
        """The free volumes that the claim may be bound to."""
        size, spec = _requested(claim), claim.spec
        kind = (claim.storage_class, size, spec.volume_mode, spec.access_modes, repr(spec.selector))
        if kind not in self._matched:
            candidates = (each for each in self._free.get(claim.storage_class, ()) if each.size_bytes >= size)
            matching = [
                FreeVolume(each.volume.metadata.name, each.size_bytes, _nodes_of(each.volume))
                for each in candidates
                if _matches(claim, each.volume)
            ]
            matching.sort(key=lambda each: (each.size_bytes, each.name))
            self._matched[kind] = FreeVolumes(tuple(matching))
        return self._matched[kind]

    def _roomy(self, claim: PersistentVolumeClaim, storage_class: StorageClass) -> Terms | None:
        """The nodes with enough storage for a new volume; None if the driver does not publish it."""
        driver = self._drivers.get(storage_class.provisioner)
        if driver is None or not driver.spec.storage_capacity or not _requested(claim):
            return None
        size, name = _requested(claim), claim.storage_class
        kind = ("room", name, size)
        if kind not in self._existing:
            fitting = (selector for limit, selector in self._rooms.get(name, ()) if limit >= size)
            self._existing[kind] = _merged(None if each.is_empty else (_term(each),) for each in fitting)
        return self._existing[kind]


class _SizedVolume(NamedTuple):
    size_bytes: int
    volume: PersistentVolume


def in_tree_disk(source: InTreeDisks) -> AttachedVolume | None:
    """The disk as the CSI driver of its cloud attaches it; None for another volume."""
    found = None
    if source.aws_elastic_block_store is not None:
        identity = source.aws_elastic_block_store.volume_id
        found = "aws-ebs", identity.rpartition("/")[2] if identity.startswith(_AWS_SCHEME) else identity
    elif source.gce_persistent_disk is not None:
        found = "gce-pd", source.gce_persistent_disk.pd_name
    elif source.azure_disk is not None:
        found = "azure-disk", source.azure_disk.disk_uri
    elif source.cinder is not None:
        found = "cinder", source.cinder.volume_id
    return None if found is None else AttachedVolume(_MIGRATED[f"kubernetes.io/{found[0]}"], found[1])


def _topologies(storage_class: StorageClass) -> Terms | None:
    """The nodes for which the class provisions."""
    if storage_class.provisioner in ("", NO_PROVISIONER):
        return ()
    if not storage_class.allowed_topologies:
        return None
    return tuple(
        NodeSelectorTerm(
            match_expressions=tuple(
                NodeSelectorRequirement(each.key, "In", each.values) for each in term.match_label_expressions or ()
            )
        )
        for term in storage_class.allowed_topologies
    )


def _matches(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    """Whether the claim may be bound to a free volume of its class and of sufficient size."""
    wanted, spec, selector = claim.spec, volume.spec, claim.spec.selector
    return (
        wanted.volume_mode == spec.volume_mode
        and set(wanted.access_modes or ()) <= set(spec.access_modes or ())
        and (selector is None or (selector.problem is None and selector.matches(volume.metadata.labels or {})))
    )


def _nodes_of(volume: PersistentVolume) -> Terms | None:
    affinity = volume.spec.node_affinity
    return None if affinity is None or affinity.required is None else affinity.required.node_selector_terms


def _term(selector: LabelSelector) -> NodeSelectorTerm:
    """A label selector as the term of a node selector."""
    exact = (NodeSelectorRequirement(key, "In", (value,)) for key, value in (selector.match_labels or {}).items())
    others = (
        NodeSelectorRequirement(each.key, each.operator, each.values) for each in selector.match_expressions or ()
    )
    return NodeSelectorTerm(match_expressions=(*exact, *others))


def _merged(alternatives: Iterable[Terms | None]) -> Terms | None:
    """All terms; those that only list values of one label, as local volumes do, become one."""
    listed: defaultdict[str, dict[str, None]] = defaultdict(dict)
    others: dict[NodeSelectorTerm, None] = {}
    for terms in alternatives:
        if terms is None:
            return None
        for term in terms:
            expressions = term.match_expressions or ()
            if len(expressions) == 1 and expressions[0].operator == "In" and not term.match_fields:
                listed[expressions[0].key].update(dict.fromkeys(expressions[0].values or ()))
            else:
                others[term] = None
    of_labels = (
        NodeSelectorTerm(match_expressions=(NodeSelectorRequirement(key, "In", tuple(sorted(values))),))
        for key, values in sorted(listed.items())
    )
    return (*of_labels, *others)


def _requested(claim: PersistentVolumeClaim) -> int:
    """The storage that the claim requests, in bytes."""
    return _bytes(claim.spec.resources.requests if claim.spec.resources else None)


def _bytes(amounts: Quantities | None) -> int:
    """The amount of storage; 0 without one, or if it is unreadable."""
    try:
        return quantity.whole((amounts or {}).get(_STORAGE, 0))
    except QuantityError:
        return 0


def volume_limits(csi_node: CSINode | None, drivers: Mapping[str, CSIDriver]) -> dict[str, int]:
    """The most volumes that a node takes, by driver; a driver that is not named has no limit there."""
    listed = (csi_node.spec.drivers or ()) if csi_node is not None else ()
    limits = {
        each.name: max(0, each.allocatable.count)
        for each in listed
        if each.allocatable is not None and each.allocatable.count is not None
    }
    installed = {each.name for each in listed}
    missing = (
        name for name, each in drivers.items() if each.spec.prevent_pod_scheduling_if_missing and name not in installed
    )
    return {**limits, **dict.fromkeys(missing, NOT_INSTALLED)}


def told_limits(allocatable: Mapping[str, int]) -> dict[str, int]:
    """The same from the resources that a node states, as providers do for new nodes."""
    return {
        name.removeprefix(ATTACHABLE_PREFIX): amount
        for name, amount in allocatable.items()
        if name.startswith(ATTACHABLE_PREFIX)
    }
