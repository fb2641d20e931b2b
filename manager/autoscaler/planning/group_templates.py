"""The template of each node group: what a new node of it is, and what it will offer as Mid and Batch."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from manager.autoscaler.cloudprovider.errors import ProviderError
from manager.autoscaler.cloudprovider.guard import CloudObservation
from manager.autoscaler.cluster_state.reconciliation import Reconciliation
from manager.autoscaler.listers import ClusterObjects
from manager.autoscaler.snapshot import cluster
from manager.autoscaler.snapshot.cluster import NodeInfo, NodeState, NodeTemplate
from manager.autoscaler.snapshot.templates import (
    RECLAIMED,
    Daemon,
    LiveNode,
    TemplateCache,
    with_reclaimed,
    without_reclaimed,
)
from shared import quantity
from shared.api.core import Node, NodeSpec, NodeStatus, Pod
from shared.api.meta import ObjectMeta
from shared.errors import InvalidInput
from shared.names import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY
from shared.quantity import Amounts

OfferedBy = Callable[[Node], Amounts]

LENDING_SECONDS = 600.0  # age from which a node offers Mid and Batch, unless no agent reports for it

_NATIVE_OF = {BATCH_CPU: CPU, BATCH_MEMORY: MEMORY}


@dataclass(frozen=True)
class ReadTemplates:
    """The templates of all groups that have one, by group, and why others have none."""

    templates: Mapping[str, NodeTemplate]
    problems: Mapping[str, str]
    invalid: Mapping[str, InvalidInput]


def read_templates(
    objects: ClusterObjects,
    observed: CloudObservation,
    ask: Callable[[str], Node],
    cache: TemplateCache,
    reconciled: Reconciliation,
    daemons: Sequence[Daemon],
    offered_by: OfferedBy,
) -> ReadTemplates:
    live = _live_nodes(objects, observed, reconciled)
    found, problems, invalid = {}, {}, {}
    for group in sorted(reconciled.state.groups):
        try:
            template = cache.of_group(group, live.get(group, ()), partial(ask, group), daemons, objects.now)
        except ProviderError as error:
            problems[group] = str(error)
        except InvalidInput as refused:
            invalid[f"template of {group}"] = refused
            problems[group] = str(refused)
        else:
            if template is not None:
                lends = _lends(live.get(group, ()), objects)
                found[group] = offering(template, offered_by) if lends else without_reclaimed(template)
    return ReadTemplates(found, problems, invalid)


def _live_nodes(
    objects: ClusterObjects, observed: CloudObservation, reconciled: Reconciliation
) -> Mapping[str, list[LiveNode]]:
    """The nodes of each group, with their pods."""
    on_node: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in objects.pods:
        if pod.spec.node_name in observed.group_of_node:
            on_node[pod.spec.node_name].append(pod)
    live: defaultdict[str, list[LiveNode]] = defaultdict(list)
    for node in objects.nodes:
        name = node.metadata.name
        if name in observed.group_of_node:
            since = objects.stable_since.get(name)
            since = cluster.stable_since(node) if since is None else since
            limits = objects.surroundings.volume_limits(name)
            found = LiveNode(node, reconciled.node_states[name], tuple(on_node[name]), since, limits)
            live[observed.group_of_node[name]].append(found)
    return live


def _lends(live: Sequence[LiveNode], objects: ClusterObjects) -> bool:
    """Whether a new node will offer Mid and Batch.

    False if nodes of the group are old enough to do so, and do not.
    """
    ready = [each.node for each in live if each.state is NodeState.READY]
    old = [each for each in ready if objects.now - each.metadata.created_at > LENDING_SECONDS]
    offers = [{**(each.status.allocatable or {}), **objects.expected.get(each.metadata.name, {})} for each in old]
    return not old or any(RECLAIMED & each.keys() for each in offers)


def offering(template: NodeTemplate, offered_by: OfferedBy) -> NodeTemplate:
    """The template with the Mid and Batch that a new node will offer, in place of what a present node offers.

    Pods that come with the node reduce Batch by their requests, so that no node is bought for Batch that it will not
    have.
    """
    template = without_reclaimed(template)
    taken = template.overhead
    offered = {
        name: max(0, amount - taken.get(_NATIVE_OF.get(name, ""), 0))
        for name, amount in offered_by(_as_node(template.node)).items()
    }
    return with_reclaimed(template, offered) if offered else template


def _as_node(facts: NodeInfo) -> Node:
    """The node in wire form, as `offered_by` reads it."""

    def quantities(amounts: Amounts) -> dict[str, str | int | float]:
        return {name: quantity.format_milli(amount) if name == CPU else str(amount) for name, amount in amounts.items()}

    return Node(
        metadata=ObjectMeta(name=facts.name, labels=dict(facts.labels), annotations=dict(facts.annotations)),
        spec=NodeSpec(taints=facts.taints),
        status=NodeStatus(capacity=quantities(facts.capacity), allocatable=quantities(facts.allocatable)),
    )
