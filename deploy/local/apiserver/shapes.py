"""The typed fields of built-in kinds that matter here: wrong JSON types are refused before anything is stored.

Fields that are not named are kept as they are: these are checks, not a definition of the kinds.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from deploy.local.apiserver import quantities
from deploy.local.apiserver.objects import JsonObject
from deploy.local.apiserver.schema import FORMATS

Quantity = Annotated[str, Meta(pattern=quantities.PATTERN)] | int | float
Resources = dict[str, Quantity]
Time = Annotated[str, Meta(pattern=FORMATS["date-time"])]
MicroTime = Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)$")]
Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
IntOrString = Int32 | str
Strings = dict[str, str]


class _Shape(msgspec.Struct, rename="camel"):
    """Every field may be absent or null."""


class OwnerReference(_Shape):
    api_version: str | None = None
    kind: str | None = None
    name: str | None = None
    uid: str | None = None
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(_Shape):
    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    generation: int | None = None
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    deletion_grace_period_seconds: int | None = None
    labels: Strings | None = None
    annotations: Strings | None = None
    finalizers: list[str] | None = None
    owner_references: list[OwnerReference] | None = None
    managed_fields: list[JsonObject] | None = None


class Condition(_Shape):
    type: str | None = None
    status: str | None = None
    reason: str | None = None
    message: str | None = None
    last_transition_time: Time | None = None


class Requirements(_Shape):
    requests: Resources | None = None
    limits: Resources | None = None


class EnvVar(_Shape):
    name: str | None = None
    value: str | None = None


class ContainerPort(_Shape):
    name: str | None = None
    container_port: Int32 | None = None
    host_port: Int32 | None = None
    protocol: str | None = None


class Container(_Shape):
    name: str | None = None
    image: str | None = None
    command: list[str] | None = None
    args: list[str] | None = None
    working_dir: str | None = None
    env: list[EnvVar] | None = None
    ports: list[ContainerPort] | None = None
    resources: Requirements | None = None


class Toleration(_Shape):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: int | None = None


class PodSpec(_Shape):
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    node_name: str | None = None
    node_selector: Strings | None = None
    priority: Int32 | None = None
    priority_class_name: str | None = None
    restart_policy: str | None = None
    scheduler_name: str | None = None
    service_account_name: str | None = None
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    host_network: bool | None = None
    tolerations: list[Toleration] | None = None
    overhead: Resources | None = None


class PodStatus(_Shape):
    phase: str | None = None
    conditions: list[Condition] | None = None
    reason: str | None = None
    message: str | None = None
    start_time: Time | None = None
    pod_ip: str | None = msgspec.field(default=None, name="podIP")


class Taint(_Shape):
    key: str | None = None
    value: str | None = None
    effect: str | None = None
    time_added: Time | None = None


class NodeSpec(_Shape):
    unschedulable: bool | None = None
    provider_id: str | None = msgspec.field(default=None, name="providerID")
    taints: list[Taint] | None = None


class NodeStatus(_Shape):
    capacity: Resources | None = None
    allocatable: Resources | None = None
    conditions: list[Condition] | None = None
    node_info: Strings | None = None


class LabelSelector(_Shape):
    match_labels: Strings | None = None
    match_expressions: list[JsonObject] | None = None


class PodTemplate(_Shape):
    metadata: ObjectMeta | None = None
    spec: PodSpec | None = None


class WorkloadSpec(_Shape):
    replicas: Int32 | None = None
    selector: LabelSelector | None = None
    template: PodTemplate | None = None


class WorkloadStatus(_Shape):
    replicas: Int32 | None = None
    conditions: list[Condition] | None = None


class DisruptionBudgetSpec(_Shape):
    min_available: IntOrString | None = None
    max_unavailable: IntOrString | None = None
    selector: LabelSelector | None = None


class LeaseSpec(_Shape):
    holder_identity: str | None = None
    lease_duration_seconds: Int32 | None = None
    acquire_time: MicroTime | None = None
    renew_time: MicroTime | None = None
    lease_transitions: Int32 | None = None


class Object(_Shape):
    metadata: ObjectMeta | None = None


class Pod(Object):
    spec: PodSpec | None = None
    status: PodStatus | None = None


class Node(Object):
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


class ConfigMap(Object):
    data: Strings | None = None
    binary_data: Strings | None = None
    immutable: bool | None = None


class Secret(ConfigMap):
    string_data: Strings | None = None
    type: str | None = None


class Event(Object):
    type: str | None = None
    reason: str | None = None
    message: str | None = None
    count: Int32 | None = None
    first_timestamp: Time | None = None
    last_timestamp: Time | None = None
    event_time: MicroTime | None = None
    involved_object: JsonObject | None = None


class Lease(Object):
    spec: LeaseSpec | None = None


class PodDisruptionBudget(Object):
    spec: DisruptionBudgetSpec | None = None


class Workload(Object):
    spec: WorkloadSpec | None = None
    status: WorkloadStatus | None = None


class PriorityClass(Object):
    value: Int32 | None = None
    global_default: bool | None = None


class Other(Object):
    spec: JsonObject | None = None
    status: JsonObject | None = None


_SHAPES: dict[str, type[Object]] = {
    "Pod": Pod, "Node": Node, "ConfigMap": ConfigMap, "Secret": Secret, "Event": Event, "Lease": Lease,
    "PodDisruptionBudget": PodDisruptionBudget, "Deployment": Workload, "ReplicaSet": Workload,
    "StatefulSet": Workload, "DaemonSet": Workload, "PriorityClass": PriorityClass,
}  # fmt: skip


def problem(kind: str, obj: JsonObject) -> str:
    """What is of the wrong type in an object of a built-in kind, or nothing."""
    return _problem(obj, _SHAPES.get(kind, Other))


def metadata_problem(obj: JsonObject) -> str:
    """What is of the wrong type in the metadata of an object of any kind, or nothing."""
    return _problem(obj, Object)


def _problem(obj: JsonObject, shape: type[Object]) -> str:
    try:
        msgspec.convert(obj, shape)
    except msgspec.ValidationError as error:
        return f"json: cannot unmarshal: {error}"
    return ""
