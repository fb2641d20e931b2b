"""Pods of a dump share what is equal, and are read as any other reader would read them."""

import json
from pathlib import Path
from typing import Any

import pytest

from deploy import dumps
from deploy.savings.objects import SeenPod
from shared.errors import InvalidInput


def pod(number: int, **spec: Any) -> dict[str, Any]:
    token = {"mountPath": "/var/run/secrets", "name": f"kube-api-access-{number:05d}"}
    container = {
        "args": ['"nodeName": "x",', "kube-api-access-zzzzz"],
        "name": "main",
        "resources": {"requests": {"cpu": "1"}},
        "volumeMounts": [token],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "creationTimestamp": f"2026-01-01T00:00:{number:02d}Z",
            "labels": {"app": "web"},
            "managedFields": [{"time": f"2026-01-02T00:00:{number:02d}Z"}],
            "name": f"web-{number}",
            "namespace": "shop",
            "ownerReferences": [{"controller": True, "kind": "ReplicaSet", "name": "web"}],
        },
        "spec": {
            "containers": [container],
            "nodeName": f"node-{number}",
            "schedulerName": "default-scheduler",
            "volumes": [{"name": token["name"], "projected": {"defaultMode": 420}}],
            **spec,
        },
        "status": {"conditions": [{"lastProbeTime": None, "type": "Ready"}], "phase": "Running"},
    }


def read(path: Path, items: list[dict[str, Any]], indent: int | None) -> list[SeenPod]:
    document = {"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}}
    path.write_text(json.dumps(document, indent=indent) + "\n")
    return dumps.read([path], {"Pod": SeenPod}, lambda _kind, _head: True).of(SeenPod)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"nodeName": ""},
        {"nodeName": None},
        {"overhead": {"cpu": "1"}, "hostNetwork": True},
        {"affinity": {"nodeAffinity": {}}, "resources": None, "tolerations": None},
    ],
)
def test_a_pod_of_a_list_as_kubectl_prints_it_is_what_it_is_elsewhere(tmp_path: Path, changed: dict[str, Any]) -> None:
    items = [pod(0), pod(1, **changed), pod(2), {**pod(3), "status": None}, {**pod(4), "zzz": {}}]
    found, expected = (read(tmp_path / f"{indent}.json", items, indent) for indent in (4, None))
    assert len(found) == len(items)
    for one, other in zip(found, expected, strict=True):
        assert one.metadata.name == other.metadata.name
        assert one.metadata.labels == other.metadata.labels
        assert one.status == other.status
        assert one.spec.node_name == other.spec.node_name
        assert one.spec.containers == other.spec.containers
        assert one.spec.overhead == other.spec.overhead
        assert one.spec.host_network == other.spec.host_network
        assert (one.spec.volumes or ())[0].projected is not None


def test_pods_of_one_workload_share_their_spec_and_labels(tmp_path: Path) -> None:
    one, other = read(tmp_path / "pods.json", [pod(1), pod(2)], 4)
    assert one.spec.containers is other.spec.containers
    assert one.metadata.labels is other.metadata.labels
    assert one.metadata.owner_references is other.metadata.owner_references
    assert (one.spec.node_name, other.spec.node_name) == ("node-1", "node-2")
    assert one.spec.containers[0].args == ('"nodeName": "x",', "kube-api-access-zzzzz")


def test_the_newest_instant_of_shared_pods_is_that_of_the_dump(tmp_path: Path) -> None:
    path = tmp_path / "pods.json"
    read(path, [pod(1), pod(9), pod(2)], 4)
    assert dumps.read([path], {"Pod": SeenPod}, lambda _kind, _head: False).now == 1767312009.0


def test_what_is_wrong_with_a_pod_among_equal_ones_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"items\[1\] Pod web-2 spec.containers\[0\].name"):
        read(tmp_path / "pods.json", [pod(1), pod(2, containers=[{"name": 5}])], 4)
    with pytest.raises(InvalidInput, match=r"items\[0\] Pod web-3 metadata.creationTimestamp"):
        read(tmp_path / "pods.json", [{**pod(3), "metadata": {"name": "web-3", "creationTimestamp": "noon"}}], 4)
