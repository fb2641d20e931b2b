"""The protocol's client. It caches nothing: `Guard` caches for an iteration.

This protocol cannot create groups.
"""

from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

from manager.autoscaler.cloudprovider.contract import (
    Created,
    Gpus,
    Group,
    GroupOptions,
    GroupSpec,
    Instance,
    NodeRef,
    Theoretical,
)
from manager.autoscaler.cloudprovider.errors import InvalidAnswer, Unsupported
from manager.autoscaler.cloudprovider.externalgrpc import NAME, messages
from manager.autoscaler.cloudprovider.externalgrpc.channel import Channel
from manager.autoscaler.cloudprovider.externalgrpc.config import GrpcConfig
from manager.autoscaler.pricing.model import Machine, PricingModel
from manager.autoscaler.rpc import core_v1
from shared.api.core import Node
from shared.clock import Clock
from shared.protobuf import Malformed
from shared.quantity import Amounts

T = TypeVar("T")

PRICED_SECONDS = 3600.0


class ExternalGrpcProvider:
    """See `contract.Provider`."""

    name = NAME

    def __init__(self, config: GrpcConfig, clock: Clock, defaults: GroupOptions | None = None) -> None:
        """Connects on first use. `defaults` are the options of groups whose cloud overrides none.

        Raises InvalidInput without the library.
        """
        self._channel = Channel(config, NAME)
        self._clock = clock
        self._defaults = defaults or GroupOptions()

    def refresh(self) -> None:
        self._channel.call("Refresh", b"")

    def groups(self) -> Sequence[Group]:
        return self._read("NodeGroups", b"", messages.read_groups)

    def target_size(self, group: Group) -> int:
        return self._read("NodeGroupTargetSize", messages.of_group(group.id), messages.read_int, group.id)

    def instances(self, group: str) -> Sequence[Instance]:
        return self._read("NodeGroupNodes", messages.of_group(group), messages.read_instances, group)

    def group_of(self, node: NodeRef) -> str | None:
        return self._read("NodeGroupForNode", messages.node_group_for_node(node), messages.read_group_of_node)

    def launched_at(self, node: NodeRef) -> float | None:
        raise Unsupported(NAME, "", "this protocol knows nothing of machines without a group")

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
        label = self._read("GPULabel", b"", messages.read_text)
        types = self._read("GetAvailableGPUTypes", b"", messages.read_keys)
        return Gpus(label or None, types)

    def pricing(self) -> PricingModel:
        """A provider without prices says so when asked for one."""
        return self

    def node_price(self, machine: Machine) -> float:
        """See `PricingModel`; the protocol sends labels and annotations, not the capacity."""
        now = self._clock.now()
        node = NodeRef("", "", machine.labels, machine.annotations)
        request = messages.priced_node(node, now, now + PRICED_SECONDS)
        return self._read("PricingNodePrice", request, messages.read_double)

    def pod_price(self, requests: Amounts) -> float:
        """See `PricingModel`."""
        now = self._clock.now()
        request = messages.priced_pod(core_v1.pod(requests), now, now + PRICED_SECONDS)
        return self._read("PricingPodPrice", request, messages.read_double)

    def increase(self, group: str, delta: int) -> None:
        self._channel.call("NodeGroupIncreaseSize", messages.with_delta(group, delta), group)

    def decrease_target(self, group: str, delta: int) -> None:
        self._channel.call("NodeGroupDecreaseTargetSize", messages.with_delta(group, -delta), group)

    def delete_nodes(self, group: str, nodes: Sequence[NodeRef]) -> None:
        self._channel.call("NodeGroupDeleteNodes", messages.delete_nodes(group, nodes), group)

    def machine_types(self) -> Sequence[str]:
        self._unsupported()

    def theoretical(self, spec: GroupSpec) -> Theoretical:
        self._unsupported()

    def create_group(self, spec: GroupSpec) -> Created:
        self._unsupported()

    def delete_group(self, group: str) -> None:
        self._unsupported(group)

    def cleanup(self) -> None:
        self._channel.call("Cleanup", b"")

    def close(self) -> None:
        self._channel.close()

    def _read(self, method: str, request: bytes, reader: Callable[[bytes], T], group: str = "") -> T:
        answer = self._channel.call(method, request, group)
        try:
            return reader(answer)
        except Malformed as error:
            raise InvalidAnswer(NAME, group, method, answer, f"not the protocol's: {error}") from error

    def _unsupported(self, group: str = "") -> NoReturn:
        raise Unsupported(NAME, group, "groups are neither created nor deleted over this protocol")
