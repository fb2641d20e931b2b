"""The state of every group, as far as the cloud and the Nodes show it. Pure.

The registry is compared with it in `reconciliation`.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import NamedTuple

from manager.autoscaler.cloudprovider.contract import InstanceState
from manager.autoscaler.cloudprovider.guard import CloudObservation, ObservedGroup
from manager.autoscaler.cluster_state.registry import Registry
from manager.autoscaler.cluster_state.state import ClusterState, GroupStatus, Readiness, bears
from manager.autoscaler.settings.estimates import BackoffTimes, HealthLimits
from manager.autoscaler.settings.modes import Mode
from manager.autoscaler.snapshot import cluster
from manager.autoscaler.snapshot.cluster import NodeState, StateRules
from shared.api.core import Node

# The fields of Readiness.
_COUNTED_AS = {NodeState.READY: "ready", NodeState.NOT_STARTED: "not_started", NodeState.UNREADY: "unready"}


def _enforced(_: str) -> Mode:
    return Mode.ENFORCE


@dataclass(frozen=True)
class ReconcileRules:
    """`modes` is by group, and says how a group answers pending pods; `own_modes` says how it scales, in whatever way.
    The `now` in `node_states` is ignored.

    A group's own options override the seconds here. `force_delete_unregistered_nodes`: also below the group's minimum.
    """

    modes: Callable[[str], Mode] = _enforced
    own_modes: Callable[[str], Mode] = _enforced
    node_states: StateRules = field(default_factory=lambda: StateRules(now=0.0))
    health: HealthLimits = field(default_factory=HealthLimits)
    backoff: BackoffTimes = field(default_factory=BackoffTimes)
    max_node_provision_time_seconds: float = 900.0
    force_delete_unregistered_nodes: bool = False


class NodeStates(NamedTuple):
    """A node's state, which other facts than its own may have changed, and its readiness."""

    state: NodeState
    readiness: NodeState


def observe(
    observed: CloudObservation, nodes: Sequence[Node], registry: Registry, rules: ReconcileRules, now: float
) -> tuple[ClusterState, dict[str, NodeStates]]:
    """The state of the cluster at `now`, in Unix seconds, and that of each node by name."""
    members: dict[str, list[Node]] = {name: [] for name in sorted(observed.groups)}
    others: list[Node] = []
    for node in sorted(nodes, key=lambda each: each.metadata.name):
        members.get(observed.group_of_node.get(node.metadata.name, ""), others).append(node)
    states: dict[str, NodeStates] = {}
    groups: dict[str, GroupStatus] = {}
    registered = {node.spec.provider_id for node in nodes if node.spec.provider_id}
    for name, own in members.items():
        seen = observed.groups[name]
        known = registry.unregistered.get(name, {})
        groups[name], found = _observe_group(seen, own, registered, known, rules, now)
        states |= found
    state_rules = replace(rules.node_states, now=now)
    counts: Counter[str] = Counter()
    for node in others:
        each = NodeStates(cluster.node_state(node, state_rules), cluster.node_readiness(node, state_rules))
        states[node.metadata.name] = each
        counts[_counted_as(*each)] += 1
    total = _sum([*(status.readiness for status in groups.values()), Readiness(**counts)])
    state = ClusterState(
        groups=groups,
        refused={name: str(error) for name, error in sorted(observed.refused.items())},
        unmanaged=observed.unmanaged,
        ungrouped=tuple(node.metadata.name for node in others),
        readiness=total,
        healthy=bears(rules.health, unready=total.unready, total=total.registered),
    )
    return state, states


def _counted_as(state: NodeState, readiness: NodeState) -> str:
    """The state to count: a node that the cloud takes is not a failure, although it never becomes ready again."""
    return (
        "suspended" if state is NodeState.INTERRUPTED and readiness is not NodeState.READY else _COUNTED_AS[readiness]
    )


def _observe_group(
    seen: ObservedGroup,
    nodes: Sequence[Node],
    registered: set[str],
    known: Mapping[str, float],
    rules: ReconcileRules,
    now: float,
) -> tuple[GroupStatus, dict[str, NodeStates]]:
    state_rules = replace(rules.node_states, now=now)
    if seen.options.max_node_startup_time_seconds is not None:
        state_rules = replace(state_rules, startup_seconds=seen.options.max_node_startup_time_seconds)
    provision_seconds = rules.max_node_provision_time_seconds
    if seen.options.max_node_provision_time_seconds is not None:
        provision_seconds = seen.options.max_node_provision_time_seconds

    instances = {each.provider_id: each for each in seen.instances}
    states: dict[str, NodeStates] = {}
    counts: Counter[str] = Counter()
    unlisted = 0
    for node in nodes:
        instance = instances.get(node.spec.provider_id)
        state, found = cluster.node_state(node, state_rules), cluster.node_readiness(node, state_rules)
        counted_as = _counted_as(state, found)
        if instance is None and (found is NodeState.UNREADY or state is NodeState.INTERRUPTED):
            counted_as = "being_deleted"  # its instance no longer exists
        elif instance is not None and instance.state is InstanceState.DELETING:
            state, counted_as = NodeState.TO_BE_DELETED, "being_deleted"
        states[node.metadata.name] = NodeStates(state, found)
        counts[counted_as] += 1
        unlisted += instance is None and counted_as != "being_deleted"

    staying = [each for each in seen.instances if each.state is not InstanceState.DELETING]
    without_node = [each for each in staying if each.provider_id not in registered]
    broken = tuple(each for each in without_node if each.error is not None)
    unregistered = {each.provider_id: known.get(each.provider_id, now) for each in without_node if each.error is None}
    overdue = tuple(sorted(name for name, since in unregistered.items() if since + provision_seconds < now))
    counts["unregistered"], counts["long_unregistered"] = len(unregistered) - len(overdue), len(overdue)
    status = GroupStatus(
        group=seen.group,
        mode=rules.modes(seen.group.id),
        options=seen.options,
        provision_seconds=provision_seconds,
        nodes=tuple(node.metadata.name for node in nodes),
        readiness=Readiness(**counts),
        unregistered=dict(sorted(unregistered.items())),
        overdue=overdue,
        broken=broken,
        leaving=len(seen.instances) - len(staying),
        staying=len(staying) + unlisted,
    )
    return status, states


def _sum(counted: Sequence[Readiness]) -> Readiness:
    total: Counter[str] = Counter()
    for each in counted:
        total.update(asdict(each))
    return Readiness(**total)
