"""The protocol's messages: requests from values, values from answers. Readers raise DecodeError."""

from collections.abc import Sequence

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from manager.autoscaler.cloudprovider.contract import (
    ErrorClass,
    Group,
    GroupOptions,
    Instance,
    InstanceError,
    InstanceState,
    NodeRef,
)
from manager.autoscaler.cloudprovider.externalgrpc.wire import externalgrpc_pb2 as wire

SERVICE = "clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider"

_STATES = {1: InstanceState.RUNNING, 2: InstanceState.CREATING, 3: InstanceState.DELETING}
_OUT_OF_RESOURCES = 1


def node_group_for_node(node: NodeRef) -> bytes:
    return wire.NodeGroupForNodeRequest(node=_node(node)).SerializeToString()


def of_group(group: str) -> bytes:
    """The requests that name only a group."""
    return wire.GroupRequest(id=group).SerializeToString()


def with_delta(group: str, delta: int) -> bytes:
    """NodeGroupIncreaseSize, and NodeGroupDecreaseTargetSize, whose delta is negative."""
    return wire.DeltaRequest(delta=delta, id=group).SerializeToString()


def delete_nodes(group: str, nodes: Sequence[NodeRef]) -> bytes:
    return wire.NodeGroupDeleteNodesRequest(nodes=map(_node, nodes), id=group).SerializeToString()


def get_options(group: str, defaults: GroupOptions) -> bytes:
    """With all of the defaults: a provider without overrides returns the given values."""
    given = wire.NodeGroupAutoscalingOptions(
        scaleDownUtilizationThreshold=defaults.scale_down_utilization_threshold or 0,
        scaleDownGpuUtilizationThreshold=defaults.scale_down_gpu_utilization_threshold or 0,
        zeroOrMaxNodeScaling=bool(defaults.zero_or_max_node_scaling),
        ignoreDaemonSetsUtilization=bool(defaults.ignore_daemonsets_utilization),
        scaleDownUnneededDuration=_duration(defaults.scale_down_unneeded_time_seconds),
        scaleDownUnreadyDuration=_duration(defaults.scale_down_unready_time_seconds),
        maxNodeProvisionDuration=_duration(defaults.max_node_provision_time_seconds),
    )
    return wire.NodeGroupGetOptionsRequest(id=group, defaults=given).SerializeToString()


def priced_node(node: NodeRef, start: float, end: float) -> bytes:
    return wire.PricingNodePriceRequest(
        node=_node(node), startTimestamp=_timestamp(start), endTimestamp=_timestamp(end)
    ).SerializeToString()


def priced_pod(pod: bytes, start: float, end: float) -> bytes:
    return wire.PricingPodPriceRequest(
        pod_bytes=pod, startTimestamp=_timestamp(start), endTimestamp=_timestamp(end)
    ).SerializeToString()


def read_groups(data: bytes) -> list[Group]:
    """Without their targets, which need a call each."""
    found = wire.NodeGroupsResponse.FromString(data).nodeGroups
    return [Group(each.id, each.minSize, each.maxSize, 0, debug=each.debug) for each in found]


def read_group_of_node(data: bytes) -> str | None:
    """None: a node of no group."""
    return wire.NodeGroupForNodeResponse.FromString(data).nodeGroup.id or None


def read_target_size(data: bytes) -> int:
    return wire.NodeGroupTargetSizeResponse.FromString(data).targetSize


def read_price(data: bytes) -> float:
    return wire.PriceResponse.FromString(data).price


def read_gpu_label(data: bytes) -> str:
    return wire.GPULabelResponse.FromString(data).label


def read_gpu_types(data: bytes) -> frozenset[str]:
    return frozenset(wire.GetAvailableGPUTypesResponse.FromString(data).gpuTypes)


def read_instances(data: bytes) -> list[Instance]:
    return [_instance(each) for each in wire.NodeGroupNodesResponse.FromString(data).instances]


def read_template(data: bytes) -> bytes:
    """The Node's own bytes."""
    return wire.NodeGroupTemplateNodeInfoResponse.FromString(data).nodeBytes


def read_options(data: bytes) -> GroupOptions:
    """A duration of zero is unset: servers always send all of them."""
    found = wire.NodeGroupGetOptionsResponse.FromString(data).nodeGroupAutoscalingOptions

    def threshold(name: str) -> float | None:
        return getattr(found, name) if found.HasField(name) else None

    def flag(name: str) -> bool | None:
        return getattr(found, name) if found.HasField(name) else None

    return GroupOptions(
        scale_down_utilization_threshold=threshold("scaleDownUtilizationThreshold"),
        scale_down_gpu_utilization_threshold=threshold("scaleDownGpuUtilizationThreshold"),
        zero_or_max_node_scaling=flag("zeroOrMaxNodeScaling"),
        ignore_daemonsets_utilization=flag("ignoreDaemonSetsUtilization"),
        scale_down_unneeded_time_seconds=_seconds(found.scaleDownUnneededDuration),
        scale_down_unready_time_seconds=_seconds(found.scaleDownUnreadyDuration),
        max_node_provision_time_seconds=_seconds(found.maxNodeProvisionDuration),
    )


def _node(node: NodeRef) -> wire.ExternalGrpcNode:
    return wire.ExternalGrpcNode(
        providerID=node.provider_id, name=node.name, labels=node.labels, annotations=node.annotations
    )


def _instance(found: wire.Instance) -> Instance:
    told, error = found.status.errorInfo, None
    if told.errorCode or told.errorMessage or told.instanceErrorClass:  # an empty error is none
        kind = ErrorClass.OUT_OF_RESOURCES if told.instanceErrorClass == _OUT_OF_RESOURCES else ErrorClass.OTHER
        error = InstanceError(kind, told.errorCode, told.errorMessage)
    return Instance(found.id, _STATES.get(found.status.instanceState, InstanceState.UNKNOWN), error)


def _seconds(duration: Duration) -> float | None:
    return duration.seconds + duration.nanos / 1e9 or None


def _duration(seconds: float | None) -> Duration:
    whole = int(seconds or 0)
    return Duration(seconds=whole, nanos=int(((seconds or 0) - whole) * 1e9))


def _timestamp(seconds: float) -> Timestamp:
    whole = int(seconds)
    return Timestamp(seconds=whole, nanos=int((seconds - whole) * 1e9))
