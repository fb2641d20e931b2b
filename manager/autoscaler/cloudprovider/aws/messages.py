"""The calls to AWS that this provider makes, and the used parts of its answers. Readers raise InvalidAnswer."""

import enum
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Protocol

import msgspec

from manager.autoscaler.cloudprovider.aws import NAME
from manager.autoscaler.cloudprovider.errors import InvalidAnswer, Refused

Reply = Mapping[str, Any]  # as parsed by the library


class Call(enum.Enum):
    """There are no others. Each value is the action that a policy must allow."""

    DESCRIBE_GROUPS = "autoscaling:DescribeAutoScalingGroups"
    DESCRIBE_ACTIVITIES = "autoscaling:DescribeScalingActivities"
    DESCRIBE_LAUNCH_CONFIGURATIONS = "autoscaling:DescribeLaunchConfigurations"
    SET_DESIRED_CAPACITY = "autoscaling:SetDesiredCapacity"
    TERMINATE_IN_GROUP = "autoscaling:TerminateInstanceInAutoScalingGroup"
    ATTACH_INSTANCES = "autoscaling:AttachInstances"
    TAG_GROUP = "autoscaling:CreateOrUpdateTags"
    CREATE_FLEET = "ec2:CreateFleet"
    DESCRIBE_INSTANCES = "ec2:DescribeInstances"
    DESCRIBE_INSTANCE_TYPES = "ec2:DescribeInstanceTypes"
    DESCRIBE_LAUNCH_TEMPLATE = "ec2:DescribeLaunchTemplateVersions"
    DESCRIBE_NODEGROUP = "eks:DescribeNodegroup"
    TERMINATE_INSTANCES = "ec2:TerminateInstances"
    TAG_INSTANCES = "ec2:CreateTags"

    @property
    def service(self) -> str:
        return self.value.partition(":")[0]

    @property
    def operation(self) -> str:
        return self.value.partition(":")[2]

    @property
    def writes(self) -> bool:
        return not self.operation.startswith("Describe")


class Ask(Protocol):
    """One call, for a group or for none. Raises Refused, Unavailable."""

    def __call__(self, call: Call, group: str = "", /, **request: object) -> Reply: ...


class _Message(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """Ignores other keys."""


class Tag(_Message, frozen=True, kw_only=True):
    key: str = ""
    value: str = ""


class _Tagged(_Message, frozen=True, kw_only=True):
    tags: tuple[Tag, ...] = ()

    @property
    def labels(self) -> Mapping[str, str]:
        """The tags by key."""
        return {tag.key: tag.value for tag in self.tags}


class TemplateRef(_Message, frozen=True, kw_only=True):
    """A launch template, by id or name."""

    launch_template_id: str = ""
    launch_template_name: str = ""
    version: str = ""

    @property
    def named(self) -> Mapping[str, str]:
        """How a request names it."""
        if self.launch_template_id:
            return {"LaunchTemplateId": self.launch_template_id}
        return {"LaunchTemplateName": self.launch_template_name}


class Member(_Message, frozen=True, kw_only=True):
    """An instance as its group describes it. `launch_template` has the number of the version that launched it."""

    instance_id: str
    availability_zone: str = ""
    lifecycle_state: str = ""
    launch_template: TemplateRef | None = None
    launch_configuration_name: str = ""


class Least(_Message, frozen=True, kw_only=True):
    """The lower end of a range."""

    min: float = 0.0


class Requirements(_Message, frozen=True, kw_only=True):
    """What instance types are to have, in place of their names. AWS asks for cores and memory, at least."""

    v_cpu_count: Least = msgspec.field(name="VCpuCount", default=Least())
    memory_mib: Least = msgspec.field(name="MemoryMiB", default=Least())
    cpu_manufacturers: tuple[str, ...] = ()
    accelerator_count: Least = Least()
    accelerator_manufacturers: tuple[str, ...] = ()
    accelerator_types: tuple[str, ...] = ()


class Override(_Message, frozen=True, kw_only=True):
    instance_type: str = ""
    instance_requirements: Requirements | None = None
    weighted_capacity: str = "1"
    launch_template_specification: TemplateRef | None = None


class MixedTemplate(_Message, frozen=True, kw_only=True):
    launch_template_specification: TemplateRef | None = None
    overrides: tuple[Override, ...] = ()


class MixedPolicy(_Message, frozen=True, kw_only=True):
    launch_template: MixedTemplate | None = None


class ScalingGroup(_Tagged, frozen=True, kw_only=True):
    """`status` is empty unless the group itself is being deleted."""

    auto_scaling_group_name: str
    min_size: int
    max_size: int
    desired_capacity: int
    availability_zones: tuple[str, ...] = ()
    vpc_zone_identifier: str = msgspec.field(name="VPCZoneIdentifier", default="")
    instances: tuple[Member, ...] = ()
    launch_template: TemplateRef | None = None
    launch_configuration_name: str = ""
    mixed_instances_policy: MixedPolicy | None = None
    status: str = ""

    @property
    def overrides(self) -> tuple[Override, ...]:
        policy = self.mixed_instances_policy
        return () if policy is None or policy.launch_template is None else policy.launch_template.overrides

    @property
    def templates(self) -> tuple[TemplateRef, ...]:
        """All templates that instances are launched from, those of single instance types included."""
        own = (each.launch_template_specification for each in self.overrides)
        return tuple(dict.fromkeys(each for each in (self.template, *own) if each is not None))

    @property
    def template(self) -> TemplateRef | None:
        """The template that instances are launched from, where their instance type has none of its own."""
        if self.launch_template is not None:
            return self.launch_template
        policy = self.mixed_instances_policy
        mixed = None if policy is None else policy.launch_template
        return None if mixed is None else mixed.launch_template_specification


class Activity(_Message, frozen=True, kw_only=True):
    """One attempt to change a group; the last comes first."""

    description: str = ""
    status_code: str = ""
    status_message: str = ""
    start_time: datetime


TERMINATED = "terminated"  # AWS shows instances in this state for some time after their end


class State(_Message, frozen=True, kw_only=True):
    name: str = ""


class Placement(_Message, frozen=True, kw_only=True):
    availability_zone: str = ""


class Ec2Instance(_Tagged, frozen=True, kw_only=True):
    instance_id: str
    launch_time: datetime
    state: State = State()
    placement: Placement = Placement()


class Reservation(_Message, frozen=True, kw_only=True):
    instances: tuple[Ec2Instance, ...] = ()


class FleetInstances(_Message, frozen=True, kw_only=True):
    instance_ids: tuple[str, ...] = ()


class FleetError(_Message, frozen=True, kw_only=True):
    error_code: str = ""
    error_message: str = ""


class TemplateData(_Message, frozen=True, kw_only=True):
    instance_type: str = ""
    instance_requirements: Requirements | None = None


class TemplateVersion(_Message, frozen=True, kw_only=True):
    version_number: int = 0
    launch_template_data: TemplateData = TemplateData()


class LaunchConfiguration(_Message, frozen=True, kw_only=True):
    instance_type: str = ""


class NodegroupTaint(msgspec.Struct, frozen=True, kw_only=True):
    """EKS writes effects in capitals, as in NO_SCHEDULE."""

    key: str = ""
    value: str = ""
    effect: str = ""


class Nodegroup(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A managed node group of EKS."""

    labels: dict[str, str] = {}
    taints: tuple[NodegroupTaint, ...] = ()
    capacity_type: str = ""


class Cpus(_Message, frozen=True, kw_only=True):
    default_v_cpus: int = msgspec.field(name="DefaultVCpus")


class MemoryInfo(_Message, frozen=True, kw_only=True):
    size_in_mib: int = msgspec.field(name="SizeInMiB")


class Processor(_Message, frozen=True, kw_only=True):
    supported_architectures: tuple[str, ...] = ()


class Gpu(_Message, frozen=True, kw_only=True):
    manufacturer: str = ""
    count: int = 0


class GpuInfo(_Message, frozen=True, kw_only=True):
    gpus: tuple[Gpu, ...] = ()


class InstanceType(_Message, frozen=True, kw_only=True):
    instance_type: str
    v_cpu_info: Cpus = msgspec.field(name="VCpuInfo")
    memory_info: MemoryInfo
    processor_info: Processor = Processor()
    gpu_info: GpuInfo = GpuInfo()


class Answer(_Message, frozen=True, kw_only=True):
    """Each call fills what it answers; `instances` and `errors` are of a fleet."""

    auto_scaling_groups: tuple[ScalingGroup, ...] = ()
    activities: tuple[Activity, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    instances: tuple[FleetInstances, ...] = ()
    errors: tuple[FleetError, ...] = ()
    launch_template_versions: tuple[TemplateVersion, ...] = ()
    instance_types: tuple[InstanceType, ...] = ()
    launch_configurations: tuple[LaunchConfiguration, ...] = ()
    nodegroup: Nodegroup | None = msgspec.field(name="nodegroup", default=None)
    next_token: str | None = None

    def launched(self, group: str) -> tuple[str, ...]:
        """The ids of a fleet's instances. Raises Refused with the first error if there are none."""
        found = tuple(each for part in self.instances for each in part.instance_ids)
        if not found:
            raise Refused(NAME, group, self.errors[0].error_message if self.errors else "a fleet without instances")
        return found

    def only_instance(self, instance: str) -> Ec2Instance:
        """The one instance that was requested by its id."""
        if len(self.reservations) != 1 or len(self.reservations[0].instances) != 1:
            problem = (
                "Malformed DescribeInstances response from AWS, expected only 1 Reservation and 1 Instance "
                f"for id: {instance}"
            )
            found = [len(each.instances) for each in self.reservations]
            raise InvalidAnswer(NAME, "", Call.DESCRIBE_INSTANCES.operation, found, problem)
        return self.reservations[0].instances[0]


def read(call: Call, reply: Reply, group: str = "") -> Answer:
    try:
        return msgspec.convert(reply, Answer)
    except msgspec.ValidationError as error:
        raise InvalidAnswer(NAME, group, call.operation, reply, str(error)) from error


def answer(ask: Ask, call: Call, group: str = "", /, **request: object) -> Answer:
    """What the call answers, on its first page. Raises ProviderError."""
    return read(call, ask(call, group, **request), group)


def pages(ask: Ask, call: Call, **query: object) -> Iterator[Answer]:
    """All pages of one call; each names the start of the next. Raises ProviderError."""
    found = answer(ask, call, **query)
    yield found
    while found.next_token:
        found = answer(ask, call, **query, NextToken=found.next_token)
        yield found
