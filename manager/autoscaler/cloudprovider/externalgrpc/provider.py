"""The protocol's client. It caches nothing: `Guard` caches for an iteration.

This protocol cannot create groups.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from google.protobuf.message import DecodeError

from manager.autoscaler.cloudprovider.contract import Gpus, Group, GroupOptions, Instance, NodeRef, Provider
from manager.autoscaler.cloudprovider.errors import (
    InvalidAnswer,
    NoAnswer,
    ProviderError,
    Refused,
    Unavailable,
    Unsupported,
)
from manager.autoscaler.cloudprovider.externalgrpc import NAME, config, core_v1, messages
from manager.autoscaler.cloudprovider.externalgrpc.channel import NEEDS_LIBRARY, RpcChannel, RpcError
from manager.autoscaler.cloudprovider.externalgrpc.config import GrpcConfig
from manager.autoscaler.cloudprovider.plugin import ProviderPlugin, ProviderRequest
from manager.autoscaler.pricing.model import Machine, PricingModel
from shared.api.core import Node
from shared.clock import Clock
from shared.errors import InvalidInput
from shared.quantity import Amounts

T = TypeVar("T")

PRICED_SECONDS = 3600.0
# With these codes a server refuses; with all others the call may have taken effect.
_REFUSALS = (
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "UNAUTHENTICATED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "OUT_OF_RANGE",
)
_SILENCE = ("DEADLINE_EXCEEDED", "UNAVAILABLE")


class ExternalGrpcProvider(Provider):
    """See `Provider`."""

    name = NAME

    def __init__(self, server: GrpcConfig, clock: Clock, defaults: GroupOptions | None = None) -> None:
        """Connects on first use. `defaults` are the options of groups whose cloud overrides none.

        Raises InvalidInput if the library is not installed, or rejects the certificates.
        """
        try:
            self._channel = RpcChannel(messages.SERVICE, server.address, server.tls, server.timeout_seconds)
        except ImportError as error:
            raise InvalidInput(source="--cloud-provider", field=NAME, value=NAME, problem=NEEDS_LIBRARY) from error
        self._clock = clock
        self._defaults = defaults or GroupOptions()

    def refresh(self) -> None:
        self._call("Refresh", b"")

    def groups(self) -> Sequence[Group]:
        return self._read("NodeGroups", b"", messages.read_groups)

    def target_size(self, group: Group) -> int:
        return self._read("NodeGroupTargetSize", messages.of_group(group.id), messages.read_target_size, group.id)

    def instances(self, group: str) -> Sequence[Instance]:
        return self._read("NodeGroupNodes", messages.of_group(group), messages.read_instances, group)

    def group_of(self, node: NodeRef) -> str | None:
        return self._read("NodeGroupForNode", messages.node_group_for_node(node), messages.read_group_of_node)

    def launched_at(self, node: NodeRef) -> float | None:
        raise Unsupported(NAME, "", "this protocol has no machines without a group")

    def template(self, group: str) -> Node:
        return self._read(
            "NodeGroupTemplateNodeInfo",
            messages.of_group(group),
            lambda data: core_v1.node(messages.read_template(data)),
            group,
        )

    def options(self, group: str) -> GroupOptions:
        request = messages.get_options(group, self._defaults)
        return self._read("NodeGroupGetOptions", request, messages.read_options, group)

    def gpus(self) -> Gpus:
        label = self._read("GPULabel", b"", messages.read_gpu_label)
        types = self._read("GetAvailableGPUTypes", b"", messages.read_gpu_types)
        return Gpus(label or None, types)

    def pricing(self) -> PricingModel:
        """A provider without prices says so when asked for one."""
        return self

    def node_price(self, machine: Machine) -> float:
        """See `PricingModel`; the protocol sends labels and annotations, not the capacity."""
        now = self._clock.now()
        node = NodeRef("", "", machine.labels, machine.annotations)
        request = messages.priced_node(node, now, now + PRICED_SECONDS)
        return self._read("PricingNodePrice", request, messages.read_price)

    def pod_price(self, requests: Amounts) -> float:
        """See `PricingModel`."""
        now = self._clock.now()
        request = messages.priced_pod(core_v1.pod(requests), now, now + PRICED_SECONDS)
        return self._read("PricingPodPrice", request, messages.read_price)

    def increase(self, group: str, delta: int) -> None:
        self._call("NodeGroupIncreaseSize", messages.with_delta(group, delta), group)

    def decrease_target(self, group: str, delta: int) -> None:
        self._call("NodeGroupDecreaseTargetSize", messages.with_delta(group, -delta), group)

    def delete_nodes(self, group: str, nodes: Sequence[NodeRef]) -> None:
        self._call("NodeGroupDeleteNodes", messages.delete_nodes(group, nodes), group)

    def cleanup(self) -> None:
        self._call("Cleanup", b"")

    def close(self) -> None:
        self._channel.close()

    def _read(self, method: str, request: bytes, reader: Callable[[bytes], T], group: str = "") -> T:
        answer = self._call(method, request, group)
        try:
            return reader(answer)
        except DecodeError as error:
            raise InvalidAnswer(NAME, group, method, answer, f"not the protocol's: {error}") from error

    def _call(self, method: str, request: bytes, group: str = "") -> bytes:
        """The answer. Raises Unsupported, Refused, Unavailable."""
        try:
            return self._channel.call(method, request)
        except RpcError as error:
            raise _kind_of(error.code)(NAME, group, str(error)) from error


def _kind_of(code: str) -> type[ProviderError]:
    if code == "UNIMPLEMENTED":
        return Unsupported
    if code in _REFUSALS:
        return Refused
    return NoAnswer if code in _SILENCE else Unavailable


def make(request: ProviderRequest) -> ExternalGrpcProvider:
    return ExternalGrpcProvider(config.load(request.file), request.clock, request.groups.options)


def with_file(path: Path | None) -> ProviderPlugin:
    """Whether groups need to be listed depends on its file. Raises InvalidInput."""
    return PLUGIN if path is None else replace(PLUGIN, groups_opt_in=config.scales_all_groups(path))


PLUGIN = ProviderPlugin(make=make, with_file=with_file)
