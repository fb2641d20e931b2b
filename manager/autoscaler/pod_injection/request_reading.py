"""Reads ProvisioningRequests into the pods that they request room for.

A request with an invalid spec fails, because the spec is immutable. A PodTemplate can be corrected, so its request
waits.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from msgspec.structs import replace as replace_fields

from manager.autoscaler.pod_injection import request_states
from manager.autoscaler.pod_injection.buffer_reading import NOT_FOUND, NOT_YET, POD_TEMPLATE, BufferSources
from manager.autoscaler.pod_injection.request_states import RequestStage, RequestState, SaidCondition
from manager.autoscaler.scale_up import pending_pods
from manager.autoscaler.snapshot import pod_info
from manager.autoscaler.snapshot.equivalence_groups import EquivalenceGroup
from manager.autoscaler.snapshot.pod_info import PodInfo
from shared.api import provisioningrequest as api
from shared.api.capacitybuffer import ChunkSource, ChunkSourceRef
from shared.api.core import Pod
from shared.api.meta import ObjectMeta
from shared.api.provisioningrequest import ProvisioningRequest
from shared.errors import InvalidInput

KIND = "ProvisioningRequest"
MOST_PODS = 10_000  # pods of one request: all of them are simulated
MOST_POD_SETS = 32  # as in the CustomResourceDefinition
MOST_ACTIVE = 1_000  # requests that are followed at once, the oldest first
OURS = (api.CHECK_CAPACITY, api.BEST_EFFORT_ATOMIC)


@dataclass(frozen=True)
class RoomPromise:
    """A change that the request's conditions may not show yet: `state` holds `until` then, in Unix seconds."""

    state: RequestState
    until: float


@dataclass(frozen=True)
class RequestedPods:
    """The pods of an open request that have no node, by class. With `fails`, it asks only once."""

    state: RequestState
    created_at: float = 0.0
    classes: tuple[EquivalenceGroup, ...] = ()
    fails: bool = False

    @property
    def is_atomic(self) -> bool:
        return self.state.provisioning_class == api.BEST_EFFORT_ATOMIC

    @property
    def pods(self) -> int:
        return sum(len(each.pods) for each in self.classes)


@dataclass(frozen=True)
class ReadRequests:
    """Our requests: those with pods to place, the `others` with news, and the number of finished ones, by class and
    stage. `templates` are the classes of each request, by uid, for later iterations.
    """

    requests: tuple[RequestedPods, ...] = ()
    others: tuple[RequestState, ...] = ()
    over: Mapping[tuple[str, RequestStage], int] = field(default_factory=dict)
    refused: Mapping[str, InvalidInput] = field(default_factory=dict)
    templates: Mapping[str, tuple[PodInfo, ...]] = field(default_factory=dict)

    @property
    def is_any(self) -> bool:
        return bool(self.requests or self.others or self.over)


@dataclass(frozen=True)
class _Spec:
    """The valid spec: the templates, the number of pods of each, and when a request without room fails."""

    sets: tuple[tuple[ChunkSourceRef, int], ...]
    valid_seconds: float
    fails: bool

    @property
    def pods(self) -> int:
        return sum(count for _, count in self.sets)


def is_ours(request: ProvisioningRequest) -> bool:
    """Whether the request has a class of ours, and no processor instance of another autoscaler."""
    spec = request.spec
    if spec.provisioning_class_name == api.CHECK_CAPACITY and (spec.parameters or {}).get(api.PROCESSOR_INSTANCE):
        return False
    return spec.provisioning_class_name in OURS


def named(requests: Iterable[ProvisioningRequest]) -> list[ChunkSourceRef]:
    """The PodTemplates of the followed requests, in order."""
    found: set[ChunkSourceRef] = set()
    for request, _ in _active(requests)[0]:
        try:
            found.update(ref for ref, _ in _spec(request).sets)
        except InvalidInput:
            continue
    return sorted(found)


def read_requests(
    requests: Iterable[ProvisioningRequest],
    sources: BufferSources,
    now: float,
    *,
    promises: Mapping[str, RoomPromise],
    templates: Mapping[str, tuple[PodInfo, ...]],
) -> ReadRequests:
    """The present content of our requests. `promises` and `templates` are known from earlier iterations, by uid."""
    active, over = _active(requests)
    consumers = _consumers([request for request, _ in active], sources.pods)
    found: list[RequestedPods] = []
    others: list[RequestState] = []
    refused: dict[str, InvalidInput] = {}
    known: dict[str, tuple[PodInfo, ...]] = {}
    for request, state in active:
        uid, since = state.uid, request_states.booked_since(request)
        promise = promises.get(uid)
        if promise is not None and now < promise.until and state.stage is not RequestStage.BOOKED:
            state, since = promise.state, now
        is_booked = state.stage is RequestStage.BOOKED
        try:
            spec = _spec(request)
        except InvalidInput as error:
            refused[error.source] = error
            reason = api.FAILED_TO_BOOK_CAPACITY if is_booked else api.FAILED_TO_CREATE_PODS
            others.append(state.fail(reason, str(error)))
            continue
        state = replace(state, pods=spec.pods, consumed=min(spec.pods, len(consumers.get(state.key, ()))))
        created_at = request.metadata.created_at or now
        if is_booked and now >= since + request_states.BOOKED_SECONDS:
            others.append(state.expire(api.RESERVATION_TIME_EXPIRED, "the time of the booking is over"))
            continue
        if is_booked and state.consumed == state.pods:
            others.append(state.expire(api.BOOKING_CONSUMED, "all pods of the request have their nodes"))
            continue
        if not is_booked and now >= created_at + spec.valid_seconds:
            others.append(state.fail(api.EXPIRED, f"no room was found in {spec.valid_seconds:g} s"))
            continue
        try:
            kinds = _kinds(request, spec, sources)
        except InvalidInput as error:
            refused[error.source] = error
            if not is_booked or (error.problem == NOT_FOUND and uid not in templates):
                others.append(_unread(state, error))
                continue
            kinds = templates.get(uid, ())
        if kinds:
            known[uid] = kinds
        classes = _classes(state, spec, kinds, consumers.get(state.key, ()))
        found.append(RequestedPods(state, created_at, classes, spec.fails))
    return ReadRequests(tuple(found), tuple(others), over, refused, known)


def _active(
    requests: Iterable[ProvisioningRequest],
) -> tuple[list[tuple[ProvisioningRequest, RequestState]], Counter[tuple[str, RequestStage]]]:
    """Our open requests, the oldest first, and the number of finished ones."""
    active, over = [], Counter[tuple[str, RequestStage]]()
    for request in requests:
        if not is_ours(request):
            continue
        state = request_states.state_of(request)
        if state.stage.is_over:
            over[state.provisioning_class, state.stage] += 1
        else:
            active.append((request, state))
    active.sort(key=lambda each: (each[1].stage is RequestStage.PENDING, each[0].metadata.created_at, each[1].key))
    return active[:MOST_ACTIVE], over


def _spec(request: ProvisioningRequest) -> _Spec:
    """The spec. Raises InvalidInput."""
    sets = request.spec.pod_sets or ()
    if not 0 < len(sets) <= MOST_POD_SETS:
        raise _invalid(request, "podSets", len(sets), f"there are between 1 and {MOST_POD_SETS}")
    found, pods = [], 0
    for number, each in enumerate(sets):
        name = each.pod_template_ref.name
        if not name:
            raise _invalid(request, f"podSets[{number}].podTemplateRef.name", name, "it is empty")
        pods += each.count
        if each.count < 1 or pods > MOST_PODS:
            problem = "it is less than 1" if each.count < 1 else f"more than {MOST_PODS} pods"
            raise _invalid(request, f"podSets[{number}].count", each.count, problem)
        found.append((ChunkSourceRef("", POD_TEMPLATE, request.metadata.namespace, name), each.count))
    parameters, is_check = request.spec.parameters or {}, request.spec.provisioning_class_name == api.CHECK_CAPACITY
    seconds, retry = request_states.MOST_SECONDS, "false"
    if is_check:
        retry = parameters.get(api.NO_RETRY, retry)
        if retry not in ("true", "false"):
            raise _invalid(request, f"parameters.{api.NO_RETRY}", retry, "it is neither true nor false")
    elif text := parameters.get(api.VALID_UNTIL_SECONDS):
        if not (text.isascii() and text.isdecimal()) or not int(text):
            raise _invalid(
                request, f"parameters.{api.VALID_UNTIL_SECONDS}", text, "it is not a positive number of seconds"
            )
        seconds = min(seconds, float(text))
    return _Spec(tuple(found), seconds, retry == "true")


def _kinds(request: ProvisioningRequest, spec: _Spec, sources: BufferSources) -> tuple[PodInfo, ...]:
    """The pods of each set. Raises InvalidInput."""
    meta, found = request.metadata, []
    for number, (ref, _) in enumerate(spec.sets):
        where, source = f"podSets[{number}].podTemplateRef", sources.found.get(ref, NOT_FOUND)
        if not isinstance(source, ChunkSource):
            raise _invalid(request, where, str(ref), source)
        if source.template is None:
            raise _invalid(request, where, str(ref), "it has no pod template")
        pod = Pod(
            metadata=ObjectMeta(name=meta.name, namespace=meta.namespace, labels=source.template.metadata.labels),
            spec=replace_fields(source.template.spec, node_name=""),
        )
        try:
            found.append(pod_info.read_pending(pod, sources.surroundings))
        except InvalidInput as error:
            raise _invalid(request, where, str(ref), str(error)) from error
    return tuple(found)


def _unread(state: RequestState, error: InvalidInput) -> RequestState:
    if state.stage is RequestStage.BOOKED:
        return state.fail(api.FAILED_TO_BOOK_CAPACITY, str(error))
    if error.problem == NOT_YET:
        return state
    return state.turn(RequestStage.PENDING, SaidCondition(api.ACCEPTED, False, api.FAILED_TO_CREATE_PODS, str(error)))


def _consumers(requests: Iterable[ProvisioningRequest], pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    """The pods with a node that consume one of these requests, finished ones included, by the request's key."""
    found: dict[str, list[Pod]] = {request.metadata.key: [] for request in requests}
    if found:
        for pod in pods:
            if pod.spec.node_name and (key := pending_pods.consumed_request(pod)) in found:
                found[key].append(pod)
    return found


def _classes(
    state: RequestState, spec: _Spec, kinds: Sequence[PodInfo], consumers: Iterable[Pod]
) -> tuple[EquivalenceGroup, ...]:
    """The pods of each set that have not appeared yet. Their keys contain a colon, which no pod's name does."""
    left = [count for _, count in spec.sets]
    for pod in consumers:
        facts = pod_info.requests_of(pod)
        open_sets = [number for number, count in enumerate(left) if count]
        alike = [each for each in open_sets if each < len(kinds) and facts and kinds[each].requests == facts.requests]
        for number in (alike or open_sets)[:1]:
            left[number] -= 1
    return tuple(
        EquivalenceGroup(
            facts,
            tuple(f"{state.key}:{number}-{pod:0{len(str(left[number]))}}" for pod in range(1, left[number] + 1)),
            state.uid or state.key,
        )
        for number, facts in enumerate(kinds)
        if left[number]
    )


def _invalid(request: ProvisioningRequest, name: str, value: object, problem: str) -> InvalidInput:
    return InvalidInput(source=f"{KIND} {request.metadata.key}", field=f"spec.{name}", value=value, problem=problem)
