"""What the manager reads of the kinds in storage.k8s.io, which decide where the volumes of a pod can be."""

from shared.api.meta import ObjectMeta, Wire, prepared
from shared.api.selectors import LabelSelector

ATTACHABLE_PREFIX = "attachable-volumes-csi-"  # of a node's resource that states the limit of a driver
NO_PROVISIONER = "kubernetes.io/no-provisioner"
WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"


class TopologySelectorLabelRequirement(Wire, frozen=True):
    key: str = ""
    values: tuple[str, ...] = ()


class TopologySelectorTerm(Wire, frozen=True):
    match_label_expressions: tuple[TopologySelectorLabelRequirement, ...] | None = None


@prepared
class StorageClass(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[TopologySelectorTerm, ...] | None = None


class VolumeNodeResources(Wire, frozen=True):
    """The most volumes of a driver that can be attached to a node; None: no limit."""

    count: int | None = None


class CSINodeDriver(Wire, frozen=True):
    name: str = ""
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(Wire, frozen=True):
    drivers: tuple[CSINodeDriver, ...] | None = None


@prepared
class CSINode(Wire, frozen=True):
    """The CSI drivers of the node of the same name."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CSINodeSpec = CSINodeSpec()


class CSIDriverSpec(Wire, frozen=True):
    storage_capacity: bool = False
    prevent_pod_scheduling_if_missing: bool = False


@prepared
class CSIDriver(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: CSIDriverSpec = CSIDriverSpec()


@prepared
class CSIStorageCapacity(Wire, frozen=True):
    """The storage that a class can provision in one part of the topology; None for `node_topology`: nowhere."""

    metadata: ObjectMeta = ObjectMeta()
    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: str | int | float | None = None
    maximum_volume_size: str | int | float | None = None


class VolumeAttachmentSource(Wire, frozen=True):
    persistent_volume_name: str = ""


class VolumeAttachmentSpec(Wire, frozen=True):
    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


@prepared
class VolumeAttachment(Wire, frozen=True):
    """A volume that is attached to a node, or is to be."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()
