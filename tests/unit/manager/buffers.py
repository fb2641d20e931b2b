"""CapacityBuffers for tests, with what they look like."""

from typing import Any

import msgspec

from shared.api.capacitybuffer import CapacityBuffer, ChunkSource, ChunkSourceRef

TEMPLATE = ChunkSourceRef("", "PodTemplate", "ns", "chunk")
DEPLOYMENT = ChunkSourceRef("apps", "Deployment", "ns", "web")


def buffer(name: str = "b", *, on_mid: str | None = None, of: ChunkSourceRef = TEMPLATE, **spec: Any) -> CapacityBuffer:
    ref = {"podTemplateRef": {"name": of.name}}
    if of.kind != "PodTemplate":
        ref = {"scalableRef": {"apiGroup": of.api_group, "kind": of.kind, "name": of.name}}
    meta: dict[str, Any] = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "generation": 3}
    if on_mid is not None:
        meta["annotations"] = {"headroom.io/buffer-on-mid": on_mid}
    return msgspec.convert({"metadata": meta, "spec": {**ref, **spec}}, CapacityBuffer)


def pod_template(requests: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": requests or {"cpu": "3"}}}
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container], **spec}}


def template(requests: dict[str, str] | None = None, **spec: Any) -> ChunkSource:
    raw = {
        "metadata": {"name": "chunk", "namespace": "ns", "generation": 7},
        "template": pod_template(requests, **spec),
    }
    return msgspec.convert(raw, ChunkSource)


def deployment(replicas: int, requests: dict[str, str] | None = None) -> ChunkSource:
    spec = {"replicas": 99, "template": pod_template(requests)}
    raw = {"metadata": {"name": "web", "namespace": "ns"}, "spec": spec, "status": {"replicas": replicas}}
    return msgspec.convert(raw, ChunkSource)
