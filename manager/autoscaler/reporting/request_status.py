"""The conditions of ProvisioningRequests, in Cluster Autoscaler's form and with its reasons."""

import functools
from collections.abc import Iterable, Iterator

from manager.autoscaler.pod_injection.request_planning import RequestPlan
from manager.autoscaler.pod_injection.request_states import RequestStage, RequestState
from manager.autoscaler.reporting import object_status
from manager.autoscaler.reporting.object_status import DuePatch, Patch
from shared.api.provisioningrequest import ProvisioningRequest

WRITE_SECONDS = 5.0  # between two writes of one request's status


def patches(requests: Iterable[ProvisioningRequest], plan: RequestPlan) -> Iterator[DuePatch]:
    """What is promised, and what is over, comes before the others."""
    by_key = {each.metadata.key: each for each in requests}
    news = [each for each in plan.requests if each.said and each.key in by_key]
    for state in sorted(news, key=lambda each: each.stage is RequestStage.PENDING):
        request = by_key[state.key]
        yield request.metadata, functools.partial(patch, request, state)


def patch(request: ProvisioningRequest, state: RequestState, now: float) -> Patch:
    """The merge patch for a request; None if its status is up to date."""
    return object_status.patch(request.metadata, request.status.conditions, state.said, None, now)
