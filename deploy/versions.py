"""`headroom version`: the versions installed here, and in the cluster."""

import importlib.metadata
from collections.abc import Iterator

import msgspec

from deploy.access import ClusterContext
from deploy.rendering import UNKNOWN, aligned, structured
from shared.api.meta import ObjectMeta, Wire
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.resources import DAEMONSETS, DEPLOYMENTS, NODEMETRICS, Resource

CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)
OURS = "app.kubernetes.io/part-of=headroom"
VERSION_LABEL, COMPONENT_LABEL = "app.kubernetes.io/version", "app.kubernetes.io/component"


class Component(msgspec.Struct, frozen=True):
    """A component in the cluster, identified by the chart's labels."""

    name: str
    namespace: str
    version: str


class Versions(msgspec.Struct, frozen=True):
    """The versions; `node_metric` lists the CRD's served versions, `problem` says why the cluster gave no answer."""

    client: str
    components: list[Component] = []
    node_metric: list[str] = []
    problem: str = ""


class _Labelled(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


class _CrdVersion(Wire, frozen=True):
    name: str = ""
    served: bool = False


class _CrdSpec(Wire, frozen=True):
    versions: tuple[_CrdVersion, ...] = ()


class _Crd(Wire, frozen=True):
    spec: _CrdSpec = _CrdSpec()


def run(access: ClusterContext | None, style: str) -> str:
    """The text to print; without `access` no cluster is queried."""
    found = _versions(access)
    return _table(found) if style == "table" else structured(found, style)


def _versions(access: ClusterContext | None) -> Versions:
    here = importlib.metadata.version("headroom")
    if access is None:
        return Versions(here)
    try:
        client = Client(access.connection(), "headroom-version").single_attempt()
        served = client.get(CRDS, str(NODEMETRICS), into=_Crd).spec.versions
        return Versions(here, list(_components(client)), [each.name for each in served if each.served])
    except HeadroomError as error:
        return Versions(here, problem=str(error))


def _components(client: Client) -> Iterator[Component]:
    for resource in (DEPLOYMENTS, DAEMONSETS):
        for each in client.list(resource, label_selector=OURS, into=_Labelled).items:
            metadata = each.metadata
            component = metadata.label(COMPONENT_LABEL) or metadata.name
            yield Component(component, metadata.namespace, metadata.label(VERSION_LABEL) or UNKNOWN)


def _table(found: Versions) -> str:
    lines = [("headroom", found.client, "this command")]
    lines += [(each.name, each.version, f"in namespace {each.namespace}") for each in found.components]
    if found.node_metric:
        lines.append((str(NODEMETRICS), ", ".join(found.node_metric), "served by the cluster"))
    return "\n".join([*aligned(lines), *([f"the cluster: {found.problem}"] if found.problem else [])])
