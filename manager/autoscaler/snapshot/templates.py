"""The template of a group's new nodes: from a live node, from the provider, or from the cache of either.

Everything specific to one node is removed: name, hostname, taints that reflect its condition, and all pods except those
that start on every such node.

Reclaim before buy: capacity that nodes will lend within one reporting interval already counts. Mid and Batch are
extended resources of nodes. `allocatable` has what is published; the callers give what the next NodeMetric will add by
node, and what a new node will offer by group.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from manager.autoscaler.cloudprovider.errors import ProviderError
from manager.autoscaler.settings.estimates import TaintRules
from manager.autoscaler.snapshot import cluster, equivalence_groups, interruptions, pod_info, predicates
from manager.autoscaler.snapshot.cluster import (
    LABEL_HOSTNAME,
    PODS,
    TAINT_TO_BE_DELETED,
    TAINT_UNREGISTERED,
    ClusterSnapshot,
    NodeInfo,
    NodeState,
    NodeTemplate,
)
from manager.autoscaler.snapshot.pod_info import MOST_AMOUNT, PodInfo
from manager.autoscaler.snapshot.referenced_objects import ReferencedObjects
from shared.api import pods
from shared.api.core import DaemonSet, Node, Pod, Taint, Toleration
from shared.api.meta import ObjectMeta
from shared.errors import InvalidInput
from shared.names import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY
from shared.quantity import Amounts

LABEL_TEMPLATE = "cluster-autoscaler.kubernetes.io/template-node"
TAINT_DELETION_CANDIDATE = "DeletionCandidateOfClusterAutoscaler"
TAINT_ESCALATOR = "atlassian.com/escalator"
TAINT_ESCALATOR_FORCE = "atlassian.com/escalator-force"
SYSTEM_NODE_CRITICAL = "system-node-critical"

STARTUP_TAINT_PREFIXES = (
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
)
STATUS_TAINT_PREFIX = "status-taint.cluster-autoscaler.kubernetes.io/"
_LEAVING_TAINTS = (
    TAINT_TO_BE_DELETED,
    TAINT_DELETION_CANDIDATE,
    TAINT_ESCALATOR,
    TAINT_ESCALATOR_FORCE,
    *interruptions.TAINTS,
)
_CONDITION_TAINTS = frozenset(
    f"node.kubernetes.io/{condition}"
    for condition in (
        "not-ready",
        "unreachable",
        "unschedulable",
        "memory-pressure",
        "disk-pressure",
        "network-unavailable",
        "pid-pressure",
    )
) | {
    "node.cloudprovider.kubernetes.io/uninitialized",
    "node.cloudprovider.kubernetes.io/shutdown",
    TAINT_UNREGISTERED,
}

STABLE_SECONDS = 60.0  # a node that changed more recently makes no template

# The tolerations that the DaemonSet controller adds to its pods.
_TOLERATED = (
    *(Toleration(f"node.kubernetes.io/{each}", "Exists", effect="NoExecute") for each in ("not-ready", "unreachable")),
    *(
        Toleration(f"node.kubernetes.io/{each}", "Exists", effect="NoSchedule")
        for each in ("disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")
    ),
)


def belongs_to_group(taint: Taint, rules: TaintRules) -> bool:
    """Whether new nodes of the group carry the taint, too."""
    return not (
        taint.key in _LEAVING_TAINTS
        or taint.key in _CONDITION_TAINTS
        or taint.key in rules.startup_taint
        or taint.key in rules.status_taint
        or taint.key.startswith((*STARTUP_TAINT_PREFIXES, STATUS_TAINT_PREFIX))
    )


@dataclass(frozen=True)
class LiveNode:
    """A node of a group with the pods on it. `stable_since`: when it last changed its state."""

    node: Node
    state: NodeState
    pods: tuple[Pod, ...] = ()
    stable_since: float = 0.0
    volume_limits: Mapping[str, int] | None = None


@dataclass(frozen=True)
class Daemon:
    """A DaemonSet, by the facts of its pods."""

    uid: str
    facts: PodInfo
    node_critical: bool = False


def read_daemons(
    daemon_sets: Iterable[DaemonSet], surroundings: ReferencedObjects
) -> tuple[tuple[Daemon, ...], dict[str, InvalidInput]]:
    """The DaemonSets of the cluster, and the unreadable ones, which count nothing."""
    known: list[Daemon] = []
    refused: dict[str, InvalidInput] = {}
    for each in sorted(daemon_sets, key=lambda found: found.metadata.key):
        made = each.spec.template
        meta = ObjectMeta(name=each.metadata.name, namespace=each.metadata.namespace, labels=made.metadata.labels)
        spec = msgspec.structs.replace(made.spec, tolerations=(*(made.spec.tolerations or ()), *_TOLERATED))
        try:
            facts = replace(pod_info.read_pending(Pod(metadata=meta, spec=spec), surroundings), of_node=True)
        except InvalidInput as problem:
            refused[each.metadata.key] = problem
            continue
        critical = spec.priority_class_name == SYSTEM_NODE_CRITICAL
        known.append(Daemon(each.metadata.uid or each.metadata.key, facts, critical))
    return tuple(known), refused


class TemplateCache:
    """The template of every group, cached for times without a usable node or an answer of the provider."""

    def __init__(self, taints: TaintRules | None = None, *, force_daemons: bool = False) -> None:
        self._taints = taints or TaintRules()
        self._force_daemons = force_daemons
        self._remembered: dict[str, tuple[NodeInfo, tuple[Pod, ...]]] = {}
        self._told: dict[str, NodeInfo] = {}  # from their providers

    def of_group(
        self,
        group: str,
        nodes: Sequence[LiveNode],
        provided: Callable[[], Node | None],
        daemons: Sequence[Daemon],
        now: float,
    ) -> NodeTemplate | None:
        """The template from a good node of the group, else the last one seen, else the provider's, now or as last
        returned, else from any of its nodes.

        A good node is ready, stable and readable, and has a capacity. Raises InvalidInput if the provider's template or
        all nodes are unreadable, and the provider's error where nothing else gives a template.
        """
        in_order = sorted(nodes, key=lambda each: each.node.metadata.name)
        stable = (
            each for each in in_order if each.state is NodeState.READY and now - each.stable_since > STABLE_SECONDS
        )
        for live, facts in _readable(stable):
            if _has_capacity(facts):
                self._remembered[group] = (facts, live.pods)
                return self._of_node(group, facts, live.pods, daemons)
        if group in self._remembered:
            return self._of_node(group, *self._remembered[group], daemons)
        refusal: ProviderError | None = None
        try:
            given = provided()
        except ProviderError as error:
            given, refusal = None, error
        if given is not None:
            facts = cluster.node_info(given, NodeState.READY)
            self._told[group] = facts
            return from_provider(group, facts, daemons, self._taints)
        if group in self._told:
            return from_provider(group, self._told[group], daemons, self._taints)
        readable = list(_readable(in_order))
        for live, facts in sorted(readable, key=lambda pair: not _has_capacity(pair[1])):
            return self._of_node(group, facts, live.pods, daemons)
        for live in in_order:
            cluster.node_info(live.node, live.state)  # raises
        if refusal is not None:
            raise refusal
        return None

    @property
    def groups(self) -> frozenset[str]:
        """The groups with a cached template."""
        return frozenset(self._remembered.keys() | self._told.keys())

    def forget(self, groups: Iterable[str]) -> None:
        """Drops groups that no longer exist."""
        for group in groups:
            self._remembered.pop(group, None)
            self._told.pop(group, None)

    def _of_node(self, group: str, facts: NodeInfo, on_node: Iterable[Pod], daemons: Sequence[Daemon]) -> NodeTemplate:
        node = sanitise(group, facts, self._taints)
        kept: list[PodInfo] = []
        running: set[str] = set()
        by_uid = {daemon.uid: daemon.facts for daemon in daemons}
        for pod in sorted(on_node, key=lambda each: each.metadata.key):
            if pods.is_terminating(pod) or not pods.is_active(pod) or not equivalence_groups.is_of_node(pod):
                continue
            controller = equivalence_groups.controller_of(pod)
            running.add(controller)
            # A pod that requests what its DaemonSet specifies counts as the DaemonSet's, one for all groups.
            found = pod_info.read_placed(pod, ReferencedObjects(), of_node=True)
            known = by_uid.get(controller)
            kept.append(known if known is not None and _takes_the_same(known, found) else found)
        kept += [
            daemon.facts
            for daemon in daemons
            if daemon.uid not in running
            and (self._force_daemons or daemon.node_critical)
            and predicates.admits(daemon.facts.demands, node)
        ]
        return NodeTemplate(group, node, tuple(kept))


def _readable(nodes: Iterable[LiveNode]) -> Iterator[tuple[LiveNode, NodeInfo]]:
    for live in nodes:
        try:
            facts = cluster.node_info(live.node, live.state, volume_limits=live.volume_limits)
        except InvalidInput:
            continue  # the snapshot reports the node
        yield live, facts


def _has_capacity(node: NodeInfo) -> bool:
    """False for a node whose kubelet has reported nothing, or nothing usable, which says little about new nodes."""
    return all(node.allocatable.get(name, 0) > 0 for name in ("cpu", "memory", PODS))


def from_provider(
    group: str, node: NodeInfo, daemons: Iterable[Daemon], taints: TaintRules | None = None
) -> NodeTemplate:
    """The template from a provider's node, for a group that may have no node, with a pod of every DaemonSet that runs
    there.
    """
    clean = sanitise(group, node, taints or TaintRules())
    return NodeTemplate(
        group, clean, tuple(each.facts for each in daemons if predicates.admits(each.facts.demands, clean))
    )


def name_of_template(group: str) -> str:
    """The name of the node that stands for new nodes of a group."""
    return f"template-node-for-{group}"


def sanitise(group: str, node: NodeInfo, taints: TaintRules) -> NodeInfo:
    """A node without node-specific parts, under the name of the group's template."""
    name = name_of_template(group)
    return replace(
        node,
        name=name,
        labels={**node.labels, LABEL_HOSTNAME: name, LABEL_TEMPLATE: "true"},
        taints=tuple(taint for taint in node.taints if belongs_to_group(taint, taints)),
        state=NodeState.READY,
        unschedulable=False,
        attached=frozenset(),
    )


def _takes_the_same(known: PodInfo, found: PodInfo) -> bool:
    return (known.requests, known.ports, known.disks, known.anti_affinity) == (
        found.requests,
        found.ports,
        found.disks,
        found.anti_affinity,
    )


RECLAIMED = frozenset({MID_CPU, MID_MEMORY, BATCH_CPU, BATCH_MEMORY})


def with_expected(snapshot: ClusterSnapshot, expected: Mapping[str, Amounts]) -> ClusterSnapshot:
    """The snapshot with the `expected` capacity added, by node.

    Published amounts stay until lower ones are published, so a node that expects less keeps its amounts. Only reclaimed
    resources are added, and unknown nodes are ignored.
    """
    names = {name for amounts in expected.values() for name in amounts} & RECLAIMED
    resources = tuple(sorted(names | set(snapshot.resources)))
    free = np.array([snapshot.free_of(name) for name in resources], np.int64).reshape(len(resources), -1)
    rows = {name: row for row, name in enumerate(resources)}
    for column, node in enumerate(snapshot.nodes):
        for name, amount in expected.get(node.name, {}).items():
            if name in RECLAIMED:
                free[rows[name], column] += min(max(0, amount), MOST_AMOUNT)
    return replace(snapshot, resources=resources, free=np.ascontiguousarray(free.T))


def with_reclaimed(template: NodeTemplate, amounts: Amounts) -> NodeTemplate:
    """The template with the Mid and Batch that its new nodes will offer under their strategy."""
    offered = {name: amount for name, amount in amounts.items() if name in RECLAIMED}
    node = template.node
    return replace(
        template,
        node=replace(node, capacity={**node.capacity, **offered}, allocatable={**node.allocatable, **offered}),
    )


def without_reclaimed(template: NodeTemplate) -> NodeTemplate:
    """The template of the bare machine. Lent capacity changes by the minute, and does not make two groups different."""
    node = template.node
    if not RECLAIMED & (node.capacity.keys() | node.allocatable.keys()):
        return template
    capacity, allocatable = (
        {name: amount for name, amount in amounts.items() if name not in RECLAIMED}
        for amounts in (node.capacity, node.allocatable)
    )
    return replace(template, node=replace(node, capacity=capacity, allocatable=allocatable))
