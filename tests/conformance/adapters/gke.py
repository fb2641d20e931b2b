"""Google Kubernetes Engine's rules for provisioned nodes."""

from collections.abc import Callable
from typing import Any

from manager.autoscaler.cloudprovider import gke
from manager.autoscaler.pricing.gce import LABEL_ACCELERATOR
from shared.errors import InvalidInput

Input = dict[str, Any]  # a row's input, JSON of the row's own making


def kube_reserved(row: Input) -> object:
    if "memory_mib" in row:
        return {"reserved_mib": gke.reserved_memory_mib(row["memory_mib"])}
    return {"reserved_milli": gke.reserved_cpu_milli(row["cpu_milli"])}


def nap_gke(row: Input) -> object:
    system_labels = row.get("system_labels", {} if "machine" in row else {gke.LABEL_ZONE: "us-west1-b"})
    try:
        plan = gke.plan(row.get("machine", "n1-standard-1"), row.get("labels", {}), system_labels, row.get("extra", {}))
    except InvalidInput:
        return {"error": True}
    return {
        "name_prefix": plan.name_prefix,
        "autoprovisioned": plan.autoprovisioned,
        "min": plan.min_size,
        "max": plan.max_size,
        "labels": plan.labels,
        "taints": [f"{taint.key}={taint.value}:{taint.effect}" for taint in plan.taints],
    }


def nap_gpu(row: Input) -> object:
    if "pods" in row:
        pods = (
            ({LABEL_ACCELERATOR: pod["selector_type"]} if "selector_type" in pod else {}, pod["gpu"])
            for pod in row["pods"]
        )
        return {
            kind: {"max_request": found.max_request, "pods": found.pods}
            for kind, found in gke.gpu_requests(pods).items()
        }
    if "gpus" in row:
        try:
            return gke.normalized_gpus(row["gpus"])
        except InvalidInput:
            return {"error": True}
    try:
        gke.check_gpus(row["type"], row["count"], row["zone"], row["machine"])
    except InvalidInput:
        return {"valid": False}
    return {"valid": True}


ADAPTERS: dict[str, Callable[[Any], object]] = {
    "kube_reserved": kube_reserved,
    "nap_gke": nap_gke,
    "nap_gpu": nap_gpu,
}
