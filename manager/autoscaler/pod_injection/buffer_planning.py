"""Finds room for the chunks of CapacityBuffers: on present or upcoming nodes, on Mid, on new nodes, or nowhere.

Chunks come after all pending pods, and stand for no pod: a chunk with room needs no node, a pod that takes the room
makes the chunk wait again, and the simulation of scale-down moves chunks like pods, so that a node stays if no other
node has its room.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from manager.autoscaler.pod_injection.buffer_reading import BufferChunks
from manager.autoscaler.scale_up import orchestrator
from manager.autoscaler.scale_up.decisions import ScaleUpDecision, ScaleUpOutcome, count_groups
from manager.autoscaler.scale_up.options import ScaleUpInput, ScaleUpSettings
from manager.autoscaler.snapshot.equivalence_groups import EquivalenceGroup
from shared.names import CPU, MEMORY, MID_CPU, MID_MEMORY
from shared.quantity import Amounts

PODS_FIRST = "pending pods get nodes before buffers"

_MID_OF = {CPU: MID_CPU, MEMORY: MID_MEMORY}


@dataclass(frozen=True)
class BufferState:
    """`on_nodes` of the `chunks` have room on present or upcoming nodes, `on_mid` in Mid on offer, `triggered` get new
    nodes, and the rest get nothing now: `reasons` says why not, by group.

        `requests` are those of one chunk. There would be `wanted` chunks without the ResourceQuotas `limited_by`.
    """

    key: str
    uid: str = ""
    chunks: int = 0
    on_nodes: int = 0
    on_mid: int = 0
    triggered: int = 0
    requests: Amounts = field(default_factory=dict)
    reasons: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    wanted: int = 0
    limited_by: tuple[str, ...] = ()

    @property
    def unplaced(self) -> int:
        return self.chunks - self.on_nodes - self.on_mid - self.triggered

    @property
    def why(self) -> str:
        """Why the rest gets nothing: every reason, with its number of groups."""
        return count_groups(self.reasons)

    def __str__(self) -> str:
        parts = (
            (self.on_nodes, "have room on nodes"),
            (self.on_mid, "have room in Mid on offer"),
            (self.triggered, "get new nodes"),
            (self.unplaced, f"get no node: {self.why or 'none may be launched'}"),
        )
        return f"of {self.chunks} chunks " + ", ".join(f"{count} {what}" for count, what in parts if count)


@dataclass(frozen=True)
class BufferPlan:
    """The state of every buffer, by key, after the decisions about them; `buffer_of` is that of each chunk."""

    buffers: tuple[BufferState, ...] = ()
    decisions: tuple[ScaleUpDecision, ...] = ()
    buffer_of: Mapping[str, str] = field(default_factory=dict)


def chunk_classes(waiting: ScaleUpInput, buffers: Iterable[BufferChunks]) -> tuple[EquivalenceGroup, ...]:
    """The classes of all chunks, beside the pending pods of `waiting`.

    Chunks of a buffer `on_mid` that would need a new node ask for Mid instead as far as Mid has room for them.
    """
    known = {group.pods[0]: each for each in buffers if each.count and (group := each.group)}
    classes = {first: each.group for first, each in known.items()}
    asking = {first: classes[first] for first, each in known.items() if each.on_mid and _is_native(each)}
    if not asking:
        return tuple(classes.values())
    short = {first: count for first, count in _pending(waiting, classes.values()).items() if first in asking and count}
    on_mid = {first: _as_mid(asking[first], count) for first, count in short.items()}
    settled = [each._replace(pods=each.pods[: len(each.pods) - short.get(first, 0)]) for first, each in classes.items()]
    left = _pending(waiting, [*(each for each in settled if each.pods), *on_mid.values()])
    found = dict(classes)
    for first, group in on_mid.items():
        placed = len(group.pods) - left[group.pods[0]]
        if placed:
            native = classes[first]
            found[first] = native._replace(pods=native.pods[: len(native.pods) - placed])
            found[f"{first} on Mid"] = group._replace(pods=native.pods[len(native.pods) - placed :])
    return tuple(each for each in found.values() if each.pods)


def decide(
    after: ScaleUpInput, settings: ScaleUpSettings, chance: random.Random, *, pods_wait: bool
) -> ScaleUpDecision:
    """The decision about the chunks among the classes of `after`, which has all decisions about pods in it.

    While pods wait for a later iteration, nothing is bought for chunks: it could be what the pods need.
    """
    states = after.groups
    if pods_wait:
        states = [replace(each, blocked_reason=each.blocked_reason or PODS_FIRST) for each in states]
    return replace(orchestrator.decide(replace(after, groups=states), settings, chance), for_buffers=True)


def buffer_plan(buffers: Sequence[BufferChunks], decisions: Sequence[ScaleUpDecision]) -> BufferPlan:
    """The buffers' state after these decisions about them; the last decision holds."""
    buffer_of = {chunk: each.key for each in buffers for chunk in each.group.pods}
    native = {each.key: each.facts.requests for each in buffers}
    states = {
        each.key: BufferState(
            each.key,
            each.uid,
            each.count,
            requests=each.facts.requests,
            wanted=each.wanted,
            limited_by=each.limited_by,
        )
        for each in buffers
    }
    if decisions:
        for demand in decisions[0].demands:
            state = states[buffer_of[demand.pods[0]]]
            room = demand.schedulable + demand.reclaimed
            if demand.requests == native[state.key]:
                states[state.key] = replace(state, on_nodes=state.on_nodes + room)
            else:
                states[state.key] = replace(state, on_mid=state.on_mid + room)
        last = decisions[-1]
        if last.outcome is ScaleUpOutcome.GROW:
            for chunk in last.triggered:
                state = states[buffer_of[chunk]]
                states[state.key] = replace(state, triggered=state.triggered + 1)
        for left in last.left:
            state = states[buffer_of[left.pods[0]]]
            states[state.key] = replace(state, reasons=last.reasons_or_limit(left))
    return BufferPlan(tuple(states.values()), tuple(decisions), buffer_of)


def _is_native(buffer: BufferChunks) -> bool:
    return any(name in buffer.facts.requests for name in _MID_OF)


def _as_mid(group: EquivalenceGroup, count: int) -> EquivalenceGroup:
    """The last `count` of these chunks, with requests of Mid: thousandths of a core, and bytes."""
    requests = {_MID_OF.get(name, name): amount for name, amount in group.facts.requests.items()}
    return EquivalenceGroup(replace(group.facts, requests=requests), group.pods[-count:], group.controller)


def _pending(waiting: ScaleUpInput, chunks: Iterable[EquivalenceGroup]) -> dict[str, int]:
    """By the first pod of each class, the number without room in the cluster, now or within a reporting interval."""
    left = orchestrator.filter_out_schedulable(replace(waiting, classes=[*waiting.classes, *chunks])).left
    return {each.pods[0]: count for each, count in zip(left.problem.classes, left.pending.tolist(), strict=True)}
