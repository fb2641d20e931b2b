"""What a group's annotations say, which are Cluster Autoscaler's: its bounds, its options, and its next node. Pure.

cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size: "0"      # and max-size
cluster.x-k8s.io/autoscaling-options-scaledownunneededtime: 10m
capacity.cluster-autoscaler.kubernetes.io/cpu: "4"                     # memory, ephemeral-disk, maxPods
capacity.cluster-autoscaler.kubernetes.io/gpu-type: nvidia.com/gpu     # and gpu-count
capacity.cluster-autoscaler.kubernetes.io/labels: key=value,other=value
capacity.cluster-autoscaler.kubernetes.io/taints: key=value:NoSchedule

A value that means nothing is refused, with annotation and value.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from manager.autoscaler.cloudprovider import node_template
from manager.autoscaler.cloudprovider.cloud_file import TAINT_EFFECTS
from manager.autoscaler.cloudprovider.clusterapi import NAME
from manager.autoscaler.cloudprovider.contract import GroupOptions
from manager.autoscaler.cloudprovider.errors import InvalidAnswer
from manager.autoscaler.cloudprovider.node_template import LABEL_KEY, LABEL_VALUE
from manager.autoscaler.cloudprovider.ownership import SizeBounds
from shared import quantity
from shared.api.core import Quantities, Taint
from shared.names import CPU, MEMORY
from shared.quantity import MILLI_PER_CORE

CAPACITY = "capacity.cluster-autoscaler.kubernetes.io/"
LABELS, TAINTS, GPU_TYPE, GPU_COUNT, MAX_PODS = (
    CAPACITY + name for name in ("labels", "taints", "gpu-type", "gpu-count", "maxPods")
)
PODS, DEFAULT_PODS = "pods", "110"
_AMOUNTS = {CAPACITY + "cpu": CPU, CAPACITY + "memory": MEMORY, CAPACITY + "ephemeral-disk": "ephemeral-storage"}
_MOST_CORES, _LEAST_MEMORY_BYTES = 2_000, 64 << 20  # beyond them, a unit is wrong
_COUNT = re.compile(r"[0-9]{1,9}", re.ASCII)


@dataclass(frozen=True)
class AnnouncedNode:
    """What a group's annotations say of its next node; what they do not name is absent."""

    resources: Quantities = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True)
class GroupAnnotations:
    """The annotations of one group. Every method raises InvalidAnswer."""

    group: str
    api_group: str
    given: Mapping[str, str]

    def bounds(self) -> SizeBounds | None:
        """None for a group without the annotations, and for one whose maximum is 0: both are left alone."""
        keys = [f"{self.api_group}/cluster-api-autoscaler-node-group-{end}-size" for end in ("min", "max")]
        if not any(key in self.given for key in keys):
            return None
        least, most = (self._count(key) for key in keys)
        if most < least:
            problem = f"below the minimum of {least}" if keys[1] in self.given else "missing, which means 0"
            raise self._refused(keys[1], problem)
        return SizeBounds(least, most) if most else None

    def options(self) -> GroupOptions:
        prefix = f"{self.api_group}/autoscaling-options-"
        found: dict[str, Any] = {}
        for key, text in self.given.items():
            option = key.removeprefix(prefix).lower()
            if not key.startswith(prefix) or not text or option in node_template.FLAGS:
                continue
            try:
                found |= node_template.read_option(option, text)
            except ValueError as error:
                raise self._refused(key, str(error)) from error
        return GroupOptions(**found)

    def node(self) -> AnnouncedNode:
        resources: Quantities = {}
        for key, resource in _AMOUNTS.items():
            if text := self.given.get(key):
                self._check_amount(key, resource, text)
                resources[resource] = text
        if self.given.get(MAX_PODS):
            resources[PODS] = str(self._count(MAX_PODS, least=1))
        if self.given.get(GPU_COUNT) and (gpus := self._count(GPU_COUNT)):
            kind = self.given.get(GPU_TYPE, "")
            if not LABEL_KEY.fullmatch(kind):
                raise self._refused(GPU_TYPE, f"no name of a resource, and there are {gpus} of it")
            resources[kind] = str(gpus)
        return AnnouncedNode(resources, dict(self._labels()), tuple(self._taint(each) for each in self._listed(TAINTS)))

    def _labels(self) -> list[tuple[str, str]]:
        found = []
        for text in self._listed(LABELS):
            key, separator, value = text.partition("=")
            if not (separator and LABEL_KEY.fullmatch(key) and LABEL_VALUE.fullmatch(value)):
                raise self._refused(LABELS, f"{text!r} is not a label of the form key=value")
            found.append((key, value))
        return found

    def _taint(self, text: str) -> Taint:
        body, separator, effect = text.rpartition(":")
        key, _, value = body.partition("=")
        if not (separator and LABEL_KEY.fullmatch(key) and LABEL_VALUE.fullmatch(value) and effect in TAINT_EFFECTS):
            raise self._refused(TAINTS, f"{text!r} is not a taint of the form key=value:NoSchedule")
        return Taint(key=key, value=value, effect=effect)

    def _listed(self, key: str) -> list[str]:
        return self.given[key].split(",") if self.given.get(key) else []

    def _count(self, key: str, *, least: int = 0) -> int:
        text = self.given.get(key, "0")
        if not _COUNT.fullmatch(text) or int(text) < least:
            raise self._refused(key, f"must be a whole number of at least {least}")
        return int(text)

    def _check_amount(self, key: str, resource: str, text: str) -> None:
        try:
            amount = quantity.milli(text)
        except quantity.QuantityError as error:
            raise self._refused(key, str(error)) from error
        if amount <= 0:
            raise self._refused(key, "must be above 0")
        if resource == CPU and amount > _MOST_CORES * MILLI_PER_CORE:
            raise self._refused(key, "no node has that many cores; the unit is a core, with m for a thousandth")
        if resource == MEMORY and amount < _LEAST_MEMORY_BYTES * MILLI_PER_CORE:
            raise self._refused(key, "no node has that little memory; the unit is a byte, with Gi for a GiB")

    def _refused(self, key: str, problem: str) -> InvalidAnswer:
        return InvalidAnswer(NAME, self.group, key, self.given.get(key, ""), problem)
