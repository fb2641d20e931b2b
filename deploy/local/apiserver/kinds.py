"""The kinds that the server knows, as data: names, scope, subresources, selectable fields."""

from collections.abc import Sequence
from dataclasses import dataclass

from deploy.local.apiserver import schemas
from deploy.local.apiserver.objects import JsonObject
from deploy.local.apiserver.schema import Schema
from deploy.local.apiserver.schemas import FieldPath, ListRule


@dataclass(frozen=True, slots=True)
class ApiKind:
    """One served kind. `status`: has the status subresource; `generation`: counts changes of the spec."""

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
    name_format: str = "subdomain"
    columns: Sequence[JsonObject] = ()  # additionalPrinterColumns
    schema: Schema | None = None

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """The key of the kind's collection, which does not contain the version."""
        return f"{self.group}/{self.plural}"

    @property
    def singular_name(self) -> str:
        return self.singular or self.kind.lower()

    @property
    def custom(self) -> bool:
        return self.schema is not None

    @property
    def shape(self) -> Schema:
        return self.schema or schemas.of_kind(self.group, self.version, self.kind)

    def list_rule(self, path: FieldPath) -> ListRule | None:
        """How a strategic patch of a built-in kind merges at a path of field names without indexes."""
        return schemas.list_rule(self.group, self.version, self.kind, path)


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
CRD_GROUP = "apiextensions.k8s.io"
ADMISSION_GROUP = "admissionregistration.k8s.io"

BUILT_IN: tuple[ApiKind, ...] = (
    ApiKind("", "v1", "Namespace", "namespaces", namespaced=False, short_names=("ns",), status=True,
         subresources=("finalize",), selectable=("status.phase",), name_format="label"),
    ApiKind("", "v1", "Node", "nodes", namespaced=False, short_names=("no",), status=True,
         selectable=("spec.unschedulable",)),
    ApiKind("", "v1", "Pod", "pods", short_names=("po",), categories=("all",), status=True, generation=True,
         subresources=("binding", "eviction", "log"), selectable=_POD_FIELDS),
    ApiKind("", "v1", "ConfigMap", "configmaps", short_names=("cm",)),
    ApiKind("", "v1", "Secret", "secrets", selectable=("type",)),
    ApiKind("", "v1", "Event", "events", short_names=("ev",), selectable=_EVENT_FIELDS),
    ApiKind("", "v1", "ServiceAccount", "serviceaccounts", short_names=("sa",)),
    ApiKind("", "v1", "Service", "services", short_names=("svc",), categories=("all",), status=True,
         name_format="label"),
    ApiKind("", "v1", "PersistentVolume", "persistentvolumes", namespaced=False, short_names=("pv",), status=True),
    ApiKind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", short_names=("pvc",), status=True),
    ApiKind("", "v1", "ReplicationController", "replicationcontrollers", short_names=("rc",), categories=("all",),
         status=True, generation=True, selectable=("status.replicas",)),
    ApiKind("", "v1", "ResourceQuota", "resourcequotas", short_names=("quota",), status=True),
    ApiKind("", "v1", "PodTemplate", "podtemplates", generation=True),
    ApiKind("coordination.k8s.io", "v1", "Lease", "leases", unconditional_update=False),
    ApiKind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", short_names=("pdb",), status=True,
         generation=True, unconditional_update=False),
    ApiKind("apps", "v1", "Deployment", "deployments", short_names=("deploy",), categories=("all",), status=True,
         generation=True),
    ApiKind("apps", "v1", "ReplicaSet", "replicasets", short_names=("rs",), categories=("all",), status=True,
         generation=True, selectable=("status.replicas",)),
    ApiKind("apps", "v1", "DaemonSet", "daemonsets", short_names=("ds",), categories=("all",), status=True,
         generation=True),
    ApiKind("apps", "v1", "StatefulSet", "statefulsets", short_names=("sts",), categories=("all",), status=True,
         generation=True),
    ApiKind("batch", "v1", "Job", "jobs", categories=("all",), status=True, generation=True,
         selectable=("status.successful",)),
    ApiKind("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", namespaced=False, short_names=("pc",),
         generation=True),
    # Stored so that charts install; the server does not enforce them.
    ApiKind("rbac.authorization.k8s.io", "v1", "Role", "roles", name_format="path"),
    ApiKind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", name_format="path"),
    ApiKind("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", namespaced=False, name_format="path"),
    ApiKind("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False,
         name_format="path"),
    ApiKind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", short_names=("netpol",), generation=True),
    ApiKind(ADMISSION_GROUP, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", namespaced=False,
         categories=("api-extensions",), status=True, generation=True),
    ApiKind(ADMISSION_GROUP, "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings",
         namespaced=False, categories=("api-extensions",), generation=True),
    ApiKind(ADMISSION_GROUP, "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations",
         namespaced=False, categories=("api-extensions",), generation=True, unconditional_update=False),
    ApiKind(ADMISSION_GROUP, "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations",
         namespaced=False, categories=("api-extensions",), generation=True, unconditional_update=False),
    ApiKind(CRD_GROUP, "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False,
         short_names=("crd", "crds"), categories=("api-extensions",), status=True, generation=True,
         unconditional_update=False),
)  # fmt: skip
BY_RESOURCE = {kind.resource: kind for kind in BUILT_IN}

# Access reviews, which the server answers but never stores.
REVIEWS: tuple[ApiKind, ...] = (
    ApiKind("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", namespaced=False),
    ApiKind("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False),
    ApiKind("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False),
)


def field_labels(kind: ApiKind) -> tuple[str, ...]:
    """The fields that a field selector may name."""
    own = _METADATA_FIELDS if kind.namespaced or not kind.selectable else _METADATA_FIELDS[:1]
    return own + kind.selectable
