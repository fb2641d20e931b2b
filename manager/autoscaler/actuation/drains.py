"""The pods of one node that goes: each is asked to go through the eviction API, and waited for until it has.

Whom a disruption budget protects is asked again, for a while. What comes to the node meanwhile is judged like what was
there. Pods of DaemonSets are asked last and once, and keep nobody: they have their grace, and then go with the node.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from manager.autoscaler.scale_down import drain, pods_on_nodes
from manager.autoscaler.scale_down.disruptions import RemainingDisruptions
from manager.autoscaler.scale_down.drain import DrainInfo, DrainOutcome
from manager.autoscaler.scale_down.pods_on_nodes import Controllers
from manager.autoscaler.scale_down.rules import ActuationOptions, BlockingReason, DrainRules
from shared.api.core import Pod
from shared.api.workloads import PodDisruptionBudget
from shared.errors import HeadroomError
from shared.kube.client import Client
from shared.kube.errors import Conflict, NotFound, Unreachable

logger = logging.getLogger(__name__)

RETRY_SECONDS = 10.0  # between two tries to evict one pod
HEADROOM_SECONDS = 30.0  # beyond a pod's grace
_ATTEMPT_SECONDS = 10.0


class Stays(HeadroomError):
    """The node cannot go; the text says why."""


@dataclass(frozen=True)
class Tenants:
    """Who matters on a node, and what decides whether they may go."""

    pods: tuple[Pod, ...]
    controllers: Controllers | None
    budgets: tuple[PodDisruptionBudget, ...]
    now: float

    def moving(self) -> list[tuple[Pod, DrainInfo]]:
        """Those that have to be elsewhere once the node is gone."""
        return [(pod, who) for pod, who in self._all() if who.needs_a_place(self.now)]

    def daemons(self, *, evicted: bool) -> list[tuple[Pod, DrainInfo]]:
        """Those of DaemonSets that are `evicted`, or say so themselves."""
        return [
            (pod, who)
            for pod, who in self._all()
            if who.is_daemon and not who.is_mirror and _is_evicted(pod, evicted) and not who.is_long_gone(self.now)
        ]

    def _all(self) -> Iterator[tuple[Pod, DrainInfo]]:
        return ((pod, pods_on_nodes.drain_info(pod, self.controllers)) for pod in self.pods)


@dataclass
class _Parting:
    """One pod; moments by the monotonic clock."""

    key: str
    grace_seconds: int
    tried_at: float | None = None
    evicted_at: float | None = None
    error: str = ""


@dataclass
class Draining:
    """Of one node. `began_at` by the monotonic clock; `may_have_pods`: it was known to, when it was chosen."""

    rules: DrainRules
    actuation: ActuationOptions
    may_have_pods: bool
    began_at: float
    _partings: dict[str, _Parting] = field(default_factory=dict)  # by uid
    _daemons: dict[str, _Parting] | None = None  # by uid, once all others have gone
    waits_for: tuple[str, ...] = ()

    def step(self, tenants: Tenants, client: Client, may_write: Callable[[], bool], now: float) -> bool:
        """Whether all have gone. Evicts those whose turn it is. Raises Stays."""
        there = {pod.metadata.uid: pod for pod, _ in tenants.moving()}
        self._take_in(tenants, now)
        waiting = {uid: self._partings[uid] for uid in there}
        self.waits_for = tuple(sorted(each.key for each in waiting.values()))
        client = client.single_attempt(_ATTEMPT_SECONDS)
        for uid, each in waiting.items():
            is_due = each.tried_at is None or now - each.tried_at >= RETRY_SECONDS
            if each.evicted_at is None and is_due and may_write() and not self._evict(there[uid], each, client, now):
                break
        self._check_time(waiting.values(), now)
        return not waiting and self._have_daemons_gone(tenants, client, may_write, now)

    def _take_in(self, tenants: Tenants, now: float) -> None:
        """Pods that are seen for the first time. Raises Stays for one that is not to be evicted."""
        disruptions = RemainingDisruptions(pods_on_nodes.disruption_budgets(tenants.budgets))
        for pod, who in tenants.moving():
            if pod.metadata.uid in self._partings:
                continue
            key = pod.metadata.key
            if not self.may_have_pods:
                raise Stays(f"pod {key} came to it, which was empty")
            if now - self.began_at > self.actuation.eviction_seconds:
                raise Stays(f"pods keep coming to it, pod {key} the last of them")
            found = drain.drainability(who, self.rules, disruptions, tenants.now)
            if found.drain is DrainOutcome.WAIT or (
                found.drain is DrainOutcome.BLOCKED and found.why is not BlockingReason.NOT_ENOUGH_PDB
            ):
                raise Stays(f"pod {key} {found.detail}")
            self._partings[pod.metadata.uid] = self._parting(pod, who, now)

    def _have_daemons_gone(self, tenants: Tenants, client: Client, may_write: Callable[[], bool], now: float) -> bool:
        """Or have had the time to. Those that are made anew meanwhile are not looked at."""
        actuation = self.actuation
        evicted = actuation.evicts_daemons if self.may_have_pods else actuation.evicts_daemons_of_empty
        there = {pod.metadata.uid: (pod, who) for pod, who in tenants.daemons(evicted=evicted)}
        if self._daemons is None:
            self._daemons = {uid: self._parting(pod, who, now) for uid, (pod, who) in there.items()}
        left = {uid: each for uid, each in self._daemons.items() if uid in there}
        for uid, each in left.items():
            is_due = each.tried_at is None and each.evicted_at is None
            if is_due and may_write() and not self._evict(there[uid][0], each, client, now):
                break
        waiting = [
            each for each in left.values() if each.evicted_at is not None and now - each.evicted_at < each.grace_seconds
        ]
        self.waits_for = tuple(sorted(each.key for each in waiting))
        return not waiting

    def _parting(self, pod: Pod, who: DrainInfo, now: float) -> _Parting:
        grace = min(round(who.grace_seconds), self.actuation.most_grace_seconds)
        leaves = pod.metadata.deletion_timestamp is not None
        return _Parting(pod.metadata.key, grace, evicted_at=now if leaves else None)

    def _evict(self, pod: Pod, parting: _Parting, client: Client, now: float) -> bool:
        """Whether anybody has answered."""
        meta = pod.metadata
        parting.tried_at = now
        try:
            client.evict(meta.namespace, meta.name, uid=meta.uid, grace_period_seconds=parting.grace_seconds)
        except (NotFound, Conflict):
            pass  # it is gone, and another one may have its name
        except HeadroomError as error:
            parting.error = str(error)
            logger.info("pod not evicted: %s", error, extra={"pod": parting.key})
            return not isinstance(error, Unreachable)
        parting.evicted_at = now
        logger.info("pod evicted", extra={"pod": parting.key, "node": pod.spec.node_name})
        return True

    def _check_time(self, waiting: Iterable[_Parting], now: float) -> None:
        for each in waiting:
            if each.evicted_at is None:
                if now - self.began_at > self.actuation.eviction_seconds:
                    raise Stays(f"pod {each.key} could not be evicted in time: {each.error}")
            elif now - each.evicted_at > each.grace_seconds + HEADROOM_SECONDS:
                raise Stays(f"pod {each.key} was evicted, and is still there")


def _is_evicted(daemon: Pod, by_default: bool) -> bool:
    said = daemon.metadata.annotation(drain.ANNOTATION_DAEMON_EVICTION)
    return by_default if said is None else said == drain.SAFE
