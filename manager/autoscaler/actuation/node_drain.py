"""The drain of one node as a value: evicts its pods, and waits until they have ended, or until their grace is over.

A pod that a disruption budget protects is evicted again every `RETRY_SECONDS`, for a while. A pod that comes to the
node meanwhile is judged like the others. No API of Kubernetes protects a gang, so its pods are judged again in each
pass. DaemonSet pods are evicted last and once, and do not keep the node: they have their grace period, and then go with
it. Moments are of the monotonic clock.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from manager.autoscaler.scale_down import drain, pods_on_nodes
from manager.autoscaler.scale_down.drain import DrainInfo, DrainOutcome, GangBudget, RemainingDisruptions
from manager.autoscaler.scale_down.pods_on_nodes import Controllers
from manager.autoscaler.scale_down.removal_status import BlockingReason
from manager.autoscaler.settings.scale_down import ActuationOptions, DrainRules
from shared.api.core import Pod
from shared.api.workloads import PodDisruptionBudget
from shared.errors import HeadroomError
from shared.names import ANNOTATION_DO_NOT_DISRUPT

RETRY_SECONDS = 10.0  # between two tries to evict one pod
HEADROOM_SECONDS = 30.0  # beyond a pod's grace period


class CannotDelete(HeadroomError):
    """The node must stay; the text says why."""


@dataclass(frozen=True)
class PodsToDrain:
    """The pods of a node that need attention, and what decides whether they may be evicted; `now` in Unix seconds."""

    pods: tuple[Pod, ...]
    controllers: Controllers | None
    budgets: tuple[PodDisruptionBudget, ...]
    now: float
    gang_budgets: tuple[GangBudget, ...] = ()

    def moving(self) -> list[tuple[Pod, DrainInfo]]:
        """The pods that need another node."""
        return [(pod, info) for pod, info in self._all() if info.needs_a_place(self.now)]

    def daemons(self, *, evicted: bool) -> list[Pod]:
        """The DaemonSet pods that are `evicted` by default, or by their annotation."""
        return [
            pod
            for pod, info in self._all()
            if info.is_daemon and not info.is_mirror and _is_evicted(pod, evicted) and not info.is_long_gone(self.now)
        ]

    def _all(self) -> Iterator[tuple[Pod, DrainInfo]]:
        return ((pod, pods_on_nodes.drain_info(pod, self.controllers)) for pod in self.pods)


@dataclass(frozen=True, slots=True)
class PodEviction:
    """One pod to evict, and the result. One that `is_protected` is waited for, and not evicted."""

    namespace: str
    name: str
    uid: str
    grace_seconds: int
    tried_at: float | None = None
    evicted_at: float | None = None
    error: str = ""
    is_protected: bool = False

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    def is_due(self, now: float) -> bool:
        return (
            not self.is_protected
            and self.evicted_at is None
            and (self.tried_at is None or now - self.tried_at >= RETRY_SECONDS)
        )

    def is_in_grace(self, now: float) -> bool:
        return self.evicted_at is not None and now - self.evicted_at < self.grace_seconds


@dataclass(frozen=True, slots=True)
class NodeDrain:
    """`may_have_pods`: the node was known to have pods when it was chosen.

    `evictions` holds, by uid, those of all pods ever seen; `waiting` the uids of the pods still present. `daemons`
    holds the evictions of DaemonSet pods, by uid; None while other pods are present. `waits_for` are pods by key. From
    `ends_at` on the node goes with the pods that are still there; without it, it stays if a pod does.
    """

    began_at: float
    may_have_pods: bool
    evictions: Mapping[str, PodEviction] = field(default_factory=dict)
    waiting: tuple[str, ...] = ()
    daemons: Mapping[str, PodEviction] | None = None
    waits_for: tuple[str, ...] = ()
    ends_at: float | None = None

    def goes_with_pods(self, now: float) -> bool:
        """Whether the grace of its pods is over."""
        return self.ends_at is not None and now >= self.ends_at

    def observed(self, pods: PodsToDrain, rules: DrainRules, options: ActuationOptions, now: float) -> "NodeDrain":
        """The drain with the present pods. Raises CannotDelete for a new pod that may not be evicted, and for one that
        its gang needs by now.
        """
        if self.goes_with_pods(now):
            return replace(self, waiting=(), daemons={}, waits_for=())
        there = pods.moving()
        evictions = dict(self.evictions)
        disruptions = RemainingDisruptions(pods_on_nodes.disruption_budgets(pods.budgets))
        kept = _kept_by_gangs(there, pods.gang_budgets, evictions)
        for pod, info in there:
            key, uid = pod.metadata.key, pod.metadata.uid
            if uid in kept and self.ends_at is None:
                raise CannotDelete(f"pod {key} {kept[uid]}")
            if uid in evictions:
                evictions[uid] = replace(evictions[uid], is_protected=evictions[uid].is_protected or uid in kept)
                continue
            if self.ends_at is None and not self.may_have_pods:
                raise CannotDelete(f"pod {key} came to it, which was empty")
            if self.ends_at is None and now - self.began_at > options.max_pod_eviction_time_seconds:
                raise CannotDelete(f"pods keep coming to it, pod {key} the last of them")
            found = drain.drainability(info, rules, disruptions, pods.now)
            must_stay = found.outcome is DrainOutcome.WAIT or (
                found.outcome is DrainOutcome.BLOCKED and found.why is not BlockingReason.NOT_ENOUGH_PDB
            )
            if must_stay and self.ends_at is None:
                raise CannotDelete(f"pod {key} {found.detail}")
            is_protected = self.ends_at is not None and (must_stay or uid in kept or _is_do_not_disrupt(pod))
            evictions[uid] = replace(eviction(pod, options, now), is_protected=is_protected)
        waiting = tuple(pod.metadata.uid for pod, _ in there)
        daemons = self.daemons if waiting else self._daemons(pods, options, now)
        return replace(self, evictions=evictions, waiting=waiting, daemons=daemons)._waiting_at(now)

    def _daemons(self, pods: PodsToDrain, options: ActuationOptions, now: float) -> Mapping[str, PodEviction]:
        """The DaemonSet pods that were present when the last other pod ended, and still are."""
        evicted = options.daemonset_eviction_for_occupied_nodes and self.may_have_pods
        there = {pod.metadata.uid: pod for pod in pods.daemons(evicted=evicted)}
        if self.daemons is None:
            return {uid: eviction(pod, options, now) for uid, pod in there.items()}
        return {uid: each for uid, each in self.daemons.items() if uid in there}

    def next_eviction(self, now: float) -> PodEviction | None:
        """The next pod to evict."""
        if self.waiting:
            return next((each for uid in self.waiting if (each := self.evictions[uid]).is_due(now)), None)
        untried = (each for each in (self.daemons or {}).values() if each.tried_at is None and each.evicted_at is None)
        return next(untried, None)

    def tried(self, uid: str, now: float, error: str = "") -> "NodeDrain":
        """The pod was evicted, or not by this `error`."""

        def mark_tried(evictions: Mapping[str, PodEviction]) -> Mapping[str, PodEviction]:
            if uid not in evictions:
                return evictions
            done = replace(evictions[uid], tried_at=now, evicted_at=None if error else now, error=error)
            return {**evictions, uid: done}

        daemons = None if self.daemons is None else mark_tried(self.daemons)
        return replace(self, evictions=mark_tried(self.evictions), daemons=daemons)._waiting_at(now)

    def overdue(self, options: ActuationOptions, now: float) -> str:
        """Why the node must stay when a pod takes too long; empty while none does, and where it goes in the end."""
        if self.ends_at is not None:
            return ""
        for each in (self.evictions[uid] for uid in self.waiting):
            if each.evicted_at is None:
                if now - self.began_at > options.max_pod_eviction_time_seconds:
                    return f"pod {each.key} could not be evicted in time: {each.error}"
            elif now - each.evicted_at > each.grace_seconds + HEADROOM_SECONDS:
                return f"pod {each.key} was evicted, and is still there"
        return ""

    def is_over(self, now: float) -> bool:
        """Whether all pods have ended, and the grace periods of DaemonSet pods are over."""
        if self.waiting or self.daemons is None or self.next_eviction(now) is not None:
            return False
        return not any(each.is_in_grace(now) for each in self.daemons.values())

    def _waiting_at(self, now: float) -> "NodeDrain":
        if self.waiting:
            keys = [self.evictions[uid].key for uid in self.waiting]
        else:
            keys = [each.key for each in (self.daemons or {}).values() if each.is_in_grace(now)]
        return replace(self, waits_for=tuple(sorted(keys)))


def _kept_by_gangs(
    there: Iterable[tuple[Pod, DrainInfo]], budgets: Iterable[GangBudget], evictions: Mapping[str, PodEviction]
) -> dict[str, str]:
    """Why gangs allow no eviction of these pods, by the uids of those that have not been evicted."""
    left = RemainingDisruptions(gangs=budgets)
    waiting = []
    for pod, info in there:
        known = evictions.get(pod.metadata.uid)
        if not drain.counts_for_gang(pod):
            continue
        if known is None or known.evicted_at is None:
            waiting.append((pod.metadata.uid, info))
        else:  # the informer has not seen its deletion
            left.take(left.used_by(info))
    kept = {}
    for uid, info in waiting:
        found = drain.drainability_by_budgets(info, left)
        if found.outcome is DrainOutcome.BLOCKED:
            kept[uid] = found.detail
        else:
            left.take(left.used_by(info))
    return kept


def _is_do_not_disrupt(pod: Pod) -> bool:
    return pod.metadata.annotation(ANNOTATION_DO_NOT_DISRUPT) == "true"


def eviction(pod: Pod, options: ActuationOptions, now: float) -> PodEviction:
    """The eviction of a pod; one that already terminates counts as evicted."""
    meta = pod.metadata
    grace = min(round(pods_on_nodes.drain_info(pod).grace_seconds), options.max_graceful_termination_sec)
    evicted_at = now if meta.deletion_timestamp is not None else None
    return PodEviction(meta.namespace, meta.name, meta.uid, grace, evicted_at=evicted_at)


def _is_evicted(daemon: Pod, by_default: bool) -> bool:
    said = daemon.metadata.annotation(drain.ANNOTATION_DAEMON_EVICTION)
    return by_default if said is None else said == drain.SAFE
