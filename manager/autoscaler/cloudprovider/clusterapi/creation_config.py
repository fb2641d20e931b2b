"""The part of the file that says how groups are created, and of which machine types.

machine_types:                   # the catalogue
- name: m6i.xlarge
  allocatable: {cpu: 3920m, memory: 14Gi, pods: "58"}     # what pods find on a node of it, or less
  labels: {kubernetes.io/arch: amd64}                     # of every node of it
  price: 0.23                    # per hour, in every zone
  zones: [eu-central-1a]         # failure domains; absent: the one of what is cloned, if any
autoprovisioning:                # creates groups on demand; none if absent
  namespace: fleet
  clone:                         # copies of this MachineDeployment and of the templates that it refers to; or topology
    machine_deployment: workers
    templates:                   # all that it refers to, as <plural>.<group>, with the fields that differ in a copy
    - resource: awsmachinetemplates.infrastructure.cluster.x-k8s.io
      machine_type: spec.template.spec.instanceType
    - resource: kubeadmconfigtemplates.bootstrap.cluster.x-k8s.io
      labels: spec.template.spec.joinConfiguration.nodeRegistration.kubeletExtraArgs[name=node-labels].value
      taints: spec.template.spec.joinConfiguration.nodeRegistration.taints
  topology:                      # entries of this Cluster's spec.topology.workers.machineDeployments
    cluster: prod
    class: default-worker        # of the ClusterClass
    machine_type: workerMachineType                       # variables of the ClusterClass
    labels: workerNodeLabels     # as key=value,key=value; absent: it has none
    taints: workerTaints         # a list of key, value and effect; absent: it has none
  machine_types: [m6i.xlarge]    # all of them if absent
  synced_labels: [team, example.com/*]   # what Cluster API's --additional-sync-machine-labels takes, too
  max: 100                       # nodes in one group
"""

from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from manager.autoscaler.cloudprovider import cloud_file, node_template
from manager.autoscaler.cloudprovider.catalogue import USUAL, CatalogueMachineType, Price
from manager.autoscaler.cloudprovider.cloud_file import Mistake

GROUP_PATTERN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+"
RESOURCE_PATTERN = rf"^[a-z0-9]+\.{GROUP_PATTERN}$"
_KEY = r"[A-Za-z0-9_-]+"

_Name = Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)]
_Path = Annotated[str, Meta(pattern=rf"^spec(\.{_KEY}(\[{_KEY}=[^\]]+\])?)*\.{_KEY}$")]
_Word = Annotated[str, Meta(pattern=r"^[A-Za-z0-9]([-_.A-Za-z0-9]{0,253})$")]
_Keys = Annotated[str, Meta(pattern=r"^[-_./A-Za-z0-9]*\*?$", min_length=1, max_length=317)]
_Zone = Annotated[str, Meta(pattern=r"^[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$")]


class _Closed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Unknown keys are refused."""


class ClusterApiMachineType(CatalogueMachineType, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`price` is per hour, and the same in all `zones`, which are Cluster API's failure domains."""

    price: Price
    zones: tuple[_Zone, ...] = ()

    def mistakes(self) -> Iterator[Mistake]:
        yield from self.amount_mistakes()
        if problem := self.price_problem(self.price):
            yield "price", self.price, problem
        if len(devices := sorted(self.allocatable.keys() - USUAL)) > 1:
            yield "allocatable", devices, "Cluster API's annotations describe only one kind of device"
        for key, value in self.labels.items():
            if problem := node_template.syntax_problem(key, value):
                yield f"labels.{key}", value, problem


class CopiedTemplate(_Closed, frozen=True, kw_only=True):
    """A kind of template, and where in it machine type, labels and taints of nodes are; empty: it says none."""

    resource: Annotated[str, Meta(pattern=RESOURCE_PATTERN)]
    machine_type: _Path | None = None
    labels: _Path | None = None
    taints: _Path | None = None


class CloneSource(_Closed, frozen=True, kw_only=True):
    machine_deployment: _Name
    templates: Annotated[tuple[CopiedTemplate, ...], Meta(min_length=1)]


class TopologySource(_Closed, frozen=True, kw_only=True, rename={"worker_class": "class"}):
    """A Cluster, a class of its ClusterClass, and the variables of that which say machine type, labels and taints."""

    cluster: _Name
    worker_class: _Word
    machine_type: _Word
    labels: _Word | None = None
    taints: _Word | None = None


class ClusterApiAutoprovisioning(_Closed, frozen=True, kw_only=True):
    namespace: _Name
    clone: CloneSource | None = None
    topology: TopologySource | None = None
    machine_types: tuple[str, ...] | None = None
    synced_labels: tuple[_Keys, ...] = ()
    max: Annotated[int, Meta(ge=1, le=20_000)] = 100

    @property
    def gives_labels(self) -> bool:
        """Whether nodes may be given labels that Cluster API does not pass on."""
        if self.topology is not None:
            return self.topology.labels is not None
        return self.clone is not None and any(each.labels is not None for each in self.clone.templates)

    @property
    def gives_taints(self) -> bool:
        if self.topology is not None:
            return self.topology.taints is not None
        return self.clone is not None and any(each.taints is not None for each in self.clone.templates)


def mistakes(
    machine_types: Sequence[ClusterApiMachineType], autoprovisioning: ClusterApiAutoprovisioning | None
) -> Iterator[Mistake]:
    """By the fields of the file."""
    known = [each.name for each in machine_types]
    yield from cloud_file.named_twice(known, "machine_types")
    for position, machine in enumerate(machine_types):
        for field, value, problem in machine.mistakes():
            yield f"machine_types[{position}].{field}", value, problem
    if autoprovisioning is None:
        return
    if not machine_types:
        yield "machine_types", [], "autoprovisioning needs at least one"
    for position, name in enumerate(autoprovisioning.machine_types or ()):
        if name not in known:
            yield f"autoprovisioning.machine_types[{position}]", name, "not in machine_types"
    ways = [each for each in ("clone", "topology") if getattr(autoprovisioning, each) is not None]
    if len(ways) != 1:
        yield "autoprovisioning", ways, "set either clone or topology"
    if (clone := autoprovisioning.clone) is not None:
        where = "autoprovisioning.clone.templates"
        yield from _repeated([each.resource for each in clone.templates], where + "[{}].resource")
        if not any(each.machine_type for each in clone.templates):
            yield where, [each.resource for each in clone.templates], "no template names the field of the machine type"


def _repeated(names: Sequence[str], field: str) -> Iterator[Mistake]:
    for position, name in enumerate(names):
        if name in names[:position]:
            yield field.format(position), name, "twice"
