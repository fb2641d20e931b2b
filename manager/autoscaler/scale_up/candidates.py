"""The groups that could be created for pending pods: every machine type with its best label set.

For each machine type those pods count that would fit one such machine with the labels they ask for ("Node
Auto-provisioning", Calculating best label set for nodes). Pods that tolerations separate, and pods that ask for GPUs,
get groups of their own. Candidates then compete with the existing groups.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from manager.autoscaler.cloudprovider.contract import Group, GroupSpec, Theoretical
from manager.autoscaler.cloudprovider.ownership import DEFAULT_PREFIX, Ownership
from manager.autoscaler.cluster_state.state import GroupStatus
from manager.autoscaler.scale_up import candidate_labels
from manager.autoscaler.scale_up.candidate_labels import GpuRules, Popularity, Selecting, Selector, TolerationMode
from manager.autoscaler.settings.estimates import TaintRules
from manager.autoscaler.snapshot import cluster, predicates, templates
from manager.autoscaler.snapshot.cluster import PODS, NodeState, NodeTemplate
from manager.autoscaler.snapshot.equivalence_groups import EquivalenceGroup
from manager.autoscaler.snapshot.pod_info import ZONE_LABELS, NodeDemands
from manager.autoscaler.snapshot.templates import Daemon
from shared.api.core import NodeSelectorTerm, Taint
from shared.names import CPU
from shared.quantity import Amounts

MOST_GROUPS = 50
MOST_TAINT_SETS = 50  # with candidates in one iteration, in each zone
LABEL_ZONE = "topology.kubernetes.io/zone"
_ZONE = frozenset(label for label, stands_for in ZONE_LABELS.items() if stands_for == LABEL_ZONE)


@dataclass(frozen=True)
class AutoprovisioningRules:
    """`most_groups` limits all groups of the cluster, `max_autoprovisioned_node_group_count` the created ones.

    An empty `machine_types` means all types.
    """

    node_autoprovisioning: bool = False
    autoprovisioning_prefix: str = DEFAULT_PREFIX
    machine_types: Collection[str] = ()
    most_groups: int = MOST_GROUPS
    max_autoprovisioned_node_group_count: int = 15
    popularity: Popularity = Popularity.PODS
    autoprovisioning_tolerations: TolerationMode = TolerationMode.SEPARATE
    gpus: GpuRules = field(default_factory=GpuRules)
    taints: TaintRules = field(default_factory=TaintRules)


def creatable_groups(left: int, states: Iterable[GroupStatus]) -> int:
    """The number of these that may be created if `left` groups may."""
    most = max((each.makes for each in states if each.makes <= left), default=1)
    return left // most


def groups_left(existing: Iterable[Group], rules: AutoprovisioningRules) -> int:
    """The number of groups that may still be created."""
    if not rules.node_autoprovisioning:
        return 0
    known = list(existing)
    created = sum(group.autoprovisioned for group in known)
    return max(0, min(rules.most_groups - len(known), rules.max_autoprovisioned_node_group_count - created))


def alternatives(
    classes: Sequence[EquivalenceGroup],
    machines: Mapping[str, NodeTemplate],
    rules: AutoprovisioningRules,
    zone: Mapping[str, str] | None = None,
) -> list[Iterator[GroupSpec]]:
    """The possible specs of every candidate, the best first: if one helps no pod, the next omits the most popular
    labels.

    `machines` gives, by type, a new node without any label or taint of a group; `zone` is the zone label of the
    candidates, if they are in one zone alone.
    """
    offered = {name: each for name, each in machines.items() if not rules.machine_types or name in rules.machine_types}
    if not offered:
        return []
    found = (
        list(_alternatives(members, taints, offered, rules, zone or {}))
        for taints, members in _set_apart(classes, rules)
    )
    return list(itertools.chain.from_iterable(itertools.islice(filter(None, found), MOST_TAINT_SETS)))


def _alternatives(
    members: Sequence[EquivalenceGroup],
    taints: tuple[Taint, ...],
    machines: Mapping[str, NodeTemplate],
    rules: AutoprovisioningRules,
    zone: Mapping[str, str],
) -> Iterator[Iterator[GroupSpec]]:
    """The candidates with the same taints. A zone has no candidate that helps only pods without a zone."""
    no_gpus: Amounts = {}
    kinds: list[tuple[Sequence[EquivalenceGroup], Mapping[str, str], Amounts]] = [
        ([each for each in members if not each.facts.requests.get(rules.gpus.resource)], zone, no_gpus)
    ]
    kinds += (
        (demand.classes, {**zone, rules.gpus.label: demand.kind}, {rules.gpus.resource: demand.count})
        for demand in candidate_labels.gpu_demands(members, rules.gpus)
    )
    for wanting, labelled, extra in kinds:
        bound = [each for each in wanting if _zones(each.facts.demands)] if zone else wanting
        for name, machine in sorted(machines.items()):
            equipped = _having(machine, labelled, extra)
            ranked = _ranked(bound, equipped, taints, rules)
            if ranked and zone:
                ranked = _ranked(wanting, equipped, taints, rules)
            if ranked:
                bare = GroupSpec(name, rules.autoprovisioning_prefix, labelled, taints, extra)
                yield _labelled(bare, ranked, equipped.node.labels, rules.popularity)


def by_zone(classes: Iterable[EquivalenceGroup]) -> dict[str, list[EquivalenceGroup]]:
    """The classes by the zones that they may be in, in order; classes without a zone are in each zone that others name,
    and under "".
    """
    zones = [(each, _zones(each.facts.demands)) for each in classes]
    found: dict[str, list[EquivalenceGroup]] = {
        zone: [] for zone in sorted(set().union(*(named or {""} for _, named in zones)))
    }
    for each, named in zones:
        for zone in named or found:
            found[zone].append(each)
    return found


def _zones(demands: NodeDemands) -> set[str]:
    """The zones that selector, affinity and volumes name; empty if they name none."""
    named = {value for key, value in demands.selector if key in _ZONE}
    named |= {value for key, values in demands.zones if key in _ZONE for value in values}
    terms: list[NodeSelectorTerm] = [*(demands.terms or ())]
    for volume in demands.volumes:
        terms += volume.node_selector_terms
    for claim in demands.unbound:
        terms += (*(claim.existing or ()), *(claim.provisioned or ()))
    for term in terms:
        for requirement in term.match_expressions or ():
            if requirement.key in _ZONE and requirement.operator == "In":
                named.update(requirement.values or ())
    return named


def candidate_state(
    theoretical: Theoretical, daemons: Iterable[Daemon] = (), taints: TaintRules | None = None
) -> GroupStatus:
    """A candidate as its provider would make it, to compete with the existing groups. Raises InvalidInput."""
    node = cluster.node_info(theoretical.template, NodeState.READY)
    return GroupStatus(
        Group(theoretical.id, 0, theoretical.max_size, 0, autoprovisioned=True),
        template=templates.from_provider(theoretical.id, node, daemons, taints),
        spec=theoretical.spec,
        makes=theoretical.groups,
    )


def _set_apart(
    classes: Sequence[EquivalenceGroup], rules: AutoprovisioningRules
) -> list[tuple[tuple[Taint, ...], list[EquivalenceGroup]]]:
    """The classes by the taints of their new group, those with most pods first."""
    found: dict[tuple[tuple[str, str, str], ...], tuple[tuple[Taint, ...], list[EquivalenceGroup]]] = {}
    for each in classes:
        taints = candidate_labels.taints_for(each.facts.demands, rules.autoprovisioning_tolerations, rules.taints)
        key = tuple((taint.key, taint.value, taint.effect) for taint in taints)
        found.setdefault(key, (taints, []))[1].append(each)
    return [found[key] for key in sorted(found, key=lambda key: (-sum(len(each.pods) for each in found[key][1]), key))]


def _ranked(
    classes: Iterable[EquivalenceGroup], machine: NodeTemplate, taints: tuple[Taint, ...], rules: AutoprovisioningRules
) -> list[Selector]:
    """The selectors for nodes of one machine type, the most popular first; empty if no pod would ever fit."""
    selecting = []
    for each in classes:
        demands, cpu_milli = each.facts.demands, each.facts.requests.get(CPU, 0)
        if rules.popularity is Popularity.CPU:  # Cluster Autoscaler considers only selectors, and those of all pods
            selecting.append(Selecting(dict(demands.selector), len(each.pods), cpu_milli))
            continue
        needed = candidate_labels.wanted_labels(demands, machine.node.labels)
        if needed is not None and _takes(machine, needed, taints, each):
            selecting.append(Selecting(needed, len(each.pods), cpu_milli, demands))
    return candidate_labels.by_popularity(selecting, rules.popularity)


def _labelled(
    bare: GroupSpec, ranked: Sequence[Selector], machine: Mapping[str, str], popularity: Popularity
) -> Iterator[GroupSpec]:
    """The spec with the best label set, then with that of all selectors but the first, and so on."""
    before: dict[str, str] | None = None
    for first in range(len(ranked)):
        chosen = candidate_labels.best_label_set(ranked[first:], machine, popularity)
        if chosen != before:
            yield replace(bare, labels={**chosen, **bare.labels})
        before = chosen


def _takes(machine: NodeTemplate, needed: Mapping[str, str], taints: tuple[Taint, ...], each: EquivalenceGroup) -> bool:
    """Whether a pod of the class fits on one machine with these labels and taints."""
    node = replace(machine.node, labels={**machine.node.labels, **needed}, taints=(*machine.node.taints, *taints))
    free = machine.free
    fits = free.get(PODS, 0) >= 1 and all(free.get(name, 0) >= amount for name, amount in each.facts.requests.items())
    domains = {rule.key for rule in each.facts.spread} | {term.key for term in each.facts.affinity}
    return fits and domains <= node.labels.keys() and predicates.admits(each.facts.demands, node)


def _having(machine: NodeTemplate, own: Mapping[str, str], extra: Amounts) -> NodeTemplate:
    """The machine with additional labels and resources."""
    node = machine.node
    return replace(
        machine,
        node=replace(
            node,
            labels={**node.labels, **own},
            capacity={**node.capacity, **extra},
            allocatable={**node.allocatable, **extra},
        ),
    )


def unneeded_groups(groups: Iterable[Group], instances: Mapping[str, int], ownership: Ownership) -> list[str]:
    """The managed groups without a target and without instances, in order.

    `instances` counts by group; a group without an entry may have some.
    """
    return sorted(
        group.id
        for group in groups
        if group.autoprovisioned
        and ownership.owns(group.id)
        and group.target_size == 0
        and instances.get(group.id, 1) == 0
    )
