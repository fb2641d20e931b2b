"""What a real kube-apiserver says to the chart: its objects, its access rights, its admission policy."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.local import identities
from deploy.local.identities import CHART, RELEASE
from manager.autoscaler.cloudprovider import simulated
from manager.autoscaler.cloudprovider.simulated import state_store
from manager.autoscaler.snapshot.referenced_objects import REFERENCED_KINDS
from manager.nodeside.webhook.serving import AUTHENTICATION
from shared import names
from shared.kube.client import Client, Patch
from shared.kube.config import Connection, StaticToken
from shared.kube.errors import AlreadyExists, Forbidden, NotFound, Unauthorized
from shared.kube.node_heartbeat import LEASE_NAMESPACE
from shared.kube.resources import (
    CLUSTERCOLOCATIONPROFILES,
    CONFIGMAPS,
    CSINODES,
    EVENTS,
    JOBS,
    LEASES,
    MUTATINGWEBHOOKS,
    NAMESPACES,
    NODEMETRICS,
    NODES,
    PODDISRUPTIONBUDGETS,
    PODS,
    PRIORITYCLASSES,
    REPLICASETS,
    REPLICATIONCONTROLLERS,
    SECRETS,
    STATEFULSETS,
    SUBJECTACCESSREVIEWS,
    TOKENREVIEWS,
    VALIDATINGWEBHOOKS,
    Resource,
)
from tests.chart.access import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    NAMESPACE,
    in_force,
    object_of,
    role_with_binding,
)
from tests.chart.helm import CI, QUIET, Helm, pods
from tests.chart.kubectl import Kubectl
from tests.support import eventually
from tests.support.apiserver import RealApiServer
from tests.support.programs import program

OWN, OTHER = "node-a", "node-b"
MUTATING = "MutatingWebhookConfiguration"
pytestmark = pytest.mark.real_only("access rights and admission policies are a real one's")

WEBHOOK_SECRET, WEBHOOK_CONFIGURATION = f"{RELEASE}-webhook", RELEASE
DAEMON_SETS = Resource("apps", "v1", "daemonsets", namespaced=True)
VOLUMES = Resource("", "v1", "persistentvolumes", namespaced=False)
CLAIMS = Resource("", "v1", "persistentvolumeclaims", namespaced=True)
STATUS_CONFIG_MAP = "cluster-autoscaler-status"

Call = Callable[[Client], object]


def _pod(name: str, **spec: object) -> dict[str, Any]:
    containers = [{"name": "main", "image": "none"}]
    return object_of(PODS, "Pod", name, NAMESPACE, spec={"containers": containers, **spec})


def _metric(name: str) -> dict[str, Any]:
    return object_of(NODEMETRICS, "NodeMetric", name, spec={})


def _event(namespace: str) -> dict[str, Any]:
    """About the Node in the namespace of cluster-scoped things, else about the ConfigMap."""
    involved = {"kind": "Node", "name": OWN}
    if namespace != "default":
        involved = {"kind": "ConfigMap", "name": names.CONFIG_MAP, "namespace": namespace}
    return object_of(EVENTS, "Event", f"{OWN}.x", namespace, involvedObject=involved, reason="Test", type="Normal")


def _watch(resource: Resource, namespace: str | None = None, field_selector: str | None = None) -> Call:
    def call(client: Client) -> None:
        version = client.list(resource, namespace, field_selector=field_selector).resource_version
        client.watch(
            resource,
            namespace,
            resource_version=version,
            timeout_seconds=1,
            idle_seconds=5,
            field_selector=field_selector,
        ).close()

    return call


def _live_through(client: Client) -> None:
    """The whole life of a NodeMetric, as a manager sees to it."""
    client.create(NODEMETRICS, _metric("passing"))
    client.patch(NODEMETRICS, "passing", {"spec": {"predictPolicy": {"coldStartPeriodSeconds": 1}}})
    client.delete(NODEMETRICS, "passing")


def _unless_absent(call: Call) -> Call:
    """Of a kind that is not there: what matters is that nobody is forbidden to ask."""

    def attempt(client: Client) -> None:
        with suppress(NotFound):
            call(client)

    return attempt


STATUS = {"status": {"updateTime": "2026-01-01T00:00:00Z"}}
LABEL = {"metadata": {"labels": {"example.com/x": "y"}}}
OF_CONFIG = f"metadata.name={names.CONFIG_MAP}"

ACCESS = {"user": "somebody", "nonResourceAttributes": {"path": "/headroom/agent/", "verb": "get"}}

AGENT_MAY: dict[str, Call] = {
    "follow the pods of its node": _watch(PODS, field_selector=f"spec.nodeName={OWN}"),
    "follow its node": _watch(NODES, field_selector=f"metadata.name={OWN}"),
    "follow its NodeMetric": _watch(NODEMETRICS, field_selector=f"metadata.name={OWN}"),
    "report": lambda c: c.patch(NODEMETRICS, OWN, STATUS, subresource="status"),
    "ask who asks": lambda c: c.review(TOKENREVIEWS, "TokenReview", {"token": "any"}, into=dict),
    "ask what they may": lambda c: c.review(SUBJECTACCESSREVIEWS, "SubjectAccessReview", ACCESS, into=dict),
}
AGENT_MUST_NOT: dict[str, Call] = {
    "create a NodeMetric": lambda c: c.create(NODEMETRICS, _metric("new")),
    "change its NodeMetric's policy": lambda c: c.patch(NODEMETRICS, OWN, {"spec": {}}),
    "replace its NodeMetric's status": lambda c: c.replace(NODEMETRICS, OWN, _metric(OWN), subresource="status"),
    "delete its NodeMetric": lambda c: c.delete(NODEMETRICS, OWN),
    "change its node": lambda c: c.patch(NODES, OWN, LABEL),
    "change its node's status": lambda c: c.patch(NODES, OWN, {"status": {}}, subresource="status"),
    "create a pod": lambda c: c.create(PODS, _pod("new"), NAMESPACE),
    "delete a pod": lambda c: c.delete(PODS, "any", NAMESPACE),
    "evict a pod": lambda c: c.evict(NAMESPACE, "any"),
    "read secrets": lambda c: c.list(SECRETS, NAMESPACE),
    "read ConfigMaps": lambda c: c.list(CONFIGMAPS, NAMESPACE),
    "read the lease": lambda c: c.get(LEASES, names.MANAGER_LEASE, NAMESPACE),
    "write events": lambda c: c.create(EVENTS, _event("default"), "default"),
    "issue tokens": lambda c: c.request_token(NAMESPACE, identities.MANAGER),
    "read roles": lambda c: c.list(CLUSTER_ROLES),
}
MANAGER_MAY: dict[str, Call] = {
    "follow nodes": _watch(NODES),
    "ask who asks": lambda c: c.review(TOKENREVIEWS, "TokenReview", {"token": "any"}, into=dict),
    "ask what they may": lambda c: c.review(SUBJECTACCESSREVIEWS, "SubjectAccessReview", ACCESS, into=dict),
    "read the authorities of client certificates": lambda c: c.get(CONFIGMAPS, AUTHENTICATION, "kube-system"),
    "read whom clients are to trust": lambda c: c.get(CONFIGMAPS, names.CA_CONFIG_MAP, NAMESPACE),
    "say whom clients are to trust": lambda c: c.patch(CONFIGMAPS, names.CA_CONFIG_MAP, {"data": {}}, NAMESPACE),
    "look at a node": lambda c: c.get(NODES, OWN),
    "offer Mid": lambda c: c.patch(NODES, OWN, {"status": {"capacity": {names.MID_CPU: "1"}}}, subresource="status"),
    "follow pods": _watch(PODS),
    "evict a pod": _unless_absent(lambda c: c.evict(NAMESPACE, "any")),
    "tell about a pod": lambda c: _tell(c, "kube-system"),
    "follow NodeMetrics": _watch(NODEMETRICS),
    "create, change and delete a NodeMetric": _live_through,
    "follow its ConfigMap": _watch(CONFIGMAPS, NAMESPACE, OF_CONFIG),
    "stand for election": lambda c: (
        c.create(LEASES, object_of(LEASES, "Lease", names.MANAGER_LEASE, NAMESPACE), NAMESPACE),
        c.replace(LEASES, names.MANAGER_LEASE, c.get(LEASES, names.MANAGER_LEASE, NAMESPACE), NAMESPACE),
    ),
    "tell about nodes": lambda c: (
        c.create(EVENTS, _event("default"), "default"),
        c.patch(EVENTS, f"{OWN}.x", {"count": 2}, "default"),
    ),
    "tell about the ConfigMap": lambda c: c.create(EVENTS, _event(NAMESPACE), NAMESPACE),
    "follow profiles": _watch(CLUSTERCOLOCATIONPROFILES),
    "follow PriorityClasses": _watch(PRIORITYCLASSES),
    "follow namespaces": _watch(NAMESPACES),
    "look at a namespace": lambda c: c.get(NAMESPACES, "default"),
    "read the webhook's certificate": lambda c: c.get(SECRETS, WEBHOOK_SECRET, NAMESPACE),
    "keep the webhook's certificate": lambda c: c.patch(SECRETS, WEBHOOK_SECRET, {"data": {}}, NAMESPACE),
    "tell whom to trust": lambda c: [
        (c.get(resource, WEBHOOK_CONFIGURATION), c.patch(resource, WEBHOOK_CONFIGURATION, [], kind=Patch.JSON))
        for resource in (MUTATINGWEBHOOKS, VALIDATINGWEBHOOKS)
    ],
}
MANAGER_MUST_NOT: dict[str, Call] = {
    "create a node": lambda c: c.create(NODES, object_of(NODES, "Node", "new")),
    "change a node beside its status": lambda c: c.patch(NODES, OWN, LABEL),
    "replace a node's status": lambda c: c.replace(NODES, OWN, object_of(NODES, "Node", OWN), subresource="status"),
    "delete a node": lambda c: c.delete(NODES, OWN),
    "report for an agent": lambda c: c.patch(NODEMETRICS, OWN, STATUS, subresource="status"),
    "create a pod": lambda c: c.create(PODS, _pod("new"), NAMESPACE),
    "delete a pod": lambda c: c.delete(PODS, "any", NAMESPACE),
    "bind a pod": lambda c: c.bind(NAMESPACE, "any", OWN),
    "read secrets": lambda c: c.list(SECRETS, NAMESPACE),
    "read another secret": lambda c: c.get(SECRETS, "other", NAMESPACE),
    "read the webhook's secret elsewhere": lambda c: c.get(SECRETS, WEBHOOK_SECRET, "default"),
    "create a secret": lambda c: c.create(SECRETS, object_of(SECRETS, "Secret", "new"), NAMESPACE),
    "delete the webhook's secret": lambda c: c.delete(SECRETS, WEBHOOK_SECRET, NAMESPACE),
    "change another webhook": lambda c: c.patch(MUTATINGWEBHOOKS, "other", [], kind=Patch.JSON),
    "list webhooks": lambda c: c.list(MUTATINGWEBHOOKS),
    "create a webhook": lambda c: c.create(MUTATINGWEBHOOKS, object_of(MUTATINGWEBHOOKS, MUTATING, "new")),
    "delete a webhook": lambda c: c.delete(VALIDATINGWEBHOOKS, WEBHOOK_CONFIGURATION),
    "change a profile": lambda c: c.patch(CLUSTERCOLOCATIONPROFILES, "any", {"spec": {}}),
    "change a PriorityClass": lambda c: c.patch(PRIORITYCLASSES, "any", {"description": ""}),
    "change a namespace": lambda c: c.patch(NAMESPACES, NAMESPACE, LABEL),
    "read other ConfigMaps": lambda c: c.list(CONFIGMAPS, NAMESPACE),
    "read ConfigMaps elsewhere": lambda c: c.list(CONFIGMAPS, "default", field_selector=OF_CONFIG),
    "change its ConfigMap": lambda c: c.patch(CONFIGMAPS, names.CONFIG_MAP, {"data": {}}, NAMESPACE),
    "read another lease": lambda c: c.get(LEASES, "other", NAMESPACE),
    "replace another lease": lambda c: c.replace(LEASES, "other", object_of(LEASES, "Lease", "other"), NAMESPACE),
    "delete the lease": lambda c: c.delete(LEASES, names.MANAGER_LEASE, NAMESPACE),
    "take a lease elsewhere": lambda c: c.create(
        LEASES, object_of(LEASES, "Lease", names.MANAGER_LEASE), "kube-system"
    ),
    "read events": lambda c: c.list(EVENTS, "default"),
    "issue tokens": lambda c: c.request_token(NAMESPACE, identities.AGENT),
    "change roles": lambda c: c.create(CLUSTER_ROLES, object_of(CLUSTER_ROLES, "ClusterRole", "new", rules=[])),
    "read DaemonSets": lambda c: c.list(DAEMON_SETS),
    "read volumes": lambda c: c.list(VOLUMES),
    "create a ConfigMap": lambda c: c.create(CONFIGMAPS, _config_map(names.REGISTRY_CONFIG_MAP), NAMESPACE),
    "read the autoscaler's registry": lambda c: c.get(CONFIGMAPS, names.REGISTRY_CONFIG_MAP, NAMESPACE),
    "write an autoscaler's status": lambda c: _replace(c, STATUS_CONFIG_MAP),
}

# With an autoscaler, whatever its cloud.
AUTOSCALER_MAY: dict[str, Call] = {
    "follow DaemonSets": _watch(DAEMON_SETS),
    "follow ReplicationControllers": _watch(REPLICATIONCONTROLLERS),
    "follow ReplicaSets": _watch(REPLICASETS),
    "follow StatefulSets": _watch(STATEFULSETS),
    "follow Jobs": _watch(JOBS),
    "follow disruption budgets": _watch(PODDISRUPTIONBUDGETS),
    "mark a node": lambda c: c.patch(NODES, OWN, LABEL),
    "delete a node that is left behind": _unless_absent(lambda c: c.delete(NODES, "gone")),
    "evict a pod": _unless_absent(lambda c: c.evict(NAMESPACE, "any")),
    **{
        f"follow {resource.full_name}": _unless_absent(_watch(resource))
        for kind in REFERENCED_KINDS
        for resource in kind.resources
    },
    "follow namespaces": _watch(NAMESPACES),
    "follow priorities": _watch(CONFIGMAPS, NAMESPACE, "metadata.name=cluster-autoscaler-priority-expander"),
    "keep its registry": lambda c: _keep(c, names.REGISTRY_CONFIG_MAP),
    "keep the history of decisions": lambda c: _keep(c, names.DECISIONS_CONFIG_MAP),
    "keep its status": lambda c: _keep(c, STATUS_CONFIG_MAP),
    "tell about pods": lambda c: _tell(c, "kube-system"),
}
AUTOSCALER_MUST_NOT: dict[str, Call] = {
    "read other ConfigMaps": lambda c: c.list(CONFIGMAPS, NAMESPACE),
    "change another ConfigMap": lambda c: _replace(c, "other"),
    "delete its registry": lambda c: c.delete(CONFIGMAPS, names.REGISTRY_CONFIG_MAP, NAMESPACE),
    "write its registry elsewhere": lambda c: c.create(CONFIGMAPS, _config_map(names.REGISTRY_CONFIG_MAP), "default"),
    "change a DaemonSet": lambda c: c.patch(DAEMON_SETS, "any", {"spec": {}}, "default"),
    "delete a volume": lambda c: c.delete(VOLUMES, "any"),
    "change a claim": lambda c: c.patch(CLAIMS, "any", {"spec": {}}, "default"),
    "change a disruption budget": lambda c: c.patch(PODDISRUPTIONBUDGETS, "any", {"spec": {}}, "default"),
    "delete a pod": lambda c: c.delete(PODS, "any", NAMESPACE),
    "bind a pod": lambda c: c.bind(NAMESPACE, "any", OWN),
    "read secrets": lambda c: c.list(SECRETS, NAMESPACE),
    "replace a node": lambda c: c.replace(NODES, OWN, object_of(NODES, "Node", OWN)),
}
# What only those may do whose cloud is the simulated one.
SIMULATED_CLOUD_MAY: dict[str, Call] = {
    "make, change and delete a node": lambda c: _make_up(c, "made"),
    "state the volumes that a node attaches": lambda c: c.create(
        CSINODES, object_of(CSINODES, "CSINode", "made", spec={"drivers": []})
    ),
    "beat for a node": lambda c: (
        c.create(LEASES, object_of(LEASES, "Lease", "made", LEASE_NAMESPACE, spec={}), LEASE_NAMESPACE),
        c.patch(LEASES, "made", LABEL, LEASE_NAMESPACE),
    ),
    "keep the cloud's state": lambda c: _keep(c, state_store.CONFIG_MAP),
}


def _make_up(client: Client, node: str) -> None:
    client.create(NODES, object_of(NODES, "Node", node))
    client.patch(NODES, node, LABEL)
    client.delete(NODES, node)


def _config_map(name: str) -> dict[str, Any]:
    return object_of(CONFIGMAPS, "ConfigMap", name, NAMESPACE, data={"x": "y"})


def _keep(client: Client, name: str) -> None:
    client.create(CONFIGMAPS, _config_map(name), NAMESPACE)
    client.get(CONFIGMAPS, name, NAMESPACE)
    _replace(client, name)


def _tell(client: Client, namespace: str) -> None:
    with suppress(AlreadyExists):  # it was told before
        client.create(EVENTS, _event(namespace), namespace)


def _replace(client: Client, name: str) -> None:
    client.replace(CONFIGMAPS, name, _config_map(name), NAMESPACE)


def enforce(client: Client, namespace: str, standard: str) -> None:
    """Returns once the server holds new pods of the namespace to the standard."""
    labels = {"pod-security.kubernetes.io/enforce": standard}
    client.patch(NAMESPACES, namespace, {"metadata": {"labels": labels}})
    spec = {"containers": [{"name": "main", "image": "none"}], "hostNetwork": True}  # which no other standard allows

    def heeded() -> bool:
        try:
            client.create(PODS, object_of(PODS, "Pod", "on-host", namespace, spec=spec), namespace)
        except Forbidden:
            return standard != "privileged"
        client.delete(PODS, "on-host", namespace, grace_period_seconds=0)
        return standard == "privileged"

    eventually(heeded)


@pytest.fixture(scope="module")
def cluster(real: RealApiServer, helm: Helm) -> RealApiServer:
    """Two nodes with their NodeMetrics, as a manager leaves them."""
    # With the rights of a release that nobody has said anything about; what is installed so far is for local clusters.
    kubeconfig = ("--kubeconfig", real.kubeconfig)
    helm.must("upgrade", RELEASE, CHART, "--namespace", NAMESPACE, "--reset-values", *QUIET, *kubeconfig)
    in_force(real)
    client = real.client()
    client.create(NAMESPACES, object_of(NAMESPACES, "Namespace", "koordinator-system"))
    for name in (OWN, OTHER):
        client.create(NODES, object_of(NODES, "Node", name))
        client.create(NODEMETRICS, _metric(name))
    return real


@pytest.fixture
def agent(cluster: RealApiServer) -> Client:
    """The agent of node OWN."""
    return cluster.client(cluster.agent_connection(OWN))


@pytest.fixture
def manager(cluster: RealApiServer) -> Client:
    return cluster.client(cluster.manager_connection())


@pytest.mark.parametrize("values", CI, ids=[path.stem.removesuffix("-values") for path in CI])
def test_the_server_accepts_everyobject_of(cluster: RealApiServer, helm: Helm, values: Path, tmp_path: Path) -> None:
    kubectl = Kubectl(program("kubectl"), cluster.kubeconfig)
    rendered = tmp_path / "rendered.yaml"
    rendered.write_text(helm.template("--values", values))
    objects = helm.objects("--values", values)
    client = cluster.client()
    there = {each["metadata"]["name"] for each in client.list(NAMESPACES).items}
    for namespace in {each["metadata"].get("namespace", "default") for each in objects} - there:
        client.create(NAMESPACES, object_of(NAMESPACES, "Namespace", namespace))
    # As Helm does, which owns some of the objects already. Server-side apply refuses unknown fields.
    apply = ("apply", "--server-side", "--field-manager=helm", "--force-conflicts", "--dry-run=server")
    done = kubectl.must(*apply, "-f", str(rendered))
    assert len(done.splitlines()) == len(objects)


@pytest.mark.parametrize(
    ("component", "standard"), [("manager", "restricted"), ("cleanup", "restricted"), ("agent", "privileged")]
)
def test_each_pod_meets_its_pod_security_standard(
    cluster: RealApiServer, helm: Helm, component: str, standard: str
) -> None:
    client, namespace = cluster.client(), cluster.add_namespace()
    enforce(client, namespace, standard)
    spec = pods(helm.objects())[component]["spec"] | {"serviceAccountName": "default"}
    body = object_of(PODS, "Pod", component, namespace, spec=spec)
    client.create(PODS, body, namespace)
    if standard == "privileged":  # and why it has to be
        enforce(client, namespace, "baseline")
        body["metadata"]["name"] = "refused"
        with pytest.raises(Forbidden, match=r"violates PodSecurity .*hostPath volumes"):
            client.create(PODS, body, namespace)


@pytest.mark.parametrize("call", AGENT_MAY.values(), ids=AGENT_MAY.keys())
def test_the_agent_may(agent: Client, call: Call) -> None:
    call(agent)


@pytest.mark.parametrize("call", AGENT_MUST_NOT.values(), ids=AGENT_MUST_NOT.keys())
def test_the_agent_must_not(agent: Client, call: Call) -> None:
    with pytest.raises(Forbidden, match="cannot"):
        call(agent)


def test_where_kubelets_can_be_asked_agents_have_no_right_to_list_pods(cluster: RealApiServer, helm: Helm) -> None:
    """As kubeadm says it: kubelets have certificates of the cluster's authority."""
    admin, upgrade = cluster.client(), ("upgrade", RELEASE, CHART, "-n", NAMESPACE, "--reset-values", *QUIET)
    said = {"kubelet": "serverTLSBootstrap: true"}
    kubelets = object_of(CONFIGMAPS, "ConfigMap", "kubelet-config", "kube-system", data=said)

    def as_installed() -> tuple[bool, ...]:
        """Whether agents list pods, and ask the kubelet for its pods, and more of it; and are told to ask it."""
        helm.must(*upgrade, "--kubeconfig", cluster.kubeconfig)
        in_force(cluster)
        agent, daemons = (
            cluster.client(cluster.agent_connection(OWN)),
            admin.get(DAEMON_SETS, identities.AGENT, NAMESPACE),
        )
        (container,) = daemons["spec"]["template"]["spec"]["containers"]
        asks = [
            _may(cluster, identities.AGENT, {"verb": "get", "resource": "nodes", "subresource": each, "name": OWN})
            for each in ("pods", "proxy")
        ]
        try:
            agent.list(PODS, field_selector=f"spec.nodeName={OWN}")
        except Forbidden:
            return (False, *asks, "--pods-source=kubelet" in container["args"])
        return (True, *asks, "--pods-source=kubelet" in container["args"])

    admin.create(CONFIGMAPS, kubelets, "kube-system")
    try:
        assert as_installed() == (False, True, False, True)
    finally:
        admin.delete(CONFIGMAPS, "kubelet-config", "kube-system")
    assert as_installed() == (True, False, False, False)


def _may(server: RealApiServer, account: str, attributes: dict[str, str]) -> bool:
    """As a kubelet asks about who asks it."""
    body = {"spec": {"user": f"system:serviceaccount:{NAMESPACE}:{account}", "resourceAttributes": attributes}}
    with server.http() as http:
        answer = http.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", json=body).raise_for_status()
    return bool(answer.json()["status"]["allowed"])


@pytest.mark.parametrize("call", MANAGER_MAY.values(), ids=MANAGER_MAY.keys())
def test_the_manager_may(manager: Client, call: Call) -> None:
    call(manager)


@pytest.mark.parametrize("call", MANAGER_MUST_NOT.values(), ids=MANAGER_MUST_NOT.keys())
def test_the_manager_must_not(manager: Client, call: Call) -> None:
    with pytest.raises(Forbidden, match="cannot"):
        call(manager)


def test_a_policy_that_has_pods_evicted_brings_the_right_to_evict_them(cluster: RealApiServer, helm: Helm) -> None:
    def set_formula(formula: str) -> None:
        spare = ("--set", "colocationConfig.thresholds.clusterStrategy.evictEnabled=false")
        value = ("--set", f"colocationConfig.strategy.midFormula={formula}", *spare)
        helm.must("upgrade", RELEASE, CHART, "-n", NAMESPACE, *QUIET, *value, "--kubeconfig", cluster.kubeconfig)
        in_force(cluster)

    def may_evict() -> bool:
        try:
            cluster.client(cluster.manager_connection()).evict("kube-system", "any")
        except NotFound:
            return True
        except Forbidden:
            return False
        raise AssertionError("there is no such pod")

    set_formula("seed-mixed")
    assert may_evict()
    _tell(cluster.client(cluster.manager_connection()), "kube-system")
    set_formula("seed")
    assert not may_evict()


@pytest.fixture(scope="class", params=["autoscaler", "simulated-cloud"])
def with_cloud(request: pytest.FixtureRequest, cluster: RealApiServer, helm: Helm) -> Iterator[str]:
    """The cloud's provider."""
    upgrade = ("upgrade", RELEASE, CHART, "-n", NAMESPACE, "--reset-values", *QUIET)
    kubeconfig = ("--kubeconfig", cluster.kubeconfig)
    values = CHART / "ci" / f"{request.param}-values.yaml"
    name = ("--set", f"manager.settings.statusConfigMapName={STATUS_CONFIG_MAP}")
    helm.must(*upgrade, "--values", values, *name, *kubeconfig)
    in_force(cluster)
    yield str(yaml.safe_load(values.read_text())["manager"]["autoscaler"]["cloudProvider"])
    helm.must(*upgrade, *kubeconfig)


class TestAutoscaler:
    """What an autoscaler may do follows from its cloud."""

    @pytest.fixture
    def autoscaler(self, with_cloud: str, cluster: RealApiServer) -> Client:
        """The manager, who has not kept anything yet."""
        client, admin = cluster.client(cluster.manager_connection()), cluster.client()
        for name in (names.REGISTRY_CONFIG_MAP, names.DECISIONS_CONFIG_MAP, STATUS_CONFIG_MAP, state_store.CONFIG_MAP):
            with suppress(NotFound):
                admin.delete(CONFIGMAPS, name, NAMESPACE)
        for name in ("other", "made"):
            with suppress(NotFound):
                admin.delete(LEASES, name, LEASE_NAMESPACE)
        return client

    @pytest.mark.parametrize("call", AUTOSCALER_MAY.values(), ids=AUTOSCALER_MAY.keys())
    def test_it_may(self, autoscaler: Client, call: Call) -> None:
        call(autoscaler)

    @pytest.mark.parametrize("call", AUTOSCALER_MUST_NOT.values(), ids=AUTOSCALER_MUST_NOT.keys())
    def test_it_must_not(self, autoscaler: Client, call: Call) -> None:
        with pytest.raises(Forbidden, match="cannot"):
            call(autoscaler)

    @pytest.mark.parametrize("call", SIMULATED_CLOUD_MAY.values(), ids=SIMULATED_CLOUD_MAY.keys())
    def test_it_makes_machines_up_only_where_the_cloud_is_simulated(
        self, autoscaler: Client, with_cloud: str, call: Call
    ) -> None:
        if with_cloud == simulated.NAME:
            call(autoscaler)
        else:
            with pytest.raises(Forbidden, match="cannot"):
                call(autoscaler)


class TestNodeIsolation:
    """An agent's token writes the NodeMetric of its own node, and no other, whatever RBAC lets it do."""

    @pytest.fixture(autouse=True)
    def policy(self, cluster: RealApiServer) -> None:
        """A new policy takes a moment to be in force."""
        unbound = self.speaking(cluster, identities.token(cluster.client(), identities.AGENT))
        eventually(lambda: self.refusal(unbound, OWN))

    @pytest.fixture
    def generous_rights(self, cluster: RealApiServer) -> Iterator[None]:
        """Somebody has given the agent far more than the chart does."""
        client, name = cluster.client(), "generous"
        rule = {"apiGroups": [NODEMETRICS.group], "resources": ["nodemetrics"], "verbs": ["create", "delete", "update"]}
        agent = {"kind": "ServiceAccount", "name": identities.AGENT, "namespace": NAMESPACE}
        for resource, body in role_with_binding("ClusterRole", name, agent, rule).items():
            client.create(resource, body)
        in_force(cluster)
        yield
        client.delete(CLUSTER_ROLE_BINDINGS, name)
        client.delete(CLUSTER_ROLES, name)

    def speaking(self, server: RealApiServer, token: str) -> Client:
        return server.client(Connection(server.url, StaticToken(token), ca_file=str(server.ca_file)))

    def refusal(self, client: Client, node: str) -> str:
        """Why the client may not report for the node; empty when it may."""
        try:
            client.patch(NODEMETRICS, node, STATUS, subresource="status")
        except Forbidden as error:
            return error.message
        return ""

    @pytest.mark.parametrize(("own", "other"), [(OWN, OTHER), (OTHER, OWN)])
    def test_a_token_bound_to_a_node_writes_for_that_node_alone(
        self, cluster: RealApiServer, own: str, other: str
    ) -> None:
        client = cluster.client(cluster.agent_connection(own))
        assert self.refusal(client, own) == ""
        assert f"the agent of node {own} may not write the NodeMetric of node {other}" in self.refusal(client, other)

    def test_a_token_bound_to_a_pod_writes_for_the_node_of_that_pod_alone(self, cluster: RealApiServer) -> None:
        admin = cluster.client()
        uid = admin.create(PODS, _pod("agent", nodeName=OTHER, serviceAccountName=identities.AGENT), NAMESPACE).uid
        bound_to = {"kind": "Pod", "apiVersion": "v1", "name": "agent", "uid": uid}
        client = self.speaking(cluster, admin.request_token(NAMESPACE, identities.AGENT, bound_to=bound_to).token)
        assert self.refusal(client, OTHER) == ""
        assert f"the agent of node {OTHER} may not write" in self.refusal(client, OWN)
        admin.delete(PODS, "agent", NAMESPACE, grace_period_seconds=0)

    @pytest.mark.parametrize("node", [OWN, OTHER])
    def test_an_unbound_token_writes_for_nobody(self, cluster: RealApiServer, node: str) -> None:
        client = self.speaking(cluster, identities.token(cluster.client(), identities.AGENT))
        assert "not bound to a node" in self.refusal(client, node)

    def test_an_agent_with_more_rights_still_may_not_touch_what_is_anothers(
        self, cluster: RealApiServer, generous_rights: None
    ) -> None:
        client = cluster.client(cluster.agent_connection(OWN))
        anothers: dict[str, Call] = {
            "create": lambda c: c.create(NODEMETRICS, _metric("new")),
            "generate": lambda c: c.create(NODEMETRICS, _metric("") | {"metadata": {"generateName": f"{OWN}-"}}),
            "update": lambda c: c.replace(NODEMETRICS, OTHER, cluster.client().get(NODEMETRICS, OTHER)),
            "delete": lambda c: c.delete(NODEMETRICS, OTHER),
        }
        own: dict[str, Call] = {
            "update": lambda c: c.replace(NODEMETRICS, OWN, cluster.client().get(NODEMETRICS, OWN)),
            "delete": lambda c: c.delete(NODEMETRICS, OWN),
            "create": lambda c: c.create(NODEMETRICS, _metric(OWN)),
        }
        for call in anothers.values():
            with pytest.raises(Forbidden, match="the agent of node"):
                call(client)
        for call in own.values():
            call(client)

    def test_nobody_else_is_held_to_it(self, cluster: RealApiServer) -> None:
        assert self.refusal(cluster.client(), OTHER) == ""

    def test_a_token_ends_with_its_node(self, cluster: RealApiServer) -> None:
        admin = cluster.client()
        admin.create(NODES, object_of(NODES, "Node", "short-lived"))
        client = cluster.client(cluster.agent_connection("short-lived"))
        admin.delete(NODES, "short-lived")

        def is_refused() -> bool:
            try:
                client.list(NODES, field_selector=f"metadata.name={OWN}")
            except Unauthorized:
                return True
            return False

        eventually(is_refused)
