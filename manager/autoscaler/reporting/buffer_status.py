"""The status of CapacityBuffers: what each was read as, and whether its chunks have room.

It has Cluster Autoscaler's form, and says more in the condition PROVISIONING: with Karpenter's reasons, whether chunks
have room or get a new node, and False if some of them get none.
"""

import functools
from collections.abc import Iterable, Iterator, Mapping

from manager.autoscaler.pod_injection import buffer_reading
from manager.autoscaler.pod_injection.buffer_planning import PODS_FIRST, BufferPlan, BufferState
from manager.autoscaler.pod_injection.buffer_reading import BufferChunks
from manager.autoscaler.pod_injection.request_states import SaidCondition
from manager.autoscaler.reporting import object_status
from manager.autoscaler.reporting.object_status import DuePatch, Patch
from shared.api.capacitybuffer import (
    ACTIVE_CAPACITY,
    ATTRIBUTES_SET,
    ERROR,
    LIMITED_BY_QUOTAS,
    PROVISIONING,
    QUOTAS_ALLOCATED,
    READY_FOR_PROVISIONING,
    CapacityBuffer,
)
from shared.errors import InvalidInput

WRITE_SECONDS = 20.0  # between two writes of one buffer's status
EMPTY, NOT_READY = "BufferIsEmpty", "NotReadyForProvisioning"
FITS, NEW_NODES, NO_NODES = "FitsExistingCapacity", "RequiresNewCapacity", "NoCapacity"


def patches(
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
        yield each.metadata, functools.partial(patch, each, *known)


def patch(
    buffer: CapacityBuffer,
    chunks: BufferChunks | None,
    problem: InvalidInput | None,
    state: BufferState | None,
    now: float,
) -> Patch:
    """The merge patch for a buffer with this `problem`; None if its status is up to date.

    Without a `state` nothing was decided, and the condition PROVISIONING stays.
    """
    meta, status = buffer.metadata, buffer.status
    words = (ATTRIBUTES_SET, "ready", ERROR)
    said = [object_status.validity(READY_FOR_PROVISIONING, problem, words, has_last=chunks is not None)]
    if chunks is None:
        said.append(SaidCondition(PROVISIONING, False, NOT_READY, "the buffer is not ready for provisioning"))
    else:
        named = ", ".join(chunks.limited_by)
        limited = f"{chunks.count} of {chunks.wanted} chunks, by ResourceQuotas {named}" if named else ""
        said.append(SaidCondition(LIMITED_BY_QUOTAS, bool(named), QUOTAS_ALLOCATED, limited))
        if state is not None:
            said.append(_provisioning(state))
    template = chunks if chunks is not None and chunks.source.kind == buffer_reading.POD_TEMPLATE else None
    fields: dict[str, tuple[object, object]] = {  # as it is, and as it is to be
        "provisioningStrategy": (status.provisioning_strategy, ACTIVE_CAPACITY),
        "replicas": (status.replicas, None if chunks is None else chunks.count),
        "podTemplateRef": (
            None if status.pod_template_ref is None else {"name": status.pod_template_ref.name},
            None if template is None else {"name": template.source.name},
        ),
        "podTemplateGeneration": (status.pod_template_generation, None if template is None else template.generation),
    }
    changes = {name: wanted for name, (found, wanted) in fields.items() if found != wanted}
    return object_status.patch(meta, status.conditions, said, changes, now)


def _provisioning(state: BufferState) -> SaidCondition:
    if not state.chunks:
        return SaidCondition(PROVISIONING, False, EMPTY, "the buffer has no chunks")
    waits = set(state.reasons.values()) == {(PODS_FIRST,)}
    if state.unplaced and not waits:
        return SaidCondition(PROVISIONING, False, NO_NODES, str(state))
    return SaidCondition(PROVISIONING, True, NEW_NODES if state.unplaced or state.triggered else FITS, str(state))
