"""The scale subresource of custom kinds: their replicas as an autoscaling/v1 Scale."""

from deploy.local.apiserver import status
from deploy.local.apiserver.objects import Json, JsonObject, dig

SUBRESOURCE = "scale"
_SHOWN = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def scale_of(obj: JsonObject) -> JsonObject:
    meta = obj["metadata"]
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: meta[key] for key in _SHOWN if key in meta},
        "spec": {"replicas": dig(obj, "spec", "replicas") or 0},
        "status": {"replicas": dig(obj, "status", "replicas") or 0},
    }


def scaled(obj: JsonObject, scale: Json) -> JsonObject:
    """The object with a Scale's replicas, at the version that the Scale names, if any."""
    replicas = dig(scale, "spec", "replicas") or 0
    if type(replicas) is not int or replicas < 0:
        wrong = status.invalid_value("spec.replicas", replicas, "should be a non-negative integer")
        raise status.invalid("autoscaling", "Scale", obj["metadata"]["name"], [wrong])
    meta = dict(obj["metadata"])
    if version := dig(scale, "metadata", "resourceVersion"):
        meta["resourceVersion"] = version
    return {**obj, "metadata": meta, "spec": {**(obj.get("spec") or {}), "replicas": replicas}}
