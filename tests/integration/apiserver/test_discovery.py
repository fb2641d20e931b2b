"""What a client finds out about the server before it asks for anything."""

from typing import Any

import pytest

from tests.integration.apiserver.conftest import Api, Kubectl

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
PARTS = ("resource", "scope", "singularResource", "shortNames", "categories")


def discovered(api: Api, path: str, group: str = "") -> dict[str, Any]:
    """The resources of a group's only version, as aggregated discovery gives them."""
    answer = api.http.get(path, headers={"Accept": f"{AGGREGATED},application/json"})
    assert answer.headers["content-type"] == AGGREGATED
    assert (answer.json()["kind"], answer.json()["apiVersion"]) == ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2")
    (item,) = (item for item in answer.json()["items"] if item["metadata"].get("name", "") == group)
    (version,) = item["versions"]
    assert (version["version"], version["freshness"]) == ("v1", "Current")
    return {resource["resource"]: resource for resource in version["resources"]}


def test_discovery_comes_in_one_answer_to_who_asks_for_it(api: Api) -> None:
    pods = discovered(api, "/api")["pods"]
    assert {key: pods.get(key) for key in PARTS} == {
        "resource": "pods", "scope": "Namespaced", "singularResource": "pod", "shortNames": ["po"],
        "categories": ["all"],
    }  # fmt: skip
    assert pods["responseKind"]["kind"] == "Pod"
    (eviction,) = (item for item in pods["subresources"] if item["subresource"] == "eviction")
    assert eviction["responseKind"] == {"group": "policy", "version": "v1", "kind": "Eviction"}
    deployments = discovered(api, "/apis", "apps")["deployments"]
    (scale,) = (item for item in deployments["subresources"] if item["subresource"] == "scale")
    assert scale["responseKind"] == {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    assert set(scale["verbs"]) == {"get", "patch", "update"}


def test_others_get_one_group_at_a_time(api: Api) -> None:
    assert api.ok("GET", "/api")["kind"] == "APIVersions"
    assert api.ok("GET", "/apis")["kind"] == "APIGroupList"


def test_kubectl_lists_resources(kubectl: Kubectl) -> None:
    listed = kubectl("api-resources -o name").split()
    assert {"pods", "deployments.apps", "events.events.k8s.io", "nodemetrics.slo.koordinator.sh"} <= set(listed)


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/api/v1/services", ["Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "Selector"]),
        ("/api/v1/serviceaccounts", ["Name", "Age"]),
        (
            "/apis/batch/v1/jobs",
            ["Name", "Status", "Completions", "Duration", "Age", "Containers", "Images", "Selector"],
        ),
    ],
)
def test_tables_have_the_columns_that_kubectl_shows(api: Api, path: str, names: list[str]) -> None:
    answer = api.http.get(path, headers={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"})
    assert [column["name"] for column in answer.json()["columnDefinitions"]] == names


def test_kubectl_creates_through_typed_clients(kubectl: Kubectl, unique: str) -> None:
    kubectl(f"create namespace {unique}")
    for command in (
        "deployment d --image=i:1 --replicas=0",
        "service clusterip s --tcp=80:8080",
        "job j --image=i:1 -- sleep 1",
    ):
        assert "created" in kubectl(f"-n {unique} create {command}")
    shown = kubectl(f"-n {unique} get all")
    assert all(name in shown for name in ("deployment.apps/d", "service/s", "job.batch/j"))
    kubectl(f"delete namespace {unique} --wait=false")


def test_the_api_servers_own_service_is_there(api: Api) -> None:
    service = api.ok("GET", "/api/v1/namespaces/default/services/kubernetes")
    assert service["metadata"]["labels"] == {"component": "apiserver", "provider": "kubernetes"}
    assert [(port["name"], port["port"]) for port in service["spec"]["ports"]] == [("https", 443)]


def test_a_service_keeps_the_address_it_was_given(api: Api, namespace: str) -> None:
    body = {"metadata": {"name": "s"}, "spec": {"selector": {"a": "b"}, "ports": [{"port": 80}]}}
    made = api.ok("POST", f"{namespace}/services", body)["spec"]
    assert made["clusterIPs"] == [made["clusterIP"]]
    assert (made["ports"][0]["targetPort"], made["internalTrafficPolicy"]) == (80, "Cluster")
    again = api.ok("PUT", f"{namespace}/services/s", body)["spec"]
    assert again["clusterIP"] == made["clusterIP"]
