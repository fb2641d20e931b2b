"""The stages of a ProvisioningRequest, and the conditions that report them."""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from shared import durations
from shared.api import provisioningrequest as api
from shared.api.provisioningrequest import ProvisioningRequest

BOOKED_SECONDS = 600.0  # as in Cluster Autoscaler
MOST_SECONDS = 7 * 86400.0  # the longest wait of a request for its room, as there


class RequestStage(enum.StrEnum):
    PENDING = "pending"  # there is no room yet, or no answer
    REQUESTED = "requested"  # nodes are on their way
    BOOKED = "booked"
    EXPIRED = "expired"  # its pods have come, or the booking has ended without them
    REVOKED = "revoked"  # by another controller
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        return self in (RequestStage.EXPIRED, RequestStage.REVOKED, RequestStage.FAILED)


class SaidCondition(NamedTuple):
    """A condition to write."""

    type: str
    holds: bool
    reason: str
    message: str


IS_ACCEPTED = SaidCondition(api.ACCEPTED, True, "Accepted", "the autoscaler has accepted the request")


@dataclass(frozen=True)
class RequestState:
    """The request "namespace/name" of a class. It asks for `pods`, of which `consumed` have a node already.

    `said` are the conditions to write, the last of them the news; without any, nothing is new. `reason` and `message`
    are those of the last news.
    """

    key: str
    uid: str = ""
    provisioning_class: str = ""
    stage: RequestStage = RequestStage.PENDING
    pods: int = 0
    consumed: int = 0
    reason: str = ""
    message: str = ""
    said: tuple[SaidCondition, ...] = ()

    def turn(self, stage: RequestStage, *said: SaidCondition) -> "RequestState":
        """The state after this news."""
        return replace(self, stage=stage, reason=said[-1].reason, message=said[-1].message, said=said)

    def fail(self, reason: str, message: str) -> "RequestState":
        return self.turn(RequestStage.FAILED, SaidCondition(api.FAILED, True, reason, message))

    def expire(self, reason: str, message: str) -> "RequestState":
        return self.turn(RequestStage.EXPIRED, SaidCondition(api.BOOKING_EXPIRED, True, reason, message))

    def book(self, reason: str, message: str) -> "RequestState":
        return self.turn(RequestStage.BOOKED, IS_ACCEPTED, SaidCondition(api.PROVISIONED, True, reason, message))

    def postpone(self, stage: RequestStage, reason: str, message: str) -> "RequestState":
        """Accepted, but without its room."""
        return self.turn(stage, IS_ACCEPTED, SaidCondition(api.PROVISIONED, False, reason, message))


def state_of(request: ProvisioningRequest) -> RequestState:
    """The state according to the request's conditions."""
    meta, found = request.metadata, _conditions(request)
    stage, news = RequestStage.PENDING, found.get(api.PROVISIONED, found.get(api.ACCEPTED, {}))
    for name, over in (
        (api.FAILED, RequestStage.FAILED),
        (api.CAPACITY_REVOKED, RequestStage.REVOKED),
        (api.BOOKING_EXPIRED, RequestStage.EXPIRED),
        (api.PROVISIONED, RequestStage.BOOKED),
    ):
        if found.get(name, {}).get("status") == "True":
            stage, news = over, found[name]
            break
    buys = request.spec.provisioning_class_name == api.BEST_EFFORT_ATOMIC
    if buys and stage is RequestStage.PENDING and news.get("reason") == api.CAPACITY_IS_REQUESTED:
        stage = RequestStage.REQUESTED
    return RequestState(
        meta.key,
        meta.uid,
        request.spec.provisioning_class_name,
        stage,
        reason=str(news.get("reason", "")),
        message=str(news.get("message", "")),
    )


def booked_since(request: ProvisioningRequest) -> float:
    """When the condition PROVISIONED became true, in Unix seconds; without a readable time, the request's creation."""
    text = _conditions(request).get(api.PROVISIONED, {}).get("lastTransitionTime")
    try:
        return durations.instant(str(text))
    except ValueError:
        return request.metadata.created_at


def _conditions(request: ProvisioningRequest) -> Mapping[str, Mapping[str, object]]:
    known: Iterable[Mapping[str, object]] = request.status.conditions or ()
    return {str(each.get("type")): each for each in known}
