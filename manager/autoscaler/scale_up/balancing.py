"""Distributes the decided nodes: balanced over similar groups, and capped by the limits.

Groups are similar if one may grow instead of the other, by Cluster Autoscaler's comparison.
"""

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from manager.autoscaler.cloudprovider.ownership import Ownership
from manager.autoscaler.cluster_state.state import GroupStatus, Increase
from manager.autoscaler.scale_up import groups
from manager.autoscaler.scale_up.decisions import Cap
from manager.autoscaler.scale_up.groups import Headroom, QuotaUsage
from manager.autoscaler.settings.estimates import SimilarityRules
from manager.autoscaler.snapshot.cluster import LABEL_HOSTNAME, PODS, NodeTemplate
from shared.names import LABEL_NODE_GROUP
from shared.quantity import Amounts

MEMORY = "memory"
MEMORY_DIFFERENCE_RATIO = 0.015  # of capacities
MAX_DIFFERENCE_RATIO = 0.05  # of what is allocatable, and of what DaemonSets leave free
IGNORED_LABELS = frozenset(
    {
        LABEL_HOSTNAME,
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "beta.kubernetes.io/fluentd-ds-ready",
        "kops.k8s.io/instancegroup",
        LABEL_NODE_GROUP,
    }
)


def are_similar(first: NodeTemplate, second: NodeTemplate, rules: SimilarityRules) -> bool:
    """Whether new nodes of both templates are interchangeable.

    The differences are shares of the larger amount; all other resources must be equal. With `balancing_label` these
    labels alone decide, regardless of resources.
    """
    if rules.balancing_label:
        return all(
            key in first.node.labels and first.node.labels[key] == second.node.labels.get(key)
            for key in rules.balancing_label
        )
    return (
        _have_equal_capacity(first.node.capacity, second.node.capacity)
        and _agree_within(first.node.allocatable, second.node.allocatable, MAX_DIFFERENCE_RATIO)
        and _agree_within(_free_after_daemons(first), _free_after_daemons(second), MAX_DIFFERENCE_RATIO)
        and _compared_labels(first, rules) == _compared_labels(second, rules)
    )


def _have_equal_capacity(first: Amounts, second: Amounts) -> bool:
    return first.keys() == second.keys() and all(
        _close(first[name], second[name], MEMORY_DIFFERENCE_RATIO) if name == MEMORY else first[name] == second[name]
        for name in first
    )


def _compared_labels(template: NodeTemplate, rules: SimilarityRules) -> dict[str, str]:
    return {
        key: value
        for key, value in template.node.labels.items()
        if key not in IGNORED_LABELS and key not in rules.balancing_ignore_label
    }


def similar_for_option(
    classes: Collection[object],
    similar: Mapping[str, Collection[object]],
    *,
    balance_similar: bool = True,
    is_zero_or_max: bool = False,
) -> list[str]:
    """The similar groups that may share an option's nodes: those that take all of its classes.

    `similar` holds, for each healthy similar group, the classes that would fit there.
    """
    if not balance_similar or is_zero_or_max or not classes:
        return []
    return [group for group, taken in similar.items() if all(each in taken for each in classes)]


def _free_after_daemons(template: NodeTemplate) -> dict[str, int]:
    """The amounts of cpu, memory and any other requested resource that a new node's own pods leave free."""
    taken = template.overhead
    names = {"cpu", MEMORY, *taken} - {PODS}
    return {name: template.node.allocatable.get(name, 0) - taken.get(name, 0) for name in names}


def _agree_within(first: Amounts, second: Amounts, share: float) -> bool:
    return first.keys() == second.keys() and all(_close(first[name], second[name], share) for name in first)


def _close(first: int, second: int, share: float) -> bool:
    larger, smaller = max(first, second), min(first, second)
    return larger - smaller <= larger * share


@dataclass(frozen=True, slots=True)
class GroupSize:
    """The current target size of one group, and its maximum."""

    group: str
    target: int
    most: int


@dataclass(frozen=True)
class BalancedIncreases:
    """The nodes that each group gets, and the remaining headroom."""

    increases: list[Increase]
    remaining: Headroom
    caps: list[Cap]

    @property
    def nodes(self) -> dict[str, int]:
        return {each.group: each.nodes for each in sorted(self.increases, key=lambda each: each.group)}

    @property
    def node_count(self) -> int:
        return sum(each.nodes for each in self.increases)


def increases_to_min_sizes(
    states: Sequence[GroupStatus], ownership: Ownership, usage: QuotaUsage, room: Headroom
) -> tuple[tuple[Increase, ...], tuple[Cap, ...], Headroom]:
    """The increases of groups below their minimum up to it, as far as the cluster's limits allow."""
    increases: list[Increase] = []
    caps: list[Cap] = []
    for state in sorted(states, key=lambda each: each.id):
        missing = state.group.min_size - state.group.target_size
        if missing <= 0 or not state.exists:
            continue
        if groups.skip_reason(state, room, usage, ownership):
            continue
        found, cut = allow_nodes(state, min(missing, state.room), room, usage)
        caps += cut
        if found and (not state.zero_or_max or found == state.room):
            increases.append(_increase(state, found))
            room = groups.headroom_after(state, room, usage, found)
    return tuple(increases), tuple(caps), room


def allow_nodes(state: GroupStatus, wanted: int, room: Headroom, usage: QuotaUsage) -> tuple[int, list[Cap]]:
    """The number of a group's wanted nodes that the cluster's limits allow, and what caps them."""
    found = groups.allowance(state, room, usage, wanted)
    return found.nodes, [Cap(state.id, str(each), wanted, found.nodes) for each in found.exceeded]


def balance_nodes(states: Sequence[GroupStatus], count: int, room: Headroom, usage: QuotaUsage) -> BalancedIncreases:
    """Balances nodes over the first group and its similar ones; then caps each by the quotas, smallest first.

    Capped nodes do not go to another group.
    """
    open_states = {
        state.id: state
        for number, state in enumerate(states)
        if state.template is not None and (number == 0 or groups.allowance(state, room, usage, 1).nodes == 1)
    }
    sizes = [GroupSize(each.id, each.group.target_size, each.group.max_size) for each in open_states.values()]
    grown = balance_sizes(sizes, count)
    increases: list[Increase] = []
    caps: list[Cap] = []
    for group in sorted(grown, key=lambda each: (open_states[each].group.target_size, each)):
        state = open_states[group]
        allowed, cut = allow_nodes(state, grown[group] - state.group.target_size, room, usage)
        caps += cut
        if allowed:
            room = groups.headroom_after(state, room, usage, allowed)
            increases.append(_increase(state, allowed))
    return BalancedIncreases(sorted(increases, key=lambda each: each.group), room, caps)


def balance_sizes(groups: Iterable[GroupSize], new_nodes: int) -> dict[str, int]:
    """The new target of each group that grows: nodes go one by one to the smallest group that has room.

    Groups of the same size come in the order of their names. Nodes beyond the room of all groups are not placed.
    """
    open_groups = [(each.target, each.group, each.most) for each in groups if each.target < each.most]
    heapq.heapify(open_groups)
    grown: dict[str, int] = {}
    for _ in range(new_nodes):
        if not open_groups:
            break
        target, group, most = open_groups[0]
        grown[group] = target + 1
        if target + 1 < most:
            heapq.heapreplace(open_groups, (target + 1, group, most))
        else:
            heapq.heappop(open_groups)
    return grown


def _increase(state: GroupStatus, nodes: int) -> Increase:
    group = state.group
    return Increase(group.id, group.target_size, group.target_size + nodes, group.max_size)
