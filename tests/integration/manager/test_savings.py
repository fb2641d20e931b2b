"""A stranger's journey: dump, savings, one recommendation applied, and fewer nodes that the planner wants to keep."""

import contextlib
import io
import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy import cli, plan
from deploy.local import kubeconfig
from deploy.prices import book
from shared.kube.client import Patch
from shared.kube.resources import NODES, PODS, REPLICASETS, Resource
from tests.integration.manager.conftest import Cluster
from tests.support.apiserver import ApiServer
from tests.unit.backtest.prometheus_server import PrometheusServer
from tests.unit.prices.cloud_prices import write_table
from tests.unit.savings import clusters
from tests.unit.savings.clusters import GIB

DEPLOYMENTS = Resource("apps", "v1", "deployments", namespaced=True)
MONTH = 730
REPLICAS = 3
LABELS = {"app": "web"}
HASHED = {**LABELS, "pod-template-hash": "5d9c7b"}


@pytest.fixture
def usage() -> Iterator[PrometheusServer]:
    found = PrometheusServer()
    yield found
    found.close()


@pytest.fixture
def shop(server: ApiServer, cluster: Cluster) -> Iterator[str]:
    """A Deployment of three pods on a node each; its namespace, gone after the test."""
    client, namespace = cluster.client, server.add_namespace()
    for name in "abc":
        body = clusters.node(name)
        client.create(NODES, {"apiVersion": "v1", **body})
        ready = [{"type": "Ready", "status": "True"}]
        client.patch(NODES, name, {"status": {**body["status"], "conditions": ready}}, subresource="status")
    resources = {"requests": {"cpu": "3", "memory": "10Gi"}, "limits": {"memory": "12Gi"}}
    spec = {"containers": [{"name": "main", "image": "registry/app:1", "resources": resources}]}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 0,  # its pods are made here, as no controller would place them
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": spec},
        },
    }
    client.create(DEPLOYMENTS, deployment, namespace)
    template = {"metadata": {"labels": HASHED}, "spec": spec}
    set_spec = {"replicas": REPLICAS, "selector": {"matchLabels": HASHED}, "template": template}
    body = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web-5d9c7b"}, "spec": set_spec}
    client.create(REPLICASETS, body, namespace)
    make_pods(cluster, namespace)
    yield namespace
    client.delete(DEPLOYMENTS, "web", namespace)
    client.delete(REPLICASETS, "web-5d9c7b", namespace)
    cluster.clear()


def make_pods(cluster: Cluster, namespace: str) -> None:
    """As the Deployment's template has them, in place of those that are there."""
    client = cluster.client
    for pod in client.list(PODS, namespace).items:
        client.delete(PODS, pod["metadata"]["name"], namespace, grace_period_seconds=0)
    template = client.get(DEPLOYMENTS, "web", namespace)["spec"]["template"]["spec"]
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d9c7b", "uid": "web", "controller": True}
    for number, node in zip(range(REPLICAS), "abc", strict=True):
        name = f"web-5d9c7b-{number}"
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": HASHED, "ownerReferences": [owner]},
            "spec": {"containers": template["containers"], "nodeName": node},
        }
        client.create(PODS, body, namespace)
        client.patch(PODS, name, {"status": {"phase": "Running"}}, namespace, subresource="status")


@pytest.fixture
def run() -> Callable[..., str]:
    def command(*arguments: str) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            assert (cli.app([*arguments], standalone_mode=False) or 0) == 0
        return out.getvalue()

    return command


@pytest.mark.embedded_only("its controllers would take away the pods of a ReplicaSet that is not there")
def test_a_recommendation_that_is_applied_lets_the_nodes_go_that_savings_named(
    server: ApiServer,
    cluster: Cluster,
    shop: str,
    usage: PrometheusServer,
    run: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(book.FOLDER, str(write_table(tmp_path / "prices").parent))
    where = tmp_path / "kubeconfig"
    kubeconfig.write(where, server.url, server.token, server.ca_file)
    used = {(f"web-5d9c7b-{number}", "main"): (0.2, 1.0 * GIB) for number in range(REPLICAS)}
    clusters.serve(usage, used)
    usage.series = {
        key: [({**labels, "namespace": shop}, value) for labels, value in series]
        for key, series in usage.series.items()
    }
    history = ("--prometheus", usage.url, "--until", clusters.NOW)

    def could_go() -> tuple[int, float]:
        found = json.loads(plan.main(["--kubeconfig", str(where), "-o", "json", "--prices", str(_prices(tmp_path))]))
        rows = [row for row in found["scale_down"]["nodes"] if row["standing"] in ("goes", "unneeded")]
        return len(rows), found["scale_down"]["savable_per_hour"]

    dump = tmp_path / "dump.json"
    items = [
        {"kind": kind, **item}
        for kind, resource in (("Node", NODES), ("Pod", PODS))
        for item in cluster.client.list(resource).items
    ]
    dump.write_text(json.dumps({"kind": "List", "items": items}))
    assert could_go()[0] == 0

    told = json.loads(run("savings", "-f", str(dump), *history, "-o", "json"))
    by_name = {stage["stage"]: stage for stage in told["stages"]}
    assert by_name["nodes not needed then"]["saved"] == pytest.approx(2 * 0.192 * MONTH, abs=0.01)
    assert told["groups"][0]["goes"] == 2
    live = json.loads(run("savings", "--kubeconfig", str(where), *history, "-o", "json"))
    assert [stage["saved"] for stage in live["stages"]] == [stage["saved"] for stage in told["stages"]]

    (line,) = run("recommend", "-f", str(dump), *history, "-o", "kubectl").splitlines()
    words = shlex.split(line)
    assert words[:6] == ["kubectl", "patch", "deployment", "web", "--namespace", shop]
    cluster.client.patch(DEPLOYMENTS, "web", json.loads(words[-1]), shop, kind=Patch.STRATEGIC)
    patched: Any = cluster.client.get(DEPLOYMENTS, "web", shop)
    (container,) = patched["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry/app:1"
    assert container["resources"]["requests"] == {"cpu": "230m", "memory": "1178Mi"}
    make_pods(cluster, shop)

    count, per_hour = could_go()
    assert count == told["groups"][0]["goes"]
    assert per_hour * MONTH == pytest.approx(by_name["nodes not needed then"]["saved"], abs=0.01)
    again = json.loads(run("recommend", "--kubeconfig", str(where), *history, "-o", "json"))
    assert not any(row["changes"] for row in again["containers"])


def _prices(folder: Path) -> Path:
    path = folder / "prices.yaml"
    path.write_text("machine_types: {m5.xlarge: 0.192}")
    return path


@pytest.mark.embedded_only("its controllers would take away the pods of a ReplicaSet that is not there")
def test_a_cluster_without_history_says_that_nothing_is_known_of_usage(
    server: ApiServer, shop: str, run: Callable[..., str]
) -> None:
    found = json.loads(run("savings", "--kubeconfig", str(server.kubeconfig), "-o", "json"))
    assert found["knowledge"]["sure"] == "requests and nodes only: usage is unknown"
