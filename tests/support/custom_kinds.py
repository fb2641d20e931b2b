"""Kinds that a test adds to an API server."""

from typing import Any

from shared.kube.client import Client
from shared.kube.errors import NotFound
from shared.kube.resources import Resource

CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)


def definition_of(resource: Resource, kind: str) -> dict[str, Any]:
    """A CustomResourceDefinition whose schema lets through what means nothing."""
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        "subresources": {"status": {}},
    }
    spec = {
        "group": resource.group,
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "names": {"kind": kind, "plural": resource.plural, "singular": kind.lower()},
        "versions": [version],
    }
    meta = {"name": f"{resource.plural}.{resource.group}"}
    return {"apiVersion": CRDS.api_version, "kind": "CustomResourceDefinition", "metadata": meta, "spec": spec}


def is_served(client: Client, resource: Resource) -> bool:
    """Some time after its definition was created, and until some time after it was deleted."""
    try:
        client.list(resource)
    except NotFound:
        return False
    return True
