"""The conditions of ProvisioningRequests, in Cluster Autoscaler's form and with its reasons."""

from collections.abc import Callable, Iterable

from manager.autoscaler.provisioning_requests.planning import RequestPlan
from manager.autoscaler.provisioning_requests.states import RequestStage, RequestState
from manager.autoscaler.reporting import object_status
from manager.autoscaler.reporting.object_status import ObjectStatusWriter, Patch
from shared.api.provisioningrequest import ProvisioningRequest
from shared.clock import Clock
from shared.kube.client import Client
from shared.kube.resources import PROVISIONINGREQUESTS

WRITE_SECONDS = 5.0  # between two writes of one request's status
MOST_CHARACTERS = 32_768  # of a message, as in the CustomResourceDefinition


class RequestStatus:
    """Writes changes, on the leader alone; a later iteration repeats a failed write."""

    def __init__(self, client: Client, may_write: Callable[[], bool], clock: Clock) -> None:
        self._writer = ObjectStatusWriter(client, PROVISIONINGREQUESTS, may_write, clock)

    def write(self, requests: Iterable[ProvisioningRequest], plan: RequestPlan) -> None:
        """What is promised, and what is over, comes before the others."""
        by_key = {each.metadata.key: each for each in requests}
        news = [each for each in plan.requests if each.said and each.key in by_key]
        news.sort(key=lambda each: each.stage is RequestStage.PENDING)

        def patch_of(state: RequestState) -> Callable[[float], Patch]:
            return lambda now: patch(by_key[state.key], state, now)

        self._writer.write(((by_key[each.key].metadata, patch_of(each)) for each in news), WRITE_SECONDS)


def patch(request: ProvisioningRequest, state: RequestState, now: float) -> Patch:
    """The merge patch for a request; None if its status is up to date."""
    meta = request.metadata
    said: list[dict[str, object]] = [
        {
            "type": each.type,
            "status": "True" if each.holds else "False",
            "reason": each.reason,
            "message": each.message[:MOST_CHARACTERS],
            "observedGeneration": meta.generation,
        }
        for each in state.said
    ]
    conditions = object_status.with_conditions(request.status.conditions, said, now)
    if conditions is None:
        return None
    return {"metadata": {"resourceVersion": meta.resource_version}, "status": {"conditions": list(conditions)}}
