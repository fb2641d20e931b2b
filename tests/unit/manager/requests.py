"""ProvisioningRequests for tests, and what becomes of them in a round."""

from typing import Any

import msgspec

from manager.autoscaler.planning.iteration_plan import PlannedIteration
from manager.autoscaler.pod_injection.request_states import RequestState
from manager.autoscaler.reporting import object_status
from shared import durations
from shared.api.capacitybuffer import ChunkSource, ChunkSourceRef
from shared.api.provisioningrequest import BEST_EFFORT_ATOMIC, CHECK_CAPACITY, ProvisioningRequest
from tests.unit.manager.buffers import template
from tests.unit.manager.objects import NOW

ATOMIC, CHECK = BEST_EFFORT_ATOMIC, CHECK_CAPACITY


def of(name: str) -> ChunkSourceRef:
    return ChunkSourceRef("", "PodTemplate", "ns", name)


SOURCES: dict[ChunkSourceRef, ChunkSource | str] = {
    of("large"): template({"cpu": "3"}),
    of("small"): template({"cpu": "1"}),
    of("other"): template({"cpu": "1", "example.com/disk": "1"}),
}


def request(
    name: str = "r",
    kind: str = ATOMIC,
    *,
    at: float = NOW - 60,
    parameters: dict[str, str] | None = None,
    said: tuple[tuple[str, bool, str, float], ...] = (),
    **sets: Any,
) -> ProvisioningRequest:
    """`sets` count pods by their template; of the conditions `said`, each has a type, status, reason and time."""
    conditions = [
        {
            "type": condition,
            "status": "True" if holds else "False",
            "reason": reason,
            "message": "",
            "lastTransitionTime": durations.timestamp(time),
        }
        for condition, holds, reason, time in said
    ]
    pod_sets = [{"podTemplateRef": {"name": each}, "count": count} for each, count in sets.items()]
    raw = {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-{name}",
            "generation": 1,
            "creationTimestamp": durations.timestamp(at),
        },
        "spec": {"podSets": pod_sets, "provisioningClassName": kind, "parameters": parameters or {}},
        "status": {"conditions": conditions},
    }
    return msgspec.convert(raw, ProvisioningRequest)


def booked(name: str = "r", kind: str = CHECK, *, since: float = NOW - 30, **sets: Any) -> ProvisioningRequest:
    return request(name, kind, said=(("Provisioned", True, "CapacityIsFound", since),), **sets)


def state(of: PlannedIteration, name: str = "r") -> RequestState:
    assert of.iteration.requests is not None
    (found,) = [each for each in of.iteration.requests.requests if each.key == f"ns/{name}"]
    return found


def after(given: ProvisioningRequest, round_: PlannedIteration, now: float = NOW) -> ProvisioningRequest:
    """The request with the conditions that the round has it say."""
    patch: Any = object_status.request_patch(given, state(round_, given.metadata.name), now)
    if patch is None:
        return given
    raw = msgspec.to_builtins(given)
    raw["status"] = patch["status"]
    return msgspec.convert(raw, ProvisioningRequest)
