"""`headroom cleanup` as a user runs it, against an API server."""

import subprocess
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry

from deploy import cleanup_state
from manager.autoscaler.cloudprovider.simulated import fake_nodes, state_store
from manager.daemon_settings import DaemonSettings
from manager.main import Manager
from manager.settings import ManagerSettings
from shared import names
from shared.clock import SystemClock
from shared.kube.errors import NotFound
from shared.kube.resources import CONFIGMAPS, DAEMONSETS, LEASES, NODEMETRICS, NODES, PODS
from tests.support import daemons, eventually
from tests.support.apiserver import ApiServer

ours = pytest.mark.own_decision("the command decides by what it has read, whichever API server it came from")

MID = {names.MID_CPU: "1000", names.MID_MEMORY: "1073741824"}
HELD = {names.MID_CPU: "300", names.MID_MEMORY: "0"}
BATCH = {names.BATCH_CPU: "500", names.BATCH_MEMORY: "0"}
ORIGIN = {names.ANNOTATION_ORIGIN_EXTENDED_ALLOCATABLE: "{}"}
NATIVE = {"cpu": "4", "memory": "8Gi", "example.com/gpu": "1"}
AUTOSCALERS = (names.REGISTRY_CONFIG_MAP, names.DECISIONS_CONFIG_MAP, "own-status", state_store.CONFIG_MAP)


class Leftovers:
    """A cluster in which a manager has worked."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self.client = server.client()
        self.namespace = server.add_namespace()

    def cleanup(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        where = ("--kubeconfig", str(self._server.kubeconfig), "--namespace", self.namespace)
        return daemons.run("deploy.cli", "cleanup", *where, *arguments)

    def add_node(self, name: str, *, mid: bool = True, **metadata: object) -> None:
        self.client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, **metadata}})
        amounts = NATIVE | (MID if mid else {})
        self.client.patch(NODES, name, {"status": {"capacity": amounts, "allocatable": amounts}}, subresource="status")

    def add_mid_pod(self, name: str, *, on: str, cpu: str) -> None:
        """One that no kubelet runs: an eviction removes it at once."""
        resources = {"requests": {names.MID_CPU: cpu, "cpu": "0", "memory": "0"}}
        container = {"name": "c", "image": "i", "resources": resources}
        spec = {"containers": [container], "nodeName": on, "terminationGracePeriodSeconds": 0}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        self.client.create(PODS, body, self.namespace)

    def add_metric(self, name: str, *, ours: bool = True) -> None:
        labels = {names.LABEL_MANAGED_BY: names.MANAGED_BY} if ours else {}
        meta = {"name": name, "labels": labels}
        self.client.create(NODEMETRICS, {"apiVersion": NODEMETRICS.api_version, "kind": "NodeMetric", "metadata": meta})

    def add_lease(self) -> None:
        meta = {"name": names.MANAGER_LEASE, "namespace": self.namespace}
        body = {"apiVersion": LEASES.api_version, "kind": "Lease", "metadata": meta, "spec": {"holderIdentity": "gone"}}
        self.client.create(LEASES, body, self.namespace)

    def metrics(self) -> set[str]:
        return {item["metadata"]["name"] for item in self.client.list(NODEMETRICS).items}


@pytest.fixture
def leftovers(server: ApiServer) -> Iterator[Leftovers]:
    left = Leftovers(server)
    yield left
    for resource in (NODES, NODEMETRICS):
        for item in left.client.list(resource).items:
            left.client.delete(resource, item["metadata"]["name"])


def _lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_everything_that_is_ours_goes_and_nothing_else(leftovers: Leftovers) -> None:
    leftovers.add_node("a", labels={"headroom.io/mark": "1", "pool": "x"}, annotations={"headroom.io/note": "2"})
    leftovers.add_node("b", mid=False)
    leftovers.add_metric("a")
    leftovers.add_metric("found-there", ours=False)
    leftovers.add_lease()

    assert _lines(leftovers.cleanup()) == [
        f"removed from node a: headroom.io/mark, headroom.io/note, {names.MID_CPU}, {names.MID_MEMORY}",
        "removed nodemetric a",
        f"removed lease {leftovers.namespace}/{names.MANAGER_LEASE}",
    ]
    node = leftovers.client.get(NODES, "a")
    assert node["status"]["capacity"] == node["status"]["allocatable"] == NATIVE
    assert node["metadata"]["labels"] == {"pool": "x"}
    assert "headroom.io/note" not in node["metadata"].get("annotations", {})
    assert leftovers.metrics() == {"found-there"}
    with pytest.raises(NotFound):
        leftovers.client.get(LEASES, names.MANAGER_LEASE, leftovers.namespace)


def test_what_the_autoscaler_noted_goes_and_nodes_without_machines_where_that_is_asked_for(
    leftovers: Leftovers,
) -> None:
    client, namespace = leftovers.client, leftovers.namespace
    for name in (*AUTOSCALERS, "other"):
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
        client.create(CONFIGMAPS, body, namespace)
    fake = {fake_nodes.ANNOTATION_FAKE: fake_nodes.FAKE, fake_nodes.ANNOTATION_GROUP: "web"}
    leftovers.add_node("made", mid=False, labels={fake_nodes.LABEL_CLOUD: fake_nodes.CLOUD}, annotations=fake)
    leftovers.add_node("real", mid=False)

    assert _lines(leftovers.cleanup("--status-config-map-name", "own-status")) == [
        f"removed configmap {namespace}/{name}" for name in AUTOSCALERS
    ]
    assert client.get(CONFIGMAPS, "other", namespace)
    assert client.get(NODES, "made")["metadata"]["labels"] == {fake_nodes.LABEL_CLOUD: fake_nodes.CLOUD}
    assert _lines(leftovers.cleanup("--simulated-cloud")) == ["removed node made of the simulated cloud"]
    assert [node["metadata"]["name"] for node in client.list(NODES).items] == ["real"]


@ours
def test_batch_goes_with_what_stands_beside_it_unless_another_offers_it(leftovers: Leftovers) -> None:
    leftovers.add_node("a", annotations=ORIGIN)
    conditions = [
        {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""},
        {"type": names.CONDITION_BATCH_SHORTFALL, "status": "False", "reason": "OfferSuffices", "message": ""},
    ]
    status = {"capacity": NATIVE | BATCH, "allocatable": NATIVE | BATCH, "conditions": conditions}
    leftovers.client.patch(NODES, "a", {"status": status}, subresource="status")
    assert _lines(leftovers.cleanup("--offers", "mid")) == [f"removed from node a: {names.MID_CPU}, {names.MID_MEMORY}"]
    assert _lines(leftovers.cleanup()) == [
        f"removed from node a: {', '.join((*ORIGIN, *BATCH))}",
        f"removed from node a: {names.CONDITION_BATCH_SHORTFALL}",
    ]
    node = leftovers.client.get(NODES, "a")
    assert node["status"]["capacity"] == node["status"]["allocatable"] == NATIVE
    assert [each["type"] for each in node["status"]["conditions"]] == ["Ready"]
    assert not ORIGIN.keys() & node["metadata"].get("annotations", {}).keys()


def test_pods_keep_what_they_hold_and_once_they_have_been_drained_nothing_stays(leftovers: Leftovers) -> None:
    leftovers.add_node("a")
    leftovers.add_node("b")
    leftovers.add_mid_pod("holder", on="a", cpu="300")
    kept = "kept on 1 nodes: what 1 running pods request; run this again after they have ended"
    lines = _lines(leftovers.cleanup())
    held = ", ".join(f"{name} beyond the {amount} that pods request" for name, amount in HELD.items())
    assert lines == [f"removed from node a: {held}", f"removed from node b: {', '.join(MID)}", kept]
    assert leftovers.client.get(NODES, "a")["status"]["allocatable"] == NATIVE | HELD
    assert _lines(leftovers.cleanup()) == ["nothing to remove", kept]

    pod = f"{leftovers.namespace}/holder"
    assert f"would evict pod {pod} from node a" in _lines(leftovers.cleanup("--pods", "drain", "--dry-run"))
    done = _lines(leftovers.cleanup("--pods", "drain"))
    assert done == [f"evicted pod {pod} from node a", f"removed from node a: {', '.join(MID)}"]
    assert leftovers.client.get(NODES, "a")["status"]["allocatable"] == NATIVE
    assert leftovers.cleanup("--pods", "shoot").returncode == 2


@ours
@pytest.mark.embedded_only("a real DaemonSet has a status of its controller")
def test_nodes_that_still_have_what_their_agents_learnt_are_waited_for(leftovers: Leftovers) -> None:
    client, namespace = leftovers.client, leftovers.namespace
    labels = {"app": "remover"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    client.create(
        DAEMONSETS, {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "r"}, "spec": spec}, namespace
    )

    def set_ready(count: int) -> None:
        status = {"observedGeneration": 1, "desiredNumberScheduled": 2, "numberReady": count}
        client.patch(DAEMONSETS, "r", {"status": status}, namespace, subresource="status")

    set_ready(1)
    with pytest.raises(cleanup_state.Unremoved, match="1 of 2 nodes still have their agents' state"):
        cleanup_state.wait(client, namespace, "r", print, seconds=0.0)
    set_ready(2)
    assert _lines(leftovers.cleanup("--state-daemonset", "r")) == [
        "nothing to remove",
        "removed from 2 nodes: the agents' state",
    ]
    assert _lines(leftovers.cleanup("--state-daemonset", "r", "--dry-run"))[-1] == (
        f"would wait for daemonset {namespace}/r"
    )


def test_a_second_run_finds_nothing_to_remove(leftovers: Leftovers) -> None:
    leftovers.add_node("a")
    _lines(leftovers.cleanup())
    assert _lines(leftovers.cleanup()) == ["nothing to remove"]


@ours
def test_a_dry_run_says_it_all_and_changes_nothing(leftovers: Leftovers) -> None:
    leftovers.add_node("a")
    leftovers.add_metric("a")
    expected = [f"would remove from node a: {names.MID_CPU}, {names.MID_MEMORY}", "would remove nodemetric a"]
    assert _lines(leftovers.cleanup("--dry-run")) == expected
    status = leftovers.client.get(NODES, "a")["status"]
    assert status["capacity"] == status["allocatable"]
    assert status["capacity"].keys() == (NATIVE | MID).keys()
    assert leftovers.metrics() == {"a"}


@ours
@pytest.mark.thorough
def test_a_cluster_of_more_than_a_page_is_cleaned_whole(leftovers: Leftovers) -> None:
    for index in range(501):
        leftovers.add_node(f"n-{index}")
    assert len(_lines(leftovers.cleanup())) == 501
    assert all(item["status"]["capacity"] == NATIVE for item in leftovers.client.list(NODES).items)


@ours
def test_a_manager_that_still_runs_is_noticed(leftovers: Leftovers, server: ApiServer) -> None:
    own = ManagerSettings(namespace=leftovers.namespace, listen="127.0.0.1:0", identity="still-here")
    leftovers.add_node("a", mid=False)
    manager = Manager(DaemonSettings(manager=own), server.client(), SystemClock(), CollectorRegistry())
    manager.start()
    try:
        eventually(lambda: "a" in leftovers.metrics())
        done = leftovers.cleanup()
    finally:
        manager.close()
    assert done.returncode == 1
    assert "removed nodemetric a" in done.stdout
    assert "came back each time" in done.stderr
    assert "manager is running" in done.stderr


@ours
def test_a_kubeconfig_that_is_none_is_bad_input(tmp_path_factory: pytest.TempPathFactory) -> None:
    missing = tmp_path_factory.mktemp("none") / "kubeconfig"
    done = daemons.run("deploy.cli", "cleanup", "--kubeconfig", str(missing))
    assert done.returncode == 2
    assert str(missing) in done.stderr
