"""`headroom top` and `headroom version` of a live cluster, in the context that is asked for."""

import json
import time
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from deploy import versions
from deploy.access import ClusterContext
from deploy.manager_api import ManagerApi
from deploy.top import command as top
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.resources import DAEMONSETS, DEPLOYMENTS, PODS, Resource
from tests.integration.manager.conftest import Cluster, StartManager, fetch
from tests.support import eventually
from tests.support.apiserver import ApiServer, write_kubeconfig


def printed(url: str, style: str, containing: str = "") -> str:
    with closing(ManagerApi(url)) as api:
        return top.run(api, style=style, sorting="mid", containing=containing)


def test_top_prints_what_the_manager_says_of_each_node(cluster: Cluster, start_manager: StartManager) -> None:
    cluster.configure()
    manager = start_manager()
    for name in ("n1", "n2"):
        cluster.add_reporting_node(name, at=time.time())
    url = "http://{}:{}".format(*manager.address)

    def rows() -> list[dict[str, object]]:
        return [row for row in fetch(manager, "/api/v1/nodes").json()["nodes"] if row["mid"]["cpu_milli"]]

    eventually(lambda: len(rows()) == 2)
    assert printed(url, "name", "n2") == "node/n2"
    answer = json.loads(printed(url, "json"))
    assert {row["name"]: row["mid"] for row in answer["nodes"]} == {row["name"]: row["mid"] for row in rows()}
    heading, *lines = printed(url, "table").splitlines()
    assert heading.split()[0] == "NODE"
    assert [line.split()[0] for line in lines] == ["n1", "n2"]
    assert all(str(row["reason"]) in printed(url, "wide") for row in rows())


def test_top_says_when_no_manager_answers(server: ApiServer) -> None:
    with pytest.raises(HeadroomError, match="no answer of a manager"):
        printed("http://127.0.0.1:9", "table")


def labels_of(component: str, version: str) -> dict[str, str]:
    part_of, _, headroom = versions.OURS.partition("=")
    return {part_of: headroom, versions.COMPONENT_LABEL: component, versions.VERSION_LABEL: version}


def labelled(client: Client, namespace: str, resource: Resource, kind: str, component: str, version: str) -> None:
    labels = labels_of(component, version)
    pod = {"nodeSelector": {"none": "there"}, "containers": [{"name": "main", "image": "none"}]}
    replicas = {"replicas": 0} if kind == "Deployment" else {}
    template = {"metadata": {"labels": labels}, "spec": pod}
    body = {
        "apiVersion": resource.api_version,
        "kind": kind,
        "metadata": {"name": component, "namespace": namespace, "labels": labels},
        "spec": {"selector": {"matchLabels": labels}, "template": template, **replicas},
    }
    client.create(resource, body, namespace)


def test_version_tells_what_is_installed_in_the_context_that_is_named(server: ApiServer, tmp_path: Path) -> None:
    namespace = server.add_namespace()
    labelled(server.client(), namespace, DAEMONSETS, "DaemonSet", "agent", "0.2.0")
    labelled(server.client(), namespace, DEPLOYMENTS, "Deployment", "manager", "0.3.0")
    for name, version in (("agent-1", "0.1.0"), ("agent-2", "0.2.0"), ("agent-3", "0.2.0")):
        pod = {"metadata": {"name": name, "labels": labels_of("agent", version)}}
        spec = {"containers": [{"name": "main", "image": "none"}], "nodeSelector": {"none": "there"}}
        server.client().create(PODS, {"apiVersion": "v1", "kind": "Pod", **pod, "spec": spec}, namespace)
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", server.connection)
    config = yaml.safe_load(kubeconfig.read_text())
    (there,) = config["contexts"]
    nowhere = {"name": "nowhere", "cluster": {"server": "https://127.0.0.1:9"}}
    config["clusters"].append(nowhere)
    config["contexts"].append({"name": "away", "context": {**there["context"], "cluster": "nowhere"}})
    config["current-context"] = "away"
    kubeconfig.write_text(yaml.safe_dump(config))

    found = json.loads(versions.run(ClusterContext(kubeconfig, there["name"]), "json"))
    here = {each["name"]: each for each in found["components"] if each["namespace"] == namespace}
    assert {name: each["version"] for name, each in here.items()} == {"agent": "0.2.0", "manager": "0.3.0"}
    assert here["agent"]["pods"] == {"0.1.0": 1, "0.2.0": 2}
    table = versions.run(ClusterContext(kubeconfig, there["name"]), "table")
    assert f"in namespace {namespace}, 1 pod of 0.1.0, 2 pods of 0.2.0" in table
    assert found["node_metric"] == ["v1alpha1"]
    assert found["problem"] == ""
    assert json.loads(versions.run(ClusterContext(kubeconfig), "json"))["problem"] != ""


def component(name: str, *pods: str) -> versions.Component:
    return versions.Component(name, "ns", "0.2.0", dict.fromkeys(pods, 1))


@pytest.mark.parametrize(
    ("client", "components", "pairs"),
    [
        ("0.2.0", [component("manager", "0.3.1"), component("agent", "0.2.0", "0.3.1")], 0),
        ("0.3.0", [component("manager", "0.2.0"), component("agent", "0.1.0")], 1),
        ("0.2.0", [component("manager", "0.1.0"), component("agent", "0.1.0", "0.3.0")], 1),
        ("1.0.0", [component("manager", "0.9.0"), component("agent", "0.9.0")], 2),
        ("0.2.0", [component("manager", "<unknown>"), component("agent", "main")], 0),
    ],
)
def test_pairs_that_are_more_than_one_minor_apart_are_named(
    client: str, components: list[versions.Component], pairs: int
) -> None:
    found = list(versions.unsupported(client, components))
    assert len(found) == pairs
    assert all("more than one minor version apart" in each for each in found)
