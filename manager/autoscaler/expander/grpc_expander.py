"""The expander `grpc`: asks a server with Cluster Autoscaler's gRPC expander protocol (service grpcplugin.Expander).

As in Cluster Autoscaler: after a failed call, and after an answer of unknown groups alone, all options stay in; unknown
groups among known ones are ignored; an empty answer leaves none. A Pod has its name, labels, node selector,
tolerations, priority, and the requests of the whole pod as those of one container.
"""

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path

from google.protobuf.message import DecodeError

from manager.autoscaler.cloudprovider.externalgrpc import core_v1
from manager.autoscaler.cloudprovider.externalgrpc.channel import (
    NEEDS_LIBRARY,
    ChannelTls,
    RpcChannel,
    RpcError,
    authorities_problem,
    is_address,
)
from manager.autoscaler.cloudprovider.externalgrpc.wire import expander_pb2 as wire
from manager.autoscaler.expander.chain import ExpanderError
from manager.autoscaler.expander.contract import ExpanderContext
from manager.autoscaler.expander.option import Option, PodClass
from manager.autoscaler.settings.autoscaler_settings import AutoscalerSettings
from shared.errors import InvalidInput

NAME = "grpc"
SERVICE, METHOD = "grpcplugin.Expander", "BestOptions"
TIMEOUT_SECONDS = 5.0

_PODS = "pods"  # a node's resource, which no pod requests on the wire


class GrpcExpander:
    """See `contract.Expander`."""

    def __init__(self, settings: AutoscalerSettings) -> None:
        """Connects at the first call. Raises InvalidInput for settings with which no call can succeed."""
        url, certificate = settings.grpc_expander_url, settings.grpc_expander_cert

        def refused(field: str, value: str, problem: str) -> InvalidInput:
            return InvalidInput(source="flags", field=field, value=value, problem=problem)

        if not is_address(url):
            raise refused("grpc-expander-url", url, "the expander grpc needs the server's host:port")
        if not certificate:
            problem = "the expander grpc needs the server's certificate, or its authority's: it asks over TLS alone"
            raise refused("grpc-expander-cert", certificate, problem)
        if problem := authorities_problem(certificate):
            raise refused("grpc-expander-cert", certificate, f"no certificates in PEM: {problem}")
        try:
            self._channel = _channel(url, Path(certificate).read_bytes())
        except ImportError as error:
            raise refused("expander", NAME, NEEDS_LIBRARY) from error

    def best_options(self, options: Sequence[Option], context: ExpanderContext) -> list[Option]:
        """Raises ExpanderError."""
        try:
            answer = self._channel.call(METHOD, encode_request(options))
            groups = read_groups(answer)
        except RpcError as error:
            raise ExpanderError(str(error)) from error
        except DecodeError as error:
            raise ExpanderError(f"{METHOD}: the answer is not the protocol's: {error}") from error
        by_group = {option.group: option for option in options}
        known = [by_group[group] for group in dict.fromkeys(groups) if group in by_group]
        if groups and not known:
            raise ExpanderError(f"{METHOD}: no group of the answer was in the request: {', '.join(groups[:3])}")
        return known


def encode_request(options: Sequence[Option]) -> bytes:
    """A BestOptionsRequest."""
    known: dict[str, bytes] = {}
    return wire.BestOptionsRequest(
        options=[_option(option, known) for option in options],
        nodeBytesMap={
            option.group: core_v1.encode_node(option.group, option.machine, option.taints, option.allocatable)
            for option in options
        },
    ).SerializeToString()


def read_groups(data: bytes) -> list[str]:
    """The groups of a BestOptionsResponse. Raises DecodeError."""
    return [each.nodeGroupId for each in wire.BestOptionsResponse.FromString(data).options]


def _option(option: Option, known: dict[str, bytes]) -> wire.Option:
    """`known` has the pods that another option takes, too."""
    pods = (pod for kind in option.classes for pod in _pods(kind, known))
    return wire.Option(nodeGroupId=option.group, nodeCount=option.node_count, podBytes=pods)


def _pods(kind: PodClass, known: dict[str, bytes]) -> Iterator[bytes]:
    requests = {name: amount for name, amount in kind.requests.items() if name != _PODS}
    spec = core_v1.pod_spec(requests, dict(kind.node_selector), kind.tolerations, kind.priority)
    for key in kind.keys:
        pod = known.get(key)
        if pod is None:
            namespace, _, name = key.partition("/")
            pod = known[key] = core_v1.pod_metadata(name, namespace, kind.labels) + spec
        yield pod


@functools.lru_cache(maxsize=1)
def _channel(url: str, authorities: bytes) -> RpcChannel:
    """One connection for the process: a plan request makes its expanders anew."""
    return RpcChannel(SERVICE, url, ChannelTls(authorities), TIMEOUT_SECONDS)
