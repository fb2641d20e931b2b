"""Fleets under way: ordered at once and advanced at each refresh, so that no call waits for machines to start.

The tags of the instances record the orders. New orders are also remembered here, because descriptions lag behind.
"""

import itertools
import logging
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from manager.autoscaler.cloudprovider.aws import NAME, failures, fleet, messages
from manager.autoscaler.cloudprovider.aws.calls import Ask, Call
from manager.autoscaler.cloudprovider.aws.fleet import FleetStep, Joining
from manager.autoscaler.cloudprovider.aws.groups import pages
from manager.autoscaler.cloudprovider.aws.messages import Ec2Instance, InstancesPage, ScalingGroup
from manager.autoscaler.cloudprovider.aws.options import AwsOptions
from manager.autoscaler.cloudprovider.contract import InstanceError
from manager.autoscaler.cloudprovider.errors import ProviderError
from shared.clock import Clock

logger = logging.getLogger(__name__)

FILTERED_AT_ONCE = 200  # values of one filter
PATIENCE = 2  # multiple of a fleet's start time, which covers its attachment, too

_ALIVE = ["pending", "running", "stopping", "stopped"]


@dataclass(frozen=True, slots=True)
class LaunchProgress:
    """`joining` instances will join; `lost` ones will not, each with its error.

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
        """Orders a fleet. Raises ProviderError; after Unavailable its instances, if any, appear at the next refresh."""
        name, order = group.auto_scaling_group_name, str(uuid.uuid4())
        request = fleet.request(group, self._fleets[name], count, order)
        made = messages.read(Call.CREATE_FLEET, self._ask(Call.CREATE_FLEET, name, **request), messages.Fleet, name)
        if made.errors:
            logger.warning("fleet: %s", made.errors[0].error_message, extra={"group": name})
        now = self._clock.now()
        found = tuple(Joining(each, name, order, launched_at=now) for each in messages.launched(made, name))
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
            match fleet.step(order, self._clock.now(), options.fleet_ready_seconds):
                case FleetStep.WAIT:
                    joining += order
                case FleetStep.TERMINATE:
                    lost |= self._give_up(order, "FleetNotReady", fleet.NOT_STARTED)
                case FleetStep.ATTACH:
                    left, gone = self._attach(order, options.fleet_ready_seconds)
                    joined = joined or len(left) + len(gone) < len(order)
                    joining += left
                    lost |= gone
        return LaunchProgress(tuple(joining), lost, joined)

    def terminate(self, ids: Sequence[str], group: str) -> None:
        """Terminates instances that have not joined. Raises ProviderError."""
        for batch in fleet.batches(ids, fleet.TERMINATED_AT_ONCE):
            self._ask(Call.TERMINATE_INSTANCES, group, InstanceIds=batch)
        for each in ids:
            self._unseen.pop(each, None)

    def _find_instances(self, members: Iterable[str]) -> list[Joining]:
        """All instances with the tag, and those that may be too new to be described; by group and order."""
        names = sorted(name for name, each in self._fleets.items() if each.launch_template_id)
        described: dict[str, Joining] = {}
        for some in fleet.batches(names, FILTERED_AT_ONCE):
            filters = [
                {"Name": f"tag:{fleet.TAG_JOINING}", "Values": list(some)},
                {"Name": "instance-state-name", "Values": _ALIVE},
            ]
            for reply in pages(self._ask, Call.DESCRIBE_INSTANCES, {"Filters": filters, "MaxResults": 1000}):
                page = messages.read(Call.DESCRIBE_INSTANCES, reply, InstancesPage)
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

        result = fleet.attach_instances(list(by_id), attach)
        self._mark_joined(result.joined)
        for each in result.joined:
            self._unseen.pop(each, None)
        why = "" if result.error is None else result.error.problem
        if why:
            logger.error("not attached: %s", why, extra={"group": group})
        later = [by_id[each] for each in result.later]
        orphans = [by_id[each] for each in result.orphans]
        if later and self._clock.now() - later[0].launched_at >= PATIENCE * ready_seconds:
            later, orphans = [], later
        return later, self._give_up(orphans, failures.code_in(why, "AttachFailed"), why) if orphans else {}

    def _give_up(self, order: Sequence[Joining], code: str, why: str) -> dict[Joining, InstanceError]:
        """Terminates the instances; if that fails, the next refresh finds them and tries again."""
        group = order[0].group
        logger.error("fleet given up, %d instances are terminated: %s", len(order), why, extra={"group": group})
        try:
            self.terminate([each.id for each in order], group)
        except ProviderError as error:
            logger.error("instances of a fleet are left over: %s", error, extra={"group": group})
        return dict.fromkeys(order, InstanceError(failures.error_class(code), code, why))

    def _mark_joined(self, ids: Sequence[str]) -> None:
        """Prevents these instances from counting as new after they are detached."""
        try:
            for batch in fleet.batches(ids, fleet.TAGGED_AT_ONCE):
                self._ask(Call.TAG_INSTANCES, Resources=batch, Tags=[{"Key": fleet.TAG_JOINING, "Value": ""}])
        except ProviderError as error:
            logger.warning("instances that have joined still say that they are to: %s", error, extra={"provider": NAME})


def _joining(instance: Ec2Instance) -> Joining:
    tags = instance.labels
    return Joining(
        instance.instance_id,
        tags.get(fleet.TAG_JOINING, ""),
        tags.get(fleet.TAG_ORDER, ""),
        instance.placement.availability_zone,
        instance.state.name == "running",
        instance.launch_time.timestamp(),
    )
