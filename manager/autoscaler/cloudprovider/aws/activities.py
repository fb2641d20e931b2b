"""Why a group lacks instances: its last failed launch, where AWS permits the call."""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from manager.autoscaler.cloudprovider.aws import failures, groups, messages
from manager.autoscaler.cloudprovider.aws.calls import Ask, Call
from manager.autoscaler.cloudprovider.aws.messages import Activity, ScalingGroup
from manager.autoscaler.cloudprovider.contract import InstanceError
from manager.autoscaler.cloudprovider.errors import ProviderError
from shared.clock import Clock

logger = logging.getLogger(__name__)

RECENT_SECONDS = 900.0  # AWS keeps trying: an older failure has been followed by another activity
FAILED, LAUNCHING = "Failed", "Launching"
_OTHERWISE = "LaunchFailed"


@dataclass
class FailedLaunches:
    """`_since`: when we last requested instances; an earlier failure does not concern that request."""

    ask: Ask
    clock: Clock
    _since: dict[str, float] = field(default_factory=dict)
    _told: bool = False

    def raised(self, group: str) -> None:
        self._since[group] = self.clock.now()

    def failures(self, found: Mapping[str, ScalingGroup], listed: Collection[str]) -> dict[str, InstanceError]:
        """By group, for listed groups that lack instances. Empty without the permission to look."""
        failed: dict[str, InstanceError] = {}
        for name in sorted(found.keys() & set(listed)):
            if found[name].desired_capacity <= groups.staying(found[name]):
                continue
            try:
                reply = self.ask(Call.DESCRIBE_ACTIVITIES, name, AutoScalingGroupName=name, MaxRecords=1)
                told = messages.read(Call.DESCRIBE_ACTIVITIES, reply, messages.Activities, name)
            except ProviderError as error:
                if not self._told:
                    logger.warning("why groups lack instances is not known: %s", error, extra={"group": name})
                self._told = True
                continue
            since = max(self._since.get(name, 0.0), self.clock.now() - RECENT_SECONDS)
            if told.activities and (why := launch_failure(told.activities[0], since)) is not None:
                failed[name] = why
        return failed


def launch_failure(last: Activity, since: float) -> InstanceError | None:
    """The error of the last activity, if it is a failed launch that began after `since` in Unix seconds."""
    if last.status_code != FAILED or LAUNCHING not in last.description or last.start_time.timestamp() < since:
        return None
    code = failures.code_in(last.status_message, _OTHERWISE)
    return InstanceError(failures.error_class(code), code, last.status_message)
