"""The calls to AWS that this provider makes; there are no others. Each value is the action that a policy must allow."""

import enum
from collections.abc import Mapping
from typing import Any, Protocol

Reply = Mapping[str, Any]  # as parsed by the library; `messages` reads it


class Call(enum.Enum):
    DESCRIBE_GROUPS = "autoscaling:DescribeAutoScalingGroups"
    DESCRIBE_ACTIVITIES = "autoscaling:DescribeScalingActivities"
    SET_DESIRED_CAPACITY = "autoscaling:SetDesiredCapacity"
    TERMINATE_IN_GROUP = "autoscaling:TerminateInstanceInAutoScalingGroup"
    ATTACH_INSTANCES = "autoscaling:AttachInstances"
    TAG_GROUP = "autoscaling:CreateOrUpdateTags"
    CREATE_FLEET = "ec2:CreateFleet"
    DESCRIBE_INSTANCES = "ec2:DescribeInstances"
    DESCRIBE_INSTANCE_TYPES = "ec2:DescribeInstanceTypes"
    DESCRIBE_LAUNCH_TEMPLATE = "ec2:DescribeLaunchTemplateVersions"
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
