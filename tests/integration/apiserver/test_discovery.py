"""What a client finds out about the server before it asks for anything."""

from tests.integration.apiserver.conftest import Api, Kubectl


def test_discovery_comes_group_by_group(api: Api) -> None:
    assert api.ok("GET", "/api")["kind"] == "APIVersions"
    assert api.ok("GET", "/apis")["kind"] == "APIGroupList"


def test_kubectl_lists_resources(kubectl: Kubectl) -> None:
    listed = kubectl("api-resources -o name").split()
    assert {"pods", "deployments.apps", "nodemetrics.slo.koordinator.sh"} <= set(listed)


def test_the_api_servers_own_service_is_there(api: Api) -> None:
    service = api.ok("GET", "/api/v1/namespaces/default/services/kubernetes")
    assert service["metadata"]["labels"] == {"component": "apiserver", "provider": "kubernetes"}
    assert [(port["name"], port["port"]) for port in service["spec"]["ports"]] == [("https", 443)]


def test_a_service_keeps_the_address_it_was_given(api: Api, namespace: str) -> None:
    body = {"metadata": {"name": "s"}, "spec": {"selector": {"a": "b"}, "ports": [{"port": 80}]}}
    made = api.ok("POST", f"{namespace}/services", body)["spec"]
    assert made["clusterIPs"] == [made["clusterIP"]]
    assert made["ports"][0]["targetPort"] == 80
    again = api.ok("PUT", f"{namespace}/services/s", body)["spec"]
    assert again["clusterIP"] == made["clusterIP"]
