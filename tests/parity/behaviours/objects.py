"""The objects that behaviours make."""

from typing import Any

Object = dict[str, Any]

POD: Object = {
    "metadata": {"name": "a", "labels": {"app": "a"}},
    "spec": {"containers": [{"name": "c", "image": "busybox:1"}]},
}
NODE_METRIC: Object = {
    "apiVersion": "slo.koordinator.sh/v1alpha1",
    "kind": "NodeMetric",
    "metadata": {"name": "$me", "labels": {"test": "$me"}},
}
USAGE = {"resources": {"cpu": "1500m", "memory": "2Gi"}}
# As the node controllers of a cluster leave it.
NODE: Object = {
    "metadata": {
        "name": "$me",
        "labels": {"test": "$me"},
        "annotations": {"node.alpha.kubernetes.io/ttl": "0"},
    },
    "status": {
        "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ok"}],
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
    },
}


def config_map(name: str = "a", **fields: Any) -> Object:
    return {"metadata": {"name": name}} | fields


def applied(**fields: Any) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}} | fields


def lease(name: str = "a", **spec: Any) -> Object:
    return {"metadata": {"name": name}, "spec": spec}


def labelled(name: str, **labels: str) -> Object:
    """A Lease: nobody but its test makes any in a namespace."""
    return {"metadata": {"name": name, "labels": labels}}


def pod(name: str = "a", labels: dict[str, str] | None = None, **spec: Any) -> Object:
    return {"metadata": {"name": name, "labels": labels or {"app": name}}, "spec": POD["spec"] | spec}


def deployment(replicas: int = 0) -> Object:
    return {
        "metadata": {"name": "a"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "a"}},
            "template": {"metadata": {"labels": {"app": "a"}}, "spec": POD["spec"]},
        },
    }


def owner(obj: Object, **more: Any) -> Object:
    """A reference to an object as its owner."""
    about = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": obj["metadata"]["name"]}
    return about | {"uid": obj["metadata"]["uid"]} | more


def event(**fields: Any) -> Object:
    about = {"kind": "Pod", "namespace": "$ns", "name": "a", "uid": "u", "apiVersion": "v1"}
    plain = {"metadata": {"name": "a"}, "involvedObject": about, "reason": "Tested", "message": "m", "type": "Normal"}
    return plain | fields
