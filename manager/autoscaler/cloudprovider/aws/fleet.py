"""Fleets: ordered at once and advanced at each refresh, so that no call waits for machines to start.

The instances of an instant fleet have no group until they are attached. Until then their tags hold the name of the
group and of the order, so that the next leader finds the orders of the previous one. New orders are also remembered
here, because descriptions lag behind.
"""

import enum
import itertools
import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from manager.autoscaler.cloudprovider.aws import NAME, failures, messages
from manager.autoscaler.cloudprovider.aws.messages import Ask, Call, Ec2Instance, ScalingGroup
from manager.autoscaler.cloudprovider.contract import InstanceError
from manager.autoscaler.cloudprovider.errors import ProviderError, Refused, Unavailable
from manager.autoscaler.cloudprovider.plugin import ProviderGroupOptions
from shared import durations
from shared.clock import Clock

logger = logging.getLogger(__name__)

LIFECYCLES = ("", "on-demand", "spot")
DEFAULT_FLEET_READY_SECONDS = 60.0

TAG_JOINING = "headroom.io/joining"  # the group; empty once the instance has joined
TAG_ORDER = "headroom.io/order"
TAG_ESCALATOR, ENABLED = "k8s.io/atlassian-escalator/enabled", "true"

ATTACHED_AT_ONCE = 20
TERMINATED_AT_ONCE = 1000
TAGGED_AT_ONCE = 1000
ON_DEMAND, SPOT = "on-demand", "spot"

NOT_STARTED = "not all instances could be started"
FILTERED_AT_ONCE = 200  # values of one filter
PATIENCE = 2  # multiple of a fleet's start time, which covers its attachment, too

_ALIVE = ["pending", "running", "stopping", "stopped"]


class AwsOptions(ProviderGroupOptions, frozen=True, kw_only=True):
    """A group's AWS options in the node groups file, which are Escalator's. No fleet without a launch template."""

    launch_template_id: str = ""
    launch_template_version: str = ""
    fleet_instance_ready_timeout: str = ""
    lifecycle: str = ""
    instance_type_overrides: tuple[str, ...] = ()
    resource_tagging: bool = False

    @property
    def fleet_ready_seconds(self) -> float:
        """How long instances of a fleet may take to run. An invalid duration counts as 0, as in Escalator."""
        text = self.fleet_instance_ready_timeout
        if not text:
            return DEFAULT_FLEET_READY_SECONDS
        try:
            return durations.parse(text)
        except ValueError:
            return 0.0

    def problems(self, *, as_escalator: bool) -> Iterator[str]:
        if self.lifecycle not in LIFECYCLES:
            yield "aws.lifecycle must be 'on-demand' or 'spot' if provided."
        if self.fleet_ready_seconds <= 0 and not as_escalator:
            yield "aws.fleet_instance_ready_timeout failed to parse into a time.Duration. check your formatting."


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
    GIVE_UP = "give up"


@dataclass(frozen=True, slots=True)
class Attached:
    """The result of an attachment: instances that joined, that never will, or that must be tried again; and the error,
    if any.
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


def fleet_request(group: ScalingGroup, options: AwsOptions, count: int, order: str) -> dict[str, object]:
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


def next_step(order: Sequence[Joining], now: float, ready_seconds: float) -> FleetStep:
    """The next step for an order's instances: they join together, or none does after their time is over."""
    if all(each.running for each in order):
        return FleetStep.ATTACH
    if now - min(each.launched_at for each in order) < ready_seconds:
        return FleetStep.WAIT
    return FleetStep.GIVE_UP


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


@dataclass(frozen=True, slots=True)
class LaunchProgress:
    """`joining` instances will join; `lost` ones will not, each with its error, and are to be deleted.

    `joined`: whether a group has just grown.
    """

    joining: tuple[Joining, ...] = ()
    lost: Mapping[Joining, InstanceError] = field(default_factory=dict)
    joined: bool = False


class FleetOrders:
    """The orders of groups with a launch template, by id.

    Groups that are not `enforced` are observed, and left alone.
    """

    def __init__(self, ask: Ask, clock: Clock, fleets: Mapping[str, AwsOptions], enforced: Collection[str]) -> None:
        self._ask = ask
        self._clock = clock
        self._fleets = fleets
        self._enforced = enforced
        self._unseen: dict[str, Joining] = {}

    def place(self, group: ScalingGroup, count: int) -> tuple[Joining, ...]:
        """Orders a fleet of `count` instances, and returns those that it launched at once.

        Raises ProviderError; after Unavailable its instances, if any, appear at the next refresh.
        """
        name, order = group.auto_scaling_group_name, str(uuid.uuid4())
        made = messages.answer(
            self._ask, Call.CREATE_FLEET, name, **fleet_request(group, self._fleets[name], count, order)
        )
        if made.errors:
            logger.warning("fleet: %s", made.errors[0].error_message, extra={"group": name})
        now = self._clock.now()
        found = tuple(Joining(each, name, order, launched_at=now) for each in made.launched(name))
        self._unseen |= {each.id: each for each in found}
        return found

    def carry_on(self, groups: Mapping[str, ScalingGroup]) -> LaunchProgress:
        """Finds the instances of all orders, and does what is due. Raises ProviderError if they cannot be found."""
        members = {each.instance_id for group in groups.values() for each in group.instances}
        found = self._find_instances(members)
        self._mark_joined([each.id for each in found if each.id in members and each.group in self._enforced])
        joining = [each for each in found if each.id not in members and each.group not in self._enforced]
        lost: dict[Joining, InstanceError] = {}
        joined = False
        for _, instances in itertools.groupby(found, key=lambda each: (each.group, each.order)):
            order = [each for each in instances if each.id not in members and each.group in self._enforced]
            if not order:
                continue
            options = self._fleets[order[0].group]
            match next_step(order, self._clock.now(), options.fleet_ready_seconds):
                case FleetStep.WAIT:
                    joining += order
                case FleetStep.GIVE_UP:
                    lost |= _given_up(order, "FleetNotReady", NOT_STARTED)
                case FleetStep.ATTACH:
                    left, gone = self._attach(order, options.fleet_ready_seconds)
                    joined = joined or len(left) + len(gone) < len(order)
                    joining += left
                    lost |= gone
        return LaunchProgress(tuple(joining), lost, joined)

    def terminate(self, ids: Sequence[str], group: str) -> None:
        """Terminates instances that have not joined. Raises ProviderError."""
        for batch in batches(ids, TERMINATED_AT_ONCE):
            self._ask(Call.TERMINATE_INSTANCES, group, InstanceIds=batch)
        for each in ids:
            self._unseen.pop(each, None)

    def _find_instances(self, members: Iterable[str]) -> list[Joining]:
        """All instances with the tag, and those that may be too new to be described; by group and order."""
        names = sorted(name for name, each in self._fleets.items() if each.launch_template_id)
        described: dict[str, Joining] = {}
        for some in batches(names, FILTERED_AT_ONCE):
            filters = [
                {"Name": f"tag:{TAG_JOINING}", "Values": list(some)},
                {"Name": "instance-state-name", "Values": _ALIVE},
            ]
            for page in messages.pages(self._ask, Call.DESCRIBE_INSTANCES, Filters=filters, MaxResults=1000):
                for instance in itertools.chain.from_iterable(part.instances for part in page.reservations):
                    if (each := _joining(instance)).group in some:
                        described[each.id] = each
        for known in (*described, *members):
            self._unseen.pop(known, None)
        now = self._clock.now()
        self._unseen = {
            name: each
            for name, each in self._unseen.items()
            if now - each.launched_at < self._fleets[each.group].fleet_ready_seconds
        }
        found = (*described.values(), *self._unseen.values())
        return sorted(found, key=lambda each: (each.group, each.order, each.id))

    def _attach(
        self, order: Sequence[Joining], ready_seconds: float
    ) -> tuple[list[Joining], dict[Joining, InstanceError]]:
        """Returns the instances to try again, and the lost ones."""
        group = order[0].group
        by_id = {each.id: each for each in order}

        def attach(batch: Sequence[str]) -> None:
            self._ask(Call.ATTACH_INSTANCES, group, AutoScalingGroupName=group, InstanceIds=batch)

        result = attach_instances(list(by_id), attach)
        self._mark_joined(result.joined)
        for each in result.joined:
            self._unseen.pop(each, None)
        why = "" if result.error is None else result.error.problem
        if why:
            logger.error("the instances were not attached to the group: %s", why, extra={"group": group})
        later = [by_id[each] for each in result.later]
        orphans = [by_id[each] for each in result.orphans]
        if later and self._clock.now() - later[0].launched_at >= PATIENCE * ready_seconds:
            later, orphans = [], later
        return later, _given_up(orphans, failures.code_in(why, "AttachFailed"), why) if orphans else {}

    def _mark_joined(self, ids: Sequence[str]) -> None:
        """Prevents these instances from counting as new after they are detached."""
        try:
            for batch in batches(ids, TAGGED_AT_ONCE):
                self._ask(Call.TAG_INSTANCES, Resources=batch, Tags=[{"Key": TAG_JOINING, "Value": ""}])
        except ProviderError as error:
            logger.warning(
                "these instances have registered but are still marked as pending: %s", error, extra={"provider": NAME}
            )


def _given_up(order: Sequence[Joining], code: str, why: str) -> dict[Joining, InstanceError]:
    """The instances as lost. While they are there, each refresh finds them again, and gives them another try."""
    logger.error("a fleet of %d instances was given up: %s", len(order), why, extra={"group": order[0].group})
    return dict.fromkeys(order, InstanceError(failures.error_class(code), code, why))


def _joining(instance: Ec2Instance) -> Joining:
    tags = instance.labels
    return Joining(
        instance.instance_id,
        tags.get(TAG_JOINING, ""),
        tags.get(TAG_ORDER, ""),
        instance.placement.availability_zone,
        instance.state.name == "running",
        instance.launch_time.timestamp(),
    )
