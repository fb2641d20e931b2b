"""A view of each group: its cloud instances matched with its Nodes."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from manager.autoscaler.cloudprovider.contract import Instance, InstanceState
from manager.autoscaler.cloudprovider.guard import CloudObservation, ObservedGroup
from manager.autoscaler.cluster_state.backoff import BackoffTimes
from manager.autoscaler.cluster_state.health import HealthLimits, Readiness
from manager.autoscaler.cluster_state.registry import Registry
from manager.autoscaler.modes import Mode
from manager.autoscaler.snapshot import cluster
from manager.autoscaler.snapshot.cluster import NodeState, StateRules
from shared.api.core import Node

# The fields of Readiness.
_COUNTED_AS = {NodeState.READY: "ready", NodeState.NOT_STARTED: "not_started", NodeState.UNREADY: "unready"}


def _enforced(_: str) -> Mode:
    return Mode.ENFORCE


@dataclass(frozen=True)
class ReconcileRules:
    """`modes` is by group. `node_states` has a `now` that does not matter.

    A group's own options override the seconds here. `force_delete_unregistered`: also below the group's minimum.
    """

    modes: Callable[[str], Mode] = _enforced
    node_states: StateRules = field(default_factory=lambda: StateRules(now=0.0))
    health: HealthLimits = field(default_factory=HealthLimits)
    backoff: BackoffTimes = field(default_factory=BackoffTimes)
    max_node_provision_seconds: float = 900.0
    force_delete_unregistered: bool = False


@dataclass(frozen=True)
class GroupView:
    """The view of one group.

    `unregistered` maps the instances without a Node to the time since when they have none; `overdue` are those without
    one for too long. `broken` instances could not be made. `staying` counts what is present, or upcoming, of the
    target.
    """

    seen: ObservedGroup
    mode: Mode
    provision_seconds: float
    nodes: tuple[str, ...]
    readiness: Readiness
    unregistered: Mapping[str, float]
    overdue: tuple[str, ...]
    broken: tuple[Instance, ...]
    leaving: int
    staying: int

    @property
    def id(self) -> str:
        return self.seen.group.id

    @property
    def target(self) -> int:
        return self.seen.group.target_size

    @property
    def missing(self) -> int:
        """Nodes of the target without an instance."""
        return max(0, self.target - self.staying)

    @property
    def booting(self) -> int:
        """Nodes that are known to be starting."""
        return self.readiness.unregistered + self.readiness.not_started

    @property
    def up(self) -> int:
        return self.readiness.ready + self.readiness.unready + self.readiness.suspended

    @property
    def outstanding(self) -> int:
        """Nodes of the target that may still come up."""
        return max(0, self.target - self.up - len(self.broken))

    @property
    def returnable(self) -> int:
        """How many missing nodes may be taken off the target: it does not go below the minimum."""
        return min(self.missing, max(0, self.target - self.seen.group.min_size))


@dataclass(frozen=True)
class GroupViews:
    groups: Mapping[str, GroupView]
    states: Mapping[str, NodeState]
    readiness: Mapping[str, NodeState]
    ungrouped: tuple[str, ...]
    ungrouped_readiness: Readiness


def view_groups(
    observed: CloudObservation, nodes: Sequence[Node], registry: Registry, rules: ReconcileRules, now: float
) -> GroupViews:
    members: dict[str, list[Node]] = {name: [] for name in sorted(observed.groups)}
    others: list[Node] = []
    for node in sorted(nodes, key=lambda each: each.metadata.name):
        members.get(observed.group_of_node.get(node.metadata.name, ""), others).append(node)
    states: dict[str, NodeState] = {}
    readiness: dict[str, NodeState] = {}
    views: dict[str, GroupView] = {}
    registered = {node.spec.provider_id for node in nodes if node.spec.provider_id}
    for name, own in members.items():
        seen = observed.groups[name]
        known = registry.unregistered.get(name, {})
        views[name] = _view_group(seen, own, registered, known, rules, now, states, readiness)
    state_rules = replace(rules.node_states, now=now)
    counts: Counter[str] = Counter()
    for node in others:
        states[node.metadata.name] = cluster.node_state(node, state_rules)
        readiness[node.metadata.name] = found = cluster.node_readiness(node, state_rules)
        counts[_COUNTED_AS[found]] += 1
    return GroupViews(views, states, readiness, tuple(node.metadata.name for node in others), Readiness(**counts))


def _view_group(
    seen: ObservedGroup,
    nodes: Sequence[Node],
    registered: set[str],
    known: Mapping[str, float],
    rules: ReconcileRules,
    now: float,
    states: dict[str, NodeState],
    readiness: dict[str, NodeState],
) -> GroupView:
    state_rules = replace(rules.node_states, now=now)
    if seen.options.max_node_startup_seconds is not None:
        state_rules = replace(state_rules, startup_seconds=seen.options.max_node_startup_seconds)
    provision_seconds = rules.max_node_provision_seconds
    if seen.options.max_node_provision_seconds is not None:
        provision_seconds = seen.options.max_node_provision_seconds

    instances = {each.provider_id: each for each in seen.instances}
    counts: Counter[str] = Counter()
    unlisted = 0
    for node in nodes:
        instance = instances.get(node.spec.provider_id)
        state, found = cluster.node_state(node, state_rules), cluster.node_readiness(node, state_rules)
        counted_as = _COUNTED_AS[found]
        if instance is None and found is NodeState.UNREADY:
            counted_as = "being_deleted"  # its instance no longer exists
        elif instance is not None and instance.state is InstanceState.DELETING:
            state, counted_as = NodeState.TO_BE_DELETED, "being_deleted"
        states[node.metadata.name], readiness[node.metadata.name] = state, found
        counts[counted_as] += 1
        unlisted += instance is None and counted_as != "being_deleted"

    staying = [each for each in seen.instances if each.state is not InstanceState.DELETING]
    without_node = [each for each in staying if each.provider_id not in registered]
    broken = tuple(each for each in without_node if each.error is not None)
    unregistered = {each.provider_id: known.get(each.provider_id, now) for each in without_node if each.error is None}
    overdue = tuple(sorted(name for name, since in unregistered.items() if since + provision_seconds < now))
    counts["unregistered"], counts["long_unregistered"] = len(unregistered) - len(overdue), len(overdue)
    return GroupView(
        seen=seen,
        mode=rules.modes(seen.group.id),
        provision_seconds=provision_seconds,
        nodes=tuple(node.metadata.name for node in nodes),
        readiness=Readiness(**counts),
        unregistered=dict(sorted(unregistered.items())),
        overdue=overdue,
        broken=broken,
        leaving=len(seen.instances) - len(staying),
        staying=len(staying) + unlisted,
    )
