"""Groups that scale by utilisation, for tests: nodes of one core and 1000 bytes, and what is decided of them."""

import json
from collections.abc import Container
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from manager.autoscaler.snapshot import taints
from manager.autoscaler.utilization import node_groups, rules, scan
from manager.autoscaler.utilization.decisions import Picks, ScanDecision
from manager.autoscaler.utilization.memory import Memory
from manager.autoscaler.utilization.node_groups import NodeGroup
from manager.autoscaler.utilization.observation import CloudGroup, GroupNode, GroupPod, Observation
from manager.autoscaler.utilization.rules import ScanRules
from shared.api.core import Taint
from shared.quantity import Resources
from tests.unit.manager.objects import NOW

SIZE = Resources(1000, 1000)
VALID: dict[str, Any] = {
    "name": "jobs",
    "label_key": "customer",
    "label_value": "shared",
    "cloud_provider_group_name": "jobs-nodes",
    "min_nodes": 1,
    "max_nodes": 100,
    "taint_upper_capacity_threshold_percent": 40,
    "taint_lower_capacity_threshold_percent": 10,
    "scale_up_threshold_percent": 70,
    "slow_node_removal_rate": 2,
    "fast_node_removal_rate": 5,
    "soft_delete_grace_period": "1m",
    "hard_delete_grace_period": "10m",
    "scale_up_cool_down_period": "2m",
}


def group(compat: str = "headroom", **options: Any) -> NodeGroup:
    (found,) = node_groups.decode(json.dumps({"node_groups": [{**VALID, "compat": compat, **options}]}), "test")
    return found


def rules_of(compat: str = "headroom", **options: Any) -> ScanRules:
    return rules.scan_rules(group(compat, **options))


def node(
    name: str, *, age: float = 3600, tainted_for: float | None = None, force: bool = False, **more: Any
) -> GroupNode:
    """`age` and `tainted_for` in seconds."""
    marks = taints.with_scan_taint((), now=NOW - tainted_for) if tainted_for is not None else ()
    assert marks is not None
    if force:
        marks = (*marks, Taint(taints.FORCE))
    return GroupNode(name, NOW - age, **{"allocatable": SIZE, "taints": marks, **more})


def nodes(count: int, prefix: str = "n", **more: Any) -> tuple[GroupNode, ...]:
    """The first is the newest."""
    return tuple(node(f"{prefix}{at}", **{"age": 3600.0 + at, **more}) for at in range(count))


def pod(name: str, cpu: int, on: str = "", **more: Any) -> GroupPod:
    phase = "Running" if on else "Pending"
    return GroupPod(name, Resources(cpu, cpu), on, **{"phase": phase, "scheduled": bool(on), **more})


def seen(group_nodes: tuple[GroupNode, ...], *pods: GroupPod, **more: Any) -> Observation:
    """The cloud has asked for as many nodes as there are, between 0 and 100."""
    cloud = CloudGroup(0, 100, len(group_nodes))
    return Observation(group_nodes, pods, **{"cloud": cloud, **more})


def decided(
    rules_known: ScanRules, observed: Observation, memory: Memory | None = None, *, after: float = 0
) -> ScanDecision:
    return scan.decide(rules_known, observed, memory or Memory(), now=NOW + after)


def names(group_nodes: tuple[GroupNode, ...]) -> list[str]:
    return [each.name for each in group_nodes]


@dataclass
class Town:
    """A group, its cloud and its pods over time; everything that is decided is done at once, and new nodes are up after
    so many seconds.

    A cloud that is `giving_up` brings nothing, and lowers its target again.
    """

    rules: ScanRules
    nodes: tuple[GroupNode, ...]
    pods: tuple[GroupPod, ...] = ()
    min_size: int = 0
    max_size: int = 100
    now: float = NOW
    memory: Memory = field(default_factory=Memory)
    made: int = 0
    boot_seconds: float = 0
    giving_up: bool = False
    booting: tuple[float, ...] = ()

    @property
    def target_size(self) -> int:
        return len(self.nodes) + len(self.booting)

    def scan(self, seconds: float = 60, *, fails: Container[str] = (), refuses: bool = False) -> ScanDecision:
        """One scan as far as it could be done, and so much time after it: writes to some nodes fail, or the cloud
        refuses.
        """
        self._boot()
        cloud = CloudGroup(self.min_size, self.max_size, self.target_size, size=len(self.nodes))
        observed = Observation(self.nodes, self.pods, cloud)
        decision = _as_done(scan.decide(self.rules, observed, self.memory, now=self.now), fails, refuses)
        self.memory = scan.remember(self.rules, observed, self.memory, decision, now=self.now)
        if not decision.dry:
            self._do(decision)
        self.now += seconds
        return decision

    def _boot(self) -> None:
        """Nodes that have come up by now."""
        for at in self.booting:
            if at <= self.now:
                self.made += 1
                self.nodes += (GroupNode(f"new-{self.made:04d}", self.now, SIZE),)
        self.booting = tuple(at for at in self.booting if at > self.now)

    def _do(self, decision: ScanDecision) -> None:
        gone = set(names(decision.deletions))
        marked = {*names(decision.taint.planned), *names(decision.health_taints)}
        freed = set(names(decision.untaint.planned))
        kept = []
        for each in self.nodes:
            found = None
            if each.name in freed:
                found = taints.without_scan_taint(each.taints)
            elif each.name in marked:
                found = taints.with_scan_taint(each.taints, now=self.now)
            if each.name not in gone:
                kept.append(each if found is None else replace(each, taints=found))
        self.nodes = tuple(kept)
        if not self.giving_up:
            self.booting += (self.now + self.boot_seconds,) * decision.increase
        if not self.boot_seconds:
            self._boot()
        # Who makes pods makes those anew that were lost with a node.
        self.pods = tuple(
            msgspec.structs.replace(each, node="", phase="Pending") if each.node in gone else each for each in self.pods
        )


def _as_done(decision: ScanDecision, fails: Container[str], refuses: bool) -> ScanDecision:
    if decision.dry:
        return decision

    def done(picks: Picks) -> Picks:
        written = tuple(each for each in picks.candidates if each.name not in fails)[: picks.count]
        return Picks(written, len(written))

    untaint = done(decision.untaint)
    kept = names((*decision.deletions, *decision.drains)) if refuses else ()
    return replace(
        decision,
        health_taints=tuple(each for each in decision.health_taints if each.name not in fails),
        forced=decision.forced.pass_over(kept),
        reaped=decision.reaped.pass_over(kept),
        taint=done(decision.taint),
        untaint=untaint,
        increase=0 if refuses else max(0, decision.increase_after(untaint.count)),
    )
