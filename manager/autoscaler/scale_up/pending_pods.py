"""Which pending pods an iteration considers, and which it skips, each with the reason."""

from collections.abc import Container, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field

from manager.autoscaler.expander.option import GPU_RESOURCES
from manager.autoscaler.snapshot import equivalence_groups, pod_info
from shared import durations
from shared.api import pods
from shared.api.core import Condition, PersistentVolumeClaim, Pod
from shared.api.provisioningrequest import ANNOTATIONS_CONSUME

ANNOTATION_DELAY = "cluster-autoscaler.kubernetes.io/pod-scale-up-delay"
DEFAULT_SCHEDULER = "default-scheduler"
SCHEDULED = pods.SCHEDULED
READ_WRITE_ONCE_POD = "ReadWriteOncePod"

EXPENDABLE = "its priority is below the cut-off"
DAEMON = "a DaemonSet's pod: it comes with its node"
TOO_YOUNG = "it waits until it is old enough"
NOT_JUDGED = "the scheduler has not yet found it unschedulable"
# The scheduler's words: a new node does not help.
UNBOUND = "pod has unbound immediate PersistentVolumeClaims"
CLAIM_IN_USE = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
OTHER_SCHEDULER = "another scheduler's"
CONSUMES = "it consumes ProvisioningRequest {}"


@dataclass(frozen=True)
class PendingRules:
    """Pods of `bypassed` schedulers count before those have judged them; empty `schedulers` means all.

    With `consumers_wait` no node is bought for pods that consume a ProvisioningRequest, which asks for their room.
    An iteration in which even the oldest pod is younger than `settling_seconds` waits: its controller may create more.
    """

    expendable_below: int = equivalence_groups.EXPENDABLE_BELOW
    delay_seconds: float = 0.0
    settling_seconds: float = 2.0
    gpu_settling_seconds: float = 30.0
    schedulers: frozenset[str] = frozenset()
    bypassed: frozenset[str] = frozenset()
    consumers_wait: bool = False


@dataclass(frozen=True)
class PendingPods:
    """`settled_at`: all pods are new, so scale-up waits until then; None where it does not wait."""

    pods: tuple[Pod, ...]
    skipped_pods: dict[str, str] = field(default_factory=dict)
    settled_at: float | None = None


def list_pending_pods(
    pending: Iterable[Pod],
    rules: PendingRules,
    now: float,
    nodes: Container[str],
    claims: Mapping[str, PersistentVolumeClaim] | None = None,
) -> PendingPods:
    """Sorts the pods without a node.

    Pods that have finished, are being deleted, or are nominated for one of `nodes` (all present ones) are ignored,
    except that their use of `claims`, by "namespace/name", counts.
    """
    counted: list[Pod] = []
    skipped_pods: dict[str, str] = {}
    exclusive = {key for key, claim in (claims or {}).items() if READ_WRITE_ONCE_POD in (claim.spec.access_modes or ())}
    in_use: set[str] = set()
    for pod in pending:
        if pod.spec.node_name or pod.status.nominated_node_name in nodes:
            if exclusive and pods.is_active(pod):
                in_use |= _claimed(pod, exclusive)
            continue
        if pods.is_terminating(pod) or not pods.is_active(pod):
            continue
        reason = _skip_reason(pod, rules, now)
        if reason:
            skipped_pods[pod.metadata.key] = reason
        else:
            counted.append(pod)
    if exclusive:
        late = _late(counted, exclusive, in_use)
        skipped_pods |= dict.fromkeys(late, CLAIM_IN_USE)
        counted = [pod for pod in counted if pod.metadata.key not in late]
    return PendingPods(tuple(counted), dict(sorted(skipped_pods.items())), _settled_at(counted, rules, now))


def recreatable_pods(placed: Iterable[Pod], draining: Container[str], rules: PendingRules) -> tuple[Pod, ...]:
    """The pods on nodes under drain that a controller will recreate.

    A pod that is being deleted has been recreated already.
    """
    return tuple(
        pod
        for pod in placed
        if pod.spec.node_name in draining
        and equivalence_groups.controller_of(pod)
        and pods.is_active(pod)
        and not pods.is_terminating(pod)
        and not equivalence_groups.is_daemon(pod)
        and not equivalence_groups.is_mirror(pod)
        and not equivalence_groups.is_expendable(pod, rules.expendable_below)
    )


def _claimed(pod: Pod, exclusive: Set[str]) -> set[str]:
    return {key for name, _ in pod_info.volume_claims(pod) if (key := f"{pod.metadata.namespace}/{name}") in exclusive}


def _late(waiting: Iterable[Pod], exclusive: Set[str], in_use: Set[str]) -> set[str]:
    """The keys of pods whose exclusive claim another pod uses, or gets first in the scheduler's order."""
    taken, late = set(in_use), set()
    for pod in sorted(
        waiting, key=lambda each: (-(each.spec.priority or 0), each.metadata.created_at, each.metadata.key)
    ):
        wanted = _claimed(pod, exclusive)
        if wanted & taken:
            late.add(pod.metadata.key)
        else:
            taken |= wanted
    return late


def _skip_reason(pod: Pod, rules: PendingRules, now: float) -> str:
    gates = equivalence_groups.scheduling_gate_reason(pod)
    if gates:
        return gates
    if rules.consumers_wait and (request := consumed_request(pod)):
        return CONSUMES.format(request)
    scheduler = pod.spec.scheduler_name or DEFAULT_SCHEDULER
    if rules.schedulers and scheduler not in rules.schedulers | rules.bypassed:
        return OTHER_SCHEDULER
    if scheduler not in rules.bypassed and not found_unschedulable(pod):
        return NOT_JUDGED
    if any(UNBOUND in each.message for each in _unschedulable(pod)):
        return UNBOUND
    if equivalence_groups.is_expendable(pod, rules.expendable_below):
        return EXPENDABLE
    if equivalence_groups.is_daemon(pod):
        return DAEMON
    # An age equal to the delay does not exceed it; without a delay every pod counts.
    delay = _delay(pod, rules)
    return TOO_YOUNG if delay and now - pod.metadata.created_at <= delay else ""


def found_unschedulable(pod: Pod) -> bool:
    """Whether the scheduler has tried the pod and found no node."""
    return any(_unschedulable(pod))


def consumed_request(pod: Pod) -> str:
    """The "namespace/name" of the ProvisioningRequest that the pod says it consumes; empty without one."""
    annotations = pod.metadata.annotations
    if annotations:
        for name in ANNOTATIONS_CONSUME:
            if name in annotations:
                return f"{pod.metadata.namespace}/{annotations[name]}"
    return ""


def _unschedulable(pod: Pod) -> Iterator[Condition]:
    for each in pod.status.conditions or ():
        if each.type == SCHEDULED and each.status == "False" and each.reason == "Unschedulable":
            yield each


def _delay(pod: Pod, rules: PendingRules) -> float:
    """The delay of a pod. Its annotation can only prolong the delay; an unreadable one is ignored."""
    text = pod.metadata.annotation(ANNOTATION_DELAY)
    if not text:
        return rules.delay_seconds
    try:
        return max(rules.delay_seconds, durations.parse(text))
    except ValueError:
        return rules.delay_seconds


def _settled_at(counted: list[Pod], rules: PendingRules, now: float) -> float | None:
    if not counted:
        return None
    settled = min(pod.metadata.created_at for pod in counted) + rules.settling_seconds
    with_gpus = [pod.metadata.created_at for pod in counted if _asks_for_gpus(pod)]
    if with_gpus:
        settled = max(settled, min(with_gpus) + rules.gpu_settling_seconds)
    return settled if now < settled else None


def _asks_for_gpus(pod: Pod) -> bool:
    return any(
        name in (container.resources.requests or container.resources.limits or {})
        for container in pod.spec.containers
        for name in GPU_RESOURCES
    )
