"""Groups as copies of one MachineDeployment, each with copies of the templates that it refers to.

The templates are made before the MachineDeployment, and go after it. All names follow from the group's spec, so that a
creation that was interrupted goes on with the same objects; templates without a MachineDeployment go after a while.
"""

import copy
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from manager.autoscaler.cloudprovider.clusterapi import NAME
from manager.autoscaler.cloudprovider.clusterapi.annotations import AnnouncedNode, GroupAnnotations
from manager.autoscaler.cloudprovider.clusterapi.creation import PlannedGroup
from manager.autoscaler.cloudprovider.clusterapi.creation_config import CloneSource, CopiedTemplate
from manager.autoscaler.cloudprovider.clusterapi.field_paths import change_at
from manager.autoscaler.cloudprovider.clusterapi.groups import ManagementObjects, ScalableGroup
from manager.autoscaler.cloudprovider.clusterapi.reading import ClusterApiReader
from manager.autoscaler.cloudprovider.clusterapi.wire import MachineTemplateRef, ScalableKind, ScalableObject
from manager.autoscaler.cloudprovider.errors import InvalidAnswer, Later, ProviderError, Refused, api_error
from shared import names
from shared.api.meta import ObjectMeta
from shared.clock import Clock
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.errors import AlreadyExists, Conflict, Forbidden, NotFound
from shared.kube.resources import Resource

logger = logging.getLogger(__name__)

ABANDONED_SECONDS = 600.0  # a template without a MachineDeployment: longer than any creation takes

Body = dict[str, Any]


@dataclass(frozen=True)
class CopyRules:
    """What copies are, by the source as it was read. Pure."""

    api_group: str
    namespace: str
    clone: CloneSource

    @property
    def templates(self) -> Mapping[str, CopiedTemplate]:
        return {each.resource: each for each in self.clone.templates}

    def references(self, source: Body) -> list[tuple[Body, MachineTemplateRef]]:
        """The references to templates in the source, as they stand there and as they are read."""
        spec = source["spec"]["template"]["spec"]
        bodies = [spec.get("infrastructureRef"), (spec.get("bootstrap") or {}).get("configRef")]
        return [(each, msgspec.convert(each, MachineTemplateRef)) for each in bodies if each]

    def problem(self, source: Body) -> str:
        """Why it is nothing to copy; empty if it is."""
        if f"topology.{self.api_group}/owned" in (source["metadata"].get("labels") or {}):
            return "a Cluster's topology created it, and would delete its copies; use autoprovisioning.topology"
        if "deletionTimestamp" in source["metadata"]:
            return "it is being deleted"
        named = [ref.resource_name for _, ref in self.references(source)]
        if unknown := [each for each in named if each not in self.templates]:
            return f"it refers to one of {unknown[0]}, which autoprovisioning.clone.templates does not name"
        if not any(self.templates[each].machine_type for each in named):
            return (
                f"autoprovisioning.clone.templates has no machine_type for {' or '.join(named) or 'what it refers to'}"
            )
        return ""

    def deployment(self, source: Body, planned: PlannedGroup) -> Body:
        spec = copy.deepcopy(source["spec"])
        spec.pop("paused", None)
        selected = {
            f"{self.api_group}/cluster-name": spec["clusterName"],
            f"{self.api_group}/deployment-name": planned.name,
        }
        meta = spec["template"].setdefault("metadata", {})
        meta["labels"] = {**(meta.get("labels") or {}), **selected, **planned.passed_labels}
        if planned.zone:
            spec["template"]["spec"]["failureDomain"] = planned.zone
        body = self._copied(source, planned, spec | {"replicas": 0, "selector": {"matchLabels": selected}})
        body["metadata"]["labels"][f"{self.api_group}/cluster-name"] = spec["clusterName"]
        body["metadata"]["annotations"] |= planned.annotations
        for reference, _ in self.references(body):
            reference["name"] = planned.name
        return body

    def template(self, original: Body, planned: PlannedGroup) -> Body:
        """Raises Refused where a configured field has no place."""
        body = self._copied(original, planned, copy.deepcopy(original["spec"]))
        reference = MachineTemplateRef(api_version=original["apiVersion"], kind=original["kind"])
        fields = self.templates[reference.resource_name]
        changes: list[tuple[str | None, Callable[[Any], object]]] = [
            (fields.machine_type, lambda _: planned.machine.name),
            (
                fields.labels if planned.own_labels else None,
                lambda old: ",".join(filter(None, (old, planned.label_text))),
            ),
            (fields.taints if planned.taints else None, lambda old: [*(old or ()), *planned.taint_objects]),
        ]
        for path, change in changes:
            try:
                if path is not None:
                    change_at(body, path, change)
            except (TypeError, ValueError) as error:
                where = f"{original['kind']} {original['metadata']['name']}"
                raise Refused(NAME, planned.name, f"{where} has no place for {path}: {error}") from error
        return body

    def _copied(self, original: Body, planned: PlannedGroup, spec: Body) -> Body:
        meta: Body = {"name": planned.name, "namespace": self.namespace}
        for part, marks in planned.marks.items():
            given = original["metadata"].get(part) or {}
            meta[part] = {key: value for key, value in given.items() if self._is_copied(key)} | marks
        return {"apiVersion": original["apiVersion"], "kind": original["kind"], "metadata": meta, "spec": spec}

    def _is_copied(self, key: str) -> bool:
        """Those of Cluster API alone: labels of tools that apply manifests would make the copy theirs."""
        domain, _, name = key.rpartition("/")
        is_core = domain == self.api_group or domain.endswith(f".{self.api_group}")
        return is_core and name not in ("deployment-name", "paused") and not name.startswith("cloned-from-")


class Cloning:
    """See `creation.GroupCreator`."""

    def __init__(self, client: Client, reader: ClusterApiReader, rules: CopyRules, clock: Clock) -> None:
        self._client = client
        self._reader = reader
        self._rules = rules
        self._clock = clock
        self._source: Body = {}
        self._base = AnnouncedNode()
        self._problem = "nothing has been read yet"
        self._deleted: set[str] = set()  # groups whose templates are still to go
        self._has_leftovers = True  # a process before may have left some

    def look(self, found: ManagementObjects) -> ManagementObjects:
        try:
            self._problem = self._read()
        except (NotFound, Forbidden, InvalidAnswer) as error:
            self._problem = str(error)
        except (AttributeError, KeyError, TypeError, msgspec.ValidationError) as error:
            self._problem = f"it is not a valid MachineDeployment: {error!r}"
        return found

    def base(self) -> AnnouncedNode:
        if self._problem:
            name = f"{self._rules.namespace}/{self._rules.clone.machine_deployment}"
            raise Refused(NAME, "", f"MachineDeployment {name}, the source of copies: {self._problem}")
        return self._base

    def draft(self, planned: PlannedGroup) -> ScalableObject:
        return msgspec.convert(self._rules.deployment(self._source, planned), ScalableObject)

    def owns(self, group: ScalableGroup) -> bool:
        return group.kind is ScalableKind.MACHINE_DEPLOYMENT and self._is_own(group.object.metadata)

    def create(self, planned: PlannedGroup) -> None:
        self._has_leftovers = True
        self._deleted.discard(planned.name)
        try:
            for _, ref in self._rules.references(self._source):
                resource = self._reader.resource_of(ref)
                original = self._client.get(resource, ref.name, self._rules.namespace)
                self._create(resource, self._rules.template(original, planned), planned)
            self._create(self._deployments, self._rules.deployment(self._source, planned), planned)
        except ProviderError:
            raise
        except HeadroomError as error:
            raise api_error(NAME, planned.name, error, "the copies could not be created") from error

    def delete(self, group: ScalableGroup) -> None:
        meta = group.object.metadata
        try:
            self._client.delete(
                self._deployments, meta.name, meta.namespace, uid=meta.uid, resource_version=meta.resource_version
            )
        except NotFound:
            pass
        except Conflict as error:
            raise Later(NAME, group.id, "it has changed since it was empty") from error
        except HeadroomError as error:
            raise api_error(NAME, group.id, error, "it could not be deleted") from error
        self._has_leftovers = True
        self._deleted.add(meta.name)

    def tidy(self) -> None:
        if not self._has_leftovers:
            return
        left = False
        for resource, meta in self._copied_templates():
            exists = self._exists(meta.name)
            if exists and meta.name not in self._deleted:
                continue
            left = True
            age_seconds = self._clock.now() - meta.created_at
            if not exists and (meta.name in self._deleted or age_seconds > ABANDONED_SECONDS):
                self._client.delete(resource, meta.name, meta.namespace, uid=meta.uid)
                logger.info("%s %s has no MachineDeployment and is deleted", resource, meta.key)
        self._has_leftovers = left

    @property
    def _deployments(self) -> Resource:
        return self._reader.api().kind_resource(ScalableKind.MACHINE_DEPLOYMENT)

    def _read(self) -> str:
        """Why there is nothing to copy; empty if there is."""
        rules = self._rules
        source = self._client.get(self._deployments, rules.clone.machine_deployment, rules.namespace)
        given = GroupAnnotations("", rules.api_group, source["metadata"].get("annotations") or {})
        self._source, self._base = source, given.node()
        cluster = source["spec"]["clusterName"]
        if not self._reader.takes(rules.namespace, cluster):
            return f"no entry of `discover` without labels takes groups of its cluster, {cluster}"
        return rules.problem(source)

    def _create(self, resource: Resource, body: Body, planned: PlannedGroup) -> None:
        """One of an earlier try will do."""
        try:
            self._client.create(resource, body, self._rules.namespace, repeatable=True)
        except AlreadyExists as error:
            found = self._client.get(resource, planned.name, self._rules.namespace)
            meta = msgspec.convert(found["metadata"], ObjectMeta)
            if not planned.matches(meta):
                raise Refused(
                    NAME, planned.name, f"{resource} {meta.key} exists already and was not created by Headroom"
                ) from error
            if meta.deletion_timestamp is not None:
                raise Later(NAME, planned.name, f"{resource} {meta.key} is still being deleted") from error

    def _copied_templates(self) -> Iterator[tuple[Resource, ObjectMeta]]:
        for name in self._rules.templates:
            resource = self._reader.served_resource(name)
            listed = self._client.list(resource, self._rules.namespace, label_selector=names.LABEL_NODE_GROUP)
            for each in listed.items:
                meta = msgspec.convert(each["metadata"], ObjectMeta)
                if self._is_own(meta):
                    yield resource, meta

    def _is_own(self, meta: ObjectMeta) -> bool:
        """A copy of one of ours, with another name, is not."""
        marked = meta.annotation(names.ANNOTATION_NODE_GROUP_SPEC) is not None
        return marked and meta.label(names.LABEL_NODE_GROUP) == meta.name and meta.namespace == self._rules.namespace

    def _exists(self, name: str) -> bool:
        try:
            self._client.get(self._deployments, name, self._rules.namespace)
        except NotFound:
            return False
        return True
