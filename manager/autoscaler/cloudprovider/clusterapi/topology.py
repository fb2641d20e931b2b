"""Groups as entries in the topology of a Cluster with a ClusterClass; Cluster API makes their MachineDeployments."""

from collections.abc import Callable
from typing import Any

import msgspec

from manager.autoscaler.cloudprovider.clusterapi import NAME
from manager.autoscaler.cloudprovider.clusterapi.annotations import AnnouncedNode
from manager.autoscaler.cloudprovider.clusterapi.creation import PlannedGroup
from manager.autoscaler.cloudprovider.clusterapi.creation_config import TopologySource
from manager.autoscaler.cloudprovider.clusterapi.groups import ApiKeys, ManagementObjects, ScalableGroup
from manager.autoscaler.cloudprovider.clusterapi.reading import ClusterApiReader
from manager.autoscaler.cloudprovider.clusterapi.wire import ScalableKind, ScalableObject
from manager.autoscaler.cloudprovider.clusterapi.writing import write_as_read
from manager.autoscaler.cloudprovider.errors import Later, ProviderError, Refused, api_error
from shared import names
from shared.api.meta import ObjectMeta
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.errors import Conflict, Forbidden, NotFound
from shared.kube.resources import Resource

CLUSTERS = "clusters"

Body = dict[str, Any]


class TopologyEntries:
    """See `creation.GroupCreator`. The list of entries is only ever written in place of the one that was read."""

    def __init__(
        self, client: Client, reader: ClusterApiReader, source: TopologySource, namespace: str, keys: ApiKeys
    ) -> None:
        self._client = client
        self._reader = reader
        self._source = source
        self._namespace = namespace
        self._keys = keys
        self._problem = "nothing has been read yet"

    def look(self, found: ManagementObjects) -> ManagementObjects:
        """Entries of ours that have no MachineDeployment yet are groups already."""
        try:
            entries = _entries(self._cluster())
            self._problem = ""
        except (NotFound, Forbidden, Refused) as error:
            entries, self._problem = [], str(error)
        there = {
            each.metadata.label(self._keys.topology_name)
            for _, each in found.scalable
            if each.spec.cluster_name == self._source.cluster
        }
        drafts = [self._object(each) for each in entries if _is_own(each) and each["name"] not in there]
        scalable = [*found.scalable, *((ScalableKind.MACHINE_DEPLOYMENT, each) for each in drafts)]
        return ManagementObjects(found.machines, found.sets, scalable)

    def base(self) -> AnnouncedNode:
        if self._problem:
            where = f"Cluster {self._namespace}/{self._source.cluster}"
            raise Refused(NAME, "", f"{where}, to whose topology groups are to be added: {self._problem}")
        return AnnouncedNode()

    def draft(self, planned: PlannedGroup) -> ScalableObject:
        return self._object(entry_of(planned, self._source))

    def owns(self, group: ScalableGroup) -> bool:
        meta = group.object.metadata
        where = (meta.namespace, group.object.spec.cluster_name)
        return group.id.startswith("Cluster/") and where == (self._namespace, self._source.cluster)

    def create(self, planned: PlannedGroup) -> None:
        def with_entry(entries: list[Body]) -> list[Body]:
            found = next((each for each in entries if each["name"] == planned.name), None)
            if found is None:
                return [*entries, entry_of(planned, self._source)]
            if not planned.matches(_meta(found)):
                raise Refused(NAME, planned.name, "the topology has an entry of this name that Headroom did not create")
            return entries

        self._change(planned.name, with_entry)

    def delete(self, group: ScalableGroup) -> None:
        name = group.id.rpartition("/")[2]
        self._change(group.id, lambda entries: [each for each in entries if each["name"] != name or not _is_own(each)])

    def tidy(self) -> None:
        """An entry is there or not, and without machines it is a group like others."""

    def _change(self, group: str, change: Callable[[list[Body]], list[Body]]) -> None:
        """Raises Later if the Cluster changes all the time, Refused if it may not be, Unavailable in doubt."""
        where = f"the topology of Cluster {self._source.cluster}"
        try:
            write_as_read(self._client, f"the write of {where}", lambda: self._write_entries(change))
        except ProviderError:
            raise
        except Conflict as error:
            raise Later(
                NAME, group, f"Cluster {self._source.cluster} is changed by another client all the time: {error}"
            ) from error
        except HeadroomError as error:
            raise api_error(NAME, group, error, where) from error

    def _write_entries(self, change: Callable[[list[Body]], list[Body]]) -> None:
        """Raises Conflict if something else has written the Cluster since, and after a write whose answer was lost."""
        cluster = self._cluster()
        before = _entries(cluster)
        after = change(before)
        if after != before:
            patch = {
                "metadata": {"resourceVersion": cluster["metadata"]["resourceVersion"]},
                "spec": {"topology": {"workers": _workers_patch(cluster, after)}},
            }
            self._client.patch(self._clusters, self._source.cluster, patch, self._namespace)

    @property
    def _clusters(self) -> Resource:
        return self._reader.api().resource(CLUSTERS)

    def _cluster(self) -> Body:
        """Raises Refused for one whose topology is not to be changed."""
        cluster = self._client.get(self._clusters, self._source.cluster, self._namespace)
        if not (cluster.get("spec") or {}).get("topology"):
            raise Refused(NAME, "", "it has no topology: see autoprovisioning.clone")
        if "deletionTimestamp" in cluster["metadata"]:
            raise Refused(NAME, "", "it is being deleted")
        return cluster

    def _object(self, entry: Body) -> ScalableObject:
        """The MachineDeployment that Cluster API makes of the entry, without what it alone knows."""
        given = entry["metadata"]
        labels = given["labels"] | {self._keys.topology_name: entry["name"]}
        body = {
            "metadata": {**given, "name": entry["name"], "namespace": self._namespace, "labels": labels},
            "spec": {
                "clusterName": self._source.cluster,
                "replicas": 0,
                "template": {"metadata": {"labels": given["labels"]}},
            },
        }
        return msgspec.convert(body, ScalableObject)


def entry_of(planned: PlannedGroup, source: TopologySource) -> Body:
    """Without replicas: a number there would undo each change of the autoscaler's."""
    variables: list[tuple[str | None, object]] = [
        (source.machine_type, planned.machine.name),
        (source.labels if planned.own_labels else None, planned.label_text),
        (source.taints if planned.taints else None, planned.taint_objects),
    ]
    marks = planned.marks
    entry: Body = {
        "class": source.worker_class,
        "name": planned.name,
        "metadata": {
            "labels": {**planned.passed_labels, **marks["labels"]},
            "annotations": {**planned.annotations, **marks["annotations"]},
        },
        "variables": {"overrides": [{"name": name, "value": value} for name, value in variables if name is not None]},
    }
    return entry | ({"failureDomain": planned.zone} if planned.zone else {})


def _entries(cluster: Body) -> list[Body]:
    workers = cluster["spec"]["topology"].get("workers") or {}
    return list(workers.get("machineDeployments") or ())


def _workers_patch(cluster: Body, entries: list[Body]) -> Body | None:
    """Cluster API takes neither an empty list there nor an empty object around it."""
    others = (cluster["spec"]["topology"].get("workers") or {}).keys() - {"machineDeployments"}
    return {"machineDeployments": entries or None} if entries or others else None


def _meta(entry: Body) -> ObjectMeta:
    return msgspec.convert(entry.get("metadata") or {}, ObjectMeta)


def _is_own(entry: Body) -> bool:
    meta = _meta(entry)
    marked = meta.annotation(names.ANNOTATION_NODE_GROUP_SPEC) is not None
    return marked and meta.label(names.LABEL_NODE_GROUP) == entry["name"]
