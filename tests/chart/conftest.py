"""Helm, and the API server the chart is installed on."""

from collections.abc import Iterator

import pytest

from shared.kube.client import Client
from shared.kube.resources import NAMESPACES, Resource
from tests.chart.helm import Helm
from tests.support import eventually
from tests.support.apiserver import ApiServer, RealApiServer, started
from tests.support.custom_kinds import CRDS, is_served
from tests.support.programs import program


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Without a cluster."""
    return Helm(program("helm"), tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="module")
def server(cluster_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """The API server that --cluster names; on a real one the chart is installed, without pods."""
    server = started(cluster_kind, tmp_path_factory.mktemp("apiserver"))
    for kind in ("Issuer", "Certificate"):  # which the chart makes objects of
        add_kind(server.client(), Resource("cert-manager.io", "v1", f"{kind.lower()}s", namespaced=True), kind)
    # What Prometheus' operator makes, and where Grafana is.
    server.client().create(NAMESPACES, {"metadata": {"name": "monitoring"}})
    constraints = Resource("security.openshift.io", "v1", "securitycontextconstraints", namespaced=False)
    add_kind(server.client(), constraints, "SecurityContextConstraints", field="")
    for kind in ("ServiceMonitor", "PrometheusRule"):
        add_kind(server.client(), Resource("monitoring.coreos.com", "v1", f"{kind.lower()}s", namespaced=True), kind)
    yield server
    server.close()


@pytest.fixture(scope="module")
def real(server: ApiServer) -> RealApiServer:
    """A real one: what it decides (access rights, admission policies) the embedded one does not."""
    assert isinstance(server, RealApiServer)
    return server


def add_kind(client: Client, resource: Resource, kind: str, field: str = "spec") -> None:
    """A custom kind of others, so far as an API server can tell whether something is one: it takes anything in the
    field, or everywhere without one.
    """
    anything: dict[str, object] = {"x-kubernetes-preserve-unknown-fields": True}
    content = {"properties": {field: anything}} if field else anything
    schema = {"openAPIV3Schema": {"type": "object", **content}}
    spec = {
        "group": resource.group,
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "names": {"kind": kind, "plural": resource.plural},
        "versions": [{"name": resource.version, "served": True, "storage": True, "schema": schema}],
    }
    # Kubernetes' own groups take no others.
    approved = {"api-approved.kubernetes.io": "unapproved, experimental-only"}
    metadata = {"name": str(resource), "annotations": approved}
    body = {"apiVersion": CRDS.api_version, "kind": "CustomResourceDefinition", "metadata": metadata, "spec": spec}
    client.create(CRDS, body)
    eventually(lambda: is_served(client, resource))
