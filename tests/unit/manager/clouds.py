"""A cloud in memory, which says and does what a test wants; and the file of a cloud of Karpenter's."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from manager.autoscaler.cloudprovider.contract import (
    CloudNotice,
    Created,
    Group,
    GroupOptions,
    GroupSpec,
    Instance,
    InstanceState,
    NodeRef,
    Provider,
    Theoretical,
)
from manager.autoscaler.cloudprovider.errors import ProviderError, Unsupported
from manager.autoscaler.pricing.model import PricingModel
from shared.api.core import Node, NodeStatus

NODE = Node(status=NodeStatus(capacity={"cpu": "4", "memory": "8Gi"}, allocatable={"cpu": "3900m", "memory": "7Gi"}))

KARPENTER_FILE = """
node_class: {group: karpenter.k8s.aws, version: v1, kind: EC2NodeClass, name: default}
machine_types:
- name: m6i.xlarge
  allocatable: {cpu: 3920m, memory: 14Gi, pods: "58"}
  capacity: {cpu: "4", memory: 16Gi}
  labels: {karpenter.k8s.aws/instance-family: m6i}
  offerings:
  - {zone: a, price: 0.23}
  - {zone: b, price: 0.21}
  - {zone: a, capacity_type: spot, price: 0.08}
- name: g5.xlarge
  allocatable: {cpu: 3920m, memory: 14Gi, nvidia.com/gpu: "1"}
  offerings: [{zone: a, price: 30}]
groups:
- {name: web, machine_type: m6i.xlarge, zone: a, labels: {team: web}}
autoprovisioning: {}
"""


class MemoryCloud(Provider):
    """Does as it is told at once. `hang` is waited for in every refresh, which ends in the `outage` if there is one;
    `trouble` is called in every write: before it happens or, with `too_late`, after it.
    """

    name = "memory"

    def __init__(self, *groups: Group) -> None:
        self.listed = list(groups)
        self.members: dict[str, list[Instance]] = {group.id: [] for group in groups}
        self.trouble: Callable[[], None] = lambda: None
        self.too_late = False
        self.hang: threading.Event | None = None
        self.outage: ProviderError | None = None
        self.written: list[str] = []  # the groups that were written to
        self.given_options = GroupOptions()
        self.noticed: list[CloudNotice] = []  # until the next refresh
        self.given_template = NODE
        self.given_created: Created | None = None
        self.given_groups_of_nodes: dict[str, str] | None = {}
        self.model: PricingModel | None = None
        self.launched: dict[str, float] = {}  # Unix seconds by node
        self.ended: list[str] = []  # how it was let go

    def refresh(self) -> None:
        if self.hang is not None:
            self.hang.wait(30)
        if self.outage is not None:
            raise self.outage

    def groups(self) -> Sequence[Group]:
        return list(self.listed)

    def notices(self) -> list[CloudNotice]:
        noticed, self.noticed = self.noticed, []
        return noticed

    def instances(self, group: str) -> Sequence[Instance]:
        return list(self.members[group])

    def group_of(self, node: NodeRef) -> str | None:
        if self.given_groups_of_nodes is None:
            raise Unsupported(self.name, "", "no")
        return self.given_groups_of_nodes.get(node.name)

    def launched_at(self, node: NodeRef) -> float | None:
        there = {each.provider_id for members in self.members.values() for each in members}
        return self.launched.get(node.name, 0.0) if node.provider_id in there else None

    def template(self, group: str) -> Node:
        return self.given_template

    def options(self, group: str) -> GroupOptions:
        return self.given_options

    def pricing(self) -> PricingModel | None:
        return self.model

    def increase(self, group: str, delta: int) -> None:
        with self._write(group):
            self._resize(group, delta)
            self.members[group] += [
                Instance(f"{group}/{len(self.written)}/{number}", InstanceState.CREATING) for number in range(delta)
            ]

    def decrease_target(self, group: str, delta: int) -> None:
        with self._write(group):
            self._resize(group, -delta)

    def delete_nodes(self, group: str, nodes: Sequence[NodeRef]) -> None:
        with self._write(group):
            self._resize(group, -len(nodes))
            leaving = {node.provider_id for node in nodes}
            self.members[group] = [each for each in self.members[group] if each.provider_id not in leaving]

    def machine_types(self) -> Sequence[str]:
        return ("m",)

    def theoretical(self, spec: GroupSpec) -> Theoretical:
        return Theoretical(spec, "theory", 10, self.given_template)

    def create_group(self, spec: GroupSpec) -> Created:
        name = f"{spec.prefix}-new{'' if not self.written else len(self.written)}"
        created = self.given_created or Created(Group(name, 0, 10, 0, autoprovisioned=True))
        with self._write(created.main.id):
            for group in (created.main, *created.extras):
                self.listed.append(group)
                self.members[group.id] = []
        return created

    def delete_group(self, group: str) -> None:
        with self._write(group):
            self.listed = [each for each in self.listed if each.id != group]

    def cleanup(self) -> None:
        self.ended.append("cleanup")

    def close(self) -> None:
        self.ended.append("close")

    def target(self, group: str) -> int:
        return next(each.target_size for each in self.listed if each.id == group)

    def fail(self, error: ProviderError | None, *, too_late: bool = False) -> None:
        """From now on every write; or none."""

        def trouble() -> None:
            if error is not None:
                raise error

        self.trouble, self.too_late = trouble, too_late

    @contextlib.contextmanager
    def _write(self, group: str) -> Iterator[None]:
        if not self.too_late:
            self.trouble()
        self.written.append(group)
        yield
        if self.too_late:
            self.trouble()

    def _resize(self, group: str, delta: int) -> None:
        self.listed = [
            replace(each, target_size=each.target_size + delta) if each.id == group else each for each in self.listed
        ]
