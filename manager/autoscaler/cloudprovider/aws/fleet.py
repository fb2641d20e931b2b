"""Instances from fleets: their orders, and when they join their group. Only `attach_instances` calls the cloud.

The instances of an instant fleet have no group until they are attached. Until then their tags hold the name of the
group and of the order, so that the next leader finds the orders of the previous one.
"""

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from manager.autoscaler.cloudprovider.aws import NAME
from manager.autoscaler.cloudprovider.aws.messages import ScalingGroup
from manager.autoscaler.cloudprovider.aws.options import AwsOptions
from manager.autoscaler.cloudprovider.errors import ProviderError, Refused, Unavailable

TAG_JOINING = "headroom.io/joining"  # the group; empty once the instance has joined
TAG_ORDER = "headroom.io/order"
TAG_ESCALATOR, ENABLED = "k8s.io/atlassian-escalator/enabled", "true"

ATTACHED_AT_ONCE = 20
TERMINATED_AT_ONCE = 1000
TAGGED_AT_ONCE = 1000
ON_DEMAND, SPOT = "on-demand", "spot"

NOT_STARTED = "not all instances could be started"


@dataclass(frozen=True, slots=True)
class Joining:
    """An instance that will join its group. `launched_at` in Unix seconds."""

    id: str
    group: str
    order: str
    zone: str = ""
    running: bool = False
    launched_at: float = 0.0


class FleetStep(enum.Enum):
    WAIT = "wait"
    ATTACH = "attach"
    TERMINATE = "terminate"


@dataclass(frozen=True, slots=True)
class Attached:
    """The result of an attachment: instances that joined, that must be terminated, or that must be tried again; and the
    error, if any.
    """

    joined: tuple[str, ...] = ()
    orphans: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    error: ProviderError | None = None


def overrides(group: ScalingGroup | None, instance_types: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Subnets of the group with the types to try in each; "" is the template's own type. Raises Refused."""
    if group is None:
        raise Refused(NAME, "", "failed to get an ASG from DescribeAutoscalingGroups response")
    subnets = [each.strip() for each in group.vpc_zone_identifier.split(",") if each.strip()]
    if not subnets:
        name = group.auto_scaling_group_name
        raise Refused(NAME, name, "failed to get any subnetIDs from DescribeAutoscalingGroups response")
    return tuple((subnet, kind) for subnet in subnets for kind in instance_types or ("",))


def request(group: ScalingGroup, options: AwsOptions, count: int, order: str) -> dict[str, object]:
    """The request for a fleet of `count` instances, all or none. Raises Refused."""
    lifecycle = options.lifecycle or ON_DEMAND
    template = {
        "LaunchTemplateId": options.launch_template_id,
        "Version": options.launch_template_version or "$Default",
    }
    places = [
        {"SubnetId": subnet, **({"InstanceType": kind} if kind else {})}
        for subnet, kind in overrides(group, options.instance_type_overrides)
    ]
    tags = [
        {
            "ResourceType": "instance",
            "Tags": [_tag(TAG_JOINING, group.auto_scaling_group_name), _tag(TAG_ORDER, order)],
        }
    ]
    if options.resource_tagging:
        tags.append({"ResourceType": "fleet", "Tags": [_tag(TAG_ESCALATOR, ENABLED)]})
    return {
        "Type": "instant",
        "ClientToken": order,
        "TerminateInstancesWithExpiration": False,
        "TargetCapacitySpecification": {"TotalTargetCapacity": count, "DefaultTargetCapacityType": lifecycle},
        "SpotOptions" if lifecycle == SPOT else "OnDemandOptions": {
            "MinTargetCapacity": count,
            "SingleInstanceType": True,
        },
        "LaunchTemplateConfigs": [{"LaunchTemplateSpecification": template, "Overrides": places}],
        "TagSpecifications": tags,
    }


def step(order: Sequence[Joining], now: float, ready_seconds: float) -> FleetStep:
    """The next step for an order's instances: they join together, or all are terminated after their time is over."""
    if all(each.running for each in order):
        return FleetStep.ATTACH
    if now - min(each.launched_at for each in order) < ready_seconds:
        return FleetStep.WAIT
    return FleetStep.TERMINATE


def attach_instances(ids: Sequence[str], attach: Callable[[Sequence[str]], None]) -> Attached:
    """Attaches batch by batch until one fails.

    Without an answer, or after a "later", the rest is tried again; a refusal makes orphans of that batch and all after
    it.
    """
    done = 0
    for batch in batches(ids, ATTACHED_AT_ONCE):
        try:
            attach(batch)
        except Unavailable as error:
            return Attached(tuple(ids[:done]), later=tuple(ids[done:]), error=error)
        except ProviderError as error:
            return Attached(tuple(ids[:done]), orphans=tuple(ids[done:]), error=error)
        done += len(batch)
    return Attached(tuple(ids))


def batches(ids: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (ids[start : start + size] for start in range(0, len(ids), size))


def _tag(key: str, value: str) -> dict[str, str]:
    return {"Key": key, "Value": value}
