"""The kubelets of Nodes that a simulated cloud makes: they follow the Nodes, keep them alive, and take their pods."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from deploy.local.simulated.kubelet import SimulatedKubelet
from manager.autoscaler.cloudprovider.simulated import fake_nodes
from manager.autoscaler.cloudprovider.simulated.config import GroupConfig, SimulatedCloud
from shared.clock import SystemClock
from shared.kube import node_heartbeat
from shared.kube.client import Client, Patch
from shared.kube.errors import NotFound
from shared.kube.node_heartbeat import LEASE_NAMESPACE
from shared.kube.resources import LEASES, NODES, PODS
from shared.telemetry import Loops
from tests.support import eventually
from tests.support.apiserver import ApiServer


class Watched:
    """Nodes and pods of one test, and what became of them."""

    def __init__(self, server: ApiServer) -> None:
        self.client: Client = server.client()
        self.namespace = server.add_namespace()
        self.nodes: list[str] = []
        # A Lease of a name used before may be on its way out, with the Node it belonged to.
        self.made, self.not_ready, self.others = (
            f"{name}-{self.namespace}" for name in ("made-by-the-cloud", "not-ready-yet", "somebody-elses")
        )

    def add_node(self, name: str, *, fake: bool = True, ready: bool = True) -> None:
        self.nodes.append(name)
        template = fake_nodes.node(name, GroupConfig(name="web", machine_type="n1-standard-4"), SimulatedCloud())
        body = fake_nodes.registration(template, 1, SystemClock().now(), ready=ready)
        if not fake:
            body["metadata"] = {"name": name}
        self.client.create(NODES, msgspec.to_builtins(body))

    def add_pod(self, name: str, node: str) -> None:
        spec = {"nodeName": node, "containers": [{"name": "main", "image": "none"}]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        self.client.create(PODS, body, self.namespace)

    def pod(self, name: str) -> dict[str, Any] | None:
        try:
            return self.client.get(PODS, name, self.namespace)
        except NotFound:
            return None

    def phase(self, name: str) -> str:
        return str((self.pod(name) or {}).get("status", {}).get("phase", ""))

    def readiness(self, node: str) -> str:
        conditions = self.client.get(NODES, node)["status"]["conditions"]
        return next(str(each["status"]) for each in conditions if each["type"] == "Ready")

    def lose_sight_of(self, node: str) -> None:
        """As kube-controller-manager does when a Lease has lapsed."""
        unknown = [
            {**each, "status": "Unknown", "reason": "NodeStatusUnknown"}
            for each in node_heartbeat.conditions(SystemClock().now())
        ]
        patch = {"status": {"conditions": unknown}}
        self.client.patch(NODES, node, patch, kind=Patch.STRATEGIC, subresource="status")

    def has_lease(self, node: str) -> bool:
        try:
            return bool(self.client.get(LEASES, node, LEASE_NAMESPACE)["spec"]["holderIdentity"] == node)
        except NotFound:
            return False

    def close(self) -> None:
        for pod in self.client.list(PODS, self.namespace).items:
            with contextlib.suppress(NotFound):
                self.client.delete(PODS, pod["metadata"]["name"], self.namespace, grace_period_seconds=0)
        for name in self.nodes:
            with contextlib.suppress(NotFound):
                self.client.delete(NODES, name)


@pytest.fixture
def watched(server: ApiServer) -> Iterator[Watched]:
    found = Watched(server)
    yield found
    found.close()


@pytest.fixture
def begin(server: ApiServer) -> Iterator[Callable[[], SimulatedKubelet]]:
    """Starts the kubelets, and ends them with the test."""
    loops = Loops(CollectorRegistry())

    def start() -> SimulatedKubelet:
        client, clock = server.client(), SystemClock()
        kubelet = SimulatedKubelet(client, clock, appeared=lambda node: None, gone=lambda name: None)
        kubelet.start(loops)
        return kubelet

    yield start
    loops.close()


def test_pods_run_on_nodes_that_were_there_and_on_those_that_come(
    watched: Watched, begin: Callable[[], SimulatedKubelet]
) -> None:
    watched.add_node(watched.made)
    watched.add_pod("early", watched.made)
    begin()
    eventually(lambda: watched.phase("early") == "Running")
    watched.add_node(f"{watched.made}-later")
    watched.add_pod("late", f"{watched.made}-later")
    eventually(lambda: watched.phase("late") == "Running")
    late = watched.pod("late") or {}
    assert {"type": "Ready", "status": "True"}.items() <= _condition(late, "Ready").items()
    assert [each["ready"] for each in late["status"]["containerStatuses"]] == [True]


def test_a_pod_that_is_bound_before_its_node_is_known_runs_all_the_same(
    watched: Watched, begin: Callable[[], SimulatedKubelet]
) -> None:
    watched.add_node(watched.made, fake=False)
    watched.add_pod("early", watched.made)
    nodes = begin()
    watched.add_node(f"{watched.made}-sign")
    eventually(lambda: nodes.serves(f"{watched.made}-sign"))  # the other one was seen before, and is not served
    watched.client.patch(NODES, watched.made, {"metadata": {"annotations": {"kwok.x-k8s.io/node": "fake"}}})
    eventually(lambda: watched.phase("early") == "Running")


def test_deleted_pods_end_and_those_on_nodes_of_others_are_left_alone(
    watched: Watched, begin: Callable[[], SimulatedKubelet]
) -> None:
    watched.add_node(watched.made)
    watched.add_node(watched.others, fake=False)
    begin()
    watched.add_pod("theirs", watched.others)
    watched.add_pod("ours", watched.made)
    eventually(lambda: watched.phase("ours") == "Running")
    assert watched.phase("theirs") == "Pending"
    watched.client.delete(PODS, "ours", watched.namespace, grace_period_seconds=30)
    eventually(lambda: watched.pod("ours") is None)
    watched.client.delete(NODES, watched.made)
    watched.add_node(watched.made)
    watched.add_pod("ours", watched.made)
    eventually(lambda: watched.phase("ours") == "Running")
    assert watched.phase("theirs") == "Pending"


def test_nodes_are_kept_alive_and_found_again_but_not_made_ready_before_their_time(
    watched: Watched, begin: Callable[[], SimulatedKubelet]
) -> None:
    watched.add_node(watched.made)
    watched.add_node(watched.not_ready, ready=False)
    watched.lose_sight_of(watched.made)
    nodes = begin()
    eventually(lambda: nodes.serves(watched.made) and nodes.serves(watched.not_ready))
    nodes.beat()
    assert watched.has_lease(watched.made)
    assert watched.has_lease(watched.not_ready)
    eventually(lambda: watched.readiness(watched.made) == "True")  # the loop's own beat may have been a step ahead
    assert watched.readiness(watched.not_ready) == "False"


def _condition(pod: dict[str, Any], kind: str) -> dict[str, Any]:
    return next((each for each in pod["status"]["conditions"] if each["type"] == kind), {})
