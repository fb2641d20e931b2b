"""`headroom plan`: which groups would grow, at what cost and why, and why every node is still here; it changes nothing.

It runs the manager's own iteration (`manager.autoscaler.planning`) on a live cluster or on kubectl's output. Files are
planned as of the newest time at which one of their objects was created, changed or reported. Without a cloud, the
labels of nodes define the groups.
"""

import os
import random
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

from msgspec import Meta
from msgspec.structs import replace as with_fields

from deploy import dumped_cloud, plan_nodes, plan_sources, plan_table, rendering
from deploy.access import ClusterContext
from deploy.dumped_cloud import LabelledGroups
from deploy.nodeside import ConfigKey
from deploy.plan_sources import Seen
from deploy.prices import book
from manager.autoscaler import decision_settings
from manager.autoscaler.cloudprovider import plugin, simulated
from manager.autoscaler.cloudprovider.contract import Group, NodeRef, Provider
from manager.autoscaler.cloudprovider.guard import Guard
from manager.autoscaler.cloudprovider.plugin import ManagedGroups, ProviderRequest
from manager.autoscaler.cloudprovider.simulated import cloud_state, fake_nodes
from manager.autoscaler.cloudprovider.simulated.cloud_state import SimulatedState
from manager.autoscaler.cloudprovider.simulated.config import SimulatedCloud
from manager.autoscaler.cloudprovider.simulated.offer import MachineOffer
from manager.autoscaler.cloudprovider.simulated.provider import SimulatedProvider
from manager.autoscaler.cloudprovider.simulated.state_store import Unwritten
from manager.autoscaler.decision_settings import DecisionSettings
from manager.autoscaler.listers import ClusterObjects
from manager.autoscaler.planning import iteration_plan
from manager.autoscaler.planning.cluster_view import ObservedCloud, no_reclaimed_capacity, open_view
from manager.autoscaler.planning.group_templates import OfferedBy
from manager.autoscaler.planning.iteration import Iteration
from manager.autoscaler.pricing import gce
from manager.autoscaler.pricing.model import Machine
from manager.autoscaler.reporting import answers, group_rows
from manager.autoscaler.reporting.answers import Plan
from manager.autoscaler.reporting.group_rows import Groups
from manager.autoscaler.scale_down.removal_status import (
    UNNEEDED_TIME,
    DeletionsInProgress,
    NodeRemovalStatus,
    ScaleDownDecision,
    ScaleDownHistory,
    UnremovableReason,
)
from manager.autoscaler.scale_up.read_refusals import read_refusals
from manager.autoscaler.settings.autoscaler_settings import AutoscalerSettings
from manager.autoscaler.snapshot.templates import TAINT_DELETION_CANDIDATE
from manager.autoscaler.utilization.scan import DueScans
from manager.nodeside.lending import Lending
from manager.settings import ManagerSettings
from shared import durations, examples, names
from shared import settings as settings_module
from shared.api.core import Node
from shared.clock import ManualClock, SystemClock
from shared.errors import InvalidInput
from shared.explanation import ScaleExplanation

PROGRAM = "headroom plan"
# Kinds that count only under a setting: the field of the objects, the kind, and the setting.
_OPTIONAL = {
    "capacity_quotas": ("CapacityQuota", "capacity_quotas_enabled"),
    "capacity_buffers": ("CapacityBuffer", "capacity_buffer_pod_injection_enabled"),
    "provisioning_requests": ("ProvisioningRequest", "enable_provisioning_requests"),
}
OF_MANAGER = "the manager's --prices takes prices of your own; until then ~ marks what rests on an estimate by size"
CHANCE = 1  # of equally good options, a repeated command chooses the same one


class PlanSettings(AutoscalerSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The manager's autoscaler settings, and where to look."""

    EXAMPLES: ClassVar[str] = examples.text(
        ("Plan for the pending pods of the current cluster", "headroom plan"),
        (
            "Ask the running manager what a further pod would change",
            "headroom plan --manager http://127.0.0.1:8080 -f too-big.yaml",
        ),
        ("Plan from a dump", "kubectl get nodes,pods -A -o json | headroom plan -f -"),
    )

    file: Annotated[
        tuple[str, ...],
        Meta(
            description="what `kubectl get nodes,pods,... -A -o yaml` printed, in place of a live cluster; -: standard "
            "input; may be given more than once",
            extra={"short": "-f"},
        ),
    ] = ()
    output: Annotated[
        str, Meta(pattern="^(table|json|yaml)$", description="table, json or yaml", extra={"short": "-o"})
    ] = "table"
    all_nodes: Annotated[
        bool, Meta(description="list every node with the reason why it is not deleted, instead of a count by reason")
    ] = False
    top: Annotated[int, Meta(ge=1, description="number of removable nodes to list, the most expensive first")] = (
        plan_nodes.MOST_ROWS
    )
    group_label: Annotated[
        str, Meta(description="label whose value is a node's group; empty: those that clouds and installers write")
    ] = ""
    manager: Annotated[
        str,
        Meta(description="URL of the running manager, to plan with its settings and state; files add further pods"),
    ] = ""
    kubeconfig: Annotated[str, Meta(description="kubeconfig of the live cluster; empty: the user's own")] = ""
    context: Annotated[str, Meta(description="context of the kubeconfig; empty: its current one")] = ""
    namespace: Annotated[str, Meta(min_length=1, description="namespace of the manager")] = names.INSTALL_NAMESPACE
    config_namespace: Annotated[
        str, Meta(description="namespace of the manager's ConfigMap; empty: the manager's own")
    ] = ""
    config_name: Annotated[str, Meta(min_length=1, description="name of the manager's ConfigMap")] = names.CONFIG_MAP


def main(argv: Sequence[str]) -> str:
    """The answer, ready to print. Raises InvalidInput, and errors of the API server and the cloud."""
    settings, sources = settings_module.load_with_sources(
        PlanSettings,
        program=PROGRAM,
        description="Shows which node groups would be scaled up for pending pods, at what cost, and why nodes are not "
        "deleted. Changes nothing.",
        argv=argv,
        environment=os.environ,
    )
    if settings.manager:
        answer, groups = _by_manager(settings, sources)
        planned = Planned(answer, groups, [], OF_MANAGER if answer.cost_per_hour.estimated_groups else "")
    else:
        planned = plan(settings)
    if settings.output == "table":
        return plan_table.render(
            planned.answer,
            planned.groups,
            planned.notes,
            remedy=planned.remedy,
            all_nodes=settings.all_nodes,
            top=settings.top,
        )
    for note in filter(None, (planned.remedy, *planned.notes)):
        print(f"{PROGRAM}: {note}", file=sys.stderr)
    return rendering.structured(planned.answer, settings.output)


def _by_manager(settings: PlanSettings, sources: Mapping[str, str]) -> tuple[Plan, Groups]:
    from deploy import plan_by_manager  # here, as clusters and files are planned for without

    return plan_by_manager.plan(
        settings.manager,
        access=ClusterContext(Path(settings.kubeconfig) if settings.kubeconfig else None, settings.context),
        namespace=settings.namespace,
        files=settings.file,
        overrides=plan_by_manager.overrides(settings, sources),
    )


class Planned(NamedTuple):
    """The manager's next iteration, the groups as it sees them, and notes about assumptions. `remedy` is how to give
    prices to the machines that have none; empty if all have.
    """

    answer: Plan
    groups: Groups
    notes: list[str]
    remedy: str


def plan(settings: PlanSettings) -> Planned:
    seen = _seen(settings)
    notes = list(seen.notes)
    settings = with_fields(settings, cluster_name=settings.cluster_name or seen.cluster)
    if settings.cloud_config or settings.cloud_provider:
        plugin.check(settings.cloud_provider or simulated.NAME, settings.cloud_config)
        is_simulated = settings.cloud_provider in ("", simulated.NAME)
        offer = MachineOffer(Path(settings.cloud_config)) if is_simulated else None
        settings = _listing_all(settings, [] if offer is None else _described(offer.cloud))
        chosen = _config(settings)
        provider = _asked(settings, seen, chosen) if offer is None or seen.client else _planned(seen, offer)
        guard = Guard(provider, chosen.ownership, deadline_seconds=settings.cloud_provider_timeout_seconds)
        try:
            guard.observe([NodeRef.from_node(node) for node in seen.objects.nodes])
            made = _iteration(seen, seen.objects, guard, chosen, notes)
        finally:
            guard.close()
    else:
        objects = replace(seen.objects, nodes=tuple(map(dumped_cloud.with_id, seen.objects.nodes)))
        by_file, label = _config(settings) if settings.node_groups else None, settings.group_label
        labelled = dumped_cloud.NONE_LABELLED if by_file is None else _labelled(by_file)
        notes += _groupless(settings, seen, labelled)
        settings = _listing_all(settings, dumped_cloud.groups_of(objects.nodes, label, labelled).values())
        chosen = by_file or _config(settings)
        cloud = dumped_cloud.observe(objects.nodes, chosen.ownership, label, labelled)
        made = _iteration(seen, objects, cloud, chosen, notes)
    answer = answers.plan(made)
    if not seen.tells_of_pods:
        answer = replace(answer, cost_per_hour=replace(answer.cost_per_hour, idle=None))
    return Planned(answer, group_rows.groups(made), notes, _remedy(made, seen.objects.nodes))


def _labelled(chosen: DecisionSettings) -> LabelledGroups:
    """The groups of a file that identify their nodes by a label."""
    return {
        (each.label_key, each.label_value): each.cloud_provider_group_name for each in chosen.groups if each.label_key
    }


def _groupless(settings: PlanSettings, seen: Seen, labelled: LabelledGroups) -> Iterator[str]:
    """A note if no node names its group. Raises InvalidInput if that leaves nothing to plan."""
    nodes = seen.objects.nodes
    if dumped_cloud.tell_groups(nodes, settings.group_label, labelled):
        return
    mend = "name the label with --group-label, or describe groups in a file with --cloud-config"
    if settings.group_label or not nodes:
        problem = f"no node has a group label: {mend}" if nodes else f"there is no Node: {mend}"
        raise InvalidInput(
            source=seen.source, field="Node metadata.labels", value=settings.group_label, problem=problem
        )
    yield f"no node has a group label, so no node can be added, and nodes of one kind count as a group: {mend}"


def _seen(settings: PlanSettings) -> Seen:
    key = ConfigKey(settings.config_namespace or settings.namespace, settings.config_name)
    if not settings.file:
        return plan_sources.from_cluster(
            settings.kubeconfig,
            settings.namespace,
            key,
            minds_quotas=settings.capacity_quotas_enabled,
            minds_buffers=settings.capacity_buffer_pod_injection_enabled,
            minds_requests=settings.pending.enable_provisioning_requests,
            context=settings.context,
        )
    if settings.cloud_provider not in ("", simulated.NAME):
        raise InvalidInput(
            source="--cloud-provider",
            field="cloudProvider",
            value=settings.cloud_provider,
            problem="a plan from files calls no cloud: leave it out, or describe one (simulated)",
        )
    files = [Path(each) for each in settings.file]
    seen = plan_sources.from_files(
        files,
        settings.namespace,
        key,
        minds_buffers=settings.capacity_buffer_pod_injection_enabled,
        minds_requests=settings.pending.enable_provisioning_requests,
    )
    notes, left_out = list(seen.notes), dict[str, Any]()
    is_on = settings_module.shown(settings)
    for field, (kind, setting) in _OPTIONAL.items():
        listed = getattr(seen.objects, field)
        if listed and not is_on[settings_module.key(setting)]:
            flag = setting.replace("_", "-")
            notes.append(f"{rendering.count(len(listed), kind)} ignored: --{flag} includes them")
            left_out[field] = ()
    return replace(seen, objects=replace(seen.objects, **left_out), notes=notes)


def _asked(settings: PlanSettings, seen: Seen, chosen: DecisionSettings) -> Provider:
    """The provider of the live cluster's own cloud."""
    assert seen.client is not None
    groups = ManagedGroups(
        options=chosen.group_options,
        minds_drift=chosen.disruption.replaces_any_drifted,
        discovery=settings.node_group_auto_discovery,
    )
    config = Path(settings.cloud_config) if settings.cloud_config else None
    request = ProviderRequest(
        config=config, client=seen.client, namespace=settings.namespace, clock=SystemClock(), groups=groups
    )
    return plugin.build(settings.cloud_provider or simulated.NAME, request)


def _planned(seen: Seen, offer: MachineOffer) -> Provider:
    """The simulated cloud that a file describes, with the nodes of a dump."""
    members: dict[str, set[str]] = {group.name: set() for group in offer.cloud.groups}
    for node in seen.objects.nodes:
        group = fake_nodes.belongs_to(node)
        if group in members:
            members[group].add(node.metadata.name)
    known = SimulatedState(
        {name: cloud_state.entry_for_nodes(nodes, seen.objects.now) for name, nodes in members.items()}
    )
    return SimulatedProvider(offer, Unwritten(lambda: known), list, SystemClock())


def _described(cloud: SimulatedCloud) -> list[Group]:
    """The groups that a simulated cloud's file describes; flags alone list those of other clouds."""
    return [Group(each.name, each.min, each.max, 0) for each in cloud.groups]


def _listing_all(settings: PlanSettings, groups: Iterable[Group]) -> PlanSettings:
    """If no group is listed as the autoscaler's, all of them are."""
    if settings.nodes or settings.node_groups:
        return settings
    return with_fields(settings, nodes=tuple(f"{group.min_size}:{group.max_size}:{group.id}" for group in groups))


def _remedy(made: Iteration, nodes: Iterable[Node]) -> str:
    """How to give the machines with estimated prices a known one; empty without any."""
    groups, unknown = made.cost.estimated_groups, made.cost.unknown.keys() & made.cost.by_node.keys()
    if not groups and not unknown:
        return ""
    machines = [Machine({}, node.metadata.labels or {}) for node in nodes if node.metadata.name in unknown]
    kinds = {gce.machine_type(each.labels) for each in machines}
    kinds |= {
        gce.machine_type(each.ranked.option.machine.labels)
        for decision in made.decisions
        for each in decision.considered
        if each.group in groups
    }
    return book.remedy(machines, (each or "(none)" for each in kinds))


def _config(settings: PlanSettings) -> DecisionSettings:
    found = decision_settings.load(settings, time.monotonic)
    prices = found.prices if isinstance(found.prices, str) else book.beyond_tables(found.prices, settings.prices)
    # The user does not want to wait until new pods have settled.
    return replace(found, listed=book.automatic(), prices=prices, settles=False)


def _iteration(
    seen: Seen, objects: ClusterObjects, cloud: ObservedCloud, chosen: DecisionSettings, notes: list[str]
) -> Iteration:
    offered_by: OfferedBy = no_reclaimed_capacity
    if seen.node_side is not None:
        lending = Lending(seen.node_side, seen.node_side.decision, ManagerSettings(), ManualClock(objects.now))
        objects = replace(objects, expected=lending.expected(objects.nodes), peaks=lending.peaks(objects.nodes))
        offered_by = lending.offered_by
    if not seen.tells_of_pods:
        notes.append(
            f"there is no Pod in {seen.source}, so it is unknown what is idle and which nodes could be deleted: "
            f"{plan_sources.WHAT_TO_DUMP} includes pods"
        )
        chosen = replace(chosen, scale_down_enabled=False, groups=())
    marked = _unneeded_since(objects.nodes)
    view = open_view(
        objects,
        cloud,
        seen.registry,
        chosen,
        chance=random.Random(CHANCE),
        offered_by=offered_by,
        underway=DeletionsInProgress(ScaleDownHistory(marked)),
    )
    made = iteration_plan.plan(view, scans=DueScans(), dry_run=True).iteration
    made = _with_read_refusals(made, objects)
    if made.scale_down is not None:
        decided = _without_past(made.scale_down, marked)
        if decided is not made.scale_down:
            unneeded = durations.render(round(chosen.scale_down.group.scale_down_unneeded_time_seconds))
            notes.append(
                "a file has no history of unneeded nodes; the manager deletes a node after "
                f"--scale-down-unneeded-time, {unneeded}"
            )
        made = replace(made, scale_down=decided)
    return made


def _with_read_refusals(made: Iteration, objects: ClusterObjects) -> Iteration:
    """With what the scheduler's messages prove, beside the refusals in the registry."""
    known = {pod for each in made.disagreements for pod in each.pods}
    demands = () if made.decision is None else made.decision.demands
    more = read_refusals(demands, objects.pods, len(objects.nodes), objects.now, known)
    return replace(made, disagreements=(*made.disagreements, *more))


def _without_past(decided: ScaleDownDecision, marked: Collection[str]) -> ScaleDownDecision:
    """The decision without how long nodes have been unneeded, except where their taints say so."""
    young = (UnremovableReason.NOT_UNNEEDED_LONG, UnremovableReason.NOT_UNREADY_LONG)
    verdicts = {
        name: replace(each, explanation=_not_long_enough(each), unneeded_since=None, ripe_at=None)
        for name, each in decided.statuses.items()
        if each.reason in young and name not in marked
    }
    return replace(decided, statuses={**decided.statuses, **verdicts}) if verdicts else decided


def _not_long_enough(of: NodeRemovalStatus) -> ScaleExplanation:
    wanted = next(term.value for term in of.explanation.terms if term.name == UNNEEDED_TIME)
    return ScaleExplanation(f"unneeded; deleted after it has been unneeded for more than {durations.render(wanted)}")


def _unneeded_since(nodes: Iterable[Node]) -> dict[str, float]:
    """By node, in Unix seconds, from their taints: the command has not watched the nodes."""
    found = {}
    for node in nodes:
        for taint in node.spec.taints or ():
            if taint.key == TAINT_DELETION_CANDIDATE and taint.value.isascii() and taint.value.isdigit():
                found[node.metadata.name] = float(taint.value)
    return found
