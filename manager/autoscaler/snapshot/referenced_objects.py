"""The objects that pods refer to, and the kinds to read for them: informers, a live cluster and dumps read the same."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

import msgspec

from manager.autoscaler.snapshot import volumes
from manager.autoscaler.snapshot.devices import Devices
from manager.autoscaler.snapshot.volumes import AttachedVolume, VolumeIndex
from shared.api.core import PersistentVolume, PersistentVolumeClaim, Pod
from shared.api.dra import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from shared.api.podgroup import PodGroup
from shared.api.storage import CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment
from shared.cached_property import cached_property
from shared.kube.resources import (
    COSCHEDULING_PODGROUPS,
    CSIDRIVERS,
    CSINODES,
    CSISTORAGECAPACITIES,
    DEVICECLASSES,
    PERSISTENTVOLUMECLAIMS,
    PERSISTENTVOLUMES,
    PODGROUPS_ALPHA,
    PODGROUPS_BETA,
    RESOURCECLAIMS,
    RESOURCECLAIMTEMPLATES,
    RESOURCESLICES,
    STORAGECLASSES,
    VOLUMEATTACHMENTS,
    Resource,
)


@dataclass(frozen=True)
class ReferencedObjects:
    """Labels of namespaces by name, and the objects of each kind by "namespace/name", or by name where there is no
    namespace.

    A kind is None where its objects are not known; then what depends on them is not judged.
    """

    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    claims: Mapping[str, PersistentVolumeClaim] | None = None
    volumes: Mapping[str, PersistentVolume] | None = None
    storage_classes: Mapping[str, StorageClass] | None = None
    csi_nodes: Mapping[str, CSINode] | None = None
    csi_drivers: Mapping[str, CSIDriver] | None = None
    storage_capacities: Mapping[str, CSIStorageCapacity] | None = None
    attachments: Mapping[str, VolumeAttachment] | None = None
    pod_groups: Mapping[str, PodGroup] | None = None
    device_classes: Mapping[str, DeviceClass] | None = None
    resource_slices: Mapping[str, ResourceSlice] | None = None
    resource_claims: Mapping[str, ResourceClaim] | None = None
    resource_claim_templates: Mapping[str, ResourceClaimTemplate] | None = None

    def mean_the_same_for_pods(self, other: "ReferencedObjects") -> bool:
        """Whether no facts of a pod can differ.

        What nodes have attached and which gangs there are is not among them, and changes all the time.
        """

        def of_pods(objects: ReferencedObjects) -> ReferencedObjects:
            return replace(objects, csi_nodes=None, attachments=None, pod_groups=None)

        return of_pods(self) == of_pods(other)

    @cached_property
    def devices(self) -> Devices:
        return Devices(self.resource_slices, self.device_classes, self.resource_claims, self.resource_claim_templates)

    @cached_property
    def volume_index(self) -> VolumeIndex:
        """Where claims get their volumes."""
        return VolumeIndex(
            self.volumes,
            self.storage_classes,
            self.csi_drivers or {},
            (self.storage_capacities or {}).values(),
        )

    def volume_limits(self, node: str, *, is_starting: bool = False) -> dict[str, int] | None:
        """The most volumes that a node takes, by driver; None if that is not known.

        A driver that a node which `is_starting` does not have yet is on its way.
        """
        if self.csi_nodes is None:
            return None
        return volumes.volume_limits(self.csi_nodes.get(node), {} if is_starting else self.csi_drivers or {})

    @cached_property
    def _limits_volumes(self) -> bool:
        return any(volumes.volume_limits(each, {}) for each in (self.csi_nodes or {}).values())

    def attached_volumes(self, placed: Iterable[Pod]) -> dict[str, frozenset[AttachedVolume]]:
        """The volumes that each node has or is to have, as kube-scheduler counts them; empty if no node has a limit."""
        found: defaultdict[str, set[AttachedVolume]] = defaultdict(set)
        if not self._limits_volumes:
            return {}
        for pod in placed:
            if pod.spec.volumes:
                found[pod.spec.node_name or pod.status.nominated_node_name].update(self.volumes_of(pod))
        for each in (self.attachments or {}).values():
            volume = (self.volumes or {}).get(each.spec.source.persistent_volume_name)
            if volume is not None and volume.spec.csi is not None:
                found[each.spec.node_name].add(AttachedVolume(each.spec.attacher, volume.spec.csi.volume_handle))
        return {node: frozenset(volumes) for node, volumes in found.items() if volumes}

    def unbound_claims(self, pod: Pod) -> list[PersistentVolumeClaim]:
        """The claims of the pod that have no volume yet."""
        if not self._unbound:
            return []
        namespace = pod.metadata.namespace
        found = (self._unbound.get(f"{namespace}/{name}") for name, _ in volumes.volume_claims(pod))
        return [each for each in found if each is not None]

    @cached_property
    def _unbound(self) -> dict[str, PersistentVolumeClaim]:
        return {key: each for key, each in (self.claims or {}).items() if not each.spec.volume_name}

    def volumes_of(self, pod: Pod) -> Iterator[AttachedVolume]:
        """The volumes that a node attaches for the pod."""
        for volume in pod.spec.volumes or ():
            disk = volumes.in_tree_disk(volume)
            if disk is not None:
                yield disk
        for name, _ in volumes.volume_claims(pod):
            claim = (self.claims or {}).get(f"{pod.metadata.namespace}/{name}")
            attached = None if claim is None else self.volume_index.attached_volume(claim)
            if attached is not None:
                yield attached


_BY_NAME: Callable[[Any], str] = attrgetter("metadata.key")


@dataclass(frozen=True)
class ReferencedKind:
    """A kind, and the field of `ReferencedObjects` that has its objects by `key`.

    The objects of all `resources` count. A cluster may lack an `optional` kind, which then has no objects.
    """

    field: str
    into: type[msgspec.Struct]
    resources: tuple[Resource, ...]
    optional: bool = True
    key: Callable[[Any], str] = _BY_NAME


REFERENCED_KINDS = (
    ReferencedKind("claims", PersistentVolumeClaim, (PERSISTENTVOLUMECLAIMS,), optional=False),
    ReferencedKind("volumes", PersistentVolume, (PERSISTENTVOLUMES,), optional=False),
    ReferencedKind("storage_classes", StorageClass, (STORAGECLASSES,)),
    ReferencedKind("csi_nodes", CSINode, (CSINODES,)),
    ReferencedKind("csi_drivers", CSIDriver, (CSIDRIVERS,)),
    ReferencedKind("storage_capacities", CSIStorageCapacity, (CSISTORAGECAPACITIES,)),
    ReferencedKind("attachments", VolumeAttachment, (VOLUMEATTACHMENTS,)),
    ReferencedKind("device_classes", DeviceClass, (DEVICECLASSES,)),
    ReferencedKind("resource_slices", ResourceSlice, (RESOURCESLICES,)),
    ReferencedKind("resource_claims", ResourceClaim, (RESOURCECLAIMS,)),
    ReferencedKind("resource_claim_templates", ResourceClaimTemplate, (RESOURCECLAIMTEMPLATES,)),
    ReferencedKind(
        "pod_groups", PodGroup, (PODGROUPS_ALPHA, PODGROUPS_BETA, COSCHEDULING_PODGROUPS), key=attrgetter("key")
    ),
)


def referenced_objects(
    namespaces: Mapping[str, Mapping[str, str]], listed: Callable[[ReferencedKind], Iterable[Any] | None]
) -> ReferencedObjects:
    """The objects of all kinds, as `listed` has them; None for a kind that cannot be known."""
    found: dict[str, Any] = {}
    for kind in REFERENCED_KINDS:
        objects = listed(kind)
        found[kind.field] = None if objects is None else {kind.key(each): each for each in objects}
    return ReferencedObjects(namespaces, **found)
