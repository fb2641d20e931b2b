"""Turns recommendations into something to apply: a kustomization of strategic merge patches, `kubectl patch` lines, or
Helm values in a known form. It applies nothing. Pure.
"""

import json
import shlex
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import yaml

from deploy.savings.recommending import ContainerRecommendation
from deploy.savings.usage import ContainerKey
from deploy.savings.workloads import ContainerRole
from shared import quantity

_API_VERSIONS = {
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "DaemonSet": "apps/v1",
    "ReplicaSet": "apps/v1",
    "Job": "batch/v1",
    "CronJob": "batch/v1",
    "ReplicationController": "v1",
}


class _Block(str):
    """A text to write line by line."""

    __slots__ = ()


class _Blocks(yaml.SafeDumper):
    """A YAML writer for such texts."""


_Blocks.add_representer(_Block, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|"))

VPA_LIKE = "headroom.io/recommendation"  # annotation in the form of a VerticalPodAutoscaler's status


def patches(made: Iterable[ContainerRecommendation]) -> list[dict[str, Any]]:
    """A strategic merge patch for each changed workload of a kind with a pod template."""
    by_owner: defaultdict[tuple[str, str, str], list[ContainerRecommendation]] = defaultdict(list)
    for each in made:
        if each.changes and each.container.key.kind in _API_VERSIONS:
            by_owner[each.container.key[:3]].append(each)
    return [_patch(owner, members) for owner, members in sorted(by_owner.items())]


def list_unpatched(made: Iterable[ContainerRecommendation]) -> list[ContainerKey]:
    """The changed containers without a known patch: pods without a workload, and pods of other kinds."""
    return [each.container.key for each in made if each.changes and each.container.key.kind not in _API_VERSIONS]


def kustomization(made: Iterable[ContainerRecommendation]) -> str:
    """A Kustomize component: include it under `components` beside the resources it patches."""
    listed = [
        {
            "patch": _Block(yaml.safe_dump(patch, sort_keys=False)),
            "target": {
                "kind": patch["kind"],
                "name": patch["metadata"]["name"],
                "namespace": patch["metadata"]["namespace"],
            },
        }
        for patch in patches(made)
    ]
    document = {"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component", "patches": listed}
    return yaml.dump(document, Dumper=_Blocks, sort_keys=False).rstrip()


def kubectl_lines(made: Iterable[ContainerRecommendation]) -> str:
    """A line for each workload."""
    lines = []
    for patch in patches(made):
        meta = patch["metadata"]
        content = shlex.quote(json.dumps({"spec": patch["spec"]}, separators=(",", ":")))
        lines.append(
            f"kubectl patch {patch['kind'].lower()} {meta['name']} --namespace {meta['namespace']} "
            f"--type strategic --patch {content}"
        )
    return "\n".join(lines)


def helm_values(made: Iterable[ContainerRecommendation]) -> str:
    """Values in the form of `helm create`, `resources`, for workloads of one container; by workload, as each chart has
    its own file.
    """
    listed = {}
    for each in made:
        key = each.container.key
        if each.changes and each.container.containers == 1 and key.kind in _API_VERSIONS:
            listed[key.owner] = {"resources": _resources(each)}
    return yaml.safe_dump(listed, sort_keys=True).rstrip() if listed else "{}"


def annotations(made: Iterable[ContainerRecommendation]) -> str:
    """A line for each workload that annotates it with its recommendation, in the form of a VerticalPodAutoscaler's
    status.
    """
    by_owner: defaultdict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
    for each in made:
        if each.container.key.kind in _API_VERSIONS and each.use is not None:
            target = _amounts(each.cpu.request, each.memory.request)
            by_owner[each.container.key[:3]].append({"containerName": each.container.key.container, "target": target})
    lines = []
    for (namespace, kind, name), listed in sorted(by_owner.items()):
        note = shlex.quote(f"{VPA_LIKE}={json.dumps({'containerRecommendations': listed}, separators=(',', ':'))}")
        lines.append(f"kubectl annotate {kind.lower()} {name} --namespace {namespace} --overwrite {note}")
    return "\n".join(lines)


def _patch(owner: tuple[str, str, str], members: list[ContainerRecommendation]) -> dict[str, Any]:
    namespace, kind, name = owner
    main = [_container(each) for each in members if each.container.role is ContainerRole.MAIN]
    started = [_container(each) for each in members if each.container.role is not ContainerRole.MAIN]
    pod: dict[str, Any] = {}
    if main:
        pod["containers"] = main
    if started:
        pod["initContainers"] = started
    spec: dict[str, Any] = {"template": {"spec": pod}}
    if kind == "CronJob":
        spec = {"jobTemplate": {"spec": spec}}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": _API_VERSIONS[kind], "kind": kind, "metadata": metadata, "spec": spec}


def _container(of: ContainerRecommendation) -> dict[str, Any]:
    return {"name": of.container.key.container, "resources": _resources(of)}


def _resources(of: ContainerRecommendation) -> dict[str, Any]:
    """The resources to set; null removes a limit."""
    now = of.container
    found: dict[str, Any] = {}
    if requests := _amounts(of.cpu.request, of.memory.request):
        found["requests"] = requests
    limits: dict[str, str | None] = {}
    limits |= _amounts(of.cpu.limit, of.memory.limit)
    for resource, before, after in (
        ("cpu", now.cpu_limit, of.cpu.limit),
        ("memory", now.memory_limit, of.memory.limit),
    ):
        if before is not None and after is None:
            limits[resource] = None
    if limits:
        found["limits"] = limits
    return found


def _amounts(cpu: int | None, memory: int | None) -> dict[str, str]:
    found = {}
    if cpu is not None:
        found["cpu"] = quantity.format_milli(cpu)
    if memory is not None:
        found["memory"] = quantity.format_bytes(memory)
    return found
