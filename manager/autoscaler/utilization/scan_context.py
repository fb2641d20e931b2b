"""The inputs that all steps of one scan of a group share: its bounds, classes of nodes, capacity and demand."""

from collections.abc import Iterable
from dataclasses import dataclass

from manager.autoscaler.snapshot import taints
from manager.autoscaler.utilization import classes, reaping
from manager.autoscaler.utilization import memory as memories
from manager.autoscaler.utilization.memory import Memory
from manager.autoscaler.utilization.observation import GroupNode, GroupPod, Observation
from manager.autoscaler.utilization.reaping import Reaping
from manager.autoscaler.utilization.rules import ScanRules
from shared import quantity
from shared.quantity import Resources


@dataclass(frozen=True)
class ScanInputs:
    """One observation of a group, the memory of its last scan, and the moment, in Unix seconds."""

    rules: ScanRules
    seen: Observation
    memory: Memory
    now: float


class ScanContext:
    """The inputs, and the values derived from them alone."""

    def __init__(self, inputs: ScanInputs) -> None:
        rules, seen, memory = inputs.rules, inputs.seen, inputs.memory
        self.rules, self.seen, self.memory, self.now = rules, seen, memory, inputs.now
        bounds = rules.bounds(seen.cloud.bounds)
        self.min_nodes, self.max_nodes = bounds.min_size, bounds.max_size
        if rules.dry:
            self.classes = classes.classify_dry(seen.nodes, memory.dry_tainted, memory.dry_force_tainted)
        else:
            self.classes = classes.classify(seen.nodes)
        self.capacity = quantity.total([node.allocatable for node in self.classes.untainted])
        self.is_locked = memories.lock_state(rules, memory, now=self.now)
        self._pods_by_node = reaping.pods_that_keep_nodes(seen)

    @property
    def most_nodes(self) -> int:
        """The maximum of nodes to request from the cloud."""
        return min(self.seen.cloud.max_size, self.max_nodes)

    @property
    def on_its_way(self) -> int:
        """The number of requested nodes that are still expected."""
        awaited = self.memory.awaited
        is_late = awaited is not None and awaited.is_late(self.seen.missing, now=self.now)
        return 0 if is_late else self.seen.missing

    @property
    def node_size(self) -> Resources:
        return self.seen.nodes[0].allocatable if self.seen.nodes else self.memory.node_size

    def demand_of(self, pods: Iterable[GroupPod], nodes: Iterable[GroupNode]) -> tuple[Resources, Resources]:
        """The pods' requests, and the demand: the nodes' expected usage where that is higher.

        A pod that no node's peak covers counts by its requests.
        """
        found = {node.name: self.rules.peak(prod=node.prod_peak, mid=node.mid_peak) for node in nodes}
        peaks = {name: peak for name, peak in found.items() if peak is not None}
        requested = quantity.total([pod.requests for pod in pods])
        beside = quantity.total([pod.requests for pod in pods if pod.node not in peaks])
        return requested, requested.most(quantity.total(list(peaks.values())).plus(beside))

    def current_demand(self) -> tuple[Resources, Resources]:
        """The same for pods that need room on the nodes that stay: the pods there, and pods without a node."""
        if not self.rules.excludes_unavailable:
            return self.demand_of(self.seen.pods, self.seen.nodes)
        untainted = self.classes.untainted
        pods = available(self.seen.pods, {node.name for node in untainted}, with_unscheduled=True)
        return self.demand_of(pods, untainted)

    def is_healthy(self) -> bool | None:
        """Whether enough of its nodes are healthy; None where health is not checked."""
        if not self.rules.checks_health:
            return None
        return classes.is_group_healthy(self.rules, self.seen.nodes, now=self.now)

    def health_taints(self) -> tuple[GroupNode, ...]:
        """The nodes to taint because they are not healthy."""
        if not self.rules.checks_health:
            return ()
        bad = classes.unhealthy(self.seen.nodes, grace_seconds=self.rules.unhealthy_grace_seconds, now=self.now)
        if not self.rules.dry:
            return tuple(node for node in bad if not taints.has_taint(node.taints, taints.TO_BE_REMOVED))
        return tuple(node for node in bad if node.name not in self.memory.dry_tainted)

    def reap_forced(self) -> Reaping:
        """The reaping of nodes that go regardless of their pods."""
        return self._let(reaping.force_tainted_statuses(self.classes.force_tainted, self._pods_by_node), gone=0)

    def reap_tainted(self, forced: Reaping, healthy_may_go: bool, *, coming_back: Iterable[GroupNode] = ()) -> Reaping:
        """The reaping of the other tainted nodes, without those `coming_back`."""
        staying = {node.name for node in coming_back}
        marked = tuple(node for node in self.classes.tainted if node.name not in staying)
        verdicts = reaping.tainted_statuses(
            self.rules, marked, self._pods_by_node, healthy_may_go=healthy_may_go, now=self.now
        )
        return self._let(verdicts, gone=len(forced.nodes))

    def _let(self, verdicts: tuple[reaping.TaintedNodeStatus, ...], *, gone: int) -> Reaping:
        cloud = self.seen.cloud
        return reaping.within_minimum(
            verdicts,
            target_size=cloud.target_size - gone,
            min_size=cloud.min_size,
            spare=self._spare() - gone if verdicts else 0,
        )

    def _spare(self) -> int:
        """The number of tainted nodes that may go under the group's own minimum.

        That is the number above the minimum: replacements are present before these nodes go. If the group is at its
        maximum, which blocks replacements, as many useless nodes go first as are needed to make room.
        """
        beyond = len(self.seen.nodes) - self.min_nodes
        back = len(untaintable(self.rules, self.classes.tainted, now=self.now))
        to_come = back + self.on_its_way + max(0, self.most_nodes - self.seen.cloud.target_size)
        in_the_way = self.min_nodes - len(self.classes.untainted) - to_come
        return max(beyond, 0) + max(in_the_way, 0)


def untaintable(rules: ScanRules, tainted: tuple[GroupNode, ...], *, now: float) -> tuple[GroupNode, ...]:
    """The newest first; with health checks only healthy nodes come back."""
    grace = rules.unhealthy_grace_seconds
    return tuple(
        node
        for node in classes.newest_first(tainted)
        if not (rules.checks_health and classes.is_unhealthy(node, grace_seconds=grace, now=now))
    )


def available(pods: tuple[GroupPod, ...], nodes: set[str], *, with_unscheduled: bool) -> tuple[GroupPod, ...]:
    """The pods on these nodes, with or without those on no node."""
    return tuple(pod for pod in pods if pod.node in nodes or (with_unscheduled and not pod.node))
