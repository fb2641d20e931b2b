"""The status of CapacityBuffers: what each was read as, and whether its chunks have room.

It has Cluster Autoscaler's form, and says more in the condition PROVISIONING: with Karpenter's reasons, whether chunks
have room or get a new node, and False if some of them get none.
"""

from collections.abc import Callable, Iterable, Mapping

from manager.autoscaler.capacity_buffers import reading
from manager.autoscaler.capacity_buffers.planning import PODS_FIRST, BufferPlan, BufferState
from manager.autoscaler.capacity_buffers.reading import BufferChunks
from manager.autoscaler.reporting import object_status
from manager.autoscaler.reporting.object_status import ObjectStatusWriter, Patch
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
from shared.clock import Clock
from shared.errors import InvalidInput
from shared.kube.client import Client
from shared.kube.resources import CAPACITYBUFFERS

WRITE_SECONDS = 20.0  # between two writes of one buffer's status
EMPTY, NOT_READY = "BufferIsEmpty", "NotReadyForProvisioning"
FITS, NEW_NODES, NO_NODES = "FitsExistingCapacity", "RequiresNewCapacity", "NoCapacity"


class BufferStatus:
    """Writes changes, on the leader alone; a later iteration repeats a failed write."""

    def __init__(self, client: Client, may_write: Callable[[], bool], clock: Clock) -> None:
        self._writer = ObjectStatusWriter(client, CAPACITYBUFFERS, may_write, clock)

    def write(
        self,
        buffers: Iterable[CapacityBuffer],
        chunks: Mapping[str, BufferChunks],
        refused: Mapping[str, InvalidInput],
        plan: BufferPlan | None,
    ) -> None:
        """`chunks` are those of readable buffers by key, and `refused` the errors; see `capacity_buffers.reading`."""
        states = {} if plan is None else {each.key: each for each in plan.buffers}

        def patch_of(buffer: CapacityBuffer) -> Callable[[float], Patch]:
            key = buffer.metadata.key
            problem = refused.get(reading.problem_key(key))
            return lambda now: patch(buffer, chunks.get(key), problem, states.get(key), now)

        ours = (each for each in buffers if reading.is_ours(each))
        self._writer.write(((each.metadata, patch_of(each)) for each in ours), WRITE_SECONDS)


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
    message = "ready" if problem is None else str(problem)
    if problem is not None and chunks is not None:
        message += "; the last valid version holds"
    said = [
        (READY_FOR_PROVISIONING, problem is None, ATTRIBUTES_SET if problem is None else ERROR, message),
    ]
    if chunks is not None:
        named = ", ".join(chunks.limited_by)
        limited = f"{chunks.count} of {chunks.wanted} chunks, by ResourceQuotas {named}" if named else ""
        said.append((LIMITED_BY_QUOTAS, bool(named), QUOTAS_ALLOCATED, limited))
    if chunks is None:
        said.append((PROVISIONING, False, NOT_READY, "the buffer is not ready for provisioning"))
    elif state is not None:
        said.append((PROVISIONING, *_provisioning(state)))
    ours: list[dict[str, object]] = [
        {
            "type": kind,
            "status": "True" if holds else "False",
            "reason": reason,
            "message": text,
            "observedGeneration": meta.generation,
        }
        for kind, holds, reason, text in said
    ]
    wanted: dict[str, object] = {}
    conditions = object_status.with_conditions(status.conditions, ours, now)
    if conditions is not None:
        wanted["conditions"] = list(conditions)
    if status.provisioning_strategy != ACTIVE_CAPACITY:
        wanted["provisioningStrategy"] = ACTIVE_CAPACITY
    count = None if chunks is None else chunks.count
    if status.replicas != count:
        wanted["replicas"] = count
    is_template = chunks is not None and chunks.source.kind == reading.POD_TEMPLATE
    name = chunks.source.name if chunks is not None and is_template else None
    if (None if status.pod_template_ref is None else status.pod_template_ref.name) != name:
        wanted["podTemplateRef"] = None if name is None else {"name": name}
    generation = chunks.generation if chunks is not None and is_template else None
    if status.pod_template_generation != generation:
        wanted["podTemplateGeneration"] = generation
    return {"metadata": {"resourceVersion": meta.resource_version}, "status": wanted} if wanted else None


def _provisioning(state: BufferState) -> tuple[bool, str, str]:
    if not state.chunks:
        return False, EMPTY, "the buffer has no chunks"
    waits = set(state.reasons.values()) == {(PODS_FIRST,)}
    if state.unplaced and not waits:
        return False, NO_NODES, str(state)
    return True, NEW_NODES if state.unplaced or state.triggered else FITS, str(state)
