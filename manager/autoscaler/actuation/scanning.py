"""The scans of groups that scale by utilization: observes, decides and acts, group by group.

The memory of a group's next scan stays in this process, as in Escalator; the time of a taint stands on the node. For
nodes already upcoming when a process starts, see `memory.taken_over`.
"""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from manager.autoscaler.actuation.scan_actuator import ScanActuator, ScanClients
from manager.autoscaler.cloudprovider.contract import InstanceState, NodeRef
from manager.autoscaler.cloudprovider.errors import ProviderError
from manager.autoscaler.cloudprovider.guard import CloudObservation
from manager.autoscaler.cluster_state.actions import Action, ActionKind
from manager.autoscaler.decision_settings import DecisionSettings
from manager.autoscaler.iteration import GroupScan, ScanResult
from manager.autoscaler.listers import ClusterObjects
from manager.autoscaler.utilization import memory as memories
from manager.autoscaler.utilization import scan
from manager.autoscaler.utilization.decisions import ScanDecision
from manager.autoscaler.utilization.memory import Memory, ScaleLock
from manager.autoscaler.utilization.observation import CloudGroup, Observation, Observer, Peaks
from manager.autoscaler.utilization.rules import ScanRules
from manager.autoscaler.utilization.scan_context import ScanInputs

logger = logging.getLogger(__name__)

NOT_THERE = "could not find node group {} on cloud provider"
BROKE_DOWN = "the scan broke down: {!r}"


class Scans:
    """The groups of the file that scale by utilization, in its order. For one thread."""

    def __init__(self, settings: DecisionSettings, *, interval_seconds: float, dry_run: bool = False) -> None:
        self._settings = settings
        self._interval_seconds = interval_seconds
        self._observers = [
            Observer(replace(rules, dry=True) if dry_run and not rules.dry else rules) for rules in settings.scanned
        ]
        self._memories: dict[str, Memory] = {}
        self._scanned_at: float | None = None

    def due_in(self, now: float) -> float:
        """Seconds until the next scan is due; infinite without any group to scan."""
        if not self._observers:
            return math.inf
        if not memories.is_within(self._interval_seconds, since=self._scanned_at, now=now):
            return 0.0
        assert self._scanned_at is not None
        return self._scanned_at + self._interval_seconds - now

    def forget(self) -> None:
        """Drops the memory: another replica leads and scans."""
        self._memories.clear()
        self._scanned_at = None

    def shift(self, seconds: float) -> None:
        """Adjusts to a clock jump of `seconds`."""
        if not seconds:
            return
        self._memories = {name: memories.shifted(each, seconds) for name, each in self._memories.items()}
        if self._scanned_at is not None:
            self._scanned_at += seconds

    def scan(
        self,
        objects: ClusterObjects,
        hands: ScanClients,
        now: float,
        *,
        upcoming: Mapping[str, int] | None = None,
    ) -> ScanResult:
        """Scans every group once. `upcoming` counts, by group, the nodes that were requested and are not up.

        An error in one group is that group's decision's error, and does not affect the others.
        """
        self._scanned_at = now
        peaks = _peaks(objects)
        return ScanResult(
            tuple(self._group(each, objects, hands, now, upcoming or {}, peaks) for each in self._observers)
        )

    def _group(
        self,
        observer: Observer,
        objects: ClusterObjects,
        hands: ScanClients,
        now: float,
        upcoming: Mapping[str, int],
        peaks: Peaks,
    ) -> GroupScan:
        rules = observer.rules
        group, identity = rules.group, rules.group.cloud_provider_group_name
        actions: list[Action] = []  # completed actions stand, whatever happens to the rest
        try:
            observed = hands.nodes.guard.observed
            seen = _observation(observer, objects, observed, peaks)
            memory = self._memories.get(group.name)
            if memory is None:
                memory = memories.taken_over(rules, seen, now=now)
            memory = replace(memory, marks=memories.marks_on(seen.nodes, memory.marks, now=now))
            seen = memories.dated(seen, memory.marks)
            known = _waiting_for(memory, upcoming.get(identity, 0), rules, now) if group.takes_pending_pods else memory
            decision = scan.decide(rules, seen, known, now=now)
            mode = self._settings.scan_mode_of(group)
            done = ScanActuator(ScanInputs(rules, seen, memory, now), decision, mode, hands, actions).execute()
            if not seen.unlisted:
                self._memories[group.name] = scan.remember(rules, seen, memory, done, now=now)
        except Exception as error:
            logger.exception("the scan broke down", extra={"group": group.name})
            self._lock_for(group.name, actions, now)
            return GroupScan(ScanDecision(group.name, error=BROKE_DOWN.format(error), dry=rules.dry), tuple(actions))
        if done.error:
            logger.warning("scan: %s", done.error, extra={"group": group.name})
        found = observed.groups.get(identity)
        return GroupScan(
            done,
            tuple(actions),
            seen,
            instances=0 if found is None else len(found.instances),
            held_seconds=_held_seconds(rules, memory, now),
            lags=tuple(_lags(done, hands)),
        )

    def _lock_for(self, group: str, actions: Sequence[Action], now: float) -> None:
        """Locks the group for the nodes that a scan requested before it failed."""
        asked = sum(
            action.to_size - action.from_size
            for action in actions
            if action.done and action.kind is ActionKind.INCREASE
        )
        if asked:
            self._memories[group] = replace(self._memories.get(group, Memory()), lock=ScaleLock(now, asked))


def preview_scans(
    settings: DecisionSettings, objects: ClusterObjects, observed: CloudObservation
) -> tuple[ScanDecision, ...]:
    """The first scan's decision for each group. Acts on nothing, and remembers nothing."""
    found = []
    for rules in settings.scanned:
        seen = _observation(Observer(rules), objects, observed, _peaks(objects))
        found.append(scan.decide(rules, seen, memories.taken_over(rules, seen, now=objects.now), now=objects.now))
    return tuple(found)


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


def _held_seconds(rules: ScanRules, memory: Memory, now: float) -> float | None:
    if memory.lock is None or memories.lock_state(rules, memory, now=now):
        return None
    return now - memory.lock.since


def _lags(decision: ScanDecision, hands: ScanClients) -> Iterator[float]:
    """Seconds from launch to registration, of nodes with a known launch time; asks no further after the first without
    one.
    """
    try:
        for node in decision.arrived:
            with hands.nodes.cloud_lock:
                launched_at = hands.nodes.guard.launched_at(NodeRef(node.name, node.provider_id))
            if launched_at is not None:
                yield node.created_at - launched_at
    except ProviderError as error:
        logger.debug("when nodes were launched is not known: %s", error, extra={"group": decision.group})


def _peaks(objects: ClusterObjects) -> Peaks:
    return {node: (each.prod, each.mid) for node, each in (objects.peaks or {}).items()}


def _waiting_for(memory: Memory, upcoming: int, rules: ScanRules, now: float) -> Memory:
    """Locks the group for nodes that pending pods requested, as for those that a scan requested."""
    if upcoming <= 0 or memories.lock_state(rules, memory, now=now):
        return memory
    return replace(memory, lock=ScaleLock(now, upcoming))
