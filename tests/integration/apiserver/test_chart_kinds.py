"""The kinds that charts install beside workloads: taken, completed and shown."""

from typing import Any

import pytest

from tests.integration.apiserver.conftest import Api

RBAC, POLICIES = "/apis/rbac.authorization.k8s.io/v1", "/apis/admissionregistration.k8s.io/v1"
RULES = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
SUBJECTS = [{"kind": "ServiceAccount", "name": "a", "namespace": "b"}]


def role_ref(kind: str) -> dict[str, str]:
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "x"}


OBJECTS: list[tuple[str, dict[str, Any]]] = [
    (f"{RBAC}/clusterroles", {"rules": RULES}),
    (f"{RBAC}/clusterrolebindings", {"roleRef": role_ref("ClusterRole"), "subjects": SUBJECTS}),
    (f"{RBAC}/namespaces/default/roles", {"rules": RULES}),
    (f"{RBAC}/namespaces/default/rolebindings", {"roleRef": role_ref("Role"), "subjects": SUBJECTS}),
]


@pytest.mark.parametrize(("path", "content"), OBJECTS, ids=[path.rpartition("/")[2] for path, _ in OBJECTS])
def test_roles_and_bindings_are_stored_as_they_are(api: Api, path: str, content: dict[str, Any]) -> None:
    made = api.ok("POST", f"{path}?dryRun=All", {"metadata": {"name": "system:a"}} | content)
    assert {key: made[key] for key in content} == content
    refused = api.fails(422, "POST", f"{path}?dryRun=All", {"metadata": {"name": "a/b"}} | content)
    assert "may not contain '/'" in refused["message"]


def test_policies_get_their_defaults(api: Api) -> None:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "true"}]}
    body = {"metadata": {"name": "a"}, "spec": spec}
    made = api.ok("POST", f"{POLICIES}/validatingadmissionpolicies?dryRun=All", body)["spec"]
    assert (made["failurePolicy"], made["matchConstraints"]["matchPolicy"]) == ("Fail", "Equivalent")
    assert made["matchConstraints"]["resourceRules"] == [rule | {"scope": "*"}]
    network = {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{"ports": [{"port": 80}]}]}
    path = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies?dryRun=All"
    made = api.ok("POST", path, {"metadata": {"name": "a"}, "spec": network})["spec"]
    assert made["ingress"] == [{"ports": [{"port": 80, "protocol": "TCP"}]}]


@pytest.mark.parametrize(
    ("path", "names"),
    [
        (f"{RBAC}/clusterrolebindings", ["Name", "Role", "Age", "Users", "Groups", "ServiceAccounts"]),
        (f"{POLICIES}/validatingadmissionpolicies", ["Name", "Validations", "ParamKind", "Age"]),
        (f"{POLICIES}/validatingadmissionpolicybindings", ["Name", "PolicyName", "ParamRef", "Age"]),
        ("/apis/networking.k8s.io/v1/networkpolicies", ["Name", "Pod-Selector", "Age"]),
    ],
)
def test_their_tables_have_the_columns_that_kubectl_shows(api: Api, path: str, names: list[str]) -> None:
    answer = api.http.get(path, headers={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"})
    assert [column["name"] for column in answer.json()["columnDefinitions"]] == names
