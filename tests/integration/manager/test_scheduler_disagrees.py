"""The real kube-scheduler refuses what the autoscaler's predicates allow: no second node is bought."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.kube.resources import RESOURCECLAIMS
from tests.integration.manager.conftest import Cluster, StartManager
from tests.integration.manager.test_autoscaler import WEB, JumpingClock, Town, later_rounds, latest
from tests.support import eventually, kube_scheduler
from tests.support.apiserver import ApiServer
from tests.support.scheduler_differential import Refusing

pytestmark = pytest.mark.real_only("the embedded scheduler has only the predicates that the autoscaler has")

PATIENCE_SECONDS = 180.0


@pytest.fixture
def refusing() -> Iterator[Refusing]:
    """An extender that refuses every node; only the scheduler knows it."""
    extender = Refusing()
    yield extender
    extender.close()


@contextlib.contextmanager
def opened(town: Town, server: ApiServer, folder: Path, **configuration: object) -> Iterator[Town]:
    with kube_scheduler.running(configuration, server.kubeconfig, folder):
        yield town
        town.close()


@pytest.fixture
def closed_town(server: ApiServer, cluster: Cluster, tmp_path: Path, start_manager: StartManager) -> Town:
    """Without a scheduler."""
    return Town(cluster, server.add_namespace(), tmp_path / "cloud.yaml", start_manager, schedules=False)


@pytest.fixture
def town(closed_town: Town, server: ApiServer, tmp_path: Path) -> Iterator[Town]:
    with opened(closed_town, server, tmp_path) as town:
        yield town


def counted(town: Town) -> set[str]:
    """The nodes that the scheduler's answers count."""
    return {each.partition(" ")[0] for each in town.refusals}


def test_a_scheduler_that_refuses_every_node_costs_one_and_the_pods_say_why(
    closed_town: Town, server: ApiServer, tmp_path: Path, refusing: Refusing
) -> None:
    with opened(closed_town, server, tmp_path, extenders=[refusing.configuration]) as town:
        town.offer(WEB)
        clock = JumpingClock()
        manager = town.manager("0:10:web", scale_down_enabled=False, clock=clock)
        town.pods(3)
        eventually(lambda: town.nodes and counted(town) == {f"0/{town.targets()['web']}"}, PATIENCE_SECONDS)
        later_rounds(manager)
        clock.ahead += 60  # by then a binding that was under way would have been seen
        told: Any = eventually(lambda: latest(manager).get("disagreements"), PATIENCE_SECONDS)
        assert told[0]["groups"] == ["web"]
        assert told[0]["message"].startswith("0/")
        bought = town.targets()
        assert 1 <= bought["web"] <= 2, "one node, or as many as the pods need at once"
        later_rounds(manager, 20)
        assert town.targets() == bought
        assert eventually(lambda: town.cluster.events("SchedulerDisagrees"), PATIENCE_SECONDS)


def test_no_node_is_bought_for_a_claim_without_a_device(town: Town) -> None:
    request = {"name": "one", "exactly": {"deviceClassName": "none.example.com"}}
    claim = {"metadata": {"name": "gpu"}, "spec": {"devices": {"requests": [request]}}}
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **claim}
    town.client.create(RESOURCECLAIMS, body, town.namespace)
    town.offer(WEB)
    manager = town.manager("0:10:web", scale_down_enabled=False)
    town.pods(3, resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}])
    said: Any = eventually(lambda: latest(manager).get("invalid_objects"), PATIENCE_SECONDS)
    assert "device class none.example.com does not exist" in said[0]["problem"]
    later_rounds(manager, 20)
    assert town.targets() == {"web": 0}


def test_a_pod_that_the_scheduler_takes_beside_them_gets_its_node(town: Town) -> None:
    town.offer(WEB)
    manager = town.manager("0:10:web")
    town.pods(2, prefix="plain")
    town.eventually_bound(2)
    assert latest(manager)["disagreements"] == []
    assert town.targets() == {"web": 1}
