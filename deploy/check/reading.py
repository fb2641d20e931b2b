"""Reads a cluster for `headroom check`. Nothing is stored: pods and ConfigMaps are created in dry runs only."""

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any, TypeVar

import msgspec

from deploy.access import ClusterContext
from deploy.check.observed import (
    CheckedKubelet,
    CheckedNode,
    CheckedServer,
    CheckedWorkload,
    Definition,
    Known,
    Leader,
    Observed,
    PodWebhook,
    Unread,
    scheduler_name,
)
from deploy.manager_api import connected
from deploy.versions import CRDS
from manager.autoscaler.cloudprovider.rights import Right
from manager.nodeside.webhook.webhook import MUTATE_PODS
from shared import durations, names
from shared.api.meta import ObjectMeta, Wire, prepared
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.errors import NotFound
from shared.kube.resources import (
    CLUSTERCOLOCATIONPROFILES,
    CONFIGMAPS,
    DAEMONSETS,
    DEPLOYMENTS,
    LEASES,
    MUTATINGWEBHOOKS,
    NAMESPACES,
    NODEMETRICS,
    NODES,
    PODS,
    SELFSUBJECTACCESSREVIEWS,
)

T = TypeVar("T")

ANSWER_SECONDS = 10.0
MOST_KUBELETS = 5  # one of each operating system image first
DRY_RUN_NAMESPACE = "default"
EXTENDER_REQUESTS = "headroom_manager_extender_requests_total"
_TIER_FIELDS = frozenset(f"f:{name}" for of in names.TIER_RESOURCES.values() for name in of)
_RBAC, _ADMISSION = "rbac.authorization.k8s.io", "admissionregistration.k8s.io"


def install_rights(namespace: str) -> list[Right]:
    """What an installation by Helm creates."""
    cluster = (
        (_RBAC, "clusterroles"),
        (_RBAC, "clusterrolebindings"),
        (CRDS.group, CRDS.plural),
        (_ADMISSION, "mutatingwebhookconfigurations"),
        (_ADMISSION, "validatingwebhookconfigurations"),
        (_ADMISSION, "validatingadmissionpolicies"),
        ("scheduling.k8s.io", "priorityclasses"),
    )
    within = (
        ("apps", "deployments"),
        ("apps", "daemonsets"),
        ("", "configmaps"),
        ("", "secrets"),
        ("", "services"),
        ("", "serviceaccounts"),
        (_RBAC, "roles"),
        (_RBAC, "rolebindings"),
    )
    return [
        *(Right("create", group, resource) for group, resource in cluster),
        *(Right("create", group, resource, namespace=namespace) for group, resource in within),
    ]


def observed(access: ClusterContext, *, here: str, namespace: str, manager: str, service: str) -> Observed:
    """Reads everything. Raises InvalidInput for a kubeconfig that cannot be used."""
    with closing(Client(access.connection(), "headroom-check").single_attempt(ANSWER_SECONDS)) as client:
        server = _known(lambda: _server(client))
        if isinstance(server, Unread):
            return _nothing(here, namespace, server)
        server_now = client.clock.now() + server.ahead_seconds
        nodes = _known(lambda: tuple(_nodes(client, server_now)))
        leader = _known(lambda: _leader(client, namespace, names.MANAGER_LEASE, server_now))
        workloads = _known(lambda: tuple(_workloads(client)))
        scheduler = "" if isinstance(workloads, Unread) else scheduler_name(workloads)
        return Observed(
            here=here,
            namespace=namespace,
            server=server,
            missing_rights=_known(lambda: tuple(_missing_rights(client, namespace))),
            definition=_known(lambda: _definition(client)),
            pod_security=_known(lambda: _pod_security(client, namespace)),
            workloads=workloads,
            leader=leader,
            nodes=nodes,
            kubelets=() if isinstance(nodes, Unread) else tuple(_kubelets(client, nodes)),
            webhooks=_known(lambda: tuple(_webhooks(client))),
            profiles=_known(lambda: _profiles(client)),
            extender_requests=_extender_requests(leader, access, manager, namespace, service),
            scheduler=_known(lambda: _leader(client, namespace, scheduler, server_now)) if scheduler else None,
        )


def _nothing(here: str, namespace: str, why: Unread) -> Observed:
    return Observed(here, namespace, why, why, why, why, why, why, why, (), why, why, why)


def _known(read: Callable[[], T]) -> Known[T]:
    try:
        return read()
    except HeadroomError as error:
        return Unread(str(error))


class _Version(Wire, frozen=True):
    git_version: str = ""


class _Object(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


prepared(_Version)
prepared(_Object)


def _server(client: Client) -> CheckedServer:
    """An object that is created in a dry run carries the server's time, in whole seconds."""
    version = client.read("/version", into=_Version).git_version
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "headroom-check-"}}
    before = client.clock.now()
    made = client.try_create(CONFIGMAPS, body, DRY_RUN_NAMESPACE, into=_Object).metadata.created_at
    after = client.clock.now()
    # The server's clock was between made and a second later at a time between before and after.
    ahead = max(made - after, 0.0) or min(made + 1.0 - before, 0.0)
    return CheckedServer(version, ahead)


class _Status(msgspec.Struct, frozen=True):
    allowed: bool = False


class _Review(msgspec.Struct, frozen=True):
    status: _Status = _Status()


def _missing_rights(client: Client, namespace: str) -> Iterator[str]:
    for right in install_rights(namespace):
        spec = {"resourceAttributes": right.attributes}
        review = client.review(SELFSUBJECTACCESSREVIEWS, "SelfSubjectAccessReview", spec, into=_Review)
        if not review.status.allowed:
            yield str(right)


def _definition(client: Client) -> Definition | None:
    try:
        found = client.get(CRDS, str(NODEMETRICS))
    except NotFound:
        return None
    versions = found["spec"]["versions"]
    (stored,) = [each for each in versions if each["storage"]]
    schema = stored.get("schema", {}).get("openAPIV3Schema", {})
    status = schema.get("properties", {}).get("status", {})
    keeps = "prediction" in status.get("properties", {}) or bool(status.get("x-kubernetes-preserve-unknown-fields"))
    served = tuple(each["name"] for each in versions if each["served"])
    return Definition(keeps, served, tuple(found.get("status", {}).get("storedVersions") or ()))


def _pod_security(client: Client, namespace: str) -> str:
    """The standard that the namespace enforces; "" for none, also of a namespace that does not exist yet."""
    try:
        found = client.get(NAMESPACES, namespace, into=_Object)
    except NotFound:
        return ""
    return found.metadata.label("pod-security.kubernetes.io/enforce") or ""


def _workloads(client: Client) -> Iterator[CheckedWorkload]:
    for resource, kind in ((DEPLOYMENTS, "Deployment"), (DAEMONSETS, "DaemonSet")):
        yield from client.list(resource, into=dict[str, Any], keep=partial(_workload, kind)).items


def _workload(kind: str, found: dict[str, Any]) -> CheckedWorkload:
    metadata, status = found["metadata"], found.get("status") or {}
    containers = found["spec"]["template"]["spec"].get("containers") or ()
    is_deployment = kind == "Deployment"
    wanted = found["spec"].get("replicas", 1) if is_deployment else status.get("desiredNumberScheduled", 0)
    return CheckedWorkload(
        kind,
        f"{metadata.get('namespace', '')}/{metadata['name']}",
        metadata.get("labels") or {},
        tuple(each.get("image", "") for each in containers),
        tuple(argument for each in containers for argument in each.get("args") or ()),
        wanted,
        status.get("readyReplicas" if is_deployment else "numberReady", 0),
    )


class _LeaseSpec(Wire, frozen=True):
    holder_identity: str | None = None
    renew_time: str | None = None


class _Lease(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _LeaseSpec = _LeaseSpec()


prepared(_Lease)


def _leader(client: Client, namespace: str, name: str, server_now: float) -> Leader | None:
    try:
        found = client.get(LEASES, name, namespace, into=_Lease).spec
    except NotFound:
        return None
    if not found.holder_identity or not found.renew_time:
        return None
    return Leader(found.holder_identity, max(server_now - durations.instant(found.renew_time), 0.0))


class _ReportStatus(Wire, frozen=True):
    update_time: str | None = None


class _Report(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    status: _ReportStatus = _ReportStatus()


prepared(_Report)


def _nodes(client: Client, server_now: float) -> Iterator[CheckedNode]:
    try:
        reports = {
            each.metadata.name: server_now - durations.instant(each.status.update_time)
            for each in client.list(NODEMETRICS, into=_Report).items
            if each.status.update_time
        }
    except NotFound:  # not defined yet
        reports = {}
    leases = client.list(LEASES, "kube-node-lease", into=_Lease).items
    renewed = {each.metadata.name: each.spec.renew_time for each in leases}
    for node in client.list(NODES).items:
        name, labels = node["metadata"]["name"], node["metadata"].get("labels") or {}
        conditions = (node.get("status") or {}).get("conditions") or ()
        renewal = renewed.get(name)
        yield CheckedNode(
            name=name,
            measurable=_is_measurable(labels),
            ready=any(each["type"] == "Ready" and each["status"] == "True" for each in conditions),
            writers=frozenset(tier_writers(node["metadata"])),
            report_age_seconds=reports.get(name),
            ahead_seconds=max(durations.instant(renewal) - server_now, 0.0) if renewal else 0.0,
        )


def _is_measurable(labels: dict[str, str]) -> bool:
    """Whether the chart runs an agent there: virtual nodes and Windows have none."""
    return (
        labels.get("kubernetes.io/os", "linux") == "linux"
        and labels.get("eks.amazonaws.com/compute-type") != "fargate"
        and labels.get("type") != "virtual-kubelet"
        and labels.get("virtualization") != "virtualnode2"
    )


def tier_writers(metadata: dict[str, Any]) -> Iterator[str]:
    """The clients that wrote Mid or Batch of a Node last, by its managedFields."""
    for entry in metadata.get("managedFields") or ():
        status = (entry.get("fieldsV1") or {}).get("f:status") or {}
        if any(_TIER_FIELDS & (status.get(part) or {}).keys() for part in ("f:capacity", "f:allocatable")):
            yield entry.get("manager", "")


class _Pressure(Wire, frozen=True):
    psi: dict[str, Any] | None = None


class _NodeStats(Wire, frozen=True):
    cpu: _Pressure = _Pressure()


class _Summary(Wire, frozen=True):
    node: _NodeStats = _NodeStats()


class _KubeletConfig(Wire, frozen=True):
    fail_cgroup_v1: bool = msgspec.field(default=False, name="failCgroupV1")


class _Configz(Wire, frozen=True):
    kubeletconfig: _KubeletConfig = _KubeletConfig()


prepared(_Summary)
prepared(_Configz)


def _kubelets(client: Client, nodes: tuple[CheckedNode, ...]) -> Iterator[Known[CheckedKubelet]]:
    """Of a few nodes: a command should not walk through all of a large cluster."""
    for each in [each for each in nodes if each.measurable and each.ready][:MOST_KUBELETS]:
        yield _known(partial(_kubelet, client, each.name))


def _kubelet(client: Client, node: str) -> CheckedKubelet:
    proxy = NODES.path(node, subresource="proxy")
    try:
        summary = client.read(f"{proxy}/stats/summary", into=_Summary)
        config = client.read(f"{proxy}/configz", into=_Configz).kubeletconfig
    except HeadroomError as error:
        raise HeadroomError(f"kubelet of node {node}: {error}") from error
    return CheckedKubelet(node, summary.node.cpu.psi is not None, config.fail_cgroup_v1)


def _webhooks(client: Client) -> Iterator[PodWebhook]:
    problem = None
    for found in client.list(MUTATINGWEBHOOKS).items:
        for hook in found.get("webhooks") or ():
            if not hook["name"].endswith("webhook.headroom.io") or not _is_for_pods(hook):
                continue
            problem = _problem(client) if problem is None else problem
            name = found["metadata"]["name"]
            yield PodWebhook(name, not hook.get("matchConditions"), hook.get("failurePolicy", ""), problem)


def _is_for_pods(hook: dict[str, Any]) -> bool:
    config = hook["clientConfig"]
    path = (config.get("service") or {}).get("path") or config.get("url") or ""
    return bool(str(path).endswith(f"/{MUTATE_PODS}"))


class _Resources(Wire, frozen=True):
    requests: dict[str, str | int] | None = None


class _Container(Wire, frozen=True):
    resources: _Resources = _Resources()


class _PodSpec(Wire, frozen=True):
    containers: tuple[_Container, ...] = ()


class _Pod(Wire, frozen=True):
    spec: _PodSpec = _PodSpec()


prepared(_Pod)


def _problem(client: Client) -> str:
    """Why a Mid pod would not be translated; "" if it would."""
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}}}
    metadata = {"name": "headroom-check", "labels": {names.LABEL_PRIORITY_CLASS: "koord-mid"}}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
    try:
        pod = client.try_create(PODS, body, DRY_RUN_NAMESPACE, into=_Pod)
    except HeadroomError as error:
        return f"a Mid pod is refused: {error}"
    if any(names.MID_CPU in (each.resources.requests or {}) for each in pod.spec.containers):
        return ""
    return "a Mid pod would be created unchanged, since the API server gets no answer"


def _profiles(client: Client) -> int:
    try:
        return len(client.list(CLUSTERCOLOCATIONPROFILES, into=_Object).items)
    except NotFound:
        return 0


def _extender_requests(
    leader: Known[Leader | None], access: ClusterContext, manager: str, namespace: str, service: str
) -> Known[int]:
    """Of the manager that answers. Without its address and without a leader no port is forwarded."""
    if not manager and (leader is None or isinstance(leader, Unread)):
        return Unread("there is no manager to ask")

    def read() -> int:
        with connected(manager, access, namespace, service) as api:
            answer = api.get("/metrics")
            if not answer.is_success:
                raise HeadroomError(f"{answer.url}: status {answer.status_code}")
        lines = [each for each in answer.text.splitlines() if each.startswith(EXTENDER_REQUESTS)]
        return round(sum(float(each.rpartition(" ")[2]) for each in lines))

    return _known(read)
