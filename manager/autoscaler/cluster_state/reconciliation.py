"""Compares an observation of the cloud with the registry: the state, the next registry, and the corrections due.

Pure. The rules are Cluster Autoscaler's; comments mark where ours go further so that nothing is bought twice.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from manager.autoscaler.cloudprovider.contract import InstanceError
from manager.autoscaler.cloudprovider.guard import CloudObservation
from manager.autoscaler.cluster_state import registry as bookkeeping
from manager.autoscaler.cluster_state import state as health
from manager.autoscaler.cluster_state.actions import Action, ActionKind
from manager.autoscaler.cluster_state.group_observation import ReconcileRules, observe
from manager.autoscaler.cluster_state.registry import Registry, Shortage
from manager.autoscaler.cluster_state.state import (
    ClusterState,
    GroupBackoff,
    GroupStatus,
    Incident,
    IncidentKind,
    Increase,
    Readiness,
    ScaleUpRequest,
)
from manager.autoscaler.settings.modes import Mode
from manager.autoscaler.snapshot.cluster import NodeState
from shared import durations
from shared.api.core import Node
from shared.explanation import ScaleExplanation

UNREGISTERED = "no node has registered for it in time"
NOT_MADE = "it could not be made"
STRAY = "its node group is not known, and it gets no machine"
NEVER_CAME = "they did not register in time"
NOT_THERE = "the cloud has no instances for them"

TIMEOUT = "timeout"  # error code of the backoff

# Clouds may return the old target for a while after they have accepted a new one.
SETTLING_SECONDS = 60.0


@dataclass(frozen=True)
class Reconciliation:
    """The `registry` is stored before any action. `corrections` do not depend on other decisions; the loop carries out
    those of groups in enforce mode. Their deletions go to the cloud with `below_min`: they take a group below its
    minimum only where an instance never worked. `node_states` and `node_readiness` hold every node by name.
    `blocked_reason` says why no decision is allowed now, and is empty otherwise.
    """

    state: ClusterState
    registry: Registry
    corrections: tuple[Action, ...] = ()
    incidents: tuple[Incident, ...] = ()
    node_states: Mapping[str, NodeState] = field(default_factory=dict)
    node_readiness: Mapping[str, NodeState] = field(default_factory=dict)
    blocked_reason: str = ""


def reconcile(
    observed: CloudObservation, nodes: Sequence[Node], registry: Registry, rules: ReconcileRules, now: float
) -> Reconciliation:
    """The state of every group at `now`, in Unix seconds. Refused groups keep their registry entries."""
    state, nodes_seen = observe(observed, nodes, registry, rules, now)
    total, healthy = state.readiness, state.healthy
    registry = _carry_over(registry, observed, state.groups, rules, now)
    incidents = [
        Incident(IncidentKind(each.kind.value), each.group, each.nodes, message=each.message)
        for each in observed.notices
    ]
    corrections: list[Action] = []
    for status in state.groups.values():
        registry, failures = _record_failures(registry, status, rules, now)
        registry, ended, timed_out = _follow_request(registry, status, rules, now)
        incidents += [*failures, *ended]
        registry, due = _follow_shortage(registry, status, now, correcting=healthy and status.mode is not Mode.OBSERVE)
        if status.mode is not Mode.OBSERVE:
            strays = observed.strays.get(status.id, ())
            corrections += _corrections(status, rules, strays, healthy=healthy, timed_out=timed_out, short=due)
    corrections += _stray_corrections(observed, state.groups, rules)
    registry, backoffs = _record_ended_backoffs(registry, now)
    groups = {name: _with_registry(status, registry, rules, now) for name, status in state.groups.items()}
    blocked_reason = (
        "" if healthy else f"the cluster is unhealthy: {total.unready} of {total.registered} nodes are unready"
    )
    settling = [each.group for each in corrections if each.reason == NOT_THERE and each.mode is Mode.ENFORCE]
    if settling and not blocked_reason:
        blocked_reason = f"target sizes are being put right: {', '.join(settling)}"
    return Reconciliation(
        replace(state, groups=groups),
        registry,
        tuple(corrections),
        (*incidents, *backoffs),
        {name: each.state for name, each in nodes_seen.items()},
        {name: each.readiness for name, each in nodes_seen.items()},
        blocked_reason,
    )


def initial_registry(observed: CloudObservation, nodes: Sequence[Node], rules: ReconcileRules, now: float) -> Registry:
    """A registry for a cluster that had none: nodes missing from a target count as upcoming."""
    registry = Registry()
    for status in observe(observed, nodes, registry, rules, now)[0].groups.values():
        if status.up < status.target:
            missing = Increase(status.id, status.up, status.target, status.group.max_size)
            registry = bookkeeping.add_request(registry, missing, now, status.provision_seconds)
    return registry


def _carry_over(
    registry: Registry, observed: CloudObservation, groups: Mapping[str, GroupStatus], rules: ReconcileRules, now: float
) -> Registry:
    """Drops groups that no longer exist, and updates the instances that wait for a Node."""

    def is_kept(each: str) -> bool:
        return each in groups or each in observed.refused

    unregistered = {name: since for name, since in registry.unregistered.items() if name in observed.refused}
    failed = {name: ids for name, ids in registry.failed.items() if name in observed.refused}
    for name, status in groups.items():
        if status.unregistered:
            unregistered[name] = status.unregistered
        still = tuple(
            each for each in registry.failed.get(name, ()) if each in {broken.provider_id for broken in status.broken}
        )
        if still:
            failed[name] = still
    return msgspec.structs.replace(
        bookkeeping.drop_old_backoffs(registry, rules.backoff, now),
        requests={name: each for name, each in registry.requests.items() if is_kept(name)},
        unregistered=unregistered,
        failed=failed,
        short={name: each for name, each in registry.short.items() if is_kept(name)},
        made_as={name: each for name, each in registry.made_as.items() if is_kept(name)},
    )


def _record_failures(
    registry: Registry, status: GroupStatus, rules: ReconcileRules, now: float
) -> tuple[Registry, list[Incident]]:
    """Reports each instance that could not be made once, backs off its group, and stops waiting for the instance."""
    told = registry.failed.get(status.id, ())
    new = [each for each in status.broken if each.provider_id not in told]
    if not new:
        return registry, []
    count: Counter[InstanceError] = Counter()
    for each in new:
        if each.error is not None:
            count[each.error] += 1
    ranked = sorted(count.items(), key=lambda item: (-item[1], item[0].kind, item[0].code, item[0].message))
    incidents = [Incident(IncidentKind.CREATION_FAILED, status.id, many, error=error) for error, many in ranked]
    worst = ranked[0][0]
    registry = bookkeeping.remove_nodes(registry, status.id, len(new))
    registry = bookkeeping.back_off(
        registry, status.id, worst.message or worst.code, now, rules.backoff, code=worst.code
    )
    ids = tuple(sorted({*told, *(each.provider_id for each in new)}))
    return msgspec.structs.replace(registry, failed={**registry.failed, status.id: ids}), incidents


def _follow_request(
    registry: Registry, status: GroupStatus, rules: ReconcileRules, now: float
) -> tuple[Registry, list[Incident], int]:
    """Ends an increase when no node is outstanding, or when its time is over; returns what happened, and the number of
    nodes that are outstanding then.
    """
    request = registry.requests.get(status.id)
    if request is None:
        return registry, [], 0
    seconds = now - request.started_at
    if not status.outstanding:
        lower = status.target < request.to_size
        if lower and seconds <= SETTLING_SECONDS:
            return registry, [], 0
        registry = bookkeeping.remove_nodes(registry, status.id, request.nodes)
        if lower:
            return registry, [Incident(IncidentKind.TAKEN_BACK, status.id, request.nodes, seconds)], 0
        before = registry.backoffs.get(status.id)
        # A failure of this very increase stays: an immediate retry would fail again.
        if before is not None and before.failed_at < request.started_at:
            registry = bookkeeping.remove_backoff(registry, status.id)
        return registry, [Incident(IncidentKind.REGISTERED, status.id, request.nodes, seconds)], 0
    if request.deadline >= now:
        return registry, [], 0
    late = min(request.nodes, status.outstanding)
    incidents = [Incident(IncidentKind.TIMED_OUT, status.id, late, seconds)]
    registry = bookkeeping.remove_nodes(registry, status.id, request.nodes)
    reason = f"scale-up timed out for node group {status.id} after {durations.render(seconds)}"
    return bookkeeping.back_off(registry, status.id, reason, now, rules.backoff, code=TIMEOUT), incidents, late


def _follow_shortage(registry: Registry, status: GroupStatus, now: float, *, correcting: bool) -> tuple[Registry, int]:
    """Tracks nodes that are missing without an increase under way; returns how many to take off the target now."""
    others = {name: each for name, each in registry.short.items() if name != status.id}
    if not status.missing or status.id in registry.requests:
        return msgspec.structs.replace(registry, short=others), 0
    found = registry.short.get(status.id)
    if found is None or found.nodes != status.missing:
        found = Shortage(now, status.missing)
    last = found.since if found.corrected_at is None else found.corrected_at
    due = status.returnable if correcting and last + status.provision_seconds < now else 0
    if due:
        found = replace(found, corrected_at=now)
    return msgspec.structs.replace(registry, short={**others, status.id: found}), due


def _record_ended_backoffs(registry: Registry, now: float) -> tuple[Registry, list[Incident]]:
    incidents: list[Incident] = []
    found: dict[str, GroupBackoff] = {}
    for group, each in sorted(registry.backoffs.items()):
        found[group] = each
        if not each.ended and not each.holds(now):
            incidents.append(Incident(IncidentKind.BACKOFF_ENDED, group, seconds=each.seconds))
            found[group] = replace(each, ended=True)
    return msgspec.structs.replace(registry, backoffs=found), incidents


def _corrections(
    status: GroupStatus, rules: ReconcileRules, strays: Sequence[str], *, healthy: bool, timed_out: int, short: int
) -> list[Action]:
    group = status.group
    actions: list[Action] = []
    target = group.target_size

    def action(kind: ActionKind, many: int, reason: str, nodes: tuple[str, ...] = ()) -> None:
        nonlocal target
        why = ScaleExplanation(reason, result=-many)
        actions.append(Action(kind, group.id, status.mode, target, target - many, group.max_size, nodes, why))
        target -= many

    broken = [each.provider_id for each in status.broken if healthy or each.provider_id in strays]
    if broken and status.options.zero_or_max_node_scaling:
        broken += [each for each in status.unregistered if each not in status.overdue]  # useless without the others
    least = 0 if rules.force_delete_unregistered_nodes else group.min_size
    overdue = status.overdue[: max(0, target - least)]
    if overdue:
        action(ActionKind.DELETE_NODES, len(overdue), UNREGISTERED, overdue)
    broken = broken[: max(0, target)]  # a cloud that lowered its target for broken instances deletes them itself
    if broken:
        action(ActionKind.DELETE_NODES, len(broken), NOT_MADE, tuple(sorted(broken)))
    returned = min(short or timed_out, status.returnable, max(0, target - group.min_size))
    if returned:
        action(ActionKind.DECREASE_TARGET, returned, NOT_THERE if short else NEVER_CAME)
    return actions


def _stray_corrections(
    observed: CloudObservation, groups: Mapping[str, GroupStatus], rules: ReconcileRules
) -> list[Action]:
    """The deletions of instances that never become nodes, of groups that get no other corrections: unknown ones, and
    those that scale by utilization alone.
    """
    actions = []
    for group, ids in sorted(observed.strays.items()):
        mode, status = rules.own_modes(group), groups.get(group)
        if mode is Mode.OBSERVE or (status is not None and status.mode is not Mode.OBSERVE):
            continue
        size, reason = (len(ids), STRAY) if status is None else (status.target, NOT_MADE)
        why = ScaleExplanation(reason, result=-len(ids))
        actions.append(Action(ActionKind.DELETE_NODES, group, mode, size, size - len(ids), nodes=ids, explanation=why))
    return actions


def _with_registry(status: GroupStatus, registry: Registry, rules: ReconcileRules, now: float) -> GroupStatus:
    """The status with the requests and the backoff of its group."""
    target = status.target
    request, backoff = registry.requests.get(status.id), bookkeeping.active_backoff(registry, status.id, now)
    elsewhere, unconfirmed = _asked_by_others(status, registry, now), _untold(status, request, backoff, now)
    acceptable = health.acceptable_range(
        target=target,
        long_unregistered=status.readiness.long_unregistered,
        pending_increase=request.nodes if request is not None else elsewhere,
        pending_deletions=status.leaving,
    )
    known = status.readiness if status.readiness != Readiness() else None
    return replace(
        status,
        acceptable=acceptable,
        healthy=health.is_group_healthy(
            known, target=target, least=max(0, acceptable.low), acceptable=acceptable, limits=rules.health
        ),
        upcoming=_upcoming(status, request, backoff, elsewhere, unconfirmed),
        unconfirmed=unconfirmed,
        request=request,
        backoff=backoff,
    )


def _asked_by_others(status: GroupStatus, registry: Registry, now: float) -> int:
    """Nodes that others add to a group in recommend mode; otherwise the advice would count them twice."""
    if status.mode is Mode.ENFORCE or status.id in registry.requests:
        return 0
    shortage = registry.short.get(status.id)
    fresh = shortage is not None and shortage.since + status.provision_seconds >= now
    return status.booting + (status.missing if fresh else 0)


def _untold(status: GroupStatus, request: ScaleUpRequest | None, backoff: GroupBackoff | None, now: float) -> int:
    """Nodes that the cloud has accepted but does not yet show in its target; they would otherwise be bought again in
    every iteration.
    """
    if request is None or backoff is not None or now - request.started_at > SETTLING_SECONDS:
        return 0
    return max(0, request.to_size - status.target)


def _upcoming(
    status: GroupStatus, request: ScaleUpRequest | None, backoff: GroupBackoff | None, elsewhere: int, unconfirmed: int
) -> int:
    # Broken instances never come up, and count towards the target until they are deleted.
    hoped = health.upcoming_nodes(
        status.readiness,
        target=max(0, status.target + unconfirmed - len(status.broken)),
        pending_increase=request.nodes if request is not None else elsewhere,
    )
    if request is None:
        return min(hoped, elsewhere)
    if backoff is None or backoff.code == bookkeeping.CLOUD_PROVIDER_ERROR:
        return hoped  # the cloud did not answer, so the target shows the result of the increase
    # Part of the increase failed, part is on its way: its pods need no second node.
    return min(hoped, status.booting)
