"""The kinds the server knows, as data: names, scope, subresources, selectable fields and list merge rules.

What is said of the built-in kinds (short names, patch merge keys, list-map keys, unconditional updates) is what
Kubernetes publishes in its API types; custom kinds get the same description from their definition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deploy.local.apiserver.schema import Schema

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListRule:
    """How a list (or an object) merges: by which key in a strategic patch, by which keys when applied."""

    merge_key: str = ""
    map_keys: tuple[str, ...] = ()
    is_set: bool = False
    retain_keys: bool = False
    replace: bool = False


ListRules = Callable[[Path], ListRule | None]


def _keyed(*keys: str, retain_keys: bool = False) -> ListRule:
    return ListRule(merge_key=keys[0], map_keys=keys, retain_keys=retain_keys)


# Keyed by the field's name: within the built-in kinds a name means one thing, but for the overrides below.
_LIST_RULES: Mapping[str, ListRule] = {
    "addresses": _keyed("type"),
    "allocatedResourcesStatus": _keyed("name"),
    "claims": ListRule(map_keys=("name",)),
    "conditions": _keyed("type"),
    "containers": _keyed("name"),
    "env": _keyed("name"),
    "ephemeralContainers": _keyed("name"),
    "finalizers": ListRule(is_set=True),
    "hostAliases": _keyed("ip"),
    "hostIPs": ListRule(merge_key="ip"),
    "imagePullSecrets": _keyed("name"),
    "initContainers": _keyed("name"),
    "ownerReferences": _keyed("uid"),
    "podCIDRs": ListRule(is_set=True),
    "podIPs": _keyed("ip"),
    "ports": _keyed("containerPort", "protocol"),
    "resourceClaims": _keyed("name", retain_keys=True),
    "schedulingGates": _keyed("name"),
    "secrets": _keyed("name"),
    "topologySpreadConstraints": _keyed("topologyKey", "whenUnsatisfiable"),
    "volumeDevices": _keyed("devicePath"),
    "volumeMounts": _keyed("mountPath"),
    "volumes": _keyed("name", retain_keys=True),
}


@dataclass(frozen=True, slots=True)
class Column:
    """A printer column of a custom kind."""

    name: str
    type: str
    json_path: str
    description: str = ""
    format: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Kind:
    """One served kind. `status`: has the status subresource; `generation`: spec changes are counted."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    status: bool = False
    generation: bool = False
    subresources: tuple[str, ...] = ()
    selectable: tuple[str, ...] = ()
    unconditional_update: bool = True
    create_on_update: bool = False
    returns_deleted: bool = False
    name_format: str = "subdomain"
    rules: Mapping[str, ListRule] = field(default_factory=dict)
    columns: tuple[Column, ...] = ()
    schema: Schema | None = None

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """The key of the kind's collection, free of the version."""
        return f"{self.group}/{self.plural}"

    @property
    def singular_name(self) -> str:
        return self.singular or self.kind.lower()

    @property
    def custom(self) -> bool:
        return self.schema is not None

    def list_rule(self, path: Path) -> ListRule | None:
        """The merge rule at an index-free path of field names."""
        if self.schema is not None and path[0] != "metadata":
            return self.schema.list_rules.get(path)
        return self.rules.get(path[-1]) or _LIST_RULES.get(path[-1])


_METADATA_FIELDS = ("metadata.name", "metadata.namespace")
_POD_FIELDS = (
    "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
    "spec.hostNetwork", "status.phase", "status.podIP", "status.nominatedNodeName",
)  # fmt: skip
_EVENT_FIELDS = (
    "involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
    "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath",
    "reason", "reportingComponent", "source", "type",
)  # fmt: skip
_SERVICE_RULES = {"ports": _keyed("port", "protocol")}
_PDB_RULES = {"selector": ListRule(replace=True)}
_DEPLOYMENT_RULES = {"strategy": ListRule(retain_keys=True)}
CRD_GROUP = "apiextensions.k8s.io"

BUILT_IN: tuple[Kind, ...] = (
    Kind("", "v1", "Namespace", "namespaces", namespaced=False, short_names=("ns",), status=True,
         subresources=("finalize",), selectable=("status.phase",), name_format="label"),
    Kind("", "v1", "Node", "nodes", namespaced=False, short_names=("no",), status=True,
         selectable=("spec.unschedulable",)),
    Kind("", "v1", "Pod", "pods", short_names=("po",), categories=("all",), status=True, generation=True,
         subresources=("binding", "eviction", "log"), selectable=_POD_FIELDS, returns_deleted=True),
    Kind("", "v1", "ConfigMap", "configmaps", short_names=("cm",)),
    Kind("", "v1", "Secret", "secrets", selectable=("type",)),
    Kind("", "v1", "Event", "events", short_names=("ev",), selectable=_EVENT_FIELDS, create_on_update=True),
    Kind("", "v1", "ServiceAccount", "serviceaccounts", short_names=("sa",), returns_deleted=True),
    Kind("", "v1", "Service", "services", short_names=("svc",), categories=("all",), status=True,
         returns_deleted=True, name_format="label", rules=_SERVICE_RULES),
    Kind("", "v1", "PersistentVolume", "persistentvolumes", namespaced=False, short_names=("pv",), status=True,
         returns_deleted=True),
    Kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", short_names=("pvc",), status=True,
         returns_deleted=True),
    Kind("coordination.k8s.io", "v1", "Lease", "leases", unconditional_update=False, create_on_update=True),
    Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", short_names=("pdb",), status=True,
         generation=True, unconditional_update=False, rules=_PDB_RULES),
    Kind("apps", "v1", "Deployment", "deployments", short_names=("deploy",), categories=("all",), status=True,
         generation=True, rules=_DEPLOYMENT_RULES),
    Kind("apps", "v1", "ReplicaSet", "replicasets", short_names=("rs",), categories=("all",), status=True,
         generation=True, selectable=("status.replicas",)),
    Kind("apps", "v1", "DaemonSet", "daemonsets", short_names=("ds",), categories=("all",), status=True,
         generation=True),
    Kind("apps", "v1", "StatefulSet", "statefulsets", short_names=("sts",), categories=("all",), status=True,
         generation=True),
    Kind("batch", "v1", "Job", "jobs", categories=("all",), status=True, generation=True,
         selectable=("status.successful",)),
    Kind("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", namespaced=False, short_names=("pc",)),
    Kind(CRD_GROUP, "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False,
         short_names=("crd", "crds"), categories=("api-extensions",), status=True, generation=True,
         unconditional_update=False),
)  # fmt: skip


def field_labels(kind: Kind) -> tuple[str, ...]:
    """The fields that a field selector may name."""
    return _METADATA_FIELDS + kind.selectable


def field_label_error(kind: Kind, label: str) -> str:
    """What the API says of a field that cannot be selected by."""
    if kind.selectable or kind.custom:
        return f"field label not supported: {label}"
    return f'"{label}" is not a known field selector: only "metadata.name", "metadata.namespace"'
