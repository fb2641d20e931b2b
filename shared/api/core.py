"""Nodes, Pods, ConfigMaps and the objects that pods refer to: the fields the product reads."""

from typing import TypeAlias

import msgspec

from shared.api.meta import ObjectMeta, Wire, prepared
from shared.api.selectors import LabelSelector
from shared.quantity import Resources

Quantities: TypeAlias = dict[str, str | int | float]

ANNOTATION_STORAGE_CLASS = "volume.beta.kubernetes.io/storage-class"  # of claims and volumes, before the field

_EMPTY: Quantities = {}


class Taint(Wire, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class NodeSpec(Wire, frozen=True):
    taints: tuple[Taint, ...] | None = None
    unschedulable: bool = False
    provider_id: str = msgspec.field(default="", name="providerID")


class Condition(Wire, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class NodeStatus(Wire, frozen=True):
    """The status of a Node; `None` for what it does not have."""

    capacity: Quantities | None = None
    allocatable: Quantities | None = None
    conditions: tuple[Condition, ...] | None = None
    declared_features: tuple[str, ...] | None = None


@prepared
class Node(Wire, frozen=True):
    """A Node of Kubernetes, with the fields that Headroom reads."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def allocatable(self) -> Resources:
        """Native cpu and memory. Raises QuantityError."""
        return Resources.parse(self.status.allocatable or _EMPTY)

    @property
    def capacity(self) -> Resources:
        """Native cpu and memory. Raises QuantityError."""
        return Resources.parse(self.status.capacity or _EMPTY)


class ResourceRequirements(Wire, frozen=True):
    requests: Quantities | None = None
    limits: Quantities | None = None


class ContainerPort(Wire, frozen=True):
    container_port: int = 0
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class ContainerRestartRule(Wire, frozen=True):
    action: str = ""


class Container(Wire, frozen=True):
    name: str = ""
    image: str = ""
    command: tuple[str, ...] | None = None
    args: tuple[str, ...] | None = None
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] | None = None
    restart_policy: str | None = None
    restart_policy_rules: tuple[ContainerRestartRule, ...] | None = None


class Toleration(Wire, frozen=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class NodeSelectorRequirement(Wire, frozen=True):
    key: str
    operator: str
    values: tuple[str, ...] | None = None


class NodeSelectorTerm(Wire, frozen=True):
    match_expressions: tuple[NodeSelectorRequirement, ...] | None = None
    match_fields: tuple[NodeSelectorRequirement, ...] | None = None


class NodeSelector(Wire, frozen=True):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class NodeAffinity(Wire, frozen=True):
    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class PodAffinityTerm(Wire, frozen=True):
    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] | None = None
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] | None = None
    mismatch_label_keys: tuple[str, ...] | None = None


class PodAffinity(Wire, frozen=True):
    """Between pods: affinity and anti-affinity have the same form."""

    required: tuple[PodAffinityTerm, ...] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Wire, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(Wire, frozen=True):
    topology_key: str = ""
    max_skew: int = 1
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: tuple[str, ...] | None = None


class SchedulingGate(Wire, frozen=True):
    name: str = ""


class ClaimVolumeSource(Wire, frozen=True):
    claim_name: str = ""


class EphemeralVolumeSource(Wire, frozen=True):
    """Only its presence matters: its claim is named after the pod and the volume."""


class ProjectedVolumeSource(Wire, frozen=True):
    """Only its presence matters."""


class HostPathVolumeSource(Wire, frozen=True):
    path: str = ""


class EmptyDirVolumeSource(Wire, frozen=True):
    medium: str = ""


class CSIVolumeSource(Wire, frozen=True):
    driver: str = ""
    volume_handle: str = ""


class DiskByVolumeID(Wire, frozen=True):
    """A disk of Amazon or OpenStack."""

    volume_id: str = msgspec.field(default="", name="volumeID")


class GCEPersistentDisk(Wire, frozen=True):
    pd_name: str = ""
    read_only: bool = False


class AzureDisk(Wire, frozen=True):
    disk_uri: str = msgspec.field(default="", name="diskURI")


class ISCSIDisk(Wire, frozen=True):
    iqn: str = ""
    read_only: bool = False


class RBDImage(Wire, frozen=True):
    """An image of Ceph's block storage."""

    monitors: tuple[str, ...] | None = None
    pool: str = ""
    image: str = ""
    read_only: bool = False


class InTreeDisks(Wire, frozen=True):
    """The disks that Kubernetes once attached itself, and that CSI drivers attach now."""

    aws_elastic_block_store: DiskByVolumeID | None = None
    gce_persistent_disk: GCEPersistentDisk | None = None
    azure_disk: AzureDisk | None = None
    cinder: DiskByVolumeID | None = None


class Volume(InTreeDisks, frozen=True):
    name: str = ""
    persistent_volume_claim: ClaimVolumeSource | None = None
    ephemeral: EphemeralVolumeSource | None = None
    projected: ProjectedVolumeSource | None = None
    host_path: HostPathVolumeSource | None = None
    empty_dir: EmptyDirVolumeSource | None = None
    iscsi: ISCSIDisk | None = None
    rbd: RBDImage | None = None

    @property
    def is_local(self) -> bool:
        """Whether its content is on the node's disk."""
        return self.host_path is not None or (self.empty_dir is not None and self.empty_dir.medium != "Memory")


class PodResourceClaim(Wire, frozen=True):
    """A ResourceClaim that a pod uses, by the name it has in the pod: an existing one, or one that is made for the pod
    from a template.
    """

    name: str = ""
    resource_claim_name: str = ""
    resource_claim_template_name: str = ""


class PodSchedulingGroup(Wire, frozen=True):
    pod_group_name: str = ""


class PodSpec(Wire, frozen=True):
    node_name: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] | None = None
    resources: ResourceRequirements | None = None
    overhead: Quantities | None = None
    priority: int | None = None
    priority_class_name: str = ""
    scheduler_name: str = ""
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] | None = None
    scheduling_gates: tuple[SchedulingGate, ...] | None = None
    scheduling_group: PodSchedulingGroup | None = None
    volumes: tuple[Volume, ...] | None = None
    restart_policy: str = "Always"
    termination_grace_period_seconds: int | None = None
    host_network: bool = False
    host_users: bool | None = None
    resource_claims: tuple[PodResourceClaim, ...] | None = None


class Resizable(Wire, frozen=True):
    """The requests of a container that can change while it runs."""

    cpu: str | int | float | None = None
    memory: str | int | float | None = None


class ReportedResources(Wire, frozen=True):
    requests: Resizable = Resizable()


class ContainerStatus(Wire, frozen=True):
    """`resources` are in force; `allocated_resources` are set aside by the node for the container."""

    name: str = ""
    container_id: str = msgspec.field(default="", name="containerID")
    resources: ReportedResources | None = None
    allocated_resources: Resizable | None = None


class PodResourceClaimStatus(Wire, frozen=True):
    """The ResourceClaim that was made for a pod."""

    name: str = ""
    resource_claim_name: str = ""


class PodExtendedResourceClaimStatus(Wire, frozen=True):
    """The ResourceClaim of the extended resources that devices serve."""

    resource_claim_name: str = ""


class PodStatus(Wire, frozen=True):
    phase: str = ""
    qos_class: str = ""
    nominated_node_name: str = ""
    conditions: tuple[Condition, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None
    ephemeral_container_statuses: tuple[ContainerStatus, ...] | None = None
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] | None = None
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None


@prepared
class Pod(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


@prepared
class ConfigMap(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] | None = None


@prepared
class Namespace(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


class PersistentVolumeClaimSpec(Wire, frozen=True):
    volume_name: str = ""
    storage_class_name: str = ""
    access_modes: tuple[str, ...] | None = None
    volume_mode: str = "Filesystem"
    resources: ResourceRequirements | None = None
    selector: LabelSelector | None = None


class PersistentVolumeClaimStatus(Wire, frozen=True):
    phase: str = ""


@prepared
class PersistentVolumeClaim(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()

    @property
    def storage_class(self) -> str:
        """The name of its StorageClass; empty for none."""
        return self.metadata.annotation(ANNOTATION_STORAGE_CLASS) or self.spec.storage_class_name


class VolumeNodeAffinity(Wire, frozen=True):
    required: NodeSelector | None = None


class ClaimReference(Wire, frozen=True):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class PersistentVolumeSpec(InTreeDisks, frozen=True):
    """`claim_ref` is the claim that the volume is bound to, or reserved for."""

    capacity: Quantities | None = None
    storage_class_name: str = ""
    access_modes: tuple[str, ...] | None = None
    volume_mode: str = "Filesystem"
    node_affinity: VolumeNodeAffinity | None = None
    claim_ref: ClaimReference | None = None
    csi: CSIVolumeSource | None = None


class PersistentVolumeStatus(Wire, frozen=True):
    phase: str = ""


@prepared
class PersistentVolume(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()

    @property
    def storage_class(self) -> str:
        """The name of its StorageClass; empty for none."""
        return self.metadata.annotation(ANNOTATION_STORAGE_CLASS) or self.spec.storage_class_name


class PodTemplate(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class DaemonSetSpec(Wire, frozen=True):
    template: PodTemplate = PodTemplate()


@prepared
class DaemonSet(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: DaemonSetSpec = DaemonSetSpec()
