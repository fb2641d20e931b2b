"""The way of one replacement, as a pure function: `step(state, event)` gives the next state and what to do now.

Nodes are launched, awaited, and looked at a second time before the first old node goes. What holds at every step:

* No old node is asked to go before every new one is ready and a second look has found places for all pods.
* While a launch is awaited, nothing but the clock, a failure or an end of all old nodes ends the replacement, and it
  ends without touching an old node. New nodes that are of no use then are empty, and scale-down removes them.
* Only nodes that the state names, by their UIDs, are asked to go.
* The state is written before anything is done about it. A process that finds it in the registry goes on from there:
  what it is told about nodes, not its memory, says how far it has come.
* Each phase has an end: every replacement comes to one, whatever happens.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from manager.autoscaler.cluster_state.replacement import Launch, ReplacedNode, Replacement, ReplacementPhase
from shared import durations

LOOK_SECONDS = 900.0  # for which the second look may go on refusing
DRAIN_SECONDS = 1800.0  # from the deletion of one old node to that of the next


@dataclass(frozen=True, slots=True)
class ReplacementChosen:
    """The search has found it."""

    replacement: Replacement


@dataclass(frozen=True, slots=True)
class ReplacementSeen:
    """What an iteration sees of it. `present` holds the UIDs of existing nodes, `going` the names of nodes under
    deletion; `ready` gives the ready new nodes by group, and `failures` why no further ones come to a group.
    """

    now: float
    present: frozenset[str] = frozenset()
    going: frozenset[str] = frozenset()
    ready: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LookedAgain:
    """The nodes that may go now, in part if fewer may go at one time; `refusal` says why none may."""

    now: float
    nodes: tuple[str, ...] = ()
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class ReplacementAbandoned:
    """It is not wanted any more."""

    reason: str


ReplacementEvent: TypeAlias = ReplacementChosen | ReplacementSeen | LookedAgain | ReplacementAbandoned


@dataclass(frozen=True, slots=True)
class LaunchNodes:
    """Raise the groups' targets."""

    launches: tuple[Launch, ...]


@dataclass(frozen=True, slots=True)
class LookAgain:
    """See whether these old nodes can go, all of them together."""

    nodes: tuple[ReplacedNode, ...]


@dataclass(frozen=True, slots=True)
class RemoveNodes:
    """Begin to drain and delete these old nodes."""

    nodes: tuple[str, ...]


class ReplacementOutcome(enum.StrEnum):
    """GIVEN_UP: no old node was touched. PARTLY_DONE: some have gone, and the others stay."""

    DONE = "done"
    GIVEN_UP = "given up"
    PARTLY_DONE = "partly done"


@dataclass(frozen=True, slots=True)
class ReplacementEnded:
    replacement: Replacement
    outcome: ReplacementOutcome
    reason: str = ""

    def __str__(self) -> str:
        said = f"the replacement of {self.replacement} is {self.outcome}"
        return f"{said}: {self.reason}" if self.reason else said


ReplacementInstruction: TypeAlias = LaunchNodes | LookAgain | RemoveNodes | ReplacementEnded
Stepped: TypeAlias = tuple[Replacement | None, tuple[ReplacementInstruction, ...]]


def step(state: Replacement | None, event: ReplacementEvent) -> Stepped:
    """An event that the state does not wait for changes nothing."""
    if state is None:
        if isinstance(event, ReplacementChosen):
            return event.replacement, (LaunchNodes(event.replacement.launches),)
        return None, ()
    match event:
        case ReplacementSeen():
            return _take_seen(state, event)
        case LookedAgain():
            return _take_look(state, event)
        case ReplacementAbandoned():
            return _end(state, event.reason)
        case ReplacementChosen():
            return state, ()


def _take_seen(state: Replacement, event: ReplacementSeen) -> Stepped:
    there = [each for each in state.removed if each.uid in event.present]
    if state.phase is ReplacementPhase.DRAINING:
        if not there:
            return None, (ReplacementEnded(state, ReplacementOutcome.DONE),)
        if len(there) < state.left:
            state = replace(state, left=len(there), deadline=event.now + DRAIN_SECONDS)
    elif not there:
        return _end(state, "the nodes to be replaced were deleted")
    if state.phase is ReplacementPhase.LAUNCHING:
        missing = [each for each in state.launches if len(event.ready.get(each.group, ())) < each.nodes]
        failed = next((event.failures[each.group] for each in missing if each.group in event.failures), "")
        if failed:
            return _end(state, failed)
        if missing and event.now > state.deadline:
            waited = durations.render(round(event.now - state.started_at))
            return _end(state, f"not all new nodes of {missing[0].group} were ready after {waited}")
        if missing:
            return state, ()
        state = replace(state, phase=ReplacementPhase.READY, deadline=event.now + LOOK_SECONDS)
    waiting = tuple(each for each in there if each.name not in event.going)
    return state, (LookAgain(waiting),) if waiting else ()


def _take_look(state: Replacement, event: LookedAgain) -> Stepped:
    if state.phase is ReplacementPhase.LAUNCHING:
        return state, ()
    is_over = event.now > state.deadline
    if is_over and (not event.nodes or state.phase is ReplacementPhase.DRAINING):
        return _end(state, event.refusal or "its nodes were not deleted in time")
    ours = {each.name for each in state.removed}
    nodes = tuple(each for each in event.nodes if each in ours)
    if nodes:
        if state.phase is ReplacementPhase.READY:
            deadline = event.now + DRAIN_SECONDS
            state = replace(state, phase=ReplacementPhase.DRAINING, deadline=deadline, left=len(state.removed))
        return state, (RemoveNodes(nodes),)
    return state, ()


def _end(state: Replacement, reason: str) -> Stepped:
    is_partly = state.phase is ReplacementPhase.DRAINING
    outcome = ReplacementOutcome.PARTLY_DONE if is_partly else ReplacementOutcome.GIVEN_UP
    return None, (ReplacementEnded(state, outcome, reason),)
