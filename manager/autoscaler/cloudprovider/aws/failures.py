"""AWS's error codes, by their meaning for the caller."""

import re

from manager.autoscaler.cloudprovider.aws import NAME
from manager.autoscaler.cloudprovider.contract import ErrorClass
from manager.autoscaler.cloudprovider.errors import Later, ProviderError, Refused, Unavailable

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
