"""Gangs beside the real kube-scheduler, on a control plane that has PodGroups."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.kube.resources import PODGROUPS_ALPHA
from tests.integration.manager.conftest import Cluster, StartManager
from tests.integration.manager.test_autoscaler import WEB, Town, later_rounds, latest
from tests.support import eventually, kube_scheduler
from tests.support.apiserver import ApiServer, RealApiServer

pytestmark = pytest.mark.real_only("the embedded scheduler knows no gangs")

GATES = "--feature-gates=GenericWorkload=true,GangScheduling=true"
SERVED = f"--runtime-config={PODGROUPS_ALPHA.api_version}=true"
PATIENCE_SECONDS = 120.0
ROUNDS = 20


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """With the alpha API of gangs, which other tests do without."""
    server = RealApiServer(tmp_path_factory.mktemp("gangs"), (GATES, SERVED))
    yield server
    server.close()


@pytest.fixture
def town(server: ApiServer, cluster: Cluster, tmp_path: Path, start_manager: StartManager) -> Iterator[Town]:
    town = Town(cluster, server.add_namespace(), tmp_path / "cloud.yaml", start_manager, schedules=False)
    with kube_scheduler.running({}, server.kubeconfig, tmp_path, (GATES,)):
        yield town
        town.close()


def gang_of_three(town: Town) -> None:
    """Each of its pods needs a node of its own."""
    spec = {"schedulingPolicy": {"gang": {"minCount": 3}}}
    body = {"apiVersion": PODGROUPS_ALPHA.api_version, "kind": "PodGroup", "metadata": {"name": "train"}, "spec": spec}
    town.client.create(PODGROUPS_ALPHA, body, town.namespace)
    town.pods(3, "3", schedulingGroup={"podGroupName": "train"})


def skipped(manager: Any) -> set[str]:
    return {each["reason"] for each in latest(manager).get("skipped_pods", ())}


def test_a_gang_of_three_with_room_for_two_under_the_limit_gets_no_node(town: Town) -> None:
    town.offer(WEB)
    manager = town.manager("0:2:web", scale_down_enabled=False)
    gang_of_three(town)
    eventually(lambda: any("2 of the 3 missing get a place" in each for each in skipped(manager)), PATIENCE_SECONDS)
    later_rounds(manager, ROUNDS)
    assert (town.targets(), town.bound) == ({"web": 0}, {})


def test_a_gang_that_fits_gets_its_nodes_and_all_its_pods_are_bound(town: Town) -> None:
    town.offer(WEB)
    manager = town.manager("0:3:web", scale_down_enabled=False)
    gang_of_three(town)
    assert len(set(town.eventually_bound(3).values())) == 3
    later_rounds(manager, ROUNDS)
    assert town.targets() == {"web": 3}
    assert latest(manager)["disagreements"] == []
