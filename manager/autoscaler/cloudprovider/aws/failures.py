"""AWS's error codes, by their meaning for the caller, and why a group lacks instances."""

import logging
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from manager.autoscaler.cloudprovider.aws import NAME, groups, messages
from manager.autoscaler.cloudprovider.aws.messages import Activity, Ask, Call, ScalingGroup
from manager.autoscaler.cloudprovider.contract import ErrorClass, InstanceError
from manager.autoscaler.cloudprovider.errors import Later, ProviderError, Refused, Unavailable
from shared.clock import Clock

logger = logging.getLogger(__name__)

RECENT_SECONDS = 900.0  # AWS keeps trying: an older failure has been followed by another activity
FAILED, LAUNCHING = "Failed", "Launching"
_OTHERWISE = "LaunchFailed"

# These mean "later", and not "no": nothing has been done.
_LATER = frozenset(
    {
        *("Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled", "RequestThrottledException"),
        *("RequestLimitExceeded", "TooManyRequestsException", "BandwidthLimitExceeded", "EC2ThrottledException"),
        *("SlowDown", "PriorRequestNotComplete", "ResourceContention", "ScalingActivityInProgress"),
        *("ExpiredToken", "ExpiredTokenException", "RequestExpired"),
    }
)

# The call failed on the way, wherever that was.
_NO_ANSWER = frozenset(
    {
        *("RequestTimeout", "RequestTimeoutException"),
        *("InternalFailure", "InternalError", "ServiceUnavailable", "Unavailable"),
    }
)

# Another group, of another type or zone, may do better.
OUT_OF_RESOURCES = frozenset(
    {
        *("InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientCapacity", "UnfulfillableCapacity"),
        *("InsufficientReservedInstanceCapacity", "InsufficientCapacityOnOutpost", "ReservationCapacityExceeded"),
        *("InsufficientAddressCapacity", "InsufficientFreeAddressesInSubnet", "InsufficientVolumeCapacity"),
        *("InstanceLimitExceeded", "VcpuLimitExceeded", "MaxSpotInstanceCountExceeded", "VolumeLimitExceeded"),
        *("SpotMaxPriceTooLow", "PrivateIpAddressLimitExceeded", "NetworkInterfaceLimitExceeded"),
    }
)

NO_INSTANCE = "InvalidInstanceID.NotFound"

_WORD = re.compile(r"[A-Z][A-Za-z]+")
_SOLD_OUT = re.compile(r"(?i)\b(?:do not have sufficient|insufficient)\b.*\bcapacity\b")


def provider_error(code: str, status: int, problem: str, group: str) -> ProviderError:
    """The error to raise for an AWS error with this code and HTTP status."""
    if code in _LATER or status == 429:
        return Later(NAME, group, problem)
    kind = Unavailable if code in _NO_ANSWER or status >= 500 else Refused
    return kind(NAME, group, problem)


def error_class(code: str) -> ErrorClass:
    return ErrorClass.OUT_OF_RESOURCES if code in OUT_OF_RESOURCES else ErrorClass.OTHER


def code_in(message: str, otherwise: str) -> str:
    """The code that one of AWS's sentences names or implies, else `otherwise`."""
    named = OUT_OF_RESOURCES.intersection(_WORD.findall(message))
    if named:
        return min(named)
    return "InsufficientInstanceCapacity" if _SOLD_OUT.search(message) else otherwise


@dataclass
class FailedLaunches:
    """The last failed launch of each group, where AWS permits the call.

    `_since`: when we last requested instances; an earlier failure does not concern that request.
    """

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
                query = {"AutoScalingGroupName": name, "MaxRecords": 1}
                last = messages.answer(self.ask, Call.DESCRIBE_ACTIVITIES, name, **query).activities
            except ProviderError as error:
                if not self._told:
                    logger.warning(
                        "the reason for missing instances cannot be determined: %s", error, extra={"group": name}
                    )
                self._told = True
                continue
            since = max(self._since.get(name, 0.0), self.clock.now() - RECENT_SECONDS)
            if last and (why := launch_failure(last[0], since)) is not None:
                failed[name] = why
        return failed


def launch_failure(last: Activity, since: float) -> InstanceError | None:
    """The error of the last activity, if it is a failed launch that began after `since` in Unix seconds."""
    if last.status_code != FAILED or LAUNCHING not in last.description or last.start_time.timestamp() < since:
        return None
    code = code_in(last.status_message, _OTHERWISE)
    return InstanceError(error_class(code), code, last.status_message)
