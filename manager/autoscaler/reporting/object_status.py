"""The status of CapacityQuotas, CapacityBuffers and ProvisioningRequests, in Cluster Autoscaler's form and words.

One writer serves all kinds: few objects at a time, none often, and on the leader alone. A patch is only computed for an
object that may be written now.

A CapacityQuota says whether it is valid, and what the present nodes that it selects use. A CapacityBuffer says what it
was read as, and more in the condition PROVISIONING: with Karpenter's reasons, whether chunks have room or get a new
node, and False if some of them get none. A ProvisioningRequest has the conditions of which there is something new.
"""

import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from manager.autoscaler.estimator.limits import MEMORY
from manager.autoscaler.pod_injection import buffer_reading
from manager.autoscaler.pod_injection.buffer_planning import PODS_FIRST, BufferPlan, BufferState
from manager.autoscaler.pod_injection.buffer_reading import BufferChunks
from manager.autoscaler.pod_injection.request_planning import RequestPlan
from manager.autoscaler.pod_injection.request_states import RequestStage, RequestState, SaidCondition
from manager.autoscaler.scale_up.capacity_quotas import CapacityLimits, problem_key
from manager.autoscaler.scale_up.groups import QuotaUsage
from manager.autoscaler.snapshot.cluster import NodeInfo, NodeState
from shared import durations, quantity
from shared.api import capacitybuffer as buffer_api
from shared.api.capacitybuffer import CapacityBuffer
from shared.api.capacityquota import VALID, CapacityQuota
from shared.api.meta import ObjectMeta
from shared.api.provisioningrequest import ProvisioningRequest
from shared.clock import Clock
from shared.errors import HeadroomError, InvalidInput
from shared.kube.client import Client
from shared.kube.errors import Conflict, NotFound
from shared.kube.resources import Resource

logger = logging.getLogger(__name__)

# Between two writes of one object's status.
QUOTA_SECONDS, BUFFER_SECONDS, REQUEST_SECONDS = 60.0, 20.0, 5.0
MOST_AT_ONCE = 10  # objects of a kind written in one iteration, which waits for them
TIMEOUT_SECONDS = 5.0
MOST_CHARACTERS = 32_768  # of a message, as in the CustomResourceDefinitions

EMPTY, NOT_READY = "BufferIsEmpty", "NotReadyForProvisioning"
FITS, NEW_NODES, NO_NODES = "FitsExistingCapacity", "RequiresNewCapacity", "NoCapacity"

Patch: TypeAlias = dict[str, object] | None  # None: the status is up to date
DuePatch: TypeAlias = tuple[ObjectMeta, Callable[[float], Patch]]  # an object, and what makes its patch at a time


class ObjectStatusWriter:
    """Of one kind. For the loop's thread. A later iteration repeats a failed write."""

    def __init__(
        self, client: Client, resource: Resource, every_seconds: float, may_write: Callable[[], bool], clock: Clock
    ) -> None:
        """Between two writes of one object are `every_seconds`."""
        self._client = client.single_attempt(TIMEOUT_SECONDS)
        self._resource = resource
        self._every_seconds = every_seconds
        self._may_write = may_write
        self._clock = clock
        self._due: dict[str, float] = {}  # by key, the monotonic time of the next write at the earliest

    def write(self, objects: Iterable[DuePatch]) -> None:
        """Writes the merge patch for now of each object that has one."""
        wanted = list(objects)
        self._due = {meta.key: self._due.get(meta.key, 0.0) for meta, _ in wanted}
        now, written = self._clock.monotonic(), 0
        for meta, patch in wanted:
            if now < self._due[meta.key] or written == MOST_AT_ONCE:
                continue
            body = patch(self._clock.now())
            if body is None:
                continue
            if not self._may_write():
                return
            written, self._due[meta.key] = written + 1, now + self._every_seconds
            try:
                self._client.patch(self._resource, meta.name, body, meta.namespace or None, subresource="status")
            except (Conflict, NotFound) as error:  # it has changed or was deleted; the next iteration handles that
                logger.debug("the status was not written: %s", error, extra={"object": meta.key})
            except HeadroomError as error:
                logger.warning("the status was not written: %s", error, extra={"object": meta.key})
                return


def quota_patches(
    quotas: Sequence[CapacityQuota],
    limits: Mapping[str, CapacityLimits],
    refused: Mapping[str, InvalidInput],
    nodes: Iterable[NodeInfo],
    usage: QuotaUsage,
) -> Iterator[DuePatch]:
    """`limits` are the valid ones, by the quota's name, and `refused` the errors; see `capacity_quotas`."""

    there = [node for node in nodes if node.state is not NodeState.UPCOMING] if quotas else []

    def patch_at(quota: CapacityQuota, now: float) -> Patch:
        name = quota.metadata.name
        used = limits[name].usage_of(there, usage) if name in limits else None
        return quota_patch(quota, refused.get(problem_key(name)), used, now)

    for quota in quotas:
        yield quota.metadata, functools.partial(patch_at, quota)


def quota_patch(
    quota: CapacityQuota, problem: InvalidInput | None, used: Mapping[str, int] | None, now: float
) -> Patch:
    """For a quota with this `problem`. Without valid limits, `used` is left out."""
    generation, status = quota.metadata.generation, quota.status
    said = _validity(VALID, problem, ("Valid", "the quota is in effect", "Invalid"), has_last=used is not None)
    wanted: dict[str, object] = {}
    if status.observed_generation != generation:
        wanted["observedGeneration"] = generation
    if used is not None:
        resources = {name: quantity.format_bytes(each) if name == MEMORY else str(each) for name, each in used.items()}
        known = (status.used.resources if status.used is not None else None) or {}
        if status.used is None or resources != {name: str(each) for name, each in known.items()}:
            gone = dict.fromkeys(known.keys() - resources.keys())
            wanted["used"] = {"resources": {**resources, **gone}}
    return _patch(quota, [said], wanted, now)


def buffer_patches(
    buffers: Iterable[CapacityBuffer],
    chunks: Mapping[str, BufferChunks],
    refused: Mapping[str, InvalidInput],
    plan: BufferPlan | None,
) -> Iterator[DuePatch]:
    """`chunks` are those of readable buffers by key, and `refused` the errors; see `capacity_buffers.reading`."""
    states = {} if plan is None else {each.key: each for each in plan.buffers}
    for each in filter(buffer_reading.is_ours, buffers):
        key = each.metadata.key
        known = chunks.get(key), refused.get(buffer_reading.problem_key(key)), states.get(key)
        yield each.metadata, functools.partial(buffer_patch, each, *known)


def buffer_patch(
    buffer: CapacityBuffer,
    chunks: BufferChunks | None,
    problem: InvalidInput | None,
    state: BufferState | None,
    now: float,
) -> Patch:
    """For a buffer with this `problem`. Without a `state` nothing was decided, and the condition PROVISIONING stays."""
    status, words = buffer.status, (buffer_api.ATTRIBUTES_SET, "ready", buffer_api.ERROR)
    said = [_validity(buffer_api.READY_FOR_PROVISIONING, problem, words, has_last=chunks is not None)]
    if chunks is None:
        not_ready = "the buffer is not ready for provisioning"
        said.append(SaidCondition(buffer_api.PROVISIONING, False, NOT_READY, not_ready))
    else:
        named = ", ".join(chunks.limited_by)
        limited = f"{chunks.count} of {chunks.wanted} chunks, by ResourceQuotas {named}" if named else ""
        said.append(SaidCondition(buffer_api.LIMITED_BY_QUOTAS, bool(named), buffer_api.QUOTAS_ALLOCATED, limited))
        if state is not None:
            said.append(_provisioning(state))
    template = chunks if chunks is not None and chunks.source.kind == buffer_reading.POD_TEMPLATE else None
    fields: dict[str, tuple[object, object]] = {  # as it is, and as it is to be
        "provisioningStrategy": (status.provisioning_strategy, buffer_api.ACTIVE_CAPACITY),
        "replicas": (status.replicas, None if chunks is None else chunks.count),
        "podTemplateRef": (
            None if status.pod_template_ref is None else {"name": status.pod_template_ref.name},
            None if template is None else {"name": template.source.name},
        ),
        "podTemplateGeneration": (status.pod_template_generation, None if template is None else template.generation),
    }
    return _patch(buffer, said, {name: wanted for name, (found, wanted) in fields.items() if found != wanted}, now)


def _provisioning(state: BufferState) -> SaidCondition:
    if not state.chunks:
        return SaidCondition(buffer_api.PROVISIONING, False, EMPTY, "the buffer has no chunks")
    waits = set(state.reasons.values()) == {(PODS_FIRST,)}
    if state.unplaced and not waits:
        return SaidCondition(buffer_api.PROVISIONING, False, NO_NODES, str(state))
    reason = NEW_NODES if state.unplaced or state.triggered else FITS
    return SaidCondition(buffer_api.PROVISIONING, True, reason, str(state))


def request_patches(requests: Iterable[ProvisioningRequest], plan: RequestPlan) -> Iterator[DuePatch]:
    """What is promised, and what is over, comes before the others."""
    by_key = {each.metadata.key: each for each in requests}
    news = [each for each in plan.requests if each.said and each.key in by_key]
    for state in sorted(news, key=lambda each: each.stage is RequestStage.PENDING):
        request = by_key[state.key]
        yield request.metadata, functools.partial(request_patch, request, state)


def request_patch(request: ProvisioningRequest, state: RequestState, now: float) -> Patch:
    """The conditions of which there is something new."""
    return _patch(request, state.said, {}, now)


def _validity(name: str, problem: InvalidInput | None, words: tuple[str, str, str], *, has_last: bool) -> SaidCondition:
    """Whether an object is valid: `words` are the reason and message if it is, and the reason if it is not.

    With `has_last`, the last valid version of an invalid one holds.
    """
    good, message, bad = words
    if problem is None:
        return SaidCondition(name, True, good, message)
    return SaidCondition(
        name, False, bad, f"{problem}; the last valid version stays in effect" if has_last else str(problem)
    )


def _patch(
    of: CapacityQuota | CapacityBuffer | ProvisioningRequest,
    said: Iterable[SaidCondition],
    changes: Mapping[str, object],
    now: float,
) -> Patch:
    """The merge patch of the status with these conditions among all, and the changes.

    The time of a condition changes with its status only.
    """
    kept = {each.get("type"): each for each in of.status.conditions or ()}
    found = dict(kept)
    for each in said:
        holds, old = "True" if each.holds else "False", kept.get(each.type, {})
        turned = old.get("lastTransitionTime") if old.get("status") == holds else None
        found[each.type] = {
            "type": each.type,
            "status": holds,
            "reason": each.reason,
            "message": each.message[:MOST_CHARACTERS],
            "observedGeneration": of.metadata.generation,
            "lastTransitionTime": turned or durations.timestamp(now),
        }
    wanted = {**({"conditions": list(found.values())} if found != kept else {}), **changes}
    return {"metadata": {"resourceVersion": of.metadata.resource_version}, "status": wanted} if wanted else None
