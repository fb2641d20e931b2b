"""Removes nodes that the cloud takes within minutes from their groups, once another component has drained them.

Their pods have counted as pending since the announcement. A cloud that takes a machine keeps the target, and would
launch another machine in its place, besides the one launched for the pods.
"""

from collections import Counter
from dataclasses import replace

from manager.autoscaler.planning import scale_down_planning
from manager.autoscaler.planning.context import AutoscalingContext
from manager.autoscaler.scale_down import eligibility
from manager.autoscaler.scale_down.inputs import ScaleDownInputs
from manager.autoscaler.scale_down.removal_status import (
    NodeRemovalStatus,
    NodeStanding,
    NodeToRemove,
    ScaleDownDecision,
    ScaleDownReason,
)
from manager.autoscaler.scale_down.rules import UnremovableReason
from manager.autoscaler.settings.modes import Mode
from manager.autoscaler.snapshot import equivalence_groups
from manager.autoscaler.snapshot.cluster import NodeInfo, NodeState
from shared.api import pods
from shared.explanation import ScaleExplanation


def with_emptied(
    context: AutoscalingContext, inputs: ScaleDownInputs, decision: ScaleDownDecision
) -> ScaleDownDecision:
    """Scale-down's decision with the removal of these nodes, as far as the minimum of their group permits."""
    kept = context.interrupted - scale_down_planning.deleted_by_cloud(context)
    taken = sorted(name for name in kept if inputs.group_of[name] in inputs.groups)
    if not taken:
        return decision
    spare = Counter(inputs.group_of[name] for name in taken)  # already count as deleted
    spare.subtract(each.group for each in decision.removals)
    for name in spare:
        group = inputs.groups[name]
        spare[name] += group.group.settled_size - group.deleting - group.group.min_size
    occupied = _occupied_nodes(context)
    added = {}
    for node in inputs.nodes:
        group_id = inputs.group_of.get(node.name, "")
        if (
            node.name in taken
            and node.state is NodeState.INTERRUPTED
            and node.name not in occupied
            and spare[group_id] > 0
            and _may_leave(context, inputs, node)
        ):
            spare[group_id] -= 1
            detail = f"the cloud takes it, and it is empty: {context.interruptions[node.name]}"
            why = ScaleExplanation(detail, result=-1)
            added[node.name] = NodeRemovalStatus(node.name, group_id, NodeStanding.GOES, why)
    removals = (NodeToRemove(each.node, each.group, ScaleDownReason.EMPTY, 0.0) for each in added.values())
    return replace(decision, removals=(*decision.removals, *removals), statuses={**decision.statuses, **added})


def _occupied_nodes(context: AutoscalingContext) -> frozenset[str]:
    """The nodes with pods other than their own, including pods that still terminate."""
    return frozenset(
        pod.spec.node_name
        for pod in context.objects.pods
        if pod.spec.node_name
        and pods.is_active(pod)
        and not equivalence_groups.is_daemon(pod)
        and not equivalence_groups.is_mirror(pod)
    )


def _may_leave(context: AutoscalingContext, inputs: ScaleDownInputs, node: NodeInfo) -> bool:
    group = inputs.group_of[node.name]
    failed = inputs.memory.unremovable.get(node.name)
    return (
        context.settings.mode_of(group) is Mode.ENFORCE
        and not inputs.groups[group].rules.zero_or_max
        and node.annotations.get(eligibility.ANNOTATION_DISABLED) != "true"
        and not (failed is not None and failed.reason is UnremovableReason.UNEXPECTED and inputs.now < failed.until)
    )
