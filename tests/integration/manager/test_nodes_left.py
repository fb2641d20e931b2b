"""What a running manager says of a node that goes: the same in API, metrics, Events and the status ConfigMap."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from manager.autoscaler.reporting import status
from manager.autoscaler.settings.autoscaler_settings import AutoscalerSettings
from manager.autoscaler.snapshot.cluster import TAINT_TO_BE_DELETED
from manager.main import Manager
from shared.kube.resources import CONFIGMAPS, EVENTS
from tests.integration.manager.conftest import Cluster, StartManager, fetch
from tests.integration.manager.test_autoscaler import NEVER_SECONDS, PATIENCE_SECONDS, WEB, PassingClock, Town
from tests.integration.manager.test_scale_down import Shrinking, half_empty
from tests.support import eventually, schemas
from tests.support.apiserver import ApiServer

pytestmark = pytest.mark.own_decision("the autoscaler tells what it has decided, whichever API server has the nodes")


@pytest.fixture
def shrinking(server: ApiServer, cluster: Cluster, tmp_path: Path, start_manager: StartManager) -> Iterator[Shrinking]:
    town = Town(cluster, server.add_namespace(), tmp_path / "cloud.yaml", start_manager)
    town.offer(WEB)
    found = Shrinking(town)
    yield found
    found.close()
    town.close()


def nodes_left(manager: Manager) -> Any:
    answer = fetch(manager, "/api/v1/autoscaler/nodes").json()
    assert list(schemas.problems(answer, schemas.published("nodes_left"))) == []
    return answer


def standings(manager: Manager) -> dict[str, str]:
    found = nodes_left(manager)["scale_down"]
    return {} if found is None else {row["node"]: row["standing"] for row in found["nodes"]}


def told(shrinking: Shrinking) -> set[tuple[str, str, str]]:
    """Kind of the object, reason and message of every Event, as far as it has them."""
    return {
        (each["involvedObject"].get("kind", ""), each.get("reason", ""), each.get("message", ""))
        for each in shrinking.client.list(EVENTS).items
    }


def test_a_node_that_could_go_says_so_until_when_and_where_its_pods_would_go(shrinking: Shrinking) -> None:
    manager = half_empty(shrinking, scale_down_unneeded_time_seconds=NEVER_SECONDS)
    row: Any = eventually(
        lambda: next((row for row in _rows(manager) if row["standing"] == "unneeded"), {}), PATIENCE_SECONDS
    )
    assert (row["reason"], row["group"]) == ("NotUnneededLongEnough", "web")
    answer = fetch(manager, f"/api/v1/autoscaler/nodes/{row['node']}").json()
    assert list(schemas.problems(answer, schemas.published("node_left"))) == []
    (target,) = set(shrinking.nodes) - {row["node"]}
    assert list(answer["moves"].values()) == [target]
    assert answer["answer"]["ripe_at"] > answer["answer"]["unneeded_since"]
    metrics = fetch(manager, "/metrics").text
    assert 'headroom_autoscaler_unneeded_nodes{group="web"} 1.0' in metrics
    assert 'headroom_autoscaler_unremovable_nodes{reason="NotUnneededLongEnough"} 1.0' in metrics

    def candidates() -> Any:
        name = AutoscalerSettings().status_config_map_name
        body = shrinking.client.get(CONFIGMAPS, name, shrinking.town.home)
        return yaml.safe_load(body["data"][status.KEY])["clusterWide"]["scaleDown"]["candidates"]

    eventually(lambda: candidates() == 1, PATIENCE_SECONDS)


def test_a_node_that_goes_is_told_of_until_it_is_gone(shrinking: Shrinking) -> None:
    clock = PassingClock()
    manager = half_empty(shrinking, clock=clock, node_delete_delay_after_taint_seconds=600.0)
    gone = eventually(
        lambda: next((node for node, standing in standings(manager).items() if standing == "leaving"), None),
        PATIENCE_SECONDS,
    )
    eventually(lambda: shrinking.taints(TAINT_TO_BE_DELETED), PATIENCE_SECONDS)
    clock.ahead = 3600.0
    shrinking.eventually_has_nodes(1)
    assert gone not in shrinking.nodes
    eventually(
        lambda: (
            {
                ("ConfigMap", "ScaleDown", f"Scale-down: node {gone} removed with drain"),
                ("Node", "ScaleDown", "marked the node as toBeDeleted/unschedulable"),
                ("Node", "ScaleDown", "nodes removed by cluster autoscaler"),
            }
            <= told(shrinking)
        ),
        PATIENCE_SECONDS,
    )
    assert any(
        message.startswith(f"Scale-down: removing node {gone}, utilization: ") for *_, message in told(shrinking)
    )
    metrics = fetch(manager, "/metrics").text
    assert 'headroom_autoscaler_node_removals_total{kind="underutilized",result="done"} 1.0' in metrics
    assert 'headroom_autoscaler_evicted_pods_total{result="done"} 1.0' in metrics
    rounds = fetch(manager, "/api/v1/decisions?brief=true").json()["iterations"]
    assert ["gone"] in [[each["stage"] for each in one["leaving"]] for one in rounds]
    assert any(action["what"] == "remove nodes" and action["done"] for one in rounds for action in one["decisions"])


def _rows(manager: Manager) -> list[Any]:
    found = nodes_left(manager)["scale_down"]
    return [] if found is None else list(found["nodes"])
