"""Nodes that nobody needs leave a real cluster, and nothing is lost on the way."""

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from manager.autoscaler.actuation import deletion_machine
from manager.autoscaler.scale_down.removal_status import DeletionStage
from manager.autoscaler.snapshot.cluster import TAINT_TO_BE_DELETED
from manager.main import Manager
from shared.api.core import Node, Pod
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.errors import AlreadyExists, NotFound
from shared.kube.resources import PODDISRUPTIONBUDGETS, PODS
from shared.telemetry import Loops
from tests.integration.manager.conftest import Cluster, StartManager, fetch
from tests.integration.manager.test_autoscaler import (
    NEVER_SECONDS,
    PATIENCE_SECONDS,
    WEB,
    Town,
    later_rounds,
)
from tests.support import eventually
from tests.support.apiserver import ApiServer, rule

ours = pytest.mark.own_decision("the autoscaler and its cloud decide, whichever API server has the nodes")

SAFE = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
SWIFT: dict[str, Any] = {
    "scale_down_unneeded_time_seconds": 0.3,
    "scale_down_delay_after_add_seconds": 0.0,
    "scale_down_delay_after_failure_seconds": 0.0,
    "unremovable_node_recheck_timeout_seconds": 0.3,
    "node_delete_delay_after_taint_seconds": 0.2,
    "scale_down_peaks": False,
}


class Shrinking:
    """A town whose pods somebody makes again when they are gone, and that run as soon as they have a node."""

    def __init__(self, town: Town) -> None:
        self.town = town
        self.client: Client = town.client
        self.wanted: dict[str, str] = {}  # cpu by name
        self.made_again: list[str] = []
        self._known: set[str] = set()
        self._lock = threading.Lock()  # what is spared meanwhile would be made again
        self._loops = Loops(CollectorRegistry())
        self._loops.every("replicas", lambda: 0.1, self._replicate)

    def manager(self, *nodes: str, **settings: Any) -> Manager:
        return self.town.manager(*nodes, **{**SWIFT, **settings})

    def want(self, count: int, cpu: str = "1900m", prefix: str = "p") -> None:
        self.wanted |= {f"{prefix}{number}": cpu for number in range(count)}

    def spare(self, *names: str) -> None:
        """These are not needed any more."""
        with self._lock:
            for name in names:
                del self.wanted[name]
                self._known.discard(name)
                with contextlib.suppress(NotFound):  # it has just been evicted
                    self.client.delete(PODS, name, self.town.namespace, grace_period_seconds=0)

    def protect(self, name: str, at_least: int) -> None:
        spec = {"minAvailable": at_least, "selector": {"matchLabels": {"app": "web"}}}
        body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec}
        self.client.create(PODDISRUPTIONBUDGETS, body, self.town.namespace)

    @property
    def nodes(self) -> dict[str, Node]:
        return {node.metadata.name: node for node in self.town.nodes}

    def taints(self, key: str) -> list[str]:
        return [name for name, node in self.nodes.items() if any(each.key == key for each in node.spec.taints or ())]

    def eventually_bound(self, count: int) -> dict[str, str]:
        def running() -> dict[str, str]:
            pods = self.client.list(PODS, self.town.namespace, into=Pod).items
            found = {pod.metadata.name: pod.spec.node_name for pod in pods if pod.status.phase == "Running"}
            return found if len(found) == count == len(pods) else {}

        return eventually(running, PATIENCE_SECONDS)

    def eventually_has_nodes(self, count: int) -> None:
        eventually(lambda: len(self.nodes) == count, PATIENCE_SECONDS)

    def close(self) -> None:
        self.wanted.clear()
        self._loops.close()

    def _replicate(self) -> None:
        with self._lock, contextlib.suppress(HeadroomError):
            there = {pod.metadata.name: pod for pod in self.client.list(PODS, self.town.namespace, into=Pod).items}
            for name, cpu in list(self.wanted.items()):
                if name not in there:
                    self._make(name, cpu)
                elif there[name].spec.node_name and there[name].status.phase != "Running":
                    ready = [{"type": "Ready", "status": "True"}]
                    status = {"status": {"phase": "Running", "conditions": ready}}
                    self.client.patch(PODS, name, status, self.town.namespace, subresource="status")

    def _make(self, name: str, cpu: str) -> None:
        spec = {
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {"team": "web"},
            "containers": [{"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu}}}],
        }
        metadata = {"name": name, "labels": {"app": "web"}, "annotations": SAFE}
        with contextlib.suppress(AlreadyExists):
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            self.client.create(PODS, body, self.town.namespace)
            if name in self._known:
                self.made_again.append(name)
            self._known.add(name)


@pytest.fixture
def town(server: ApiServer, cluster: Cluster, tmp_path: Path, start_manager: StartManager) -> Iterator[Town]:
    town = Town(cluster, server.add_namespace(), tmp_path / "cloud.yaml", start_manager)
    yield town
    town.close()


@pytest.fixture
def shrinking(town: Town) -> Iterator[Shrinking]:
    town.offer(WEB)
    shrinking = Shrinking(town)
    yield shrinking
    shrinking.close()


def half_empty(shrinking: Shrinking, **settings: Any) -> Manager:
    """Two nodes, each with one pod of two, which would have room on one; those pods do not count as much."""
    manager = shrinking.manager("0:10:web", **{"scale_down_utilization_threshold": 0.6, **settings})
    shrinking.want(4)
    bound = shrinking.eventually_bound(4)
    assert len(set(bound.values())) == 2
    one, other = sorted(set(bound.values()))
    spared = [next(pod for pod, node in bound.items() if node == name) for name in (one, other)]
    shrinking.spare(*spared)
    return manager


def test_the_pods_of_a_node_that_is_hardly_used_are_evicted_and_find_another(shrinking: Shrinking) -> None:
    half_empty(shrinking)
    shrinking.eventually_has_nodes(1)
    bound = shrinking.eventually_bound(2)
    assert set(bound.values()) == set(shrinking.nodes)
    assert len(shrinking.made_again) == 1
    assert shrinking.town.targets() == {"web": 1}


def test_a_disruption_budget_that_allows_nothing_keeps_the_node(shrinking: Shrinking) -> None:
    shrinking.protect("all", 100)
    manager = half_empty(shrinking)
    later_rounds(manager, 8)
    assert len(shrinking.nodes) == 2
    assert not shrinking.made_again
    assert not shrinking.taints(TAINT_TO_BE_DELETED)


def test_a_mark_that_a_dead_leader_left_is_taken_back_by_the_next(shrinking: Shrinking) -> None:
    first = half_empty(shrinking, node_delete_delay_after_taint_seconds=600.0)
    (marked,) = eventually(lambda: shrinking.taints(TAINT_TO_BE_DELETED), PATIENCE_SECONDS)
    first.close()
    assert shrinking.taints(TAINT_TO_BE_DELETED) == [marked]
    second = shrinking.manager("0:10:web", scale_down_unneeded_time_seconds=NEVER_SECONDS)
    eventually(lambda: not shrinking.taints(TAINT_TO_BE_DELETED), PATIENCE_SECONDS)
    assert not shrinking.nodes[marked].spec.unschedulable
    later_rounds(second)
    assert len(shrinking.nodes) == 2
    assert not shrinking.made_again


@pytest.mark.thorough
def test_of_two_replicas_one_takes_nodes_away(shrinking: Shrinking) -> None:
    managers = [
        shrinking.manager("1:10:web", leader_elect=True, identity=name, scale_down_utilization_threshold=0.6)
        for name in ("one", "two")
    ]
    shrinking.want(6)
    shrinking.eventually_bound(6)
    shrinking.spare("p0", "p1", "p2", "p3", "p4")
    shrinking.eventually_has_nodes(1)
    for manager in managers:
        later_rounds(manager)
    assert shrinking.town.targets() == {"web": 1}
    assert shrinking.eventually_bound(1)


@ours
def test_a_node_that_the_cloud_does_not_delete_stays_and_is_tried_again(
    shrinking: Shrinking, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletion_machine, "SILENCE_SECONDS", 0.5)
    manager = shrinking.manager("0:10:web", scale_down_delay_after_failure_seconds=0.5)
    shrinking.want(2)
    shrinking.eventually_bound(2)
    # The cloud keeps its books in the cluster, and cannot write them.
    server.fault(rule("status", "headroom-simulated-cloud", method="PUT", times=0, status=403))
    shrinking.spare("p0", "p1")
    eventually(lambda: shrinking.taints(TAINT_TO_BE_DELETED), PATIENCE_SECONDS)
    eventually(lambda: failed(manager), PATIENCE_SECONDS)
    assert len(shrinking.nodes) == 1
    server.heal()
    shrinking.eventually_has_nodes(0)
    assert shrinking.town.targets() == {"web": 0}


@pytest.mark.embedded_only("the real server takes its controllers along")
def test_an_api_server_that_is_lost_while_a_node_drains_costs_nothing(shrinking: Shrinking, server: ApiServer) -> None:
    half_empty(shrinking, node_delete_delay_after_taint_seconds=1.0)
    eventually(lambda: shrinking.taints(TAINT_TO_BE_DELETED), PATIENCE_SECONDS)
    server.kill()
    time.sleep(0.5)  # for several steps of the departure
    server.start()
    shrinking.eventually_has_nodes(1)
    assert set(shrinking.eventually_bound(2).values()) == set(shrinking.nodes)
    assert shrinking.town.targets() == {"web": 1}
    assert not shrinking.taints(TAINT_TO_BE_DELETED)


def failed(manager: Manager) -> bool:
    """Whether a node that was to go has come back."""
    rounds = fetch(manager, "/api/v1/decisions?brief=true").json()["iterations"]
    return any(each["stage"] == DeletionStage.FAILED for one in rounds for each in one["leaving"])


def test_a_bad_schedule_is_refused_with_field_and_value(shrinking: Shrinking) -> None:
    bad = "0;schedule=0 25 * * *;duration=1h"
    with pytest.raises(HeadroomError, match=r"disruption-budgets.*0 25 \* \* \*.*'25' is no hour from 0 to 23"):
        shrinking.manager("0:10:web", disruption_budgets=(bad,))
