"""What Cluster API's groups need in the management cluster, where that is this cluster."""

from collections.abc import Iterator

from manager.autoscaler.cloudprovider.clusterapi import config
from manager.autoscaler.cloudprovider.clusterapi.config import ClusterApiConfig
from manager.autoscaler.cloudprovider.clusterapi.creation_config import ClusterApiAutoprovisioning
from manager.autoscaler.cloudprovider.clusterapi.wire import MACHINES, ScalableKind
from manager.autoscaler.cloudprovider.plugin import ProviderRequest
from manager.autoscaler.cloudprovider.rights import Right


def rights(request: ProviderRequest) -> list[Right]:
    """None for a management cluster elsewhere, where its kubeconfig decides. Raises InvalidInput."""
    file = config.load(request.config)
    if file.kubeconfig:
        return []
    found = [right for namespace in file.namespaces for right in _of_groups(file, namespace or "")]
    return [*found, *(_of_creation(file, file.autoprovisioning) if file.autoprovisioning is not None else ())]


def _of_groups(file: ClusterApiConfig, namespace: str) -> Iterator[Right]:
    for kind in ScalableKind:
        yield from (Right(verb, file.api_group, kind.plural, namespace) for verb in ("get", "list"))
        yield Right("patch", file.api_group, f"{kind.plural}/scale", namespace)
    yield from (Right(verb, file.api_group, MACHINES, namespace) for verb in ("list", "patch"))
    for resource in file.infrastructure_templates:
        plural, _, group = resource.partition(".")
        yield Right("get", group, plural, namespace)


def _of_creation(file: ClusterApiConfig, creation: ClusterApiAutoprovisioning) -> Iterator[Right]:
    namespace = creation.namespace
    if (topology := creation.topology) is not None:
        yield from (Right(verb, file.api_group, "clusters", namespace, topology.cluster) for verb in ("get", "patch"))
    if (clone := creation.clone) is not None:
        deployments = ScalableKind.MACHINE_DEPLOYMENT.plural
        yield from (Right(verb, file.api_group, deployments, namespace) for verb in ("create", "delete"))
        for template in clone.templates:
            plural, _, group = template.resource.partition(".")
            yield from (Right(verb, group, plural, namespace) for verb in ("get", "list", "create", "delete"))
