"""Karpenter as a cloud provider."""

from manager.autoscaler.cloudprovider.karpenter.books import CONFIG_MAP, KEY, KarpenterLedger
from manager.autoscaler.cloudprovider.karpenter.config import CloudFile
from manager.autoscaler.cloudprovider.karpenter.provider import KarpenterProvider
from manager.autoscaler.cloudprovider.plugin import ProviderPlugin, ProviderRequest
from shared.kube.configmap_store import ConfigMapStore


def make(request: ProviderRequest) -> KarpenterProvider:
    writes = request.loops is not None
    ledger = KarpenterLedger(ConfigMapStore(request.client, request.namespace, CONFIG_MAP, KEY), writes=writes)
    return KarpenterProvider(
        CloudFile(request.file),
        request.client,
        ledger,
        request.clock,
        may_write=writes,
        minds_drift=request.groups.minds_drift,
    )


PLUGIN = ProviderPlugin(make=make, creates_groups=True)
