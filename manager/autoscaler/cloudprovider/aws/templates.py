"""The next node of a group, and the options that the group overrides: from its instance type and its tags.

k8s.io/cluster-autoscaler/node-template/label/<label>: value
k8s.io/cluster-autoscaler/node-template/taint/<key>: value:effect
k8s.io/cluster-autoscaler/node-template/resources/<resource>: amount
k8s.io/cluster-autoscaler/node-template/autoscaling-options/<option>: value
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from manager.autoscaler.cloudprovider import gke, node_template
from manager.autoscaler.cloudprovider.aws import NAME, messages
from manager.autoscaler.cloudprovider.aws.messages import (
    Ask,
    Call,
    Cpus,
    Gpu,
    GpuInfo,
    InstanceType,
    MemoryInfo,
    Processor,
    Requirements,
    ScalingGroup,
    TemplateData,
    TemplateRef,
    TemplateVersion,
)
from manager.autoscaler.cloudprovider.aws.nodegroups import NodegroupNode
from manager.autoscaler.cloudprovider.cloud_file import TAINT_EFFECTS
from manager.autoscaler.cloudprovider.contract import GroupOptions
from manager.autoscaler.cloudprovider.errors import InvalidAnswer, Refused, Unsupported
from manager.autoscaler.pricing.model import NVIDIA_GPU
from shared.api.core import Node, NodeSpec, NodeStatus, Quantities, Taint
from shared.api.meta import ObjectMeta
from shared.names import CPU, MEMORY
from shared.quantity import MILLI_PER_CORE, format_milli

_PREFIX = "k8s.io/cluster-autoscaler/node-template/"
LABEL, TAINT, RESOURCES, OPTIONS = (
    f"{_PREFIX}{kind}/" for kind in ("label", "taint", "resources", "autoscaling-options")
)

LABEL_GPU = "k8s.amazonaws.com/accelerator"
PODS = 110  # the kubelet's default
# Reserved by EKS's images: cores as on Google; memory 255 MiB, 11 per pod, and 100 free.
RESERVED_MIB = 255 + 11 * PODS + 100
_TAKEN = 0.075  # of a machine's memory, by its hypervisor and its kernel
_NVIDIA = "NVIDIA"
_GRAVITON = "amazon-web-services"  # among makers of cores
_X86 = {"intel", "amd"}
_ARCHITECTURES = {"x86_64": "amd64", "arm64": "arm64", "i386": "386"}


class Kinds:
    """Instance types of groups. Caches constant answers: types, launch configurations, and numbered versions of
    templates.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._types: dict[str, InstanceType] = {}
        self._numbered: dict[TemplateRef, TemplateData] = {}
        self._configured: dict[str, TemplateData] = {}

    def first_type(self, group: ScalingGroup) -> InstanceType:
        """The type that is tried first, in a group of several; where requirements take the place of names, a type
        without a name that has no more than any of them. Raises ProviderError.
        """
        name = group.auto_scaling_group_name
        named = next((each.instance_type for each in group.overrides if each.instance_type), "")
        wanted = tuple(each.instance_requirements for each in group.overrides if each.instance_requirements is not None)
        if not named and not wanted:
            data = self._launched(group)
            named = data.instance_type
            wanted = () if data.instance_requirements is None else (data.instance_requirements,)
        if not named and not wanted:
            raise Unsupported(NAME, name, "its launch template names no instance type")
        return self._described(name, named) if named else least_type(name, wanted)

    def _described(self, group: str, kind: str) -> InstanceType:
        if kind not in self._types:
            found = messages.answer(self._ask, Call.DESCRIBE_INSTANCE_TYPES, group, InstanceTypes=[kind]).instance_types
            if not found:
                raise Refused(NAME, group, f"AWS does not describe the instance type {kind}")
            self._types[kind] = found[0]
        return self._types[kind]

    def _launched(self, group: ScalingGroup) -> TemplateData:
        """What the group's launch template or launch configuration says."""
        name, ref = group.auto_scaling_group_name, group.template
        if ref is None:
            return self._of_configuration(name, group.launch_configuration_name)
        if ref in self._numbered:
            return self._numbered[ref]
        found = launch_template(self._ask, name, ref)
        if found is None:
            return TemplateData()
        if ref.version.isdigit():
            self._numbered[ref] = found.launch_template_data
        return found.launch_template_data

    def _of_configuration(self, group: str, name: str) -> TemplateData:
        """Launch configurations never change."""
        if not name:
            raise Unsupported(NAME, group, "it has neither a launch template nor a launch configuration")
        if name not in self._configured:
            call = Call.DESCRIBE_LAUNCH_CONFIGURATIONS
            found = messages.answer(self._ask, call, group, LaunchConfigurationNames=[name]).launch_configurations
            if not found:
                raise Refused(NAME, group, f"AWS does not describe the launch configuration {name}")
            self._configured[name] = TemplateData(instance_type=found[0].instance_type)
        return self._configured[name]


def least_type(group: str, wanted: Sequence[Requirements]) -> InstanceType:
    """What any instance has that meets one of these requirements, as Cluster Autoscaler takes their minima. Which type
    it is, and which architecture unless all cores are of one, is not known. Raises Unsupported without minima.
    """
    cpus = math.floor(min(each.v_cpu_count.min for each in wanted))
    memory_mib = math.floor(min(each.memory_mib.min for each in wanted))
    if not cpus or not memory_mib:
        raise Unsupported(NAME, group, "its instance requirements have no minimum of cores or memory")
    gpus = math.floor(min(_least_gpus(each) for each in wanted))
    makers = {maker for each in wanted for maker in each.cpu_manufacturers or ("any",)}
    architecture = ("arm64",) if makers == {_GRAVITON} else ("x86_64",) if makers <= _X86 else ()
    return InstanceType(
        instance_type="",
        v_cpu_info=Cpus(default_v_cpus=cpus),
        memory_info=MemoryInfo(size_in_mib=memory_mib),
        processor_info=Processor(supported_architectures=architecture),
        gpu_info=GpuInfo(gpus=(Gpu(manufacturer=_NVIDIA, count=gpus),) if gpus else ()),
    )


def _least_gpus(wanted: Requirements) -> float:
    """Those of NVIDIA, where no other accelerator would do."""
    only = {each.lower() for each in wanted.accelerator_manufacturers} == {_NVIDIA.lower()}
    return wanted.accelerator_count.min if only and set(wanted.accelerator_types) <= {"gpu"} else 0.0


def launch_template(ask: Ask, group: str, ref: TemplateRef) -> TemplateVersion | None:
    """The version that is named, or the default one; None where there is none. Raises ProviderError."""
    query = {**ref.named, "Versions": [ref.version or "$Default"]}
    found = messages.answer(ask, Call.DESCRIBE_LAUNCH_TEMPLATE, group, **query).launch_template_versions
    return found[0] if found else None


def node(group: ScalingGroup, kind: InstanceType, managed: NodegroupNode) -> Node:
    """Labels of EKS (`managed`) go over those of tags, and its taints come beside.

    Raises InvalidAnswer for invalid tags.
    """
    name, tags = group.auto_scaling_group_name, group.labels
    cpu_milli = kind.v_cpu_info.default_v_cpus * MILLI_PER_CORE
    memory_mib = math.floor(kind.memory_info.size_in_mib * (1 - _TAKEN))
    capacity: Quantities = {CPU: format_milli(cpu_milli), MEMORY: f"{memory_mib}Mi", "pods": str(PODS)}
    if gpus := sum(each.count for each in kind.gpu_info.gpus if each.manufacturer == _NVIDIA):
        capacity[NVIDIA_GPU] = str(gpus)
    left: Quantities = {
        CPU: format_milli(cpu_milli - gke.reserved_cpu_milli(cpu_milli)),
        MEMORY: f"{max(0, memory_mib - RESERVED_MIB)}Mi",
    }
    own: Quantities = dict(_tagged(tags, RESOURCES))
    labels = _labels(group, kind) | dict(_tagged(tags, LABEL)) | dict(managed.labels)
    tagged_taints = (_taint(name, key, value) for key, value in _tagged(tags, TAINT))
    return Node(
        metadata=ObjectMeta(name=f"{name}-template", labels=labels),
        spec=NodeSpec(taints=tuple(dict.fromkeys((*tagged_taints, *managed.taints)))),
        status=NodeStatus(capacity=capacity | own, allocatable=capacity | left | own),
    )


def options(group: ScalingGroup) -> GroupOptions:
    """Raises InvalidAnswer for invalid tags."""
    found: dict[str, Any] = {}
    for option, text in _tagged(group.labels, OPTIONS):
        try:
            found |= node_template.read_option(option, text)
        except ValueError as error:
            raise InvalidAnswer(NAME, group.auto_scaling_group_name, f"{OPTIONS}{option}", text, str(error)) from error
    return GroupOptions(**found)


def _labels(group: ScalingGroup, kind: InstanceType) -> dict[str, str]:
    labels = dict.fromkeys(gke.LABELS_OS, "linux")
    if kind.instance_type:
        labels |= dict.fromkeys(gke.LABELS_MACHINE_TYPE, kind.instance_type)
    known = [_ARCHITECTURES[each] for each in kind.processor_info.supported_architectures if each in _ARCHITECTURES]
    if known:
        labels |= dict.fromkeys(gke.LABELS_ARCH, known[0])
    if len(group.availability_zones) == 1:  # with several zones, the zone is unknown beforehand
        (zone,) = group.availability_zones
        labels |= dict.fromkeys((gke.LABEL_ZONE, gke.LABEL_ZONE_BETA), zone)
        labels |= dict.fromkeys(gke.LABELS_REGION, zone.rstrip("abcdefghijklmnopqrstuvwxyz"))
    return labels


def _tagged(tags: Mapping[str, str], prefix: str) -> Iterator[tuple[str, str]]:
    return ((key.removeprefix(prefix), value) for key, value in tags.items() if key.startswith(prefix))


def _taint(group: str, key: str, text: str) -> Taint:
    value, separator, effect = text.rpartition(":")
    if not separator or effect not in TAINT_EFFECTS:
        raise InvalidAnswer(NAME, group, f"{TAINT}{key}", text, "expected <value>:<effect>")
    return Taint(key=key, value=value, effect=effect)
