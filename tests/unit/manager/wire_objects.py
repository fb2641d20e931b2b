"""Nodes and pods as the API server prints them, with all that scheduling looks at, for tests that try many."""

from typing import Any

import msgspec
from hypothesis import strategies as st

from manager.autoscaler.snapshot.cluster import LABEL_HOSTNAME
from manager.autoscaler.snapshot.referenced_objects import ReferencedObjects
from shared.api.core import Node, PersistentVolume, PersistentVolumeClaim, Pod
from shared.names import MID_CPU
from tests.support.independent_checker import CheckedPod, Machine, World

ZONE = "topology.kubernetes.io/zone"
RACK = "rack"
APPS = ("a", "b")
KEYS = (LABEL_HOSTNAME, ZONE, RACK)
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

NAMESPACES = {"default": {"team": "x"}, "other": {"team": "y"}}
IN_ZONE = {"nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["z1"]}]}]}
VOLUMES: dict[str, dict[str, Any]] = {
    "local": {"metadata": {"name": "local"}, "spec": {"nodeAffinity": {"required": IN_ZONE}}},
    "zonal": {"metadata": {"name": "zonal", "labels": {ZONE: "z2__z3"}}, "spec": {}},
}
CLAIMS: dict[str, dict[str, Any]] = {
    f"{namespace}/{name}": {"metadata": {"name": name, "namespace": namespace}, "spec": {"volumeName": volume}}
    for namespace in NAMESPACES
    for name, volume in (("data", "local"), ("share", "zonal"), ("unbound", ""))
}
SURROUNDINGS = ReferencedObjects(
    NAMESPACES,
    {key: msgspec.convert(claim, PersistentVolumeClaim) for key, claim in CLAIMS.items()},
    {name: msgspec.convert(volume, PersistentVolume) for name, volume in VOLUMES.items()},
)


def world(machines: list[Machine]) -> World:
    """The same surroundings for the independent checker."""
    return World(machines, NAMESPACES, CLAIMS, VOLUMES)


def raw_pod(name: str, owner: str, spec: dict[str, Any], app: str = "a", namespace: str = "default") -> dict[str, Any]:
    owners = [{"kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}]
    labels = {"app": app, "hash": owner[-1]}
    meta = {"name": name, "namespace": namespace, "labels": labels, "ownerReferences": owners}
    return {"metadata": meta, "spec": spec}


def pod(name: str, owner: str, spec: dict[str, Any], app: str = "a", namespace: str = "default") -> Pod:
    return msgspec.convert(raw_pod(name, owner, spec, app, namespace), Pod)


def raw_node(
    name: str,
    labels: dict[str, str],
    amounts: dict[str, str],
    taints: list[dict[str, str]] | None = None,
    *,
    unschedulable: bool = False,
) -> dict[str, Any]:
    labels = {LABEL_HOSTNAME: name, **labels}
    spec = {"taints": taints or [], "unschedulable": unschedulable}
    status = {"capacity": amounts, "allocatable": amounts}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}


def node(
    name: str, labels: dict[str, str], amounts: dict[str, str], taints: list[dict[str, str]] | None = None
) -> Node:
    return msgspec.convert(raw_node(name, labels, amounts, taints), Node)


def checked(given: Pod) -> CheckedPod:
    return CheckedPod(msgspec.to_builtins(given))


def terms(key: str, app: str, **more: Any) -> dict[str, Any]:
    return {REQUIRED: [{"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}]}


def _rarely(draw: st.DrawFn, once_in: int) -> bool:
    return draw(st.integers(1, once_in)) == once_in


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    """Of pods that ask for all there is, each thing in some of them."""
    requests = {"cpu": f"{draw(st.integers(0, 12))}00m", "memory": f"{draw(st.integers(0, 8))}Mi"}
    if _rarely(draw, 6):
        requests["example.com/gpu"] = "1"
    if _rarely(draw, 8):
        requests[MID_CPU] = "700"
    container: dict[str, Any] = {"name": "c", "resources": {"requests": requests}}
    if _rarely(draw, 6):
        address = draw(st.sampled_from(["", "127.0.0.1", "127.0.0.2"]))
        container["ports"] = [{"hostPort": draw(st.integers(80, 81)), "hostIP": address}]
    spec: dict[str, Any] = {"containers": [container], "affinity": {}}
    if _rarely(draw, 6):
        spec["initContainers"] = [
            {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "300m"}}},
            {"name": "i", "resources": {"requests": {"memory": "6Mi"}}},
        ]
    if _rarely(draw, 8):
        spec["overhead"] = {"cpu": "150m", "memory": "1Mi"}
    if _rarely(draw, 10):
        spec["resources"] = {"requests": {"cpu": "1100m"}}
    if _rarely(draw, 6):
        claim = draw(st.sampled_from(["data", "share", "unbound"]))
        spec["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]
    if _rarely(draw, 5):
        spec["nodeSelector"] = {"pool": draw(st.sampled_from(["x", "y"]))}
    if _rarely(draw, 3):
        spec["tolerations"] = [draw(st.sampled_from(_TOLERATIONS))]
    if _rarely(draw, 6):
        expression = draw(st.sampled_from(_EXPRESSIONS))
        other = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
        listed = [{"matchExpressions": [expression]}, *([other] if draw(st.booleans()) else [])]
        spec["affinity"]["nodeAffinity"] = {REQUIRED: {"nodeSelectorTerms": listed}}
    for kind in ("podAffinity", "podAntiAffinity"):
        if _rarely(draw, 5):
            more = draw(st.sampled_from(_WHOSE))
            spec["affinity"][kind] = terms(draw(st.sampled_from(KEYS)), draw(st.sampled_from(APPS)), **more)
    if _rarely(draw, 4):
        spec["topologySpreadConstraints"] = [
            {
                "topologyKey": key,
                "maxSkew": draw(st.integers(1, 2)),
                "minDomains": draw(st.sampled_from([None, 2, 3])),
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": draw(st.sampled_from(_SPREAD)),
                "nodeAffinityPolicy": draw(st.sampled_from(["Honor", "Ignore"])),
                "nodeTaintsPolicy": draw(st.sampled_from(["Honor", "Ignore"])),
                "matchLabelKeys": draw(st.sampled_from([None, ["hash"]])),
            }
            for key in draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=2, unique=True))
        ]
    return spec


_SPREAD: list[dict[str, Any] | None] = [*({"matchLabels": {"app": app}} for app in APPS * 3), {}, None]
_TOLERATIONS: list[dict[str, str]] = [
    {"key": "dedicated", "operator": "Exists"},
    {"key": "dedicated", "operator": "Equal", "value": "x", "effect": "NoSchedule"},
    {"key": "dedicated", "operator": "Equal", "value": "y"},
    {"operator": "Exists", "effect": "NoExecute"},
]
_EXPRESSIONS: list[dict[str, Any]] = [
    {"key": ZONE, "operator": "In", "values": ["z1"]},
    {"key": ZONE, "operator": "NotIn", "values": ["z1"]},
    {"key": ZONE, "operator": "Exists"},
    {"key": ZONE, "operator": "DoesNotExist"},
    {"key": "cores", "operator": "Gt", "values": ["2"]},
    {"key": "cores", "operator": "Lt", "values": ["3"]},
]
_WHOSE: list[dict[str, Any]] = [
    {},
    {},
    {"namespaces": ["other"]},
    {"namespaceSelector": {}},
    {"namespaceSelector": {"matchLabels": {"team": "y"}}},
    {"matchLabelKeys": ["hash"]},
    {"mismatchLabelKeys": ["hash"]},
]


@st.composite
def raw_nodes(draw: st.DrawFn, name: str, *, unschedulable: bool = False) -> dict[str, Any]:
    labels = draw(
        st.fixed_dictionaries(
            {},
            optional={
                ZONE: st.sampled_from(["z1", "z2"]),
                RACK: st.sampled_from(["r1", "r2"]),
                "pool": st.sampled_from(["x", "y"]),
            },
        )
    )
    cores = draw(st.integers(1, 4))
    taints = [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}] if draw(st.integers(0, 3)) == 0 else []
    amounts = {
        "cpu": str(cores),
        "memory": f"{draw(st.integers(4, 40))}Mi",
        "pods": str(draw(st.integers(1, 8))),
        "example.com/gpu": str(draw(st.integers(0, 2))),
        MID_CPU: str(draw(st.sampled_from([0, 1000]))),
    }
    return raw_node(name, {**labels, "cores": str(cores)}, amounts, taints, unschedulable=unschedulable)


def nodes(name: str) -> st.SearchStrategy[Node]:
    return raw_nodes(name).map(lambda raw: msgspec.convert(raw, Node))
