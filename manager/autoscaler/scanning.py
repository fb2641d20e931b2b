"""Groups that scale by how full they are: looked at in turn, decided about, and acted upon.

What a group's next scan must know is kept in this process, as Escalator does; how long a node has been marked stands
on the node. Of what is on its way when a process begins, see `memory.taken_over`.
"""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from manager.autoscaler.actuation.scan_actuator import ScanActuator, ScanClients
from manager.autoscaler.cloudprovider.contract import InstanceState, NodeRef
from manager.autoscaler.cloudprovider.errors import ProviderError
from manager.autoscaler.cloudprovider.guard import CloudObservation
from manager.autoscaler.cluster_objects import ClusterObjects
from manager.autoscaler.config import Config
from manager.autoscaler.iteration import Action, ActionKind, GroupScan, ScanResult
from manager.autoscaler.utilization import memory as memories
from manager.autoscaler.utilization import scan
from manager.autoscaler.utilization.decisions import ScanDecision
from manager.autoscaler.utilization.memory import Memory, ScaleLock
from manager.autoscaler.utilization.observation import CloudGroup, Observation, Observer, Peaks
from manager.autoscaler.utilization.rules import ScanRules

logger = logging.getLogger(__name__)

NOT_THERE = "could not find node group {} on cloud provider"
BROKE_DOWN = "the scan broke down: {!r}"


class Scans:
    """All groups of the file that scale by how full they are, in its order. For one thread."""

    def __init__(self, config: Config, *, interval_seconds: float, dry_run: bool = False) -> None:
        self._config = config
        self._interval_seconds = interval_seconds
        self._observers = [
            Observer(replace(rules, dry=True) if dry_run and not rules.dry else rules) for rules in config.scanned
        ]
        self._memories: dict[str, Memory] = {}
        self._scanned_at: float | None = None

    def due_in(self, now: float) -> float:
        """In how many seconds the next scan is due; never where there is nothing to scan."""
        if not self._observers:
            return math.inf
        if not memories.is_within(self._interval_seconds, since=self._scanned_at, now=now):
            return 0.0
        assert self._scanned_at is not None
        return self._scanned_at + self._interval_seconds - now

    def forget(self) -> None:
        """Drops what is known: another replica leads and scans."""
        self._memories.clear()
        self._scanned_at = None

    def shift(self, seconds: float) -> None:
        """The clock has jumped by so much."""
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
        """One scan of every group. `upcoming` nodes were asked for, by group, and are not up.

        What goes wrong with one group is its decision's error, and nothing to the others.
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
        actions: list[Action] = []  # what was done of them stands, whatever comes of the rest
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
            mode = self._config.scan_mode_of(group)
            done = ScanActuator(rules, mode, seen, decision, hands, now, actions, memory.marks).execute()
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
        """What was asked for before a scan broke down is waited for all the same."""
        asked = sum(
            action.to_size - action.from_size
            for action in actions
            if action.done and action.kind is ActionKind.INCREASE
        )
        if asked:
            self._memories[group] = replace(self._memories.get(group, Memory()), lock=ScaleLock(now, asked))


def preview_scans(config: Config, objects: ClusterObjects, observed: CloudObservation) -> tuple[ScanDecision, ...]:
    """What the first scan of each group would decide. Nothing is done, and nothing is remembered."""
    found = []
    for rules in config.scanned:
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
    # What is being made does not run yet; a breaker has to see that.
    running = sum(
        each.error is None and each.state in (InstanceState.RUNNING, InstanceState.UNKNOWN) for each in found.instances
    )
    cloud = CloudGroup(group.min_size, group.max_size, group.target_size, running)
    return observer.observe(objects.nodes, objects.pods, cloud, peaks)


def _held_seconds(rules: ScanRules, memory: Memory, now: float) -> float | None:
    if memory.lock is None or scan.lock_state(rules, memory, now=now):
        return None
    return now - memory.lock.since


def _lags(decision: ScanDecision, hands: ScanClients) -> Iterator[float]:
    """Of those nodes whose launch the cloud tells; the first that it does not tell is the last that is asked about."""
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
    """What pending pods have asked for is waited for like what a scan has."""
    if upcoming <= 0 or scan.lock_state(rules, memory, now=now):
        return memory
    return replace(memory, lock=ScaleLock(now, upcoming))
