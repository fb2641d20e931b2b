"""What is read in the management cluster: the served version, the objects that groups are made of, and templates."""

import logging
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TypeVar

from manager.autoscaler.cloudprovider.clusterapi import NAME
from manager.autoscaler.cloudprovider.clusterapi.config import ClusterApiConfig
from manager.autoscaler.cloudprovider.clusterapi.groups import ManagementObjects, ScalableGroup
from manager.autoscaler.cloudprovider.clusterapi.wire import (
    MACHINES,
    InfrastructureTemplate,
    MachineObject,
    MachineTemplateRef,
    ScalableKind,
    ScalableObject,
    ServedGroup,
    ServedVersion,
)
from manager.autoscaler.cloudprovider.errors import Refused, Unavailable
from shared.kube.client import Client
from shared.kube.errors import Forbidden, NotFound
from shared.kube.resources import Resource

logger = logging.getLogger(__name__)

VERSIONS = ("v1beta2", "v1beta1")

T = TypeVar("T")


@dataclass(frozen=True)
class ServedApi:
    """The version of Cluster API that is asked for, and the plurals that it has."""

    group: str
    version: str
    plurals: Collection[str]

    def resource(self, plural: str) -> Resource:
        return Resource(self.group, self.version, plural, namespaced=True)

    def kind_resource(self, kind: ScalableKind) -> Resource:
        return self.resource(kind.plural)


class ClusterApiReader:
    """Raises the client's errors, and Unavailable for what is no complete answer."""

    def __init__(self, client: Client, config: ClusterApiConfig) -> None:
        self._client = client
        self._config = config
        self._api: ServedApi | None = None

    def api(self) -> ServedApi:
        """As discovery tells of it, once. Raises Unavailable in a cluster without it."""
        if self._api is None:
            group = self._config.api_group
            version = self._served_version(group)
            served = self._client.read(f"/apis/{group}/{version}", into=ServedVersion)
            plurals = frozenset(each.name for each in served.resources)
            needed = {MACHINES, ScalableKind.MACHINE_DEPLOYMENT.plural, ScalableKind.MACHINE_SET.plural}
            if missing := sorted(needed - plurals):
                raise Unavailable(NAME, "", f"{group}/{version} has no {', '.join(missing)}")
            self._api = ServedApi(group, version, plurals)
        return self._api

    def objects(self) -> ManagementObjects:
        """Owned ones first, so that each finds its owner, which was there before it."""
        api = self.api()
        machines = list(self._listed(api.resource(MACHINES), MachineObject))
        found: list[tuple[ScalableKind, ScalableObject]] = []
        for kind in (ScalableKind.MACHINE_SET, ScalableKind.MACHINE_POOL, ScalableKind.MACHINE_DEPLOYMENT):
            if kind.plural in api.plurals:
                found += ((kind, each) for each in self._listed(api.kind_resource(kind), ScalableObject))
        sets = [each for kind, each in found if kind is ScalableKind.MACHINE_SET]
        return ManagementObjects(machines, sets, [(kind, each) for kind, each in found if self._is_selected(each)])

    def current(self, group: ScalableGroup) -> ScalableObject:
        """The group's object as it is now. Raises Refused where it is gone."""
        meta = group.object.metadata
        try:
            return self._client.get(
                self.api().kind_resource(group.kind), meta.name, meta.namespace, into=ScalableObject
            )
        except NotFound as error:
            raise Refused(NAME, group.id, "does not exist any more") from error

    def template(self, group: ScalableGroup) -> InfrastructureTemplate | None:
        """What the infrastructure provider says of its machines; None where that is not to be read.

        Raises Refused for a template that cannot be read.
        """
        ref = group.object.spec.template.spec.infrastructure_ref
        if ref.resource_name not in self._config.infrastructure_templates:
            return None
        try:
            namespace = group.object.metadata.namespace
            return self._client.get(self.resource_of(ref), ref.name, namespace, into=InfrastructureTemplate)
        except (NotFound, Forbidden) as error:
            problem = f"{ref.kind} {ref.name}, which says what its machines have, cannot be read: {error}"
            raise Refused(NAME, group.id, problem) from error

    def takes(self, namespace: str, cluster_name: str) -> bool:
        """Whether groups of that cluster there are selected, whatever their labels are."""
        return self._config.takes(namespace, cluster_name)

    def resource_of(self, ref: MachineTemplateRef) -> Resource:
        """In the version that the reference names, or else in the preferred one."""
        _, _, version = ref.api_version.rpartition("/")
        return self.served_resource(ref.resource_name, version)

    def served_resource(self, name: str, version: str = "") -> Resource:
        """A resource by <plural>.<group>. Raises NotFound for an unknown group."""
        plural, _, group = name.partition(".")
        version = version or self._client.read(f"/apis/{group}", into=ServedGroup).preferred_version.version
        return Resource(group, version, plural, namespaced=True)

    def _listed(self, resource: Resource, into: type[T]) -> Iterator[T]:
        """Raises Unavailable where one is not readable: without it, a group would seem smaller than it is."""
        for namespace in self._config.namespaces:
            try:
                found = self._client.list(resource, namespace, into=into, label_selector=self._config.cluster_selector)
            except NotFound as error:
                self._api = None  # it may be served in another version from now on
                raise Unavailable(NAME, "", f"the management cluster does not know {resource} any more") from error
            for each in found.refused:
                raise Unavailable(NAME, "", f"{resource} {each.key}: {each.reason}")
            yield from found.items

    def _is_selected(self, found: ScalableObject) -> bool:
        meta = found.metadata
        labels = meta.labels or {}
        return any(each.takes(meta.namespace, found.spec.cluster_name, labels) for each in self._config.selectors)

    def _served_version(self, group: str) -> str:
        try:
            served = self._client.read(f"/apis/{group}", into=ServedGroup)
        except NotFound as error:
            problem = f"the management cluster does not serve {group}: is Cluster API installed?"
            raise Unavailable(NAME, "", problem) from error
        offered = [served.preferred_version.version, *(each.version for each in served.versions)]
        known = next((each for each in offered if each in VERSIONS), None)
        if known is None:
            problem = f"{group} is served as {', '.join(offered)}, and {' or '.join(VERSIONS)} is needed"
            raise Unavailable(NAME, "", problem)
        return known
