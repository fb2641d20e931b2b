"""Compares an observation of the cloud with the registry: the state, the next registry, and the corrections due.

Pure. The rules are Cluster Autoscaler's; comments mark where ours go further so that nothing is bought twice.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

import msgspec

from manager.autoscaler.cloudprovider.contract import InstanceError
from manager.autoscaler.cloudprovider.guard import CloudObservation
from manager.autoscaler.cluster_state import health
from manager.autoscaler.cluster_state import registry as bookkeeping
from manager.autoscaler.cluster_state.backoff import GroupBackoff
from manager.autoscaler.cluster_state.health import Readiness
from manager.autoscaler.cluster_state.registry import Registry, Shortage
from manager.autoscaler.cluster_state.state import ClusterState, GroupStatus, Incident, IncidentKind, ScaleUpRequest
from manager.autoscaler.group_views import GroupView, ReconcileRules, view_groups
from manager.autoscaler.iteration import Action, ActionKind
from manager.autoscaler.modes import Mode
from manager.autoscaler.scale_up.decisions import Increase
from manager.autoscaler.snapshot.cluster import NodeState
from shared import durations
from shared.api.core import Node

UNREGISTERED = "no node has registered for it in time"
NOT_MADE = "it could not be made"
NEVER_CAME = "they did not come in time"
NOT_THERE = "the cloud has no instances for them"

TIMEOUT = "timeout"  # error code of the backoff

# Clouds may return the old target for a while after they have accepted a new one.
SETTLING_SECONDS = 60.0


@dataclass(frozen=True)
class Reconciliation:
    """The `registry` is stored before any action. `corrections` are due whatever else is decided; the loop carries out
    those of groups in enforce mode. Their deletions go to the cloud with `below_min`: they take a group below its
    minimum only where an instance never worked. `node_states` and `node_readiness` hold every node by name.
    `blocked_reason` says why nothing may be decided now; it is empty when decisions are allowed.
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
    views = view_groups(observed, nodes, registry, rules, now)
    total = _sum([*(view.readiness for view in views.groups.values()), views.ungrouped_readiness])
    healthy = rules.health.bear(unready=total.unready, total=total.registered)
    registry = _carry_over(registry, observed, views.groups, rules, now)
    incidents: list[Incident] = []
    corrections: list[Action] = []
    for view in views.groups.values():
        registry = _record_failures(registry, view, rules, now, incidents)
        registry, timed_out = _follow_request(registry, view, rules, now, incidents)
        registry, due = _follow_shortage(registry, view, now, correcting=healthy and view.mode is not Mode.OBSERVE)
        if view.mode is not Mode.OBSERVE:
            corrections += _corrections(view, rules, healthy=healthy, timed_out=timed_out, short=due)
    registry = _record_ended_backoffs(registry, now, incidents)
    state = ClusterState(
        groups={name: _status(view, registry, rules, now) for name, view in views.groups.items()},
        refused={name: str(error) for name, error in sorted(observed.refused.items())},
        unmanaged=observed.unmanaged,
        ungrouped=views.ungrouped,
        readiness=total,
        healthy=healthy,
    )
    blocked_reason = (
        "" if healthy else f"the cluster is unhealthy: {total.unready} of {total.registered} nodes are unready"
    )
    settling = [each.group for each in corrections if each.reason == NOT_THERE and each.mode is Mode.ENFORCE]
    if settling and not blocked_reason:
        blocked_reason = f"target sizes are being put right: {', '.join(settling)}"
    return Reconciliation(
        state, registry, tuple(corrections), tuple(incidents), views.states, views.readiness, blocked_reason
    )


def initial_registry(observed: CloudObservation, nodes: Sequence[Node], rules: ReconcileRules, now: float) -> Registry:
    """A registry for a cluster that had none: nodes missing from a target count as upcoming."""
    registry = Registry()
    for view in view_groups(observed, nodes, registry, rules, now).groups.values():
        if view.up < view.target:
            missing = Increase(view.id, view.up, view.target, view.seen.group.max_size)
            registry = bookkeeping.add_request(registry, missing, now, view.provision_seconds)
    return registry


def _sum(counted: Sequence[Readiness]) -> Readiness:
    total: Counter[str] = Counter()
    for each in counted:
        total.update(asdict(each))
    return Readiness(**total)


def _carry_over(
    registry: Registry, observed: CloudObservation, views: Mapping[str, GroupView], rules: ReconcileRules, now: float
) -> Registry:
    """Drops groups that no longer exist, and updates the instances that wait for a Node."""

    def is_kept(each: str) -> bool:
        return each in views or each in observed.refused

    unregistered = {name: since for name, since in registry.unregistered.items() if name in observed.refused}
    failed = {name: ids for name, ids in registry.failed.items() if name in observed.refused}
    for name, view in views.items():
        if view.unregistered:
            unregistered[name] = view.unregistered
        still = tuple(
            each for each in registry.failed.get(name, ()) if each in {broken.provider_id for broken in view.broken}
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
    registry: Registry, view: GroupView, rules: ReconcileRules, now: float, incidents: list[Incident]
) -> Registry:
    """Reports each instance that could not be made once, backs its group off, and stops waiting for the instance."""
    told = registry.failed.get(view.id, ())
    new = [each for each in view.broken if each.provider_id not in told]
    if not new:
        return registry
    count: Counter[InstanceError] = Counter()
    for each in new:
        if each.error is not None:
            count[each.error] += 1
    ranked = sorted(count.items(), key=lambda item: (-item[1], item[0].kind, item[0].code, item[0].message))
    incidents += [Incident(IncidentKind.CREATION_FAILED, view.id, many, error=error) for error, many in ranked]
    worst = ranked[0][0]
    registry = bookkeeping.remove_nodes(registry, view.id, len(new))
    registry = bookkeeping.back_off(registry, view.id, worst.message or worst.code, now, rules.backoff, code=worst.code)
    ids = tuple(sorted({*told, *(each.provider_id for each in new)}))
    return msgspec.structs.replace(registry, failed={**registry.failed, view.id: ids})


def _follow_request(
    registry: Registry, view: GroupView, rules: ReconcileRules, now: float, incidents: list[Incident]
) -> tuple[Registry, int]:
    """Ends an increase when no node is outstanding, or when its time is over; returns the number of outstanding nodes
    then.
    """
    request = registry.requests.get(view.id)
    if request is None:
        return registry, 0
    seconds = now - request.started_at
    if not view.outstanding:
        lower = view.target < request.to_size
        if lower and seconds <= SETTLING_SECONDS:
            return registry, 0
        registry = bookkeeping.remove_nodes(registry, view.id, request.nodes)
        if lower:
            incidents.append(Incident(IncidentKind.TAKEN_BACK, view.id, request.nodes, seconds))
            return registry, 0
        incidents.append(Incident(IncidentKind.REGISTERED, view.id, request.nodes, seconds))
        before = registry.backoffs.get(view.id)
        # A failure of this very increase stays: an immediate retry would fail again.
        if before is not None and before.failed_at < request.started_at:
            registry = bookkeeping.remove_backoff(registry, view.id)
        return registry, 0
    if request.deadline >= now:
        return registry, 0
    late = min(request.nodes, view.outstanding)
    incidents.append(Incident(IncidentKind.TIMED_OUT, view.id, late, seconds))
    registry = bookkeeping.remove_nodes(registry, view.id, request.nodes)
    reason = f"scale-up timed out for node group {view.id} after {durations.render(seconds)}"
    return bookkeeping.back_off(registry, view.id, reason, now, rules.backoff, code=TIMEOUT), late


def _follow_shortage(registry: Registry, view: GroupView, now: float, *, correcting: bool) -> tuple[Registry, int]:
    """Tracks nodes that are missing without an increase under way; returns how many to take off the target now."""
    others = {name: each for name, each in registry.short.items() if name != view.id}
    if not view.missing or view.id in registry.requests:
        return msgspec.structs.replace(registry, short=others), 0
    found = registry.short.get(view.id)
    if found is None or found.nodes != view.missing:
        found = Shortage(now, view.missing)
    last = found.since if found.corrected_at is None else found.corrected_at
    due = view.returnable if correcting and last + view.provision_seconds < now else 0
    if due:
        found = replace(found, corrected_at=now)
    return msgspec.structs.replace(registry, short={**others, view.id: found}), due


def _record_ended_backoffs(registry: Registry, now: float, incidents: list[Incident]) -> Registry:
    found: dict[str, GroupBackoff] = {}
    for group, each in sorted(registry.backoffs.items()):
        found[group] = each
        if not each.ended and not each.holds(now):
            incidents.append(Incident(IncidentKind.BACKOFF_ENDED, group, seconds=each.seconds))
            found[group] = replace(each, ended=True)
    return msgspec.structs.replace(registry, backoffs=found)


def _corrections(view: GroupView, rules: ReconcileRules, *, healthy: bool, timed_out: int, short: int) -> list[Action]:
    group = view.seen.group
    actions: list[Action] = []
    target = group.target_size

    def action(what: ActionKind, many: int, reason: str, nodes: tuple[str, ...] = ()) -> None:
        nonlocal target
        actions.append(Action(what, group.id, view.mode, target, target - many, group.max_size, nodes, reason))
        target -= many

    broken = [each.provider_id for each in view.broken] if healthy else []
    if broken and view.seen.options.zero_or_max_node_scaling:
        broken += [each for each in view.unregistered if each not in view.overdue]  # of no use without the others
    least = 0 if rules.force_delete_unregistered else group.min_size
    overdue = view.overdue[: max(0, target - least)]
    if overdue:
        action(ActionKind.DELETE_NODES, len(overdue), UNREGISTERED, overdue)
    broken = broken[: max(0, target)]  # a cloud that lowered its target for broken instances deletes them itself
    if broken:
        action(ActionKind.DELETE_NODES, len(broken), NOT_MADE, tuple(sorted(broken)))
    returned = min(short or timed_out, view.returnable, max(0, target - group.min_size))
    if returned:
        action(ActionKind.DECREASE_TARGET, returned, NOT_THERE if short else NEVER_CAME)
    return actions


def _status(view: GroupView, registry: Registry, rules: ReconcileRules, now: float) -> GroupStatus:
    group = view.seen.group
    request, backoff = registry.requests.get(group.id), bookkeeping.active_backoff(registry, group.id, now)
    elsewhere, unconfirmed = _asked_by_others(view, registry, now), _untold(view, request, backoff, now)
    acceptable = health.acceptable_range(
        target=group.target_size,
        long_unregistered=view.readiness.long_unregistered,
        pending_increase=request.nodes if request is not None else elsewhere,
        pending_deletions=view.leaving,
    )
    known = view.readiness if view.readiness != Readiness() else None
    return GroupStatus(
        group=group,
        mode=view.mode,
        readiness=view.readiness,
        acceptable=acceptable,
        healthy=health.is_group_healthy(
            known, target=group.target_size, least=max(0, acceptable.low), acceptable=acceptable, limits=rules.health
        ),
        upcoming=_upcoming(view, request, backoff, elsewhere, unconfirmed),
        unconfirmed=unconfirmed,
        request=request,
        backoff=backoff,
        errors=tuple(each.error for each in view.broken if each.error is not None),
        options=view.seen.options,
        nodes=view.nodes,
    )


def _asked_by_others(view: GroupView, registry: Registry, now: float) -> int:
    """Nodes that others add to a group in recommend mode; without them the advice would count them twice."""
    if view.mode is Mode.ENFORCE or view.id in registry.requests:
        return 0
    shortage = registry.short.get(view.id)
    fresh = shortage is not None and shortage.since + view.provision_seconds >= now
    return view.booting + (view.missing if fresh else 0)


def _untold(view: GroupView, request: ScaleUpRequest | None, backoff: GroupBackoff | None, now: float) -> int:
    """Nodes that the cloud has accepted but does not yet show in its target; they would otherwise be bought again in
    every iteration.
    """
    if request is None or backoff is not None or now - request.started_at > SETTLING_SECONDS:
        return 0
    return max(0, request.to_size - view.target)


def _upcoming(
    view: GroupView, request: ScaleUpRequest | None, backoff: GroupBackoff | None, elsewhere: int, unconfirmed: int
) -> int:
    # Broken instances never come up, and count towards the target until they are deleted.
    hoped = health.upcoming_nodes(
        view.readiness,
        target=max(0, view.target + unconfirmed - len(view.broken)),
        pending_increase=request.nodes if request is not None else elsewhere,
    )
    if request is None:
        return min(hoped, elsewhere)
    if backoff is None or backoff.code == bookkeeping.CLOUD_PROVIDER_ERROR:
        return hoped  # the cloud did not answer, so the target shows the result of the increase
    # Part of the increase failed, part is on its way: its pods need no second node.
    return min(hoped, view.booting)
