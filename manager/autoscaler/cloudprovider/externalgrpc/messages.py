"""The protocol's messages: requests from values, values from answers. Readers raise protobuf.Malformed."""

from collections.abc import Iterator, Sequence

from manager.autoscaler.cloudprovider.contract import (
    ErrorClass,
    Group,
    GroupOptions,
    Instance,
    InstanceError,
    InstanceState,
    NodeRef,
)
from manager.autoscaler.cloudprovider.externalgrpc import core_v1
from shared import protobuf
from shared.protobuf import as_bytes, as_double, as_int, as_text, encoded, fields

SERVICE = "clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider"

_STATES = {1: InstanceState.RUNNING, 2: InstanceState.CREATING, 3: InstanceState.DELETING}
_OUT_OF_RESOURCES = 1


def node_ref(node: NodeRef) -> bytes:
    """ExternalGrpcNode."""
    return (
        encoded(1, node.provider_id)
        + encoded(2, node.name)
        + core_v1.text_map(node.labels, 3)
        + core_v1.text_map(node.annotations, 4)
    )


def node_group_for_node(node: NodeRef) -> bytes:
    return encoded(1, node_ref(node))


def of_group(group: str) -> bytes:
    """The requests that name only a group."""
    return encoded(1, group)


def with_delta(group: str, delta: int) -> bytes:
    """NodeGroupIncreaseSize, and NodeGroupDecreaseTargetSize, whose delta is negative."""
    return encoded(1, delta) + encoded(2, group)


def delete_nodes(group: str, nodes: Sequence[NodeRef]) -> bytes:
    return b"".join(encoded(1, node_ref(node)) for node in nodes) + encoded(2, group)


def get_options(group: str, defaults: GroupOptions) -> bytes:
    """With all of the defaults: a provider without overrides returns the given values."""
    given = (
        encoded(1, float(defaults.scale_down_utilization_threshold or 0))
        + encoded(2, float(defaults.scale_down_gpu_utilization_threshold or 0))
        + encoded(6, bool(defaults.zero_or_max_node_scaling))
        + encoded(7, bool(defaults.ignore_daemonsets_utilization))
        + encoded(8, _seconds(defaults.scale_down_unneeded_seconds or 0))
        + encoded(9, _seconds(defaults.scale_down_unready_seconds or 0))
        + encoded(10, _seconds(defaults.max_node_provision_seconds or 0))
    )
    return encoded(1, group) + encoded(2, given)


def priced_node(node: NodeRef, start: float, end: float) -> bytes:
    return encoded(1, node_ref(node)) + _window(start, end, 4)


def priced_pod(pod: bytes, start: float, end: float) -> bytes:
    return encoded(4, pod) + _window(start, end, 5)


def read_groups(data: bytes) -> list[Group]:
    """Without their targets, which need a call each."""
    return [read_group(part) for part in _repeated(data, 1)]


def read_group(data: bytes) -> Group:
    parts = dict(fields(data))
    return Group(
        id=as_text(parts.get(1, b"")),
        min_size=as_int(parts.get(2, 0)),
        max_size=as_int(parts.get(3, 0)),
        target_size=0,
        debug=as_text(parts.get(4, b"")),
    )


def read_group_of_node(data: bytes) -> str | None:
    """None: a node of no group."""
    return read_group(as_bytes(dict(fields(data)).get(1, b""))).id or None


def read_int(data: bytes) -> int:
    return as_int(dict(fields(data)).get(1, 0))


def read_double(data: bytes) -> float:
    return _double(dict(fields(data)), 1) or 0.0


def read_text(data: bytes) -> str:
    return as_text(dict(fields(data)).get(1, b""))


def read_keys(data: bytes) -> frozenset[str]:
    """The keys of a map, whatever its values."""
    return frozenset(as_text(dict(fields(part)).get(1, b"")) for part in _repeated(data, 1))


def read_instances(data: bytes) -> list[Instance]:
    return [_instance(part) for part in _repeated(data, 1)]


def read_template(data: bytes) -> bytes:
    """The Node's own bytes."""
    return as_bytes(dict(fields(data)).get(2, b""))


def read_options(data: bytes) -> GroupOptions:
    """A duration of zero is unset: servers always send all of them."""
    parts = dict(fields(as_bytes(dict(fields(data)).get(1, b""))))
    return GroupOptions(
        scale_down_utilization_threshold=_double(parts, 1),
        scale_down_gpu_utilization_threshold=_double(parts, 2),
        zero_or_max_node_scaling=_flag(parts, 6),
        ignore_daemonsets_utilization=_flag(parts, 7),
        scale_down_unneeded_seconds=_duration(parts, 8),
        scale_down_unready_seconds=_duration(parts, 9),
        max_node_provision_seconds=_duration(parts, 10),
    )


def _instance(data: bytes) -> Instance:
    parts = dict(fields(data))
    status = dict(fields(as_bytes(parts.get(2, b""))))
    error = None
    if 2 in status:
        told = dict(fields(as_bytes(status[2])))
        if told:  # an empty error is none
            kind = ErrorClass.OUT_OF_RESOURCES if told.get(3) == _OUT_OF_RESOURCES else ErrorClass.OTHER
            error = InstanceError(kind, as_text(told.get(1, b"")), as_text(told.get(2, b"")))
    state = _STATES.get(as_int(status.get(1, 0)), InstanceState.UNKNOWN)
    return Instance(as_text(parts.get(1, b"")), state, error)


def _repeated(data: bytes, number: int) -> Iterator[bytes]:
    return (as_bytes(raw) for found, raw in fields(data) if found == number)


def _double(parts: dict[int, protobuf.Raw], number: int) -> float | None:
    return as_double(parts[number]) if number in parts else None


def _flag(parts: dict[int, protobuf.Raw], number: int) -> bool | None:
    return bool(as_int(parts[number])) if number in parts else None


def _duration(parts: dict[int, protobuf.Raw], number: int) -> float | None:
    if number not in parts:
        return None
    told = dict(fields(as_bytes(parts[number])))
    return as_int(told.get(1, 0)) + as_int(told.get(2, 0)) / 1e9 or None


def _window(start: float, end: float, number: int) -> bytes:
    return encoded(number, _seconds(start)) + encoded(number + 1, _seconds(end))


def _seconds(seconds: float) -> bytes:
    """A Timestamp or a Duration."""
    whole = int(seconds)
    return encoded(1, whole) + encoded(2, int((seconds - whole) * 1e9))
