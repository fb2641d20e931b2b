"""The file that `--cloud-config` names: the node class, the catalogue, and the groups. Every refresh reads it again.

node_pool: default              # its template says the node class, and labels and taints of every node; or instead:
node_class: {group: karpenter.k8s.aws, version: v1, kind: EC2NodeClass, name: default}
node_pool_class: ...            # with node_pool: the node class that its template names, read to see changes of it
termination_grace_period: 10m   # after it, Karpenter takes a node away whatever still runs there
launch_timeout: 60s             # a NodeClaim without an instance after it has failed
metrics_url: http://karpenter.kube-system:8080/metrics   # whose prices and availability of offerings come first
machine_types:                  # the catalogue
- name: m6i.xlarge
  allocatable: {cpu: 3920m, memory: 14Gi, pods: "58"}     # what pods find on a node of it, or less
  capacity: {cpu: "4", memory: 16Gi, pods: "58"}          # as allocatable if absent
  labels: {kubernetes.io/arch: amd64, karpenter.k8s.aws/instance-family: m6i}
  offerings:                    # prices are per hour; with metrics_url, all that it knows if absent
  - {zone: eu-central-1a, capacity_type: on-demand, price: 0.23}
  - {zone: eu-central-1a, capacity_type: spot, price: 0.09}
groups:                         # groups that are there from the beginning
- name: web
  machine_type: m6i.xlarge
  zone: eu-central-1a
  capacity_type: on-demand
  min: 0
  max: 10
  labels: {team: web}
  taints: [{key: dedicated, value: web, effect: NoSchedule}]
autoprovisioning:               # creates groups on demand; none if absent
  machine_types: [m6i.xlarge]   # all of them if absent
  zones: [eu-central-1a]        # all of them if absent
  capacity_types: [on-demand]   # of these, the cheapest; nodes that may be interrupted only where spot is named
  max: 100                      # nodes in one group
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, ClassVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from manager.autoscaler.cloudprovider import cloud_file, node_template
from manager.autoscaler.cloudprovider.cloud_file import Mistake
from manager.autoscaler.cloudprovider.karpenter.catalogue import CapacityType, Catalogue, KarpenterMachineType
from shared import durations, yaml_file
from shared.api.core import Taint

# Names of NodeClaims derive from it, and become labels, too.
GROUP_PATTERN = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"
MAX_GROUP_NAME = 57
MOST_SECONDS = 86_400.0
SOLD_OUT_SECONDS = 300.0  # for which an offering that was out of stock is left alone

GroupName = Annotated[str, Meta(pattern=GROUP_PATTERN, max_length=MAX_GROUP_NAME)]
Count = Annotated[int, Meta(ge=0, le=20_000)]
_Name = Annotated[str, Meta(pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$", max_length=253)]


class _Closed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Unknown keys are refused."""


class NodeClassRef(_Closed, frozen=True, kw_only=True):
    """The object of Karpenter's provider that says how machines are made. `plural` is in paths of the API."""

    group: _Name
    version: Annotated[str, Meta(pattern=r"^v[0-9][a-z0-9]*$")]
    kind: Annotated[str, Meta(pattern=r"^[A-Z][A-Za-z0-9]*$")]
    name: _Name
    plural: Annotated[str, Meta(pattern=r"^[a-z0-9]*$")] = ""

    @property
    def resource_name(self) -> str:
        """The plural, by Kubernetes' own rule if none is given."""
        lower = self.kind.lower()
        return self.plural or lower + ("es" if lower.endswith("s") else "s")


class KarpenterGroup(_Closed, frozen=True, kw_only=True):
    """A group: one machine type in one zone, bought in one way. Created groups are kept in this form, too."""

    name: GroupName
    machine_type: str
    zone: str
    capacity_type: CapacityType = "on-demand"
    min: Count = 0
    max: Count = 100
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    autoprovisioned: bool = False


class KarpenterAutoprovisioning(_Closed, frozen=True, kw_only=True):
    machine_types: tuple[str, ...] | None = None
    zones: tuple[str, ...] | None = None
    capacity_types: Annotated[tuple[CapacityType, ...], Meta(min_length=1)] = ("on-demand",)
    max: Count = 100


class KarpenterCloud(_Closed, frozen=True, kw_only=True):
    """The whole file."""

    REMOVED: ClassVar[Mapping[str, str]] = {
        "sold_out": "An offering that was out of stock is skipped for 5 minutes, so remove the key.",
    }

    node_pool: str = ""
    node_class: NodeClassRef | None = None
    node_pool_class: NodeClassRef | None = None
    termination_grace_period: str = "10m"
    launch_timeout: str = "60s"
    metrics_url: str = ""
    machine_types: tuple[KarpenterMachineType, ...] = ()
    groups: tuple[KarpenterGroup, ...] = ()
    autoprovisioning: KarpenterAutoprovisioning | None = None

    @property
    def catalogue(self) -> Catalogue:
        return Catalogue({each.name: each for each in self.machine_types})

    @property
    def launch_seconds(self) -> float:
        return durations.parse(self.launch_timeout)

    @property
    def grace_seconds(self) -> float:
        return durations.parse(self.termination_grace_period)


def load(path: Path) -> KarpenterCloud:
    """Raises InvalidInput that names file, field and value."""
    cloud = yaml_file.load(path, KarpenterCloud)
    cloud_file.refuse_first(_mistakes(cloud), path)
    return cloud


def _mistakes(cloud: KarpenterCloud) -> Iterator[Mistake]:
    if bool(cloud.node_pool) == (cloud.node_class is not None):
        yield "node_class", cloud.node_class, "set either node_class or node_pool"
    if cloud.node_pool_class is not None and not cloud.node_pool:
        yield "node_pool_class", cloud.node_pool_class, "only with node_pool"
    for field in ("termination_grace_period", "launch_timeout"):
        text = getattr(cloud, field)
        try:
            seconds = durations.parse(text)
        except ValueError as error:
            yield field, text, str(error)
            continue
        if not 0 < seconds <= MOST_SECONDS:
            yield field, text, "not within a day, or none"
    if cloud.metrics_url and (problem := _url_problem(cloud.metrics_url)):
        yield "metrics_url", cloud.metrics_url, problem
    yield from cloud_file.named_twice([each.name for each in cloud.machine_types], "machine_types")
    for position, machine in enumerate(cloud.machine_types):
        for field, value, problem in machine.mistakes():
            yield f"machine_types[{position}].{field}", value, problem
        if not machine.offerings and not cloud.metrics_url:
            yield f"machine_types[{position}].offerings", None, "needed without metrics_url"
    known = {each.name: each for each in cloud.machine_types}
    yield from cloud_file.named_twice([each.name for each in cloud.groups], "groups")
    for position, group in enumerate(cloud.groups):
        for field, value, problem in _group_mistakes(group, known):
            yield f"groups[{position}].{field}", value, problem
    if cloud.autoprovisioning is not None:
        for position, name in enumerate(cloud.autoprovisioning.machine_types or ()):
            if name not in known:
                yield f"autoprovisioning.machine_types[{position}]", name, "not in machine_types"


def _url_problem(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        return str(error)
    return "" if is_good and parts.username is None else "not of the form http://HOST:PORT/PATH"


def _group_mistakes(group: KarpenterGroup, known: Mapping[str, KarpenterMachineType]) -> Iterator[Mistake]:
    machine = known.get(group.machine_type)
    if machine is None:
        yield "machine_type", group.machine_type, "not in machine_types"
    elif machine.offerings and machine.price(group.zone, group.capacity_type) is None:
        yield "zone", group.zone, f"{machine.name} is not offered there as {group.capacity_type}"
    if group.min > group.max:
        yield "min", group.min, f"above max {group.max}"
    if group.autoprovisioned:
        yield "autoprovisioned", True, "only created by auto-provisioning"
    for key, value in group.labels.items():
        if problem := node_template.label_problem(key, value):
            yield f"labels.{key}", value, problem
    yield from cloud_file.taint_mistakes(group.taints, "taints")
