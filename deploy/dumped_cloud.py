"""A read-only cloud: the node groups that a cluster's own Nodes reveal."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from manager.autoscaler.cloudprovider import gke
from manager.autoscaler.cloudprovider.contract import Gpus, Group, GroupSpec, Instance, Theoretical
from manager.autoscaler.cloudprovider.errors import Unsupported
from manager.autoscaler.cloudprovider.guard import CloudObservation, ObservedGroup
from manager.autoscaler.cloudprovider.ownership import Ownership
from manager.autoscaler.cloudprovider.simulated import fake_nodes
from manager.autoscaler.pricing import gce
from manager.autoscaler.pricing.gce import LABEL_ACCELERATOR
from manager.autoscaler.pricing.model import PricingModel
from shared.api.core import Node
from shared.api.meta import ObjectMeta
from shared.quantity import MILLI_PER_CORE, QuantityError

NAME = "nodes"

# Google, Amazon, Azure, Karpenter, kOps, DigitalOcean and Akamai; kwok and Cluster API write annotations.
GROUP_LABELS = (
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "alpha.eksctl.io/nodegroup-name",
    "kubernetes.azure.com/agentpool",
    "agentpool",
    "karpenter.sh/nodepool",
    "kops.k8s.io/instancegroup",
    "doks.digitalocean.com/node-pool",
    "lke.linode.com/pool-id",
)
GROUP_ANNOTATIONS = (fake_nodes.ANNOTATION_GROUP, "cluster.x-k8s.io/owner-name")
CONTROL_PLANE_LABELS = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
LabelledGroups = Mapping[tuple[str, str], str]
"""Groups by a label and its value, as files of node groups name them."""
NONE_LABELLED: LabelledGroups = {}
_OF_ANY_TYPE = frozenset({"karpenter.sh/nodepool"})  # one group for each machine type within it
_GIB = 1 << 30


@dataclass(frozen=True)
class DumpedCloud:
    """Answers like `guard.Guard` after an observation. Groups have no prices, and no `templates` other than their nodes
    unless given.
    """

    observed: CloudObservation
    gpu_label: str | None = None
    templates: Mapping[str, Node] = field(default_factory=dict)

    def template(self, group: str) -> Node:
        if group in self.templates:
            return self.templates[group]
        raise Unsupported(NAME, group, "there is nothing to learn from but its nodes")

    def gpus(self) -> Gpus:
        return Gpus(self.gpu_label, gke.ACCELERATORS)

    def pricing(self) -> PricingModel | None:
        return None

    def machine_types(self) -> Sequence[str]:
        raise Unsupported(NAME, "", "nodes do not tell what else there is")

    def theoretical(self, spec: GroupSpec) -> Theoretical:
        raise Unsupported(NAME, "", "nodes do not tell what else there is")


@dataclass
class _Members:
    nodes: list[Node] = field(default_factory=list)
    min_size: int = 0
    max_size: int = gke.MAX_GROUP_SIZE


def tell_groups(nodes: Iterable[Node], label: str = "", labelled: LabelledGroups = NONE_LABELLED) -> bool:
    """Whether any node names its group."""
    return any(group_of(node, label, labelled) for node in nodes)


def groups_of(nodes: Sequence[Node], label: str = "", labelled: LabelledGroups = NONE_LABELLED) -> dict[str, Group]:
    """All groups by id, with the bounds that kwok notes on nodes, or else any. A given `label` alone defines them.

    If no node names its group, nodes of one machine type form a group, which is not known to be able to grow.
    """
    return {name: _group(name, members) for name, members in _members(nodes, label, labelled).items()}


def nodes_by_group(nodes: Sequence[Node], label: str = "") -> dict[str, list[Node]]:
    """The members of these groups, by name."""
    return {name: members.nodes for name, members in _members(nodes, label, NONE_LABELLED).items()}


def observe(
    nodes: Sequence[Node], ownership: Ownership, label: str = "", labelled: LabelledGroups = NONE_LABELLED
) -> DumpedCloud:
    """The cloud as these nodes reveal it."""
    groups: dict[str, ObservedGroup] = {}
    placed: dict[str, str] = {}
    members = _members(nodes, label, labelled)
    for name, each in members.items():
        if ownership.owns(name):
            instances = tuple(Instance(node.spec.provider_id) for node in each.nodes)
            groups[name] = ObservedGroup(ownership.bounded(_group(name, each)), instances)
            placed |= {node.metadata.name: name for node in each.nodes}
    has_gpus = any(node.metadata.label(LABEL_ACCELERATOR) for node in nodes)
    return DumpedCloud(
        CloudObservation(groups, unmanaged=frozenset(members.keys() - groups.keys()), group_of_node=placed),
        LABEL_ACCELERATOR if has_gpus else None,
    )


def with_id(node: Node) -> Node:
    """The node with an id: machine ids tell nodes apart, and some clusters have none."""
    if node.spec.provider_id:
        return node
    return replace(node, spec=replace(node.spec, provider_id=f"node:{node.metadata.name}"))


def group_of(node: Node, label: str = "", labelled: LabelledGroups = NONE_LABELLED) -> str | None:
    """The group that a node names; a file of node groups takes precedence."""
    meta = node.metadata
    for (key, value), group in labelled.items():
        if meta.label(key) == value:
            return group
    if label:
        return meta.label(label) or None
    for key in GROUP_LABELS:
        if found := meta.label(key):
            machine = gce.machine_type(meta.labels or {})
            return f"{found}/{machine}" if key in _OF_ANY_TYPE and machine else found
    return next((found for key in GROUP_ANNOTATIONS if (found := meta.annotation(key))), None)


def _machine_of(node: Node) -> str | None:
    """The machine type, used if no group is known; None for the control plane, which must not be removed."""
    labels = node.metadata.labels or {}
    if any(label in labels for label in CONTROL_PLANE_LABELS):
        return None
    try:
        cpu_milli, memory_bytes = node.capacity
    except QuantityError:
        return gce.machine_type(labels) or "machine"
    cores = f"{cpu_milli / MILLI_PER_CORE:g}"
    return gce.machine_type(labels) or f"{cores}-cpu-{memory_bytes / _GIB:.0f}-gib"


def _members(nodes: Sequence[Node], label: str, labelled: LabelledGroups) -> dict[str, _Members]:
    found: dict[str, _Members] = {}
    are_told = bool(label) or tell_groups(nodes, labelled=labelled)
    for node in sorted(nodes, key=lambda each: each.metadata.name):
        name = group_of(node, label, labelled) if are_told else _machine_of(node)
        if name is None:
            continue
        members = found.setdefault(name, _Members())
        members.nodes.append(node)
        members.min_size = _bound(node.metadata, fake_nodes.ANNOTATION_MIN, members.min_size)
        most = members.max_size if are_told else len(members.nodes)
        members.max_size = _bound(node.metadata, fake_nodes.ANNOTATION_MAX, most)
    return dict(sorted(found.items()))


def _group(name: str, members: _Members) -> Group:
    return Group(name, min(members.min_size, members.max_size), members.max_size, len(members.nodes))


def _bound(meta: ObjectMeta, annotation: str, otherwise: int) -> int:
    """A bound from an annotation that anyone may have written; None if it is not a number."""
    text = meta.annotation(annotation) or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else otherwise
