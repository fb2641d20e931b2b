"""Plans the room of ProvisioningRequests: booked room, room bought as a whole, and room already present.

Requests that are booked or have upcoming nodes get their room before all other decisions. Requests that buy come after
the pending pods, all their pods or none; requests that only check present nodes come after the CapacityBuffers. Every
promise follows from the requests' conditions and the time; the memory between iterations may be lost.
"""

import copy
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from manager.autoscaler.estimator import packing
from manager.autoscaler.estimator.packing import Packing
from manager.autoscaler.pod_injection.request_reading import ReadRequests, RequestedPods, RoomPromise
from manager.autoscaler.pod_injection.request_states import RequestStage, RequestState
from manager.autoscaler.pricing.model import PricingModel, Unpriced
from manager.autoscaler.scale_up import orchestrator, salvo
from manager.autoscaler.scale_up.decisions import ScaleUpDecision, ScaleUpOutcome, count_groups
from manager.autoscaler.scale_up.options import ScaleUpInput, ScaleUpSettings
from manager.autoscaler.snapshot import cluster
from manager.autoscaler.snapshot.cluster import ClusterSnapshot, NodeState
from manager.autoscaler.snapshot.equivalence_groups import EquivalenceGroup
from manager.autoscaler.snapshot.pod_info import PodInfo
from shared.api import provisioningrequest as api

MOST_TRIED = 10  # requests that get an answer in one iteration
MOST_DECISIONS = 8  # decisions that buy the room of one request together
FIRST_RETRY_SECONDS, MOST_RETRY_SECONDS = 60.0, 600.0  # as in Cluster Autoscaler
PROMISE_SECONDS = 60.0  # the time for a booking to show in the request's conditions

FOUND = "the cluster has room for all pods"
ON_THEIR_WAY = "nodes are on their way for the pods that have no room yet"
PODS_FIRST = "pending pods get nodes before requests"
ADVICE = "groups that are only recommended would grow"
_KEPT = (RequestStage.BOOKED, RequestStage.REQUESTED)
_FIRST = 1 << 31  # the priority of booked pods where they stand among pending ones


@dataclass(frozen=True)
class RequestRetry:
    """A request without room is checked again `at`, in Unix seconds; the pause after that is twice `seconds`."""

    at: float
    seconds: float


@dataclass(frozen=True)
class RequestMemory:
    """The memory of requests, by uid. If it is lost, they are checked again, and nothing is bought twice.

    `lost` are booked requests whose room other pods took.
    """

    promises: Mapping[str, RoomPromise] = field(default_factory=dict)
    retries: Mapping[str, RequestRetry] = field(default_factory=dict)
    templates: Mapping[str, tuple[PodInfo, ...]] = field(default_factory=dict)
    lost: frozenset[str] = frozenset()


@dataclass(frozen=True)
class RequestPlan:
    """The results for open requests, the `decisions` that buy for them, and the number of finished ones, by class and
    stage. `reserved` are the pods with reserved room.
    """

    requests: tuple[RequestState, ...] = ()
    decisions: tuple[ScaleUpDecision, ...] = ()
    over: Mapping[tuple[str, RequestStage], int] = field(default_factory=dict)
    request_of: Mapping[str, str] = field(default_factory=dict)
    reserved: tuple[EquivalenceGroup, ...] = ()
    memory: RequestMemory = field(default_factory=RequestMemory)

    @property
    def counts(self) -> dict[tuple[str, str], int]:
        """Requests by class and stage."""
        found = Counter({(kind, stage.value): count for (kind, stage), count in self.over.items()})
        found.update((each.provisioning_class, each.stage.value) for each in self.requests)
        return dict(sorted(found.items()))


class RequestPlanner:
    """One iteration's way through the requests: `hold`, `buy` after the pods, `check` after the buffers, `finish`."""

    def __init__(
        self, read: ReadRequests, memory: RequestMemory, settings: ScaleUpSettings, now: float, chance: random.Random
    ) -> None:
        self._read = read
        self._memory = memory
        # A request is bought for as a whole or not at all; the pods' decision covers the groups' minimum sizes.
        self._settings = replace(settings, enforce_node_group_min_size=False)
        self._now = now
        self._chance = chance
        self._states = {each.state.key: each.state for each in read.requests}
        self._states |= {each.key: each for each in read.others}
        self._reserved: list[RequestedPods] = []
        self._short: list[RequestedPods] = []
        self._lost: set[str] = set()
        self._retries: dict[str, RequestRetry] = {}
        self._decisions: list[ScaleUpDecision] = []

    def copy(self) -> "RequestPlanner":
        """A copy that changes independently."""
        other = copy.copy(self)
        other._states, other._retries = dict(self._states), dict(self._retries)
        other._reserved, other._short, other._decisions = [*self._reserved], [*self._short], [*self._decisions]
        return other

    @property
    def waits(self) -> bool:
        """Whether a request needs an answer now."""
        return any(self._due(is_atomic=each) for each in (True, False))

    @property
    def decisions(self) -> Sequence[ScaleUpDecision]:
        """The decisions that buy."""
        return self._decisions

    @property
    def has_checks(self) -> bool:
        """Whether a request only checks the present nodes."""
        return bool(self._due(is_atomic=False))

    @property
    def wanted(self) -> list[EquivalenceGroup]:
        """The pods that nodes could be bought for."""
        return [group for each in self._due(is_atomic=True) for group in each.classes]

    def hold(self, current: ScaleUpInput) -> ScaleUpInput:
        """The input without the booked and upcoming room. A request that has lost its room waits again.

        A booking that has lost its room gets other room, but none that was bought for other requests.
        """
        known = self._memory.lost
        booked = [each for each in self._read.requests if each.state.stage is RequestStage.BOOKED]
        current = self._hold_booked([each for each in booked if each.state.uid not in known], current)
        for each in self._read.requests:
            if each.state.stage is RequestStage.REQUESTED:
                found = self._find_room(each, current)
                if found is None:
                    self._short.append(each)
                else:
                    current = found
        return self._hold_booked([each for each in booked if each.state.uid in known], current)

    def _hold_booked(self, booked: Sequence[RequestedPods], current: ScaleUpInput) -> ScaleUpInput:
        if not booked:
            return current
        self._reserved += booked
        left = _place(current, [group for each in booked for group in each.classes])
        for group, count in zip(left.problem.classes, left.pending.tolist(), strict=True):
            if count:
                self._lost.add(group.controller)
        return _take(current, left)

    def buy(self, after: ScaleUpInput, *, pods_wait: bool) -> ScaleUpInput:
        """Decides which requests get new nodes; returns the input without the room of all satisfied requests.

        It buys for one request per iteration, and for none while pods wait for a later iteration.
        """
        for each in self._due(is_atomic=True):
            found = self._find_room(each, after)
            if found is not None:
                after = found
            elif pods_wait and each.state.stage is RequestStage.PENDING:
                state = each.state.postpone(RequestStage.PENDING, api.CAPACITY_IS_NOT_FOUND, PODS_FIRST)
                self._states[each.state.key] = state
            elif not (pods_wait or self._decisions):
                after = self._buy_for(each, after)
        return after

    def check(self, after: ScaleUpInput) -> None:
        """Answers the requests that only check whether there is room now."""
        for each in self._due(is_atomic=False):
            left = _place(_of_present(after), each.classes)
            if left.pending.any():
                self._refuse(each, f"{each.pods - int(left.pending.sum())} of {each.pods} pods have room")
            else:
                after = _take(after, left)
                self._book(each, api.CAPACITY_IS_FOUND)

    def finish(self, *, is_advice: bool = False) -> RequestPlan:
        """The results for all requests. With `is_advice` nothing is bought."""
        if is_advice and self._decisions:
            bought = {self._request_of(self._decisions[0])}
            for each in self._read.requests:
                if each.state.key in bought:
                    self._refuse(each, ADVICE)
            self._reserved = [each for each in self._reserved if each.state.key not in bought]
        uids = {each.state.uid for each in self._read.requests}
        ends = [(each.state, self._states[each.state.key]) for each in self._read.requests]
        promises = {
            end.uid: RoomPromise(end, self._now + PROMISE_SECONDS)
            for begin, end in ends
            if end.stage in _KEPT and end.stage is not begin.stage
        }
        known = self._memory.promises
        kept = {
            end.uid: known[end.uid]
            for _, end in ends
            if end.uid in known and known[end.uid].state.stage is end.stage and self._now < known[end.uid].until
        }
        retries = {uid: each for uid, each in self._memory.retries.items() if uid in uids} | self._retries
        reserved = tuple(
            group._replace(facts=replace(group.facts, priority=_FIRST))
            for each in self._reserved
            for group in each.classes
        )
        return RequestPlan(
            tuple(state for _, state in sorted(self._states.items())),
            tuple(replace(each, advice=is_advice) for each in self._decisions),
            self._read.over,
            {pod: each.state.key for each in self._read.requests for group in each.classes for pod in group.pods},
            reserved,
            RequestMemory(kept | promises, retries, self._read.templates, frozenset(self._lost)),
        )

    def _due(self, *, is_atomic: bool) -> list[RequestedPods]:
        """The requests to answer now: first those that have lost their room, then those that wait longest."""
        waiting = [
            (retry.at if retry is not None else each.created_at, each.state.key, each)
            for each in self._read.requests
            if each.is_atomic is is_atomic
            and each.state.stage is RequestStage.PENDING
            and ((retry := self._memory.retries.get(each.state.uid)) is None or retry.at <= self._now)
        ]
        waiting.sort(key=lambda each: each[:2])
        short = self._short if is_atomic else []
        return [*short, *(each for *_, each in waiting)][:MOST_TRIED]

    def _find_room(self, each: RequestedPods, after: ScaleUpInput) -> ScaleUpInput | None:
        """The input without the present or upcoming room for all pods; None if it does not suffice."""
        left = _place(_of_present(after), each.classes)
        if not left.pending.any():
            is_bought = each.state.stage is RequestStage.REQUESTED
            self._book(each, api.CAPACITY_IS_PROVISIONED if is_bought else api.CAPACITY_IS_FOUND)
            return _take(after, left)
        left = _place(after, each.classes)
        if left.pending.any():
            return None
        self._await(each)
        return _take(after, left)

    def _buy_for(self, each: RequestedPods, after: ScaleUpInput) -> ScaleUpInput:
        """Buys from several groups, or from one that takes all pods, whichever is cheaper; nothing if a pod gets no
        node.
        """
        asked = replace(after, classes=list(each.classes), buffers=())
        several, one = (
            _decide_all(
                asked,
                replace(self._settings, estimates=replace(self._settings.estimates, scale_up_all_or_nothing=one_group)),
                self._chance,
            )
            for one_group in (False, True)
        )
        whole = [found for found in (several, one) if not found[1].classes]
        if not whole:
            self._refuse(each, _explain(several[0][-1], each.pods))
            return after
        decisions, left = min(whole, key=lambda found: _cost(found[0], asked, self._settings.pricing))
        self._decisions = [replace(each, for_requests=True) for each in decisions]
        self._await(each)
        return left

    def _book(self, each: RequestedPods, reason: str) -> None:
        self._reserved.append(each)
        self._states[each.state.key] = each.state.book(reason, FOUND)

    def _await(self, each: RequestedPods) -> None:
        self._reserved.append(each)
        if each.state.stage is not RequestStage.REQUESTED:
            state = each.state.postpone(RequestStage.REQUESTED, api.CAPACITY_IS_REQUESTED, ON_THEIR_WAY)
            self._states[each.state.key] = state

    def _refuse(self, each: RequestedPods, why: str) -> None:
        """Records that there is no room now. The request is checked again, unless it asks only once."""
        if each.fails:
            self._states[each.state.key] = each.state.fail(api.CAPACITY_IS_NOT_FOUND, why)
            return
        self._states[each.state.key] = each.state.postpone(RequestStage.PENDING, api.CAPACITY_IS_NOT_FOUND, why)
        known = self._memory.retries.get(each.state.uid)
        seconds = FIRST_RETRY_SECONDS if known is None else min(2 * known.seconds, MOST_RETRY_SECONDS)
        self._retries[each.state.uid] = RequestRetry(self._now + seconds, seconds)

    def _request_of(self, decision: ScaleUpDecision) -> str:
        return decision.triggered[0].rpartition(":")[0]


def _decide_all(
    asked: ScaleUpInput, settings: ScaleUpSettings, chance: random.Random
) -> tuple[list[ScaleUpDecision], ScaleUpInput]:
    """Decides until all pods have a node or nothing is bought; returns the decisions, and the input after them."""
    decisions: list[ScaleUpDecision] = []
    while len(decisions) < MOST_DECISIONS:
        decision = orchestrator.decide(asked, settings, chance)
        decisions.append(decision)
        if decision.outcome is not ScaleUpOutcome.GROW:
            break
        asked = salvo.apply_decision(asked, decision)
        if not asked.classes:
            break
    return decisions, asked


def _cost(decisions: Iterable[ScaleUpDecision], asked: ScaleUpInput, pricing: PricingModel | None) -> tuple[float, int]:
    """The nodes' cost per hour, and their number; the number alone if a price is missing."""
    nodes = Counter[str]()
    for each in decisions:
        nodes.update(each.nodes)
    machines = {each.id: each.template.machine for each in asked.groups if each.template is not None}
    try:
        prices = [pricing.node_price(machines[group]) * count for group, count in nodes.items()] if pricing else []
    except Unpriced:
        prices = []
    return sum(prices), nodes.total()


def _explain(last: ScaleUpDecision, pods: int) -> str:
    """Why no nodes are bought."""
    count = sum(len(each.pods) for each in last.left)
    why = "; ".join(sorted({count_groups(last.reasons_or_limit(each)) for each in last.left}))
    return f"of {pods} pods {count} get no node: {why or 'too many groups would have to grow'}"


def _place(current: ScaleUpInput, classes: Iterable[EquivalenceGroup]) -> Packing:
    """Places these pods on nodes of the cluster, as far as there is room."""
    return orchestrator.filter_out_schedulable(replace(current, classes=list(classes))).left


def _take(current: ScaleUpInput, placed: Packing) -> ScaleUpInput:
    """The input without the room of the placed pods."""
    return replace(current, snapshot=cluster.extend(current.snapshot, [], packing.holdings(placed)))


def _of_present(current: ScaleUpInput) -> ScaleUpInput:
    """The input in which upcoming nodes take no pods, and reclaiming adds nothing."""
    return replace(current, snapshot=_without_upcoming(current.snapshot), expected={})


def _without_upcoming(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    nodes: Sequence[cluster.NodeInfo] = [
        replace(node, state=NodeState.UNREADY) if node.state is NodeState.UPCOMING else node for node in snapshot.nodes
    ]
    return replace(snapshot, nodes=tuple(nodes))
