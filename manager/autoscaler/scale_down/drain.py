"""Whether a pod may be evicted, by Cluster Autoscaler's drainability rules in order: the first that decides wins.

The evictions that one pass foresees use up the disruption budgets.
"""

import copy
import enum
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from manager.autoscaler.scale_down.rules import BlockingReason, DrainRules
from manager.autoscaler.snapshot.equivalence_groups import DAEMON_SET
from shared.api.selectors import LabelSelector

_Label = tuple[str, str]


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """`allowed` is the number of evictions allowed now. A budget without a selector covers no pod."""

    namespace: str
    name: str
    selector: LabelSelector | None
    allowed: int

    def covers(self, namespace: str, labels: Mapping[str, str]) -> bool:
        return self.namespace == namespace and self.selector is not None and self.selector.matches(labels)


class RemainingDisruptions:
    """The budgets and the disruptions that remain of each."""

    def __init__(self, budgets: Iterable[DisruptionBudget] = ()) -> None:
        self.budgets = tuple(sorted(budgets, key=lambda each: (each.namespace, each.name)))
        self._left = [budget.allowed for budget in self.budgets]
        self._by_label = _by_label(self.budgets)
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

    def exhausted(self, namespace: str, labels: Mapping[str, str]) -> DisruptionBudget | None:
        """The first budget that does not allow the eviction of one such pod."""
        for number in self.covering(namespace, labels):
            if self._left[number] < 1:
                return self.budgets[number]
        return None

    def short_for(self, numbers: Iterable[int]) -> DisruptionBudget | None:
        """The first budget that does not allow one eviction per mention in `numbers`."""
        wanted: dict[int, int] = {}
        for number in numbers:
            wanted[number] = wanted.get(number, 0) + 1
            if wanted[number] > self._left[number]:
                return self.budgets[number]
        return None

    def take(self, numbers: Iterable[int]) -> None:
        """Takes one eviction off a budget for each of its mentions in `numbers`."""
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
    budget = disruptions.exhausted(pod.namespace, pod.labels)
    if budget is None:
        return _UNDECIDED
    return _blocked(BlockingReason.NOT_ENOUGH_PDB, f"budget {budget.name} allows no eviction now")


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
    if not case.rules.skips_custom_controllers or owner is None:
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
    if owner.kind in _KNOWN_CONTROLLERS or not case.rules.skips_custom_controllers:
        return None
    return _blocked(BlockingReason.NOT_REPLICATED, f"its {owner.kind} is no controller known to make it again")


def _kube_system(case: _Case) -> Drainability | None:
    pod, rules = case.pod, case.rules
    if not rules.skips_system_pods or pod.namespace != KUBE_SYSTEM:
        return None
    if case.disruptions.covering(pod.namespace, pod.labels) or case.now - pod.created_at > rules.system_pod_seconds:
        return None
    return _blocked(BlockingReason.KUBE_SYSTEM, "is young, of kube-system, and under no disruption budget")


def _not_safe_to_evict(case: _Case) -> Drainability | None:
    if case.pod.safe_to_evict != UNSAFE:
        return None
    return _blocked(BlockingReason.NOT_SAFE_TO_EVICT, f"says {ANNOTATION_SAFE_TO_EVICT}=false")


def _local_storage(case: _Case) -> Drainability | None:
    if not case.rules.skips_local_storage:
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
