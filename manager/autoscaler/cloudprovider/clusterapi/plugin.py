"""Cluster API as a cloud provider."""

from manager.autoscaler.cloudprovider.clusterapi import config
from manager.autoscaler.cloudprovider.clusterapi.provider import ClusterApiProvider
from manager.autoscaler.cloudprovider.plugin import ProviderPlugin, ProviderRequest
from shared.kube.client import Client
from shared.kube.config import from_kubeconfig

USER_AGENT = "headroom-manager"


def make(request: ProviderRequest) -> ClusterApiProvider:
    file = config.load(request.config)
    writes = request.loops is not None
    if not file.kubeconfig:
        return ClusterApiProvider(file, request.client, request.clock, may_write=writes)
    client = Client(from_kubeconfig(file.kubeconfig), USER_AGENT, clock=request.clock)
    return ClusterApiProvider(file, client, request.clock, may_write=writes, close=client.close)


PLUGIN = ProviderPlugin(make=make, needs_config=False, has_prices=False, groups_opt_in=True)
