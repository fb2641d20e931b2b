"""`headroom plan` and the API's plan on a real API server: the same answers, and never a write."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from deploy import plan
from deploy.local import kubeconfig
from manager.autoscaler.cloudprovider.simulated import state_store
from manager.autoscaler.cluster_state.registry_store import KEY
from manager.main import Manager
from shared import names
from shared.api.core import Node
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.resources import CONFIGMAPS, EVENTS, NODES, PODS
from tests.integration.manager.conftest import Cluster, StartGuarded, StartManager, fetch
from tests.support import eventually, schemas
from tests.support.apiserver import ApiServer
from tests.support.local_http import LOCAL_HTTP

ours = pytest.mark.own_decision("the planner decides by what it has read, whichever API server it came from")

GKE, INSTANCE_TYPE = "cloud.google.com/gke-nodepool", "node.kubernetes.io/instance-type"
WEB: dict[str, Any] = {"name": "web", "machine_type": "n1-standard-4", "max": 10}
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}

Planner = Callable[..., Any]


@pytest.fixture
def pending(server: ApiServer, cluster: Cluster) -> Iterator[Callable[..., str]]:
    """Makes pods that a scheduler has found no node for, gone after the test; tells their namespace."""
    client, namespace = cluster.client, server.add_namespace()

    def make(*called: str, cpu: str = "3") -> str:
        for name in called:
            container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu}}}
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}
            client.create(PODS, body, namespace)
            client.patch(PODS, name, {"status": {"conditions": [UNSCHEDULABLE]}}, namespace, subresource="status")
        return namespace

    yield make
    for pod in client.list(PODS, namespace).items:
        client.delete(PODS, pod["metadata"]["name"], namespace, grace_period_seconds=0)


@pytest.fixture
def planned(server: ApiServer, cluster: Cluster, tmp_path: Path) -> Planner:
    """The command's answer, which keeps to its schema."""
    kubeconfig.write(tmp_path / "kubeconfig", server.url, server.token, server.ca_file)

    def answer(*flags: str) -> Any:
        where = ["--kubeconfig", str(tmp_path / "kubeconfig"), "--namespace", cluster.namespace]
        found = json.loads(plan.main([*where, "-o", "json", *flags]))
        assert list(schemas.problems(found, schemas.published("plan"))) == []
        return found

    return answer


@pytest.fixture
def cloud(tmp_path: Path) -> Path:
    path = tmp_path / "cloud.yaml"
    path.write_text(yaml.safe_dump({"groups": [WEB]}))
    return path


def state(client: Client) -> object:
    """Everything that a plan could have changed, and that no controller of a real cluster sees to meanwhile."""
    nodes, pods, config_maps, events = (client.list(each).items for each in (NODES, PODS, CONFIGMAPS, EVENTS))
    return (
        [(each["metadata"]["name"], each["metadata"].get("labels"), each["status"]["allocatable"]) for each in nodes],
        pods,
        [
            (each["metadata"]["namespace"], each["metadata"]["name"], each.get("data"))
            for each in config_maps
            if each["metadata"]["name"] != "kube-root-ca.crt"
        ],
        [each for each in events if each["source"].get("component", "").startswith("headroom")],
    )


def changes(answer: Any) -> dict[str, tuple[int, int]]:
    return {each["group"]: (each["from_size"], each["to_size"]) for each in answer["decisions"]}


def asked(manager: Manager, **body: Any) -> httpx.Response:
    host, port = manager.address
    return LOCAL_HTTP.post(f"http://{host}:{port}/api/v1/plan", json=body)


def test_any_cluster_is_planned_for_without_a_word_of_configuration(
    cluster: Cluster, planned: Planner, pending: Callable[..., str]
) -> None:
    cluster.add_node("pool-1", lends=None, labels={GKE: "pool", INSTANCE_TYPE: "n1-standard-4"})
    amounts = {"cpu": "4", "memory": "15Gi", "pods": "110"}
    ready = [{"type": "Ready", "status": "True"}]
    status = {"status": {"capacity": amounts, "allocatable": amounts, "conditions": ready}}
    cluster.client.patch(NODES, "pool-1", status, subresource="status")
    # A controller takes the mark off that a node which is not ready has; till then another node would be planned for.
    eventually(lambda: not cluster.client.get(NODES, "pool-1", into=Node).spec.taints)
    namespace = pending("a", "b", "c")
    before = state(cluster.client)
    answer = planned()
    assert answer["cluster"] == kubeconfig.NAME
    assert changes(answer) == {"pool": (1, 3)}
    assert [row["pods"] for row in answer["pending"]] == [[f"{namespace}/{name}" for name in "abc"]]
    assert sum(row["on_nodes"] for row in answer["pending"]) == 1
    assert state(cluster.client) == before


@ours
def test_a_cloud_is_asked_and_neither_grows_nor_gets_a_registry(
    cluster: Cluster, planned: Planner, cloud: Path, pending: Callable[..., str]
) -> None:
    pending("a", "b")
    before = state(cluster.client)
    assert changes(planned("--cloud-provider", "simulated", "--cloud-config", str(cloud))) == {"web": (0, 2)}
    assert state(cluster.client) == before
    kept = {each["metadata"]["name"] for each in cluster.client.list(CONFIGMAPS, cluster.namespace).items}
    assert state_store.CONFIG_MAP not in kept


@ours
def test_a_plan_under_a_quota_says_of_no_pod_that_it_gets_a_node_that_is_not_bought(
    cluster: Cluster, planned: Planner, cloud: Path, pending: Callable[..., str]
) -> None:
    pending(*(f"p{number:02d}" for number in range(40)), cpu="900m")
    answer = planned("--cloud-provider", "simulated", "--cloud-config", str(cloud), "--max-cpu", "4")
    assert changes(answer) == {"web": (0, 1)}
    assert sum(row["triggered"] for row in answer["pending"]) == 4
    assert sum(row["count"] for row in answer["unplaced"]) == 36
    assert {reason for row in answer["unplaced"] for each in row["reasons"] for reason in each["reasons"]} == {
        'exceeded quota: "cluster-wide", resources: cpu'
    }


@ours
def test_a_registry_that_the_manager_ignores_is_ignored(
    cluster: Cluster,
    planned: Planner,
    cloud: Path,
    pending: Callable[..., str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    pending("a", "b")
    cluster.client.create(
        CONFIGMAPS,
        {"metadata": {"name": names.REGISTRY_CONFIG_MAP}, "data": {KEY: '{"version": 99}'}},
        cluster.namespace,
    )
    assert changes(planned("--cloud-provider", "simulated", "--cloud-config", str(cloud))) == {"web": (0, 2)}
    assert "the registry cannot be read and is ignored" in capsys.readouterr().err


@ours
def test_the_manager_answers_as_the_command_does_and_plans_for_what_is_not_there(
    planned: Planner, cloud: Path, pending: Callable[..., str], start_manager: StartManager
) -> None:
    pending("a", "b")
    manager = start_manager(
        cloud_provider="simulated",
        cloud_config=str(cloud),
        nodes=("0:10:web",),
        autoscaling_mode="recommend",
        scan_interval_seconds=0.1,
    )

    def recommended() -> Any:
        latest = fetch(manager, "/api/v1/decisions").json()["latest"]
        return latest if latest and latest["decisions"] else None

    latest = eventually(recommended)
    assert changes(latest) == changes(planned("--cloud-provider", "simulated", "--cloud-config", str(cloud)))
    assert (latest["decisions"][0]["mode"], latest["decisions"][0]["done"]) == ("recommend", False)
    for name in ("groups", "decisions"):
        assert list(schemas.problems(fetch(manager, f"/api/v1/{name}").json(), schemas.published(name))) == []
    container = {"name": "c", "resources": {"requests": {"cpu": "3"}}}
    more = asked(manager, pods=[{"metadata": {"name": "new"}, "spec": {"containers": [container]}}], copies=3)
    assert (more.status_code, changes(more.json())) == (200, {"web": (0, 5)})
    assert changes(asked(manager, overrides={"max_nodes_total": 1}).json()) == {"web": (0, 1)}
    assert asked(manager, overrides={"expander": "cheap"}).status_code == 400


def test_the_command_asks_a_running_manager_with_the_rights_of_the_kubeconfigs_user(
    cluster: Cluster,
    planned: Planner,
    cloud: Path,
    pending: Callable[..., str],
    start_guarded: StartGuarded,
    tmp_path: Path,
) -> None:
    pending("a", "b")
    guarded = start_guarded(
        cloud_provider="simulated",
        cloud_config=str(cloud),
        nodes=("0:10:web",),
        autoscaling_mode="recommend",
        scan_interval_seconds=0.1,
    )
    asks = ("--manager", guarded.url)

    def recommends() -> bool:
        latest = guarded.answer("/api/v1/decisions")["latest"]
        return bool(latest and latest["decisions"] and guarded.authorities())

    eventually(recommends)
    assert changes(planned(*asks)) == {"web": (0, 2)}
    assert changes(planned(*asks, "--max-nodes-total", "1")) == {"web": (0, 1)}
    more = tmp_path / "more.yaml"
    container = {"name": "c", "resources": {"requests": {"cpu": "3"}}}
    more.write_text(yaml.safe_dump({"kind": "Pod", "metadata": {"name": "new"}, "spec": {"containers": [container]}}))
    assert changes(planned(*asks, "-f", str(more))) == {"web": (0, 3)}
    where = ("--kubeconfig", str(tmp_path / "kubeconfig"), "--namespace", cluster.namespace)
    table = plan.main([*where, *asks])
    assert "Scale up" in table
    assert "web" in table
    with pytest.raises(HeadroomError, match=r"status 400: .*overrides: expander: 'cheap'"):
        planned(*asks, "--expander", "cheap")
    (tmp_path / "stranger").mkdir()
    kubeconfig.write(tmp_path / "stranger" / "kubeconfig", guarded.server.url, "nonsense", guarded.server.ca_file)
    with pytest.raises(HeadroomError, match="401"):
        plan.main(["--kubeconfig", str(tmp_path / "stranger" / "kubeconfig"), *asks])


@ours
def test_without_an_autoscaler_there_are_no_groups_and_no_plan(start_manager: StartManager) -> None:
    manager = start_manager()
    assert fetch(manager, "/api/v1/groups").status_code == 404
    host, port = manager.address
    with pytest.raises(HeadroomError, match="this manager runs no autoscaler"):
        plan.main(["--manager", f"http://{host}:{port}"])
