"""Access rights as tests make them on a real API server, and how they wait for these to be in force."""

import uuid
from typing import Any

from shared import names
from shared.kube.resources import Resource
from tests.support import eventually
from tests.support.apiserver import RealApiServer

NAMESPACE = names.INSTALL_NAMESPACE
CLUSTER_ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", namespaced=False)
CLUSTER_ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", namespaced=False)
ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", namespaced=True)
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", namespaced=True)


def object_of(resource: Resource, kind: str, name: str, namespace: str = "", **rest: object) -> dict[str, Any]:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": resource.api_version, "kind": kind, "metadata": metadata, **rest}


def role_with_binding(
    kind: str, name: str, subject: dict[str, str], rule: dict[str, list[str]]
) -> dict[Resource, dict[str, Any]]:
    """A role of that kind, and its binding to the subject."""
    role, binding, namespace = {
        "ClusterRole": (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, ""),
        "Role": (ROLES, ROLE_BINDINGS, NAMESPACE),
    }[kind]
    reference = {"apiGroup": role.group, "kind": kind, "name": name}
    return {
        role: object_of(role, kind, name, namespace, rules=[rule]),
        binding: object_of(binding, f"{kind}Binding", name, namespace, roleRef=reference, subjects=[subject]),
    }


def in_force(server: RealApiServer) -> None:
    """Returns once the server judges by the roles and bindings that there are now.

    It follows each of their four kinds by a watch of its own, so what is made last of each is what it knows last.
    """
    client, mark = server.client(), f"mark-{uuid.uuid4().hex[:8]}"
    user = {"kind": "User", "apiGroup": CLUSTER_ROLES.group, "name": mark}
    for kind in ("ClusterRole", "Role"):
        rule = {"apiGroups": [mark], "resources": [kind.lower()], "verbs": ["get"]}
        for resource, body in role_with_binding(kind, mark, user, rule).items():
            client.create(resource, body, NAMESPACE if resource.namespaced else None)

    def may(resource: str) -> bool:
        asked = {"namespace": NAMESPACE, "verb": "get", "group": mark, "resource": resource}
        body = {"spec": {"user": mark, "resourceAttributes": asked}}
        with server.http() as http:
            answer = http.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", json=body).raise_for_status()
        return bool(answer.json()["status"]["allowed"])

    eventually(lambda: may("clusterrole") and may("role"))
    for resource in (CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES):
        client.delete(resource, mark, NAMESPACE if resource.namespaced else None)
