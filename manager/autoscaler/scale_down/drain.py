"""Whether a pod may be evicted, by Cluster Autoscaler's drainability rules in order: the first that decides wins.

The evictions that one pass foresees use up the disruption budgets. A gang with pods on nodes has a budget, too: as many
of its pods as run at once are not evicted, or none.
"""

import copy
import enum
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from manager.autoscaler.scale_down.removal_status import BlockingReason
from manager.autoscaler.settings.scale_down import DrainRules
from manager.autoscaler.snapshot.equivalence_groups import DAEMON_SET
from shared.api import podgroup
from shared.api import pods as podrules
from shared.api.core import Pod
from shared.api.podgroup import PodGroup
from shared.api.selectors import LabelSelector

_Label = tuple[str, str]


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """`allowed` is the number of evictions allowed now. A budget without a selector covers no pod."""

    namespace: str
    name: str
    selector: LabelSelector | None
    allowed: int

    def __str__(self) -> str:
        return f"budget {self.name}"

    @property
    def why(self) -> BlockingReason:
        return BlockingReason.NOT_ENOUGH_PDB

    def covers(self, namespace: str, labels: Mapping[str, str]) -> bool:
        return self.namespace == namespace and self.selector is not None and self.selector.matches(labels)


@dataclass(frozen=True, slots=True)
class GangBudget:
    """`allowed` is the number of pods of a PodGroup that may be evicted now, so that `min_count` keep running.

    `pod_group` is its key (shared.api.podgroup).
    """

    pod_group: str
    min_count: int
    allowed: int

    def __str__(self) -> str:
        name = self.pod_group.partition("/")[2]
        return f'PodGroup "{name}", which needs {self.min_count} pods at once,'

    @property
    def why(self) -> BlockingReason:
        return BlockingReason.GANG


class RemainingDisruptions:
    """The budgets and gangs, by number, and the disruptions that remain of each."""

    def __init__(self, budgets: Iterable[DisruptionBudget] = (), gangs: Iterable[GangBudget] = ()) -> None:
        self.budgets = tuple(sorted(budgets, key=lambda each: (each.namespace, each.name)))
        self._all: tuple[DisruptionBudget | GangBudget, ...] = (*self.budgets, *gangs)
        self._left = [budget.allowed for budget in self._all]
        self._by_label = _by_label(self.budgets)
        self._gangs = {each.pod_group: number for number, each in enumerate(self._all) if isinstance(each, GangBudget)}
        self._covering: dict[tuple[str, frozenset[_Label]], tuple[int, ...]] = {}

    def copy(self) -> "RemainingDisruptions":
        """Another from which as much remains."""
        made = copy.copy(self)
        made._left = self._left.copy()
        return made

    def covering(self, namespace: str, labels: Mapping[str, str]) -> tuple[int, ...]:
        """The numbers of the budgets that cover such a pod."""
        by_label = self._by_label.get(namespace)
        if by_label is None:
            return ()
        alike = namespace, frozenset(labels.items())
        if alike not in self._covering:
            numbers = itertools.chain.from_iterable(by_label.get(label, ()) for label in (None, *labels.items()))
            self._covering[alike] = tuple(
                sorted(each for each in numbers if self.budgets[each].covers(namespace, labels))
            )
        return self._covering[alike]

    def used_by(self, pod: "DrainInfo") -> tuple[int, ...]:
        """The numbers of the budgets and of the gang that the eviction of such a pod uses."""
        covering, gang = self.covering(pod.namespace, pod.labels), self._gangs.get(pod.pod_group)
        return covering if gang is None else (*covering, gang)

    def exhausted(self, pod: "DrainInfo") -> DisruptionBudget | GangBudget | None:
        """The first that does not allow the eviction of one such pod."""
        return self.short_for(self.used_by(pod))

    def short_for(self, numbers: Iterable[int]) -> DisruptionBudget | GangBudget | None:
        """The first that does not allow one eviction per mention in `numbers`."""
        wanted: dict[int, int] = {}
        for number in numbers:
            wanted[number] = wanted.get(number, 0) + 1
            if wanted[number] > self._left[number]:
                return self._all[number]
        return None

    def take(self, numbers: Iterable[int]) -> None:
        """Takes one eviction off for each mention in `numbers`."""
        for number in numbers:
            self._left[number] -= 1


def _by_label(budgets: Sequence[DisruptionBudget]) -> dict[str, dict[_Label | None, list[int]]]:
    """The numbers of the budgets, by namespace and by the label of their selector that the fewest other budgets want.

    Budgets that want no particular label are under None.
    """
    wanted = [_wanted(each) for each in budgets]
    counts = Counter((each.namespace, label) for each, labels in zip(budgets, wanted, strict=True) for label in labels)
    found: dict[str, dict[_Label | None, list[int]]] = {}
    for number, (budget, labels) in enumerate(zip(budgets, wanted, strict=True)):
        rarest = min(labels, key=lambda label: counts[budget.namespace, label], default=None)
        found.setdefault(budget.namespace, {}).setdefault(rarest, []).append(number)
    return found


def _wanted(budget: DisruptionBudget) -> tuple[_Label, ...]:
    return () if budget.selector is None else tuple((budget.selector.match_labels or {}).items())


ANNOTATION_SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
ANNOTATION_SAFE_LOCAL_VOLUMES = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
ANNOTATION_DAEMON_EVICTION = "cluster-autoscaler.kubernetes.io/enable-ds-eviction"
KUBE_SYSTEM = "kube-system"

SAFE, UNSAFE, ON_COMPLETION = "true", "false", "on-completion"
DEFAULT_GRACE_SECONDS = 30.0
SYSTEM_POD_SECONDS = 3600.0  # for which a kube-system pod without a disruption budget blocks
_TERMINATION_SLACK_SECONDS = 30.0
_RESTARTING = ("ReplicationController", "ReplicaSet")  # controllers whose number of replicas counts
_KNOWN_CONTROLLERS = frozenset({*_RESTARTING, "Job", "StatefulSet"})
_FAILED, _SUCCEEDED = "Failed", "Succeeded"
_RESTARTS_ALWAYS = "Always"


class DrainOutcome(enum.StrEnum):
    """What happens to a pod when its node goes.

    SKIP: nothing; DRAIN: it may be evicted, regardless of later rules; WAIT: the node goes once the pod has ended;
    UNDECIDED: no rule objects.
    """

    SKIP = "skip"
    DRAIN = "drain"
    WAIT = "wait"
    BLOCKED = "blocked"
    UNDECIDED = "undefined"


class Drainability(NamedTuple):
    outcome: DrainOutcome
    why: BlockingReason | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class PodController:
    """The controller of a pod. `replicas` is the desired number, None where the kind has none."""

    kind: str
    name: str = ""
    exists: bool = True
    replicas: int | None = None
    namespace: str = ""

    @property
    def key(self) -> str:
        """ "namespace/kind/name"."""
        return f"{self.namespace}/{self.kind}/{self.name}"


@dataclass(frozen=True, slots=True)
class DrainInfo:
    """The facts that decide whether a pod may be evicted; times in Unix seconds.

    `local_volumes` are the names of the volumes on the node's disk, `safe_local_volumes` those that may be lost.
    `pod_group` is the key of its PodGroup (shared.api.podgroup), empty without one.
    """

    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    controller: PodController | None = None
    phase: str = "Running"
    restart_policy: str = _RESTARTS_ALWAYS
    created_at: float = 0.0
    deleted_at: float | None = None
    grace_seconds: float = DEFAULT_GRACE_SECONDS
    is_mirror: bool = False
    is_daemon: bool = False
    safe_to_evict: str = ""
    local_volumes: tuple[str, ...] = ()
    safe_local_volumes: frozenset[str] = frozenset()
    pod_group: str = ""

    @property
    def has_ended(self) -> bool:
        """Whether none of its containers will ever run again."""
        return self.phase == _FAILED or (self.phase == _SUCCEEDED and self.restart_policy != _RESTARTS_ALWAYS)

    def is_long_gone(self, now: float) -> bool:
        """Whether it is past its deletion time, grace period and slack."""
        return self.deleted_at is not None and self.deleted_at + self.grace_seconds + _TERMINATION_SLACK_SECONDS < now

    def needs_a_place(self, now: float) -> bool:
        """Whether it needs another node once its own is gone."""
        return not (self.is_mirror or self.is_daemon or self.has_ended or self.is_long_gone(now))


class _Case(NamedTuple):
    pod: DrainInfo
    rules: DrainRules
    disruptions: RemainingDisruptions
    now: float


def drainability(pod: DrainInfo, rules: DrainRules, disruptions: RemainingDisruptions, now: float) -> Drainability:
    """What happens to one pod."""
    return lasting_drainability(pod, rules, disruptions, now) or drainability_by_budgets(pod, disruptions)


def lasting_drainability(
    pod: DrainInfo, rules: DrainRules, disruptions: RemainingDisruptions, now: float
) -> Drainability | None:
    """The same where it does not depend on how much remains of the budgets; None where only that decides."""
    case = _Case(pod, rules, disruptions, now)
    for rule in _RULES:
        found = rule(case)
        if found is not None:
            return found
    return None


def drainability_by_budgets(pod: DrainInfo, disruptions: RemainingDisruptions) -> Drainability:
    """What happens to a pod of which nothing else decides."""
    budget = disruptions.exhausted(pod)
    return _UNDECIDED if budget is None else _blocked(budget.why, f"{budget} allows no eviction now")


_UNDECIDED = Drainability(DrainOutcome.UNDECIDED)
_MAY_GO = Drainability(DrainOutcome.DRAIN)
_SKIPPED = Drainability(DrainOutcome.SKIP)


def _blocked(why: BlockingReason, detail: str) -> Drainability:
    return Drainability(DrainOutcome.BLOCKED, why, detail)


def _mirror(case: _Case) -> Drainability | None:
    return _SKIPPED if case.pod.is_mirror else None


def _long_gone(case: _Case) -> Drainability | None:
    return _SKIPPED if case.pod.is_long_gone(case.now) else None


def _replica_count(case: _Case) -> Drainability | None:
    owner = case.pod.controller
    if not case.rules.skip_nodes_with_custom_controller_pods or owner is None:
        return None
    if owner.kind not in _KNOWN_CONTROLLERS and owner.kind != DAEMON_SET:
        return None
    if not owner.exists:
        return _blocked(BlockingReason.CONTROLLER_NOT_FOUND, f"its {owner.kind} {owner.name} is not there")
    least = case.rules.min_replica_count
    if owner.kind in _RESTARTING and owner.replicas is not None and owner.replicas < least:
        return _blocked(
            BlockingReason.MIN_REPLICAS, f"its {owner.kind} has {owner.replicas} replicas, fewer than {least}"
        )
    return None


def _daemon(case: _Case) -> Drainability | None:
    return _MAY_GO if case.pod.is_daemon else None


def _safe_to_evict(case: _Case) -> Drainability | None:
    return _MAY_GO if case.pod.safe_to_evict == SAFE else None


def _ended(case: _Case) -> Drainability | None:
    return _MAY_GO if case.pod.has_ended else None


def _on_completion(case: _Case) -> Drainability | None:
    return (
        Drainability(DrainOutcome.WAIT, None, "is to end by itself")
        if case.pod.safe_to_evict == ON_COMPLETION
        else None
    )


def _not_replicated(case: _Case) -> Drainability | None:
    owner = case.pod.controller
    if owner is None:
        return _blocked(BlockingReason.NOT_REPLICATED, "no controller would make it again")
    if owner.kind in _KNOWN_CONTROLLERS or not case.rules.skip_nodes_with_custom_controller_pods:
        return None
    return _blocked(BlockingReason.NOT_REPLICATED, f"its {owner.kind} is no controller known to make it again")


def _kube_system(case: _Case) -> Drainability | None:
    pod, rules = case.pod, case.rules
    if not rules.skip_nodes_with_system_pods or pod.namespace != KUBE_SYSTEM:
        return None
    if case.disruptions.covering(pod.namespace, pod.labels) or case.now - pod.created_at > SYSTEM_POD_SECONDS:
        return None
    return _blocked(BlockingReason.KUBE_SYSTEM, "is young, of kube-system, and under no disruption budget")


def _not_safe_to_evict(case: _Case) -> Drainability | None:
    if case.pod.safe_to_evict != UNSAFE:
        return None
    return _blocked(BlockingReason.NOT_SAFE_TO_EVICT, f"says {ANNOTATION_SAFE_TO_EVICT}=false")


def _local_storage(case: _Case) -> Drainability | None:
    if not case.rules.skip_nodes_with_local_storage:
        return None
    unsafe = [name for name in case.pod.local_volumes if name not in case.pod.safe_local_volumes]
    return _blocked(BlockingReason.LOCAL_STORAGE, f"keeps data in its volume {unsafe[0]}") if unsafe else None


_RULES: tuple[Callable[[_Case], Drainability | None], ...] = (
    _mirror,
    _long_gone,
    _replica_count,
    _daemon,
    _safe_to_evict,
    _ended,
    _on_completion,
    _not_replicated,
    _kube_system,
    _not_safe_to_evict,
    _local_storage,
)


def gang_budgets(pods: Iterable[Pod], pod_groups: Mapping[str, PodGroup] | None) -> list[GangBudget]:
    """The evictions that each gang with pods on nodes allows. No PodGroup is a gang whose pods need no other."""
    gangs = {key: each for key, each in (pod_groups or {}).items() if each.min_count > 1}
    running = Counter(
        podgroup.pod_group_of(pod) for pod in (pods if gangs else ()) if pod.spec.node_name and counts_for_gang(pod)
    )
    return [
        GangBudget(key, each.min_count, max(0, running[key] - each.min_count))
        for key, each in sorted(gangs.items())
        if key in running
    ]


def counts_for_gang(pod: Pod) -> bool:
    """Whether the pod counts for its gang: it has not ended, and is not being deleted."""
    return podrules.is_active(pod) and pod.metadata.deletion_timestamp is None


def gang_budgets_of_nodes(
    allowed: Iterable[GangBudget], on_nodes: Mapping[str, Iterable[Pod]]
) -> dict[str, tuple[GangBudget, ...]]:
    """The evictions that each gang allows on each of these nodes, once all of its pods on the nodes before are evicted.

    The nodes are drained at the same time, so that no two of them may use the same eviction.
    """
    left = {each.pod_group: each for each in allowed}
    found = {}
    for node, pods in on_nodes.items():
        found[node] = tuple(left.values())
        for key, used in Counter(podgroup.pod_group_of(pod) for pod in pods if counts_for_gang(pod)).items():
            if key in left:
                left[key] = replace(left[key], allowed=max(0, left[key].allowed - used))
    return found
