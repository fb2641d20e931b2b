"""The groups that could be created for pending pods: every machine type with the labels that suit the pods best.

For each machine type the pods count that would fit one such machine if it had the labels they ask for ("Node
Auto-provisioning", Calculating best label set for nodes). Pods that tolerations set apart, and pods that ask for GPUs,
have groups of their own. Candidates then compete with the groups there are.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from manager.autoscaler import cluster, predicates, templates
from manager.autoscaler.autoprovisioning import gpus, labels, tolerations
from manager.autoscaler.autoprovisioning.gpus import GpuRules
from manager.autoscaler.autoprovisioning.labels import Popularity, Selecting
from manager.autoscaler.autoprovisioning.tolerations import TolerationMode
from manager.autoscaler.cloudprovider.contract import Group, GroupSpec, Theoretical
from manager.autoscaler.cloudprovider.ownership import DEFAULT_PREFIX
from manager.autoscaler.cluster import LABEL_HOSTNAME, PODS, NodeState, NodeTemplate
from manager.autoscaler.groups import GroupState
from manager.autoscaler.podclasses import PendingClass
from manager.autoscaler.podfacts import NodeDemands
from manager.autoscaler.templates import Daemon, TaintRules
from shared.api.core import NodeSelectorTerm, Taint
from shared.names import CPU
from shared.quantity import Amounts

MOST_GROUPS = 50
MOST_AUTOPROVISIONED = 15
_OF_ONE_NODE = frozenset({LABEL_HOSTNAME})


@dataclass(frozen=True)
class AutoprovisioningRules:
    """`most_groups` limits all groups of the cluster, `most_autoprovisioned` those among them that were created here.

    An empty `machine_types` means every type there is.
    """

    enabled: bool = False
    prefix: str = DEFAULT_PREFIX
    machine_types: frozenset[str] = frozenset()
    most_groups: int = MOST_GROUPS
    most_autoprovisioned: int = MOST_AUTOPROVISIONED
    popularity: Popularity = Popularity.PODS
    tolerations: TolerationMode = TolerationMode.SEPARATE
    gpus: GpuRules = field(default_factory=GpuRules)


def groups_left(existing: Iterable[Group], rules: AutoprovisioningRules) -> int:
    """How many groups may still be created."""
    if not rules.enabled:
        return 0
    known = list(existing)
    created = sum(group.autoprovisioned for group in known)
    return max(0, min(rules.most_groups - len(known), rules.most_autoprovisioned - created))


def specs(
    classes: Sequence[PendingClass], machines: Mapping[str, NodeTemplate], rules: AutoprovisioningRules
) -> list[GroupSpec]:
    """Every candidate. `machines` gives, by type, a new node without any label or taint of a group's own."""
    found: list[GroupSpec] = []
    offered = {name: each for name, each in machines.items() if not rules.machine_types or name in rules.machine_types}
    for taints, members in _set_apart(classes, rules):
        plain = [each for each in members if not each.facts.requests.get(rules.gpus.resource)]
        for name, machine in sorted(offered.items()):
            chosen = _labels(plain, machine, taints, rules)
            if chosen is not None:
                found.append(GroupSpec(name, rules.prefix, chosen, taints))
        for demand in gpus.demands(members, rules.gpus):
            own = {rules.gpus.label: demand.kind}
            extra = {rules.gpus.resource: demand.most}
            for name, machine in sorted(offered.items()):
                chosen = _labels(demand.classes, _having(machine, own, extra), taints, rules)
                if chosen is not None:
                    found.append(GroupSpec(name, rules.prefix, {**chosen, **own}, taints, extra))
    return found


def state(theoretical: Theoretical, daemons: Iterable[Daemon] = (), taints: TaintRules | None = None) -> GroupState:
    """A candidate as its provider would make it, to compete with the groups there are. Raises InvalidInput."""
    node = cluster.node_facts(theoretical.template, NodeState.READY)
    return GroupState(
        Group(theoretical.id, 0, theoretical.max_size, 0, autoprovisioned=True),
        templates.from_provider(theoretical.id, node, daemons, taints),
        spec=theoretical.spec,
    )


def wanted_labels(demands: NodeDemands, machine: Mapping[str, str]) -> dict[str, str] | None:
    """The labels that a machine needs for such a pod beside its own; None when none would do."""
    wanted = dict(demands.selector)
    if not labels.are_compatible(wanted, machine):
        return None
    if demands.terms is not None:
        for term in demands.terms:
            more = _satisfying(term, {**machine, **wanted})
            if more is not None:
                wanted |= more
                break
        else:
            return None
    needed = {key: value for key, value in wanted.items() if key not in machine}
    return None if _OF_ONE_NODE & needed.keys() else needed


def _satisfying(term: NodeSelectorTerm, known: Mapping[str, str]) -> dict[str, str] | None:
    """What to add to the labels so that a term holds; None when nothing does, or the term names nodes."""
    if term.match_fields or not term.match_expressions:
        return None
    added: dict[str, str] = {}
    for requirement in term.match_expressions:
        key, values = requirement.key, requirement.values or ()
        if key in known or key in added:
            continue
        if requirement.operator == "In" and values:
            added[key] = min(values)
        elif requirement.operator == "Exists":
            added[key] = "true"
    holds = predicates.matches_affinity(NodeDemands(terms=(term,)), cluster.NodeFacts("", labels={**known, **added}))
    return added if holds else None


def _set_apart(
    classes: Sequence[PendingClass], rules: AutoprovisioningRules
) -> list[tuple[tuple[Taint, ...], list[PendingClass]]]:
    """The classes by the taints of the group that is made for them."""
    found: dict[tuple[tuple[str, str, str], ...], tuple[tuple[Taint, ...], list[PendingClass]]] = {}
    for each in classes:
        taints = tolerations.taints_for(each.facts.demands, rules.tolerations)
        key = tuple((taint.key, taint.value, taint.effect) for taint in taints)
        found.setdefault(key, (taints, []))[1].append(each)
    return [found[key] for key in sorted(found)]


def _labels(
    classes: Iterable[PendingClass], machine: NodeTemplate, taints: tuple[Taint, ...], rules: AutoprovisioningRules
) -> dict[str, str] | None:
    """The best label set for one machine type; None when no pod would ever fit."""
    selecting = []
    fits_any = False
    for each in classes:
        demands, requests = each.facts.demands, each.facts.requests
        if rules.popularity is Popularity.CPU:  # Cluster Autoscaler looks at selectors alone, and at those of all pods
            needed: dict[str, str] | None = dict(demands.selector)
            fits_any = True
        else:
            needed = wanted_labels(demands, machine.node.labels)
            if needed is None or not _takes(machine, needed, taints, each):
                continue
            fits_any = True
        selecting.append(Selecting(needed or {}, len(each.pods), requests.get(CPU, 0)))
    if not fits_any:
        return None
    ranked = labels.by_popularity(selecting, rules.popularity)
    return labels.best_label_set(ranked, machine.node.labels, rules.popularity)


def _takes(machine: NodeTemplate, needed: Mapping[str, str], taints: tuple[Taint, ...], each: PendingClass) -> bool:
    """Whether one machine with these labels and taints takes a pod of the class."""
    node = replace(machine.node, labels={**machine.node.labels, **needed}, taints=(*machine.node.taints, *taints))
    free = machine.free
    fits = free.get(PODS, 0) >= 1 and all(free.get(name, 0) >= amount for name, amount in each.facts.requests.items())
    return fits and predicates.admits(each.facts.demands, node)


def _having(machine: NodeTemplate, own: Mapping[str, str], extra: Amounts) -> NodeTemplate:
    """The machine with further labels and resources."""
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
