"""What a client finds out about the server before it asks for anything."""

from tests.integration.apiserver.conftest import Api, Kubectl


def test_discovery_comes_group_by_group(api: Api) -> None:
    assert api.ok("GET", "/api")["kind"] == "APIVersions"
    assert api.ok("GET", "/apis")["kind"] == "APIGroupList"


def test_kubectl_lists_resources(kubectl: Kubectl) -> None:
    listed = kubectl("api-resources -o name").split()
    assert {"pods", "deployments.apps", "nodemetrics.slo.koordinator.sh"} <= set(listed)
