"""`headroom version`: the versions installed here and in the cluster, and whether they work together."""

import importlib.metadata
import re
from collections import Counter
from collections.abc import Iterator

import msgspec

from deploy.access import ClusterContext
from deploy.rendering import UNKNOWN, aligned, count, structured
from shared.api.meta import ObjectMeta, Wire
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.resources import DAEMONSETS, DEPLOYMENTS, NODEMETRICS, PODS, Resource
from shared.plugins import DISTRIBUTION

CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)
OURS = "app.kubernetes.io/part-of=headroom"
VERSION_LABEL, COMPONENT_LABEL = "app.kubernetes.io/version", "app.kubernetes.io/component"


SUPPORTED_SKEW = 1  # minor versions
MINOR = re.compile(r"v?(\d+)\.(\d+)")


class Component(msgspec.Struct, frozen=True):
    """A component in the cluster, identified by the chart's labels; `pods` counts its pods by their version."""

    name: str
    namespace: str
    version: str
    pods: dict[str, int] = {}


class Versions(msgspec.Struct, frozen=True):
    """The versions. `node_metric` lists the CRD's served versions, and `definition` is the version of the chart that
    installed it, "" for another owner. `skew` names each pair that is more than one minor version apart, and `problem`
    says why the cluster gave no answer.
    """

    client: str
    components: list[Component] = []
    node_metric: list[str] = []
    definition: str = ""
    skew: list[str] = []
    problem: str = ""


class _Labelled(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


class _CrdVersion(Wire, frozen=True):
    name: str = ""
    served: bool = False


class _CrdSpec(Wire, frozen=True):
    versions: tuple[_CrdVersion, ...] = ()


class _Crd(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _CrdSpec = _CrdSpec()


def run(access: ClusterContext | None, style: str) -> str:
    """The text to print; without `access` no cluster is queried."""
    found = _versions(access)
    return _table(found) if style == "table" else structured(found, style)


def minor_skew(one: str, other: str) -> int:
    """Minor versions between the two; 0 if one is not a version, 2 if the major versions differ."""
    found = [MINOR.match(each) for each in (one, other)]
    pairs = [(int(each[1]), int(each[2])) for each in found if each is not None]
    if len(pairs) < 2:
        return 0
    return abs(pairs[0][1] - pairs[1][1]) if pairs[0][0] == pairs[1][0] else 2


def unsupported(client: str, components: list[Component]) -> Iterator[str]:
    """A sentence for each pair of this command, managers and agents that is too far apart, by the pods that run."""
    running = [("this command", client)]
    for each in components:
        running += [(f"{each.name} in namespace {each.namespace}", found) for found in sorted(each.pods)]
    for index, (one, version) in enumerate(running):
        for other, another in running[index + 1 :]:
            if one != other and minor_skew(version, another) > SUPPORTED_SKEW:
                yield f"{one} is {version}, and {other} is {another}: more than one minor version apart"


def _versions(access: ClusterContext | None) -> Versions:
    here = importlib.metadata.version(DISTRIBUTION)
    if access is None:
        return Versions(here)
    try:
        client = Client(access.connection(), "headroom-version").single_attempt()
        definition = client.get(CRDS, str(NODEMETRICS), into=_Crd)
        components = list(_components(client))
    except HeadroomError as error:
        return Versions(here, problem=str(error))
    return Versions(
        here,
        components,
        node_metric=[each.name for each in definition.spec.versions if each.served],
        definition=definition.metadata.label(VERSION_LABEL) or "",
        skew=list(unsupported(here, components)),
    )


def _components(client: Client) -> Iterator[Component]:
    pods: Counter[tuple[str | None, str, str]] = Counter()
    for pod in client.list(PODS, label_selector=OURS, into=_Labelled).items:
        found = pod.metadata
        pods[found.label(COMPONENT_LABEL), found.namespace, found.label(VERSION_LABEL) or UNKNOWN] += 1
    for resource in (DEPLOYMENTS, DAEMONSETS):
        for each in client.list(resource, label_selector=OURS, into=_Labelled).items:
            metadata = each.metadata
            component = metadata.label(COMPONENT_LABEL) or metadata.name
            own = {
                version: number
                for (name, namespace, version), number in pods.items()
                if (name, namespace) == (component, metadata.namespace)
            }
            yield Component(component, metadata.namespace, metadata.label(VERSION_LABEL) or UNKNOWN, own)


def _table(found: Versions) -> str:
    lines = [("headroom", found.client, "this command")]
    lines += [(each.name, each.version, _where(each)) for each in found.components]
    if found.node_metric:
        owner = f", installed by {found.definition}" if found.definition else ""
        lines.append((str(NODEMETRICS), ", ".join(found.node_metric), f"served by the cluster{owner}"))
    problem = [f"the cluster: {found.problem}"] if found.problem else []
    return "\n".join([*aligned(lines), *(f"skew: {each}" for each in found.skew), *problem])


def _where(component: Component) -> str:
    pods = [f"{count(number, 'pod')} of {version}" for version, number in sorted(component.pods.items())]
    return ", ".join([f"in namespace {component.namespace}", *pods])
