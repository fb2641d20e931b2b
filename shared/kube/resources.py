"""The API resources that the product uses, and their paths, each defined once."""

import urllib.parse
from dataclasses import dataclass


@dataclass(frozen=True)
class Resource:
    """A resource type as the API's paths name it; the core group is the empty `group`."""

    group: str
    version: str
    plural: str
    namespaced: bool

    def path(self, name: str | None = None, namespace: str | None = None, subresource: str | None = None) -> str:
        """The request path; a namespaced resource without a namespace means all namespaces."""
        if namespace is not None and not self.namespaced:
            raise ValueError(f"{self} is cluster-scoped, and a namespace was given: {namespace!r}")
        root = ["apis", self.group, self.version] if self.group else ["api", self.version]
        parts = [*root, *(["namespaces", namespace] if namespace else []), self.plural]
        parts += [part for part in (name, subresource) if part]
        # Names come from the cluster's objects; quoting keeps a strange name inside its own segment.
        return "/" + "/".join(urllib.parse.quote(part, safe="") for part in parts)

    @property
    def api_version(self) -> str:
        """The apiVersion of objects of this resource."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def full_name(self) -> str:
        """With version and group, as kubectl takes it."""
        return f"{self.plural}.{self.version}.{self.group}" if self.group else self.plural

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


NAMESPACES = Resource("", "v1", "namespaces", namespaced=False)
NODES = Resource("", "v1", "nodes", namespaced=False)
PODS = Resource("", "v1", "pods", namespaced=True)
SECRETS = Resource("", "v1", "secrets", namespaced=True)
CONFIGMAPS = Resource("", "v1", "configmaps", namespaced=True)
SERVICEACCOUNTS = Resource("", "v1", "serviceaccounts", namespaced=True)
PERSISTENTVOLUMES = Resource("", "v1", "persistentvolumes", namespaced=False)
PERSISTENTVOLUMECLAIMS = Resource("", "v1", "persistentvolumeclaims", namespaced=True)
PODTEMPLATES = Resource("", "v1", "podtemplates", namespaced=True)
RESOURCEQUOTAS = Resource("", "v1", "resourcequotas", namespaced=True)
REPLICATIONCONTROLLERS = Resource("", "v1", "replicationcontrollers", namespaced=True)
DAEMONSETS = Resource("apps", "v1", "daemonsets", namespaced=True)
DEPLOYMENTS = Resource("apps", "v1", "deployments", namespaced=True)
REPLICASETS = Resource("apps", "v1", "replicasets", namespaced=True)
STATEFULSETS = Resource("apps", "v1", "statefulsets", namespaced=True)
JOBS = Resource("batch", "v1", "jobs", namespaced=True)
EVENTS = Resource("", "v1", "events", namespaced=True)
LEASES = Resource("coordination.k8s.io", "v1", "leases", namespaced=True)
PODDISRUPTIONBUDGETS = Resource("policy", "v1", "poddisruptionbudgets", namespaced=True)
NODEMETRICS = Resource("slo.koordinator.sh", "v1alpha1", "nodemetrics", namespaced=False)
PRIORITYCLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", namespaced=False)
CLUSTERCOLOCATIONPROFILES = Resource("config.koordinator.sh", "v1alpha1", "clustercolocationprofiles", namespaced=False)
CAPACITYBUFFERS = Resource("autoscaling.x-k8s.io", "v1beta1", "capacitybuffers", namespaced=True)
CAPACITYQUOTAS = Resource("autoscaling.x-k8s.io", "v1beta1", "capacityquotas", namespaced=False)
PROVISIONINGREQUESTS = Resource("autoscaling.x-k8s.io", "v1", "provisioningrequests", namespaced=True)
STORAGECLASSES = Resource("storage.k8s.io", "v1", "storageclasses", namespaced=False)
CSINODES = Resource("storage.k8s.io", "v1", "csinodes", namespaced=False)
CSIDRIVERS = Resource("storage.k8s.io", "v1", "csidrivers", namespaced=False)
CSISTORAGECAPACITIES = Resource("storage.k8s.io", "v1", "csistoragecapacities", namespaced=True)
DEVICECLASSES = Resource("resource.k8s.io", "v1", "deviceclasses", namespaced=False)
RESOURCECLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims", namespaced=True)
RESOURCECLAIMTEMPLATES = Resource("resource.k8s.io", "v1", "resourceclaimtemplates", namespaced=True)
RESOURCESLICES = Resource("resource.k8s.io", "v1", "resourceslices", namespaced=False)
VOLUMEATTACHMENTS = Resource("storage.k8s.io", "v1", "volumeattachments", namespaced=False)
PODGROUPS_ALPHA = Resource("scheduling.k8s.io", "v1alpha2", "podgroups", namespaced=True)  # Kubernetes 1.36
PODGROUPS_BETA = Resource("scheduling.k8s.io", "v1beta1", "podgroups", namespaced=True)  # Kubernetes 1.37
COSCHEDULING_PODGROUPS = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", namespaced=True)
NODECLAIMS = Resource("karpenter.sh", "v1", "nodeclaims", namespaced=False)
NODEPOOLS = Resource("karpenter.sh", "v1", "nodepools", namespaced=False)
MUTATINGWEBHOOKS = Resource("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", namespaced=False)
VALIDATINGWEBHOOKS = Resource("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", namespaced=False)
TOKENREVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", namespaced=False)
SELFSUBJECTACCESSREVIEWS = Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", namespaced=False)
SUBJECTACCESSREVIEWS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", namespaced=False)
