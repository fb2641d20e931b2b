"""Scales groups by the utilization of their nodes, in both directions, by Escalator's rules."""

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from manager.autoscaler.cloudprovider.contract import InstanceState
from manager.autoscaler.cloudprovider.guard import CloudObservation
from manager.autoscaler.cluster_state.actions import ActionKind
from manager.autoscaler.decision_settings import DecisionSettings
from manager.autoscaler.listers import ClusterObjects
from manager.autoscaler.planning.removal_view import RemovalCommands, RemovalMethod
from manager.autoscaler.settings.modes import Mode
from manager.autoscaler.utilization import memory as memories
from manager.autoscaler.utilization import scan
from manager.autoscaler.utilization.memory import Memory, ScaleLock
from manager.autoscaler.utilization.observation import CloudGroup, GroupObservers, Observation, Observer, Peaks
from manager.autoscaler.utilization.rules import ScanRules
from manager.autoscaler.utilization.scan import DueScans, PlannedScan
from manager.autoscaler.utilization.scan_context import ScanInputs

logger = logging.getLogger(__name__)

NOT_THERE = "could not find node group {} on cloud provider"


class UtilizationMethod(RemovalMethod):
    while_blocked: ClassVar = True

    def candidates(self, decided: RemovalCommands) -> RemovalCommands:
        view = self.view
        if view.scans is None:
            return decided
        cluster = view.cluster
        upcoming = Counter({name: each.nodes for name, each in cluster.reconciled.registry.requests.items()})
        for action in view.iteration.actions:
            if action.kind is ActionKind.INCREASE and action.mode is Mode.ENFORCE and not view.scans.dry:
                upcoming[action.group] += action.change
        planned = plan_scans(
            cluster.settings,
            cluster.objects,
            cluster.cloud.observed,
            view.scans,
            observers=cluster.cache.observers,
            upcoming=upcoming,
        )
        return replace(decided, scans=planned)


def plan_scans(
    settings: DecisionSettings,
    objects: ClusterObjects,
    observed: CloudObservation,
    due: DueScans,
    *,
    observers: GroupObservers | None = None,
    upcoming: Mapping[str, int] | None = None,
) -> tuple[PlannedScan, ...]:
    """The decisions. `upcoming` counts, by group, the nodes that were requested and are not up.

    An error in one group is that group's decision's error, and does not affect the others.
    """
    known, coming = observers or GroupObservers(), upcoming or {}
    peaks = {node: (each.prod, each.mid) for node, each in (objects.peaks or {}).items()}
    found = []
    for rules in settings.scanned:
        rules = replace(rules, dry=rules.dry or due.dry)
        try:
            found.append(
                _plan(known.of_group(rules), objects, observed, peaks, due.memories.get(rules.group.name), coming)
            )
        except Exception as error:
            logger.exception("the scan broke down", extra={"group": rules.group.name})
            found.append(PlannedScan(scan.broken_down(rules, error)))
    return tuple(found)


def _plan(
    observer: Observer,
    objects: ClusterObjects,
    observed: CloudObservation,
    peaks: Peaks,
    known: Memory | None,
    upcoming: Mapping[str, int],
) -> PlannedScan:
    rules, now = observer.rules, objects.now
    seen = _observation(observer, objects, observed, peaks)
    memory = known or memories.taken_over(seen, now=now)
    memory = replace(memory, marks=memories.marks_on(seen.nodes, memory.marks, now=now))
    seen = memories.dated(seen, memory.marks)
    locked = memory
    if rules.group.takes_pending_pods:
        locked = _waiting_for(memory, upcoming.get(rules.group.cloud_provider_group_name, 0), rules, now)
    return PlannedScan(scan.decide(rules, seen, locked, now=now), ScanInputs(rules, seen, memory, now))


def _observation(observer: Observer, objects: ClusterObjects, observed: CloudObservation, peaks: Peaks) -> Observation:
    name = observer.rules.group.cloud_provider_group_name
    found = observed.groups.get(name)
    if found is None:
        refused = observed.refused.get(name)
        return Observation(unlisted=NOT_THERE.format(name) if refused is None else str(refused))
    group = found.group
    # An instance still being created does not run; a breaker must see that.
    running = sum(
        each.error is None and each.state in (InstanceState.RUNNING, InstanceState.UNKNOWN) for each in found.instances
    )
    cloud = CloudGroup(group.min_size, group.max_size, group.target_size, running)
    return observer.observe(objects.nodes, objects.pods, cloud, peaks)


def _waiting_for(memory: Memory, upcoming: int, rules: ScanRules, now: float) -> Memory:
    """Locks the group for nodes that pending pods requested, as for those that a scan requested."""
    if upcoming <= 0 or memories.lock_state(rules, memory, now=now):
        return memory
    return replace(memory, lock=ScaleLock(now, upcoming))
