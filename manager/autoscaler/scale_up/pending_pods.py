"""Which pending pods an iteration considers, and which it skips, each with the reason."""

from collections.abc import Container, Iterable, Mapping, Set
from dataclasses import dataclass, field

from manager.autoscaler.expander.option import GPU_RESOURCES
from manager.autoscaler.settings.pending_pods import PendingRules
from manager.autoscaler.snapshot import equivalence_groups, volumes
from shared import durations
from shared.api import pods
from shared.api.core import Condition, PersistentVolumeClaim, Pod
from shared.api.provisioningrequest import ANNOTATIONS_CONSUME
from shared.names import DEFAULT_SCHEDULER

ANNOTATION_DELAY = "cluster-autoscaler.kubernetes.io/pod-scale-up-delay"
SCHEDULED = pods.SCHEDULED
READ_WRITE_ONCE_POD = "ReadWriteOncePod"

EXPENDABLE = "its priority is below the cut-off"
DAEMON = "a DaemonSet's pod: each node gets its own"
TOO_YOUNG = "it waits until it is old enough"
NOT_JUDGED = "the scheduler has not yet found it unschedulable"
# The scheduler's words: a new node does not help.
UNBOUND = "pod has unbound immediate PersistentVolumeClaims"
CLAIM_IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
OTHER_SCHEDULER = "another scheduler's"
CONSUMES = "it consumes ProvisioningRequest {}"

# While even the oldest pod is younger, its controller may create more (Cluster Autoscaler's waits).
SETTLING_SECONDS, GPU_SETTLING_SECONDS = 2.0, 30.0


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
    *,
    settles: bool = True,
) -> PendingPods:
    """Sorts the pods without a node.

    Pods that have finished, are being deleted, or are nominated for one of `nodes` (all present ones) are ignored,
    except that their use of `claims`, by "namespace/name", counts. With `settles`, an iteration in which all pods are
    new waits: their controllers may create more.
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
    settled_at = _settled_at(counted, now) if settles else None
    return PendingPods(tuple(counted), dict(sorted(skipped_pods.items())), settled_at)


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
        and not equivalence_groups.is_expendable(pod, rules.expendable_pods_priority_cutoff)
    )


def _claimed(pod: Pod, exclusive: Set[str]) -> set[str]:
    return {key for name, _ in volumes.volume_claims(pod) if (key := f"{pod.metadata.namespace}/{name}") in exclusive}


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
    if rules.enable_provisioning_requests and (request := consumed_request(pod)):
        return CONSUMES.format(request)
    scheduler = pod.spec.scheduler_name or DEFAULT_SCHEDULER
    if rules.allowed_scheduler_names and scheduler not in (
        *rules.allowed_scheduler_names,
        *rules.bypassed_scheduler_names,
    ):
        return OTHER_SCHEDULER
    refusal = unschedulable_condition(pod)
    if scheduler not in rules.bypassed_scheduler_names and refusal is None:
        return NOT_JUDGED
    if refusal is not None and UNBOUND in refusal.message:
        return UNBOUND
    if equivalence_groups.is_expendable(pod, rules.expendable_pods_priority_cutoff):
        return EXPENDABLE
    if equivalence_groups.is_daemon(pod):
        return DAEMON
    # An age equal to the delay does not exceed it; without a delay every pod counts.
    delay = _delay(pod, rules)
    return TOO_YOUNG if delay and now - pod.metadata.created_at <= delay else ""


def found_unschedulable(pod: Pod) -> bool:
    """Whether the scheduler has tried the pod and found no node."""
    return unschedulable_condition(pod) is not None


def consumed_request(pod: Pod) -> str:
    """The "namespace/name" of the ProvisioningRequest that the pod says it consumes; empty without one."""
    annotations = pod.metadata.annotations
    if annotations:
        for name in ANNOTATIONS_CONSUME:
            if name in annotations:
                return f"{pod.metadata.namespace}/{annotations[name]}"
    return ""


def unschedulable_condition(pod: Pod) -> Condition | None:
    """The condition in which the scheduler says why no node fits; None before it has tried the pod."""
    for each in pod.status.conditions or ():
        if each.type == SCHEDULED and each.status == "False" and each.reason == "Unschedulable":
            return each
    return None


def _delay(pod: Pod, rules: PendingRules) -> float:
    """The delay of a pod. Its annotation can only prolong the delay; an unreadable one is ignored."""
    text = pod.metadata.annotation(ANNOTATION_DELAY)
    if not text:
        return rules.new_pod_scale_up_delay_seconds
    try:
        return max(rules.new_pod_scale_up_delay_seconds, durations.parse(text))
    except ValueError:
        return rules.new_pod_scale_up_delay_seconds


def _settled_at(counted: list[Pod], now: float) -> float | None:
    if not counted:
        return None
    made = [pod.metadata.created_at for pod in counted]
    settled = min(made) + SETTLING_SECONDS
    if now < max(made) + GPU_SETTLING_SECONDS:  # else none with GPUs is too young, either
        with_gpus = [pod.metadata.created_at for pod in counted if _asks_for_gpus(pod)]
        if with_gpus:
            settled = max(settled, min(with_gpus) + GPU_SETTLING_SECONDS)
    return settled if now < settled else None


def _asks_for_gpus(pod: Pod) -> bool:
    return any(
        name in (container.resources.requests or container.resources.limits or {})
        for container in pod.spec.containers
        for name in GPU_RESOURCES
    )
