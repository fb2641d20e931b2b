"""Reads CapacityBuffers into their chunks: identical virtual pods that wait for room.

The number of chunks follows the API's description: the larger one of `replicas` and `percentage` of the workload's
replicas, rounded up, and not more than fit into `limits`. (Cluster Autoscaler 1.36 takes the smaller one, and rounds
down.)
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from manager.autoscaler.snapshot import pod_info
from manager.autoscaler.snapshot.equivalence_groups import EquivalenceGroup
from manager.autoscaler.snapshot.pod_info import PodInfo
from manager.autoscaler.snapshot.referenced_objects import ReferencedObjects
from shared import names, quantity
from shared.api import pods as podrules
from shared.api.capacitybuffer import ACTIVE_CAPACITY, CapacityBuffer, ChunkSource, ChunkSourceRef
from shared.api.core import Pod, PodTemplate
from shared.api.meta import ObjectMeta
from shared.cached_property import cached_property
from shared.errors import InvalidInput
from shared.quantity import QuantityError

KIND = "CapacityBuffer"
POD_TEMPLATE = "PodTemplate"
JOB = "Job"
# By API group and kind, the workloads that a buffer may name.
WORKLOADS = frozenset(
    {
        ("apps", "Deployment"),
        ("apps", "ReplicaSet"),
        ("apps", "StatefulSet"),
        ("", "ReplicationController"),
        ("batch", JOB),
    }
)
NO_SOURCE = ChunkSourceRef("", "", "", "")
NOT_FOUND = "there is none"
NOT_YET = "it has not been read yet"
MOST_CHUNKS = 10_000  # chunks of one buffer: more tiny ones are a mistake
LOWEST_PRIORITY = -(1 << 31)  # of chunks: every real pod comes first


@dataclass(frozen=True)
class BufferChunks:
    """The chunks of one buffer, by "namespace/name". With `on_mid`, Mid on offer counts as room for them, too.

    `source` is the object that they look like, at this `generation`. There are `wanted` of them, unless the
    ResourceQuotas `limited_by` leave room for fewer.
    """

    key: str
    uid: str = ""
    count: int = 0
    facts: PodInfo = field(default_factory=PodInfo)
    on_mid: bool = False
    source: ChunkSourceRef = NO_SOURCE
    generation: int = 0
    wanted: int = 0
    priority_class: str = ""
    limited_by: tuple[str, ...] = ()

    @cached_property
    def group(self) -> EquivalenceGroup:
        """All chunks as a class of pending pods. Their keys contain a colon, which no pod's name does."""
        digits = len(str(self.count))
        pods = tuple(f"{self.key}:{number:0{digits}}" for number in range(1, self.count + 1))
        return EquivalenceGroup(self.facts, pods, self.uid or self.key)


@dataclass(frozen=True)
class BufferSources:
    """The objects that chunks are modelled on. `found` has the objects that buffers name, or why one was not read."""

    found: Mapping[ChunkSourceRef, ChunkSource | str] = field(default_factory=dict)
    pods: Iterable[Pod] = ()
    surroundings: ReferencedObjects = field(default_factory=ReferencedObjects)


def problem_key(key: str) -> str:
    """The key of a buffer among the invalid objects."""
    return f"{KIND} {key}"


def is_ours(buffer: CapacityBuffer) -> bool:
    """Whether the buffer asks for an autoscaler; another strategy belongs to another controller."""
    return buffer.spec.provisioning_strategy in (None, "", ACTIVE_CAPACITY)


def source_of(buffer: CapacityBuffer) -> ChunkSourceRef:
    """The object that the buffer names. Raises InvalidInput unless it is exactly one, of a kind that is read."""
    template, scalable = buffer.spec.pod_template_ref, buffer.spec.scalable_ref
    namespace = buffer.metadata.namespace
    if (template is None) is (scalable is None):
        problem = "exactly one of podTemplateRef and scalableRef is needed"
        raise _invalid(buffer, "podTemplateRef", None if template is None else template.name, problem)
    if template is not None:
        if not template.name:
            raise _invalid(buffer, "podTemplateRef.name", "", "it is empty")
        return ChunkSourceRef("", POD_TEMPLATE, namespace, template.name)
    assert scalable is not None
    if not scalable.name:
        raise _invalid(buffer, "scalableRef.name", "", "it is empty")
    if (scalable.api_group, scalable.kind) not in WORKLOADS:
        known = ", ".join(sorted(f"{kind}.{group}" if group else kind for group, kind in WORKLOADS))
        named = f"{scalable.kind}.{scalable.api_group}" if scalable.api_group else scalable.kind
        raise _invalid(buffer, "scalableRef.kind", named, f"it is none of {known}")
    return ChunkSourceRef(scalable.api_group, scalable.kind, namespace, scalable.name)


def read_buffers(
    buffers: Iterable[CapacityBuffer],
    sources: BufferSources,
    known: Mapping[str, BufferChunks],
    *,
    on_mid: bool = False,
) -> tuple[dict[str, BufferChunks], dict[str, InvalidInput]]:
    """The chunks of our buffers by key, and the errors of the refused ones.

    A refused buffer keeps its last `known` chunks, unless what they look like has been deleted. `on_mid` is the setting
    that the buffer's annotation overrides.
    """
    ours = {each.metadata.key: each for each in buffers if is_ours(each)}
    newest = _newest_pods(ours.values(), sources.pods)
    found, refused = dict[str, BufferChunks](), dict[str, InvalidInput]()
    for key, buffer in sorted(ours.items()):
        try:
            found[key] = _read(buffer, sources, newest, on_mid)
        except InvalidInput as error:
            refused[problem_key(key)] = error
            if key in known and error.problem != NOT_FOUND:
                found[key] = known[key]
    return found, refused


def _read(
    buffer: CapacityBuffer, sources: BufferSources, newest: Mapping[ChunkSourceRef, Pod], on_mid: bool
) -> BufferChunks:
    meta = buffer.metadata
    ref = source_of(buffer)
    source = sources.found.get(ref, NOT_FOUND)
    if isinstance(source, str):
        raise _invalid(buffer, _field(ref), str(ref), source)
    template = source.template or source.spec.template
    if template is None:
        raise _invalid(buffer, _field(ref), str(ref), "it has no pod template")
    chunk = _chunk(buffer, template, newest.get(ref))
    try:
        facts = pod_info.read_pending(chunk, sources.surroundings)
    except InvalidInput as error:
        raise _invalid(buffer, _field(ref), str(ref), str(error)) from error
    wanted = _count(buffer, ref, source, facts)
    return BufferChunks(
        meta.key,
        meta.uid,
        wanted,
        facts,
        _on_mid(buffer, on_mid),
        ref,
        source.metadata.generation,
        wanted,
        chunk.spec.priority_class_name,
    )


def _chunk(buffer: CapacityBuffer, template: PodTemplate, newest: Pod | None) -> Pod:
    """A pod like the newest one of the workload, which has been through admission; else like the template.

    Claims are the template's: those of a StatefulSet's pod are its own.
    """
    labels, spec = template.metadata.labels, template.spec
    if newest is not None:
        labels, spec = newest.metadata.labels, replace(newest.spec, volumes=spec.volumes)
    return Pod(
        metadata=ObjectMeta(name=buffer.metadata.name, namespace=buffer.metadata.namespace, labels=labels),
        spec=replace(spec, node_name="", priority=LOWEST_PRIORITY),
    )


def _newest_pods(buffers: Iterable[CapacityBuffer], pods: Iterable[Pod]) -> dict[ChunkSourceRef, Pod]:
    """The newest living pod of each workload that a buffer names."""
    wanted = {}
    for buffer in buffers:
        ref = buffer.spec.scalable_ref
        if ref is not None:
            namespace = buffer.metadata.namespace
            wanted[f"{namespace}/{ref.kind}/{ref.name}"] = ChunkSourceRef(ref.api_group, ref.kind, namespace, ref.name)
    namespaces = {each.namespace for each in wanted.values()}
    found: dict[ChunkSourceRef, Pod] = {}
    for pod in pods:
        if pod.metadata.namespace not in namespaces or not podrules.is_active(pod):
            continue
        which = wanted.get(podrules.workload(pod))
        if which is not None and (which not in found or _age(pod) > _age(found[which])):
            found[which] = pod
    return found


def _age(pod: Pod) -> tuple[float, str]:
    return pod.metadata.created_at, pod.metadata.name


def _count(buffer: CapacityBuffer, ref: ChunkSourceRef, source: ChunkSource, facts: PodInfo) -> int:
    spec = buffer.spec
    wanted: list[int] = []
    if spec.replicas is not None:
        wanted.append(_not_negative(buffer, "replicas", spec.replicas))
    if spec.percentage is not None and ref.kind != POD_TEMPLATE:
        percentage = _not_negative(buffer, "percentage", spec.percentage)
        now = (1 if source.spec.parallelism is None else source.spec.parallelism) if ref.kind == JOB else None
        wanted.append(-(-percentage * (source.status.replicas if now is None else now) // 100))
    if spec.limits is None and not wanted:
        problem = "replicas, percentage (of a scalableRef) or limits is required"
        raise _invalid(buffer, "replicas", None, problem)
    count = max(wanted, default=MOST_CHUNKS + 1)
    if spec.limits is not None:
        count = min(count, _fitting(buffer, spec.limits, facts))
    if count > MOST_CHUNKS:
        raise _invalid(buffer, "replicas" if wanted else "limits", count, f"more than {MOST_CHUNKS} chunks")
    return count


def _fitting(buffer: CapacityBuffer, limits: Mapping[str, str | int | float], facts: PodInfo) -> int:
    """The number of chunks that fit into the limits."""
    counts = []
    for name, value in limits.items():
        try:
            most = quantity.milli(value) if name == names.CPU else quantity.whole(value)
        except QuantityError as error:
            raise _invalid(buffer, f"limits.{name}", value, str(error)) from error
        if most < 0:
            raise _invalid(buffer, f"limits.{name}", value, "it is negative")
        if facts.requests.get(name):
            counts.append(most // facts.requests[name])
    if not counts:
        raise _invalid(buffer, "limits", dict(limits), "a chunk requests nothing of what is limited")
    return min(counts)


def _on_mid(buffer: CapacityBuffer, default: bool) -> bool:
    text = buffer.metadata.annotation(names.ANNOTATION_BUFFER_ON_MID)
    if text is None:
        return default
    if text not in ("true", "false"):
        problem = "it is neither true nor false"
        field_name = f"metadata.annotations[{names.ANNOTATION_BUFFER_ON_MID}]"
        raise InvalidInput(source=problem_key(buffer.metadata.key), field=field_name, value=text, problem=problem)
    return text == "true"


def _field(ref: ChunkSourceRef) -> str:
    return "podTemplateRef" if ref.kind == POD_TEMPLATE else "scalableRef"


def _not_negative(buffer: CapacityBuffer, name: str, value: int) -> int:
    if value < 0:
        raise _invalid(buffer, name, value, "it is negative")
    return value


def _invalid(buffer: CapacityBuffer, name: str, value: object, problem: str) -> InvalidInput:
    return InvalidInput(source=problem_key(buffer.metadata.key), field=f"spec.{name}", value=value, problem=problem)
