"""The file that `--cloud-config` names. All of it is optional.

kubeconfig: ""                   # of the management cluster; empty: it is this cluster
api_group: cluster.x-k8s.io      # of Cluster API, and of the annotations
discover:                        # which groups, of those with annotations; all of them if absent
- namespace: fleet               # empty: any
  cluster_name: prod             # the cluster whose nodes they make; empty: any, as long as there is only one
  labels: {tier: workers}        # that the group has
infrastructure_templates:        # kinds that may be read for what machines have, as <plural>.<group>
- awsmachinetemplates.infrastructure.cluster.x-k8s.io
default_arch: amd64              # of new nodes whose group does not say it
machine_types: []                # types of machines, with their prices
autoprovisioning: {}             # how groups are created on demand; for both see `creation_config`
"""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from manager.autoscaler.cloudprovider import cloud_file
from manager.autoscaler.cloudprovider.cloud_file import Mistake
from manager.autoscaler.cloudprovider.clusterapi import creation_config
from manager.autoscaler.cloudprovider.clusterapi.creation_config import (
    GROUP_PATTERN,
    RESOURCE_PATTERN,
    ClusterApiAutoprovisioning,
    ClusterApiMachineType,
)
from shared import yaml_file

_NAME = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$"

_Name = Annotated[str, Meta(pattern=_NAME, max_length=253)]
_Label = Annotated[str, Meta(min_length=1, max_length=317)]


class GroupSelector(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Groups of a namespace, of a cluster, with labels; what is empty selects all."""

    namespace: _Name = ""
    cluster_name: _Name = ""
    labels: dict[_Label, str] = {}

    def takes(self, namespace: str, cluster_name: str, labels: Mapping[str, str]) -> bool:
        return (
            self.namespace in ("", namespace)
            and self.cluster_name in ("", cluster_name)
            and self.labels.items() <= labels.items()
        )


class ClusterApiConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    kubeconfig: str = ""
    api_group: Annotated[str, Meta(pattern=f"^{GROUP_PATTERN}$", max_length=253)] = "cluster.x-k8s.io"
    discover: tuple[GroupSelector, ...] = ()
    infrastructure_templates: tuple[Annotated[str, Meta(pattern=RESOURCE_PATTERN)], ...] = ()
    default_arch: Annotated[str, Meta(pattern="^(amd64|arm64|ppc64le|s390x)$")] = "amd64"
    machine_types: tuple[ClusterApiMachineType, ...] = ()
    autoprovisioning: ClusterApiAutoprovisioning | None = None

    @property
    def selectors(self) -> tuple[GroupSelector, ...]:
        return self.discover or (GroupSelector(),)

    def takes(self, namespace: str, cluster_name: str) -> bool:
        """Whether groups of that cluster there are selected, whatever their labels are."""
        return any(each.takes(namespace, cluster_name, {}) for each in self.selectors)

    @property
    def namespaces(self) -> Collection[str | None]:
        """Those to look in; None stands for all."""
        named = sorted({each.namespace for each in self.selectors})
        return [None] if "" in named else named

    @property
    def cluster_selector(self) -> str | None:
        """The label selector of everything that belongs to the selected clusters; None where any is."""
        named = sorted({each.cluster_name for each in self.selectors})
        return None if "" in named else f"{self.api_group}/cluster-name in ({','.join(named)})"


def load(path: Path | None) -> ClusterApiConfig:
    """Raises InvalidInput that names file, field and value."""
    if path is None:
        return ClusterApiConfig()
    loaded = yaml_file.load(path, ClusterApiConfig)
    cloud_file.refuse_first(_mistakes(loaded), path)
    return loaded


def _mistakes(config: ClusterApiConfig) -> Iterator[Mistake]:
    yield from creation_config.mistakes(config.machine_types, config.autoprovisioning)
    if (found := config.autoprovisioning) is not None:
        clusters = {"", found.topology.cluster} if found.topology else {each.cluster_name for each in config.selectors}
        if not any(config.takes(found.namespace, each) for each in clusters):
            yield (
                "autoprovisioning.namespace",
                found.namespace,
                "no entry of `discover` without labels takes its groups",
            )
