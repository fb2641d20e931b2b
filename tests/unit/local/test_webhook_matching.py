"""Which requests a registered webhook asks to see."""

from typing import Any

import pytest

from deploy.local.apiserver.kinds import BUILT_IN
from deploy.local.apiserver.webhooks import ReviewRequest, webhooks_of

KINDS = {kind.plural: kind for kind in BUILT_IN}
RULE = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "scope": "*"}


def asked(plural: str, subresource: str = "", operation: str = "CREATE") -> ReviewRequest:
    resource = KINDS[plural]
    namespace = "ns" if resource.namespaced or plural == "namespaces" else ""
    return ReviewRequest(operation, resource, subresource, namespace, "a", False)


def wants(
    request: ReviewRequest,
    rule: dict[str, Any],
    labels: dict[str, str] | None = None,
    objects: tuple[dict[str, str], dict[str, str] | None] = ({}, None),
    **selectors: Any,
) -> bool:
    """Whether a webhook with one rule is called, given the labels of the namespace, of the object and of the old."""
    webhook = {
        "name": "w.example.com", "clientConfig": {"url": "https://a/"}, "rules": [RULE | rule], "timeoutSeconds": 1,
        "failurePolicy": "Fail", "admissionReviewVersions": ["v1"], "namespaceSelector": {}, "objectSelector": {},
    }  # fmt: skip
    (registered,) = webhooks_of({"metadata": {"name": "c"}, "webhooks": [webhook | selectors]})
    new, old = ({"metadata": {"labels": found}} for found in objects)
    return registered.wants(request, new, None if objects[1] is None else old, lambda: labels or {})


@pytest.mark.parametrize(
    ("rule", "named"),
    [
        ({}, {"pods", "pods/status", "deployments", "pods/binding", "nodes", "nodes/status", "namespaces"}),
        ({"resources": ["*"]}, {"pods", "deployments", "nodes", "namespaces"}),
        ({"resources": ["pods"]}, {"pods"}),
        ({"resources": ["pods/*"]}, {"pods", "pods/status", "pods/binding"}),
        ({"resources": ["*/status"]}, {"pods/status", "nodes/status"}),
        ({"resources": ["pods/binding", "nodes"]}, {"pods/binding", "nodes"}),
        ({"apiGroups": ["apps"]}, {"deployments"}),
        ({"apiGroups": [""], "resources": ["*"]}, {"pods", "nodes", "namespaces"}),
        ({"apiVersions": ["v2"]}, set()),
        ({"operations": ["UPDATE", "DELETE"]}, set()),
        ({"scope": "Namespaced"}, {"pods", "pods/status", "deployments", "pods/binding"}),
        ({"scope": "Cluster"}, {"nodes", "nodes/status", "namespaces"}),
    ],
)
def test_a_rule_names_operations_groups_versions_resources_and_a_scope(rule: dict[str, Any], named: set[str]) -> None:
    requests = {
        "pods": asked("pods"), "pods/status": asked("pods", "status"), "deployments": asked("deployments"),
        "pods/binding": asked("pods", "binding"), "nodes": asked("nodes"),
        "nodes/status": asked("nodes", "status"), "namespaces": asked("namespaces"),
    }  # fmt: skip
    assert {name for name, request in requests.items() if wants(request, rule)} == named


def test_a_namespace_is_selected_by_its_labels_and_what_is_in_none_always() -> None:
    selector = {"matchLabels": {"team": "a"}}
    for plural, labels, wanted in (
        ("pods", {"team": "a"}, True), ("pods", {"team": "b"}, False), ("namespaces", {}, False),
        ("namespaces", {"team": "a"}, True), ("nodes", {}, True),
    ):  # fmt: skip
        assert wants(asked(plural), {}, labels, namespaceSelector=selector) is wanted


def test_an_object_is_selected_by_its_labels_as_they_are_or_were() -> None:
    selector = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
    for objects, wanted in (
        (({"a": "1"}, None), True), (({}, {"a": "1"}), True), (({}, {}), False), (({}, None), False),
    ):  # fmt: skip
        assert wants(asked("pods"), {}, objects=objects, objectSelector=selector) is wanted
    without = {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}
    assert not wants(asked("pods"), {}, objects=({"a": "1"}, None), objectSelector=without)
