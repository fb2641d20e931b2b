"""`headroom support-bundle` of a cluster in which secrets were planted."""

import json
import tarfile
import time
from pathlib import Path

import pytest

from deploy.access import ClusterContext
from deploy.support import bundle
from shared.errors import InvalidInput
from shared.kube.resources import CONFIGMAPS, DEPLOYMENTS, EVENTS, NODES, PODS, SECRETS
from tests.integration.manager.conftest import Cluster, StartManager
from tests.integration.manager.test_cluster_commands import labelled
from tests.support import eventually
from tests.support.apiserver import ApiServer, write_kubeconfig

PLANTED = "hunter2-planted"
LABELS = {"app.kubernetes.io/part-of": "headroom"}


def plant(server: ApiServer, cluster: Cluster, namespace: str) -> None:
    client = server.client()
    metadata = {"name": "planted", "labels": LABELS}
    applied = {"kubectl.kubernetes.io/last-applied-configuration": PLANTED}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"a": PLANTED}}
    client.create(SECRETS, secret, cluster.namespace)
    data = {"settings.yaml": f"mode: enforce\npassword: {PLANTED}"}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata | {"annotations": applied}, "data": data}
    client.create(CONFIGMAPS, body, cluster.namespace)
    container = {
        "name": "main",
        "image": "none",
        "env": [{"name": "A", "value": PLANTED}],
        "args": ["--token", PLANTED],
    }
    spec = {"containers": [container], "nodeSelector": {"none": "there"}}
    client.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, namespace)
    labelled(client, namespace, DEPLOYMENTS, "Deployment", "manager", "0.1.0")
    client.patch(NODES, "n1", {"metadata": {"annotations": {"example.com/api-key": PLANTED}}})
    for component in ("headroom-manager", "kubelet"):
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"planted-{component}"},
            "involvedObject": {"kind": "Pod", "name": "planted", "namespace": namespace},
            "reason": "Planted",
            "message": f"password: {PLANTED}",
            "source": {"component": component},
        }
        client.create(EVENTS, event, namespace)


def test_a_bundle_has_what_concerns_headroom_and_no_secret(
    server: ApiServer, cluster: Cluster, start_manager: StartManager, tmp_path: Path
) -> None:
    cluster.configure()
    manager = start_manager()
    cluster.add_reporting_node("n1", at=time.time())
    eventually(lambda: cluster.mid("n1") is not None)
    namespace = server.add_namespace()
    plant(server, cluster, namespace)
    access = ClusterContext(write_kubeconfig(tmp_path / "kubeconfig", server.connection))
    url = "http://{}:{}".format(*manager.address)
    target = tmp_path / "bundle.tar.gz"
    missing = bundle.write(target, access, namespace=cluster.namespace, manager=url, service="none")

    with tarfile.open(target) as archive:
        files = {each.name.partition("/")[2]: archive.extractfile(each) for each in archive.getmembers()}
        texts = {name: file.read().decode() for name, file in files.items() if file is not None}
    assert target.stat().st_mode & 0o077 == 0
    assert not [name for name, text in texts.items() if PLANTED in text]
    assert "objects/secrets.json" not in texts

    def listed(kind: str) -> list[str]:
        return [each["metadata"]["name"] for each in json.loads(texts[f"objects/{kind}.json"])["items"]]

    assert "n1" in listed("nodes")
    assert "n1" in listed("nodemetrics")
    assert {"planted", "slo-controller-config"} <= set(listed("configmaps"))
    assert listed("pods") == ["planted"]
    assert "manager" in listed("deployments")
    assert "planted-headroom-manager" in listed("events")
    assert "planted-kubelet" not in listed("events")
    assert "headroom_manager_" in texts["manager/metrics.txt"]
    assert [each["name"] for each in json.loads(texts["manager/api-v1-nodes.txt"])["nodes"]] == ["n1"]
    assert json.loads(texts["check.json"])["findings"]
    # There is no autoscaler here.
    assert {each.partition(":")[0] for each in missing} <= {
        f"manager/api-v1-{part}.txt" for part in ("decisions", "groups", "autoscaler-nodes")
    }
    with pytest.raises(InvalidInput, match="it exists"):
        bundle.write(target, access, namespace=cluster.namespace, manager=url, service="none")
    client = server.client()
    for resource, name, within in (
        (SECRETS, "planted", cluster.namespace),
        (CONFIGMAPS, "planted", cluster.namespace),
        (DEPLOYMENTS, "manager", namespace),
        (PODS, "planted", namespace),
    ):
        client.delete(resource, name, within)


def test_a_bundle_without_a_manager_says_what_is_missing(server: ApiServer, cluster: Cluster, tmp_path: Path) -> None:
    access = ClusterContext(write_kubeconfig(tmp_path / "kubeconfig", server.connection))
    target = tmp_path / "bundle.tar.gz"
    missing = bundle.write(target, access, namespace=cluster.namespace, manager="http://127.0.0.1:9", service="none")
    assert any("no answer of a manager" in each for each in missing)
    with tarfile.open(target) as archive:
        assert "headroom-support/missing.txt" in archive.getnames()
