"""Any server with Cluster Autoscaler's external gRPC protocol as a cloud provider."""

from manager.autoscaler.cloudprovider.externalgrpc import config
from manager.autoscaler.cloudprovider.externalgrpc.provider import ExternalGrpcProvider
from manager.autoscaler.cloudprovider.plugin import ProviderPlugin, ProviderRequest


def make(request: ProviderRequest) -> ExternalGrpcProvider:
    return ExternalGrpcProvider(config.load(request.file), request.clock, request.groups.options)


PLUGIN = ProviderPlugin(make=make)
