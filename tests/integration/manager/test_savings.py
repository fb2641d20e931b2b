"""A stranger's journey: dump, savings, one recommendation applied, and fewer nodes that the planner wants to keep."""

import contextlib
import io
import json
import shlex
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deploy import cli, plan
from deploy.local import kubeconfig
from deploy.prices import book
from deploy.savings.cluster import NODE_METRICS, POD_METRICS
from shared import durations
from shared.kube.client import Patch
from shared.kube.resources import NODES, PODS, REPLICASETS, Resource
from tests.integration.manager.conftest import Cluster
from tests.support import eventually
from tests.support.apiserver import ApiServer
from tests.support.custom_kinds import is_served
from tests.unit.backtest.prometheus_server import PrometheusServer
from tests.unit.prices.cloud_prices import write_table
from tests.unit.savings import clusters
from tests.unit.savings.clusters import GIB

CUSTOM_KINDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)
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


@pytest.fixture
def metrics(cluster: Cluster, shop: str) -> Iterator[None]:
    """The kinds that metrics-server serves, kept by the API server itself, with a sample of each pod and node."""
    client = cluster.client
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    kinds = {"PodMetrics": POD_METRICS, "NodeMetrics": NODE_METRICS}
    for kind, resource in kinds.items():
        about = {"api-approved.kubernetes.io": "unapproved, in place of a server"}
        body = {
            "apiVersion": CUSTOM_KINDS.api_version,
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{resource.plural}.{resource.group}", "annotations": about},
            "spec": {
                "group": resource.group,
                "scope": "Namespaced" if resource.namespaced else "Cluster",
                "names": {"plural": resource.plural, "kind": kind, "listKind": f"{kind}List"},
                "versions": [{"name": resource.version, "served": True, "storage": True, "schema": schema}],
            },
        }
        client.create(CUSTOM_KINDS, body)
        eventually(partial(is_served, client, resource))
    common = {"apiVersion": POD_METRICS.api_version, "timestamp": durations.timestamp(time.time())}
    for number, node in zip(range(REPLICAS), "abc", strict=True):
        used = {"cpu": f"{1 + number}00000000n", "memory": "524288Ki"}
        pod = {"kind": "PodMetrics", "metadata": {"name": f"web-5d9c7b-{number}"}}
        client.create(POD_METRICS, {**common, **pod, "containers": [{"name": "main", "usage": used}]}, shop)
        client.create(
            NODE_METRICS,
            {**common, "kind": "NodeMetrics", "metadata": {"name": node}, "usage": {"cpu": "500m", "memory": "2Gi"}},
        )
    yield
    for resource in kinds.values():
        client.delete(CUSTOM_KINDS, f"{resource.plural}.{resource.group}")
    eventually(lambda: not any(is_served(client, resource) for resource in kinds.values()))


@pytest.mark.embedded_only("its controllers would take away the pods of a ReplicaSet that is not there")
def test_metrics_server_shows_one_moment_of_a_live_cluster_and_nothing_is_recommended_from_it(
    server: ApiServer,
    cluster: Cluster,
    shop: str,
    metrics: None,
    run: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(book.FOLDER, str(write_table(tmp_path / "prices").parent))
    live = ("--kubeconfig", str(server.kubeconfig), "-o", "json")

    advice = json.loads(run("recommend", *live))
    (row,) = advice["containers"]
    assert (row["source"], row["points"], row["days"], row["changes"]) == ("metrics-server", 1, 0, False)
    assert (row["cpu"]["used_median"], row["cpu"]["used_most"], row["cpu"]["reason"]) == (200, 300, "one sample")
    assert any("one look of metrics-server, from which nothing is recommended" in note for note in advice["notes"])

    told = json.loads(run("savings", *live))
    assert told["knowledge"]["sure"] == "very low: one look at 100% of containers, no history"
    assert 0 < told["bill"]["used"] < told["bill"]["unused"]
    skipped = {stage["stage"]: stage["skipped"] for stage in told["stages"]}
    assert skipped["right-sizing"] == "no request should change, as far as usage is known"
    lacks = "in metrics-server's one look 3 nodes used 1.5 cores and 6.0 GiB, and a promise takes days of history"
    assert skipped["lendable to Mid pods"].endswith(lacks)

    # The API server answers so while the server behind the group does not.
    match = {"path": "/apis/metrics.k8s.io/"}
    server.fault({"action": "status", "match": match, "status": 503, "message": "the server is down"})
    without = json.loads(run("savings", *live))
    assert without["knowledge"]["sure"] == "requests and nodes only: nothing is known of usage"
    (note,) = (note for note in without["notes"] if note.startswith("metrics-server did not answer"))
    assert "503 ServiceUnavailable: the server is down" in note
    server.heal()

    bad = {"usage": {"cpu": "a lot"}}
    cluster.client.patch(NODE_METRICS, "b", bad)
    notes = json.loads(run("savings", *live))["notes"]
    assert any(note.startswith("NodeMetrics b: usage.cpu: 'a lot': expected a quantity") for note in notes)
    cluster.client.patch(POD_METRICS, "web-5d9c7b-0", {"containers": "none"}, shop)
    notes = json.loads(run("savings", *live))["notes"]
    assert any(f"{shop}/web-5d9c7b-0 is passed by: " in note and "$.containers" in note for note in notes)


@pytest.mark.embedded_only("its controllers would take away the pods of a ReplicaSet that is not there")
def test_a_cluster_without_metrics_server_is_not_said_to_lack_an_answer(
    server: ApiServer, shop: str, run: Callable[..., str]
) -> None:
    found = json.loads(run("savings", "--kubeconfig", str(server.kubeconfig), "-o", "json"))
    assert found["knowledge"]["sure"] == "requests and nodes only: nothing is known of usage"
    assert not any("metrics-server" in note for note in found["notes"])
