"""A small shop on three machines of Amazon's, as kubectl prints it, and what its containers used."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.unit.backtest.prometheus_server import PrometheusServer

DAY = 86_400.0
END = 1_767_225_600.0  # 2026-01-01T00:00:00Z, where a day begins
NOW = "2026-01-01T00:00:00Z"
GIB, MIB = 1 << 30, 1 << 20
POOL = "eks.amazonaws.com/nodegroup"

Used = Callable[[float], float | None]


def node(name: str, machine: str = "m5.xlarge", cores: int = 4, pool: str = "workers", **labels: str) -> dict[str, Any]:
    amounts = {"cpu": str(cores), "memory": f"{cores * 4}Gi", "pods": "110"}
    about = {
        POOL: pool,
        "node.kubernetes.io/instance-type": machine,
        "topology.kubernetes.io/region": "us-east-1",
        "kubernetes.io/hostname": name,
    }
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": about | labels, "creationTimestamp": "2025-12-01T00:00:00Z"},
        "spec": {"providerID": f"aws:///us-east-1a/{name}"},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def container(name: str = "main", cpu: str = "", memory: str = "", **more: Any) -> dict[str, Any]:
    requests = {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value}
    limits = more.pop("limits", {})
    return {"name": name, "image": "registry/app:1", "resources": {"requests": requests, "limits": limits}, **more}


def pod(
    name: str, workload: str, on: str | None, *containers: dict[str, Any], kind: str = "ReplicaSet", **more: Any
) -> dict[str, Any]:
    hashed = {"pod-template-hash": "5d9c7b"} if kind == "ReplicaSet" else {}
    owner = {
        "kind": kind,
        "name": f"{workload}-5d9c7b" if kind == "ReplicaSet" else workload,
        "controller": True,
        "apiVersion": "apps/v1",
        "uid": workload,
    }
    status = {"phase": "Running", **more.pop("status", {})}
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": name,
            "labels": {"app": workload, **hashed},
            "ownerReferences": [owner],
            "creationTimestamp": "2025-12-02T00:00:00Z",
        },
        "spec": {"containers": list(containers), **({"nodeName": on} if on else {}), **more},
        "status": status,
    }


def shop() -> Iterator[dict[str, Any]]:
    """Three nodes of four cores. Of the web's nine cores requested, two are used."""
    yield from (node(name) for name in ("a", "b", "c"))
    for number, place in enumerate("abc"):
        yield pod(f"web-5d9c7b-{number}", "web", place, container("main", "3", "10Gi", limits={"memory": "12Gi"}))


def dumped(path: Path, *objects: dict[str, Any]) -> Path:
    """Written as kubectl prints it."""
    path.write_text(json.dumps({"kind": "List", "items": list(objects)}))
    return path


def serve(server: PrometheusServer, used: Mapping[tuple[str, str], tuple[float, float]], days: float = 8.0) -> None:
    """Each container, by pod and name, uses so many cores and bytes for so many days."""

    def series(place: int, share: float = 1.0) -> list[tuple[dict[str, str], Used]]:
        def at(amount: float) -> Used:
            return lambda time: amount * share if time >= END - days * DAY else None

        return [
            ({"namespace": "shop", "pod": pod_name, "container": name}, at(amounts[place]))
            for (pod_name, name), amounts in used.items()
        ]

    def counts() -> list[tuple[dict[str, str], Used]]:
        return [(labels, lambda time: 288.0 if time >= END - days * DAY + DAY else None) for labels, _ in series(0)]

    # A query is answered by the first key that is part of it.
    server.series = {
        "kube_pod_container_status_last_terminated_reason": [],
        "throttled": [],
        "count_over_time": counts(),
        "quantile_over_time(0.5, (sum by (namespace, pod, container) (rate(": series(0, 0.5),
        "container_cpu_usage_seconds_total": series(0),
        "container_memory_working_set_bytes": series(1),
        "headroom_manager_node_": [],
    }
