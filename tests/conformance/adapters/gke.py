"""Google Kubernetes Engine's rules for provisioned nodes."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from manager.autoscaler.cloudprovider import gke
from manager.autoscaler.cloudprovider.contract import Created, GroupSpec
from manager.autoscaler.cloudprovider.errors import ProviderError
from manager.autoscaler.cloudprovider.simulated import fake_nodes
from manager.autoscaler.cloudprovider.simulated.cloud_state import SimulatedState
from manager.autoscaler.cloudprovider.simulated.offer import MachineOffer
from manager.autoscaler.cloudprovider.simulated.provider import SimulatedProvider
from manager.autoscaler.cloudprovider.simulated.state_store import Unwritten
from manager.autoscaler.pricing.gce import LABEL_ACCELERATOR
from manager.autoscaler.pricing.model import NVIDIA_GPU
from manager.autoscaler.scale_up.candidate_labels import GpuRules, gpu_demands
from manager.autoscaler.snapshot.equivalence_groups import EquivalenceGroup
from manager.autoscaler.snapshot.pod_info import NodeDemands, PodInfo
from shared.api.core import Node
from shared.clock import ManualClock
from shared.errors import InvalidInput

Input = dict[str, Any]  # a row's input, JSON of the row's own making


def kube_reserved(row: Input) -> object:
    if "memory_mib" in row:
        return {"reserved_mib": gke.reserved_memory_mib(row["memory_mib"])}
    return {"reserved_milli": gke.reserved_cpu_milli(row["cpu_milli"])}


def nap_gke(row: Input) -> object:
    system_labels = row.get("system_labels", {} if "machine" in row else {gke.LABEL_ZONE: "us-west1-b"})
    labels = {
        **row.get("labels", {}),
        **{key: system_labels[key] for key in (LABEL_ACCELERATOR,) if key in system_labels},
    }
    zone = system_labels.get(gke.LABEL_ZONE) or system_labels.get(gke.LABEL_ZONE_BETA)
    spec = GroupSpec(row.get("machine", "n1-standard-1"), "nap", labels, (), row.get("extra", {}))
    try:
        created, template = _made(spec, zone)
    except (InvalidInput, ProviderError):
        return {"error": True}
    group, node = created.main, template.metadata.labels or {}
    return {
        "name_prefix": group.id[: group.id.rindex("-") + 1],
        "autoprovisioned": group.autoprovisioned,
        "min": group.min_size,
        "max": group.max_size,
        "labels": {
            key: value for key, value in node.items() if key not in (gke.LABEL_HOSTNAME, fake_nodes.LABEL_CLOUD)
        },
        "taints": [f"{taint.key}={taint.value}:{taint.effect}" for taint in template.spec.taints or ()],
    }


def _made(spec: GroupSpec, zone: str | None) -> tuple[Created, Node]:
    """The group, and its next Node, of a cloud that is in this zone alone."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cloud.yaml"
        path.write_text(yaml.safe_dump({"autoprovisioning": {"zones": [zone or ""]}}))
        cloud = SimulatedProvider(MachineOffer(path), Unwritten(SimulatedState), list, ManualClock())
        created = cloud.create_group(spec)
        return created, cloud.template(created.main.id)


def _requests(pods: Sequence[Input]) -> object:
    """By type of GPU the most that one pod asks for, and how many pods ask."""
    classes = [
        EquivalenceGroup(
            PodInfo(
                requests={NVIDIA_GPU: each["gpu"]},
                demands=NodeDemands(
                    ((LABEL_ACCELERATOR, each["selector_type"]),) if "selector_type" in each else (),
                ),
            ),
            (f"pod-{number}",),
        )
        for number, each in enumerate(pods)
    ]
    largest = {each.kind: each.classes for each in gpu_demands(classes, GpuRules())}
    return {
        kind: {"max_request": max(each.facts.requests[NVIDIA_GPU] for each in members), "pods": len(members)}
        for kind, members in largest.items()
    }


def nap_gpu(row: Input) -> object:
    if "pods" in row:
        return _requests(row["pods"])
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
