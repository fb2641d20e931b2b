"""The next Node of a group that has none: its annotations, over what the infrastructure provider says. Pure."""

from manager.autoscaler.cloudprovider import node_template
from manager.autoscaler.cloudprovider.clusterapi import NAME
from manager.autoscaler.cloudprovider.clusterapi.annotations import CAPACITY, DEFAULT_PODS, PODS
from manager.autoscaler.cloudprovider.clusterapi.groups import ScalableGroup
from manager.autoscaler.cloudprovider.clusterapi.wire import InfrastructureTemplate
from manager.autoscaler.cloudprovider.errors import Refused
from manager.autoscaler.cloudprovider.node_template import LABEL_ARCH, LABEL_HOSTNAME, LABEL_OS
from shared.api.core import Node, NodeSpec, NodeStatus, Quantities, Taint
from shared.api.meta import ObjectMeta
from shared.names import CPU, MEMORY

LABEL_GPU = "cluster-api/accelerator"
# Labels of a Machine in these domains, and below them, are its Node's, too.
_MANAGED = ("node-role.kubernetes.io", "node-restriction.kubernetes.io", "node.cluster.x-k8s.io")


def is_complete(group: ScalableGroup) -> bool:
    """Whether the annotations alone say what a node has."""
    return {CPU, MEMORY} <= group.announced.resources.keys()


def node(group: ScalableGroup, template: InfrastructureTemplate | None, default_arch: str) -> Node:
    """Raises Refused where nothing says what the node has."""
    said = (template or InfrastructureTemplate()).status
    capacity: Quantities = {PODS: DEFAULT_PODS, **(said.capacity or {}), **group.announced.resources}
    if missing := sorted({CPU, MEMORY} - capacity.keys()):
        problem = (
            f"nothing says how much {' and '.join(missing)} its nodes have: neither its annotations ({CAPACITY}...) "
            "nor status.capacity of an infrastructure template that the configuration names"
        )
        raise Refused(NAME, group.id, problem)
    meta, spec = group.object.spec.template.metadata, group.object.spec.template.spec
    name = f"template-{group.object.metadata.name}"
    labels = {
        LABEL_HOSTNAME: name,
        LABEL_ARCH: said.node_info.architecture or default_arch,
        LABEL_OS: said.node_info.operating_system or "linux",
        **{key: value for key, value in (meta.labels or {}).items() if is_managed(key)},
        **group.announced.labels,
    }
    return Node(
        metadata=ObjectMeta(name=name, labels=labels),
        spec=NodeSpec(taints=_taints(spec.taints or (), group.announced.taints)),
        status=NodeStatus(capacity=capacity, allocatable=capacity),
    )


def _taints(given: tuple[Taint, ...], announced: tuple[Taint, ...]) -> tuple[Taint, ...]:
    """What is announced takes the place of the same key and effect."""
    return tuple({(each.key, each.effect): each for each in (*given, *announced)}.values())


def is_managed(key: str) -> bool:
    """Whether Cluster API passes a Machine's label on to its Node, without being told."""
    return node_template.is_of_domain(key, _MANAGED)
