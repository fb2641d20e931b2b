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
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import replace as with_fields

from deploy import dumped_cloud, plan_nodes, plan_sources, plan_table, rendering
from deploy.access import ClusterContext
from deploy.dumped_cloud import LabelledGroups
from deploy.nodeside import ConfigKey
from deploy.plan_sources import Seen
from manager.autoscaler import checked_settings, decision_settings
from manager.autoscaler.actuation import scanning
from manager.autoscaler.cloudprovider import plugin, simulated
from manager.autoscaler.cloudprovider.contract import Group, NodeRef, Provider
from manager.autoscaler.cloudprovider.guard import Guard
from manager.autoscaler.cloudprovider.plugin import ManagedGroups, ProviderRequest
from manager.autoscaler.cloudprovider.simulated import books as cloud_books
from manager.autoscaler.cloudprovider.simulated import config as cloud_file
from manager.autoscaler.cloudprovider.simulated import fake_nodes
from manager.autoscaler.cloudprovider.simulated.books import Books as CloudBooks
from manager.autoscaler.cloudprovider.simulated.ledger import Unwritten
from manager.autoscaler.cloudprovider.simulated.offer import MachineOffer
from manager.autoscaler.cloudprovider.simulated.provider import SimulatedProvider
from manager.autoscaler.decision_settings import DecisionSettings
from manager.autoscaler.iteration import Iteration
from manager.autoscaler.listers import ClusterObjects
from manager.autoscaler.planning import iteration_plan
from manager.autoscaler.planning.context import ObservedCloud
from manager.autoscaler.pricing import gce
from manager.autoscaler.reporting import answers, group_rows
from manager.autoscaler.reporting.answers import Plan
from manager.autoscaler.reporting.group_rows import Groups
from manager.autoscaler.scale_down.removal_status import DeletionsInProgress, ScaleDownDecision, ScaleDownHistory
from manager.autoscaler.scale_down.rules import UnremovableReason
from manager.autoscaler.settings.autoscaler_settings import AutoscalerSettings
from manager.autoscaler.snapshot.templates import TAINT_DELETION_CANDIDATE
from manager.nodeside.lending import Lending
from manager.settings import ManagerSettings
from shared import durations, names
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
CHANCE = 1  # of equally good options, a repeated command chooses the same one


class PlanSettings(AutoscalerSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The manager's autoscaler settings, and where to look."""

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
        bool, Meta(description="list every node and why it is still here, in place of counting them by reason")
    ] = False
    top: Annotated[
        int, Meta(ge=1, description="list so many of the nodes that could go, those that cost most first")
    ] = plan_nodes.MOST_ROWS
    group_label: Annotated[
        str, Meta(description="label whose value is a node's group; empty: those that clouds and installers write")
    ] = ""
    manager: Annotated[
        str,
        Meta(
            description="URL of the running manager, to show what it would decide with its own settings and all it "
            "knows; files hold further pods then"
        ),
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
        description="Shows which node groups would grow for the pods that wait, at what cost, and why every node is "
        "still here. Does nothing.",
        argv=argv,
        environment=os.environ,
    )
    answer, groups, notes = _by_manager(settings, sources) if settings.manager else plan(settings)
    if settings.output == "table":
        return plan_table.render(answer, groups, notes, all_nodes=settings.all_nodes, top=settings.top)
    for note in notes:
        print(f"{PROGRAM}: {note}", file=sys.stderr)
    return rendering.structured(answer, settings.output)


def _by_manager(settings: PlanSettings, sources: Mapping[str, str]) -> tuple[Plan, Groups, list[str]]:
    from deploy import plan_by_manager  # here, as clusters and files are planned for without

    answer, groups = plan_by_manager.plan(
        settings.manager,
        access=ClusterContext(Path(settings.kubeconfig) if settings.kubeconfig else None, settings.context),
        namespace=settings.namespace,
        files=settings.file,
        overrides=plan_by_manager.overrides(settings, sources),
    )
    return answer, groups, []


def plan(settings: PlanSettings) -> tuple[Plan, Groups, list[str]]:
    """The manager's next iteration, the groups as it sees them, and notes about assumptions."""
    seen = _seen(settings)
    notes = list(seen.notes)
    settings = with_fields(settings, cluster_name=settings.cluster_name or seen.cluster)
    if settings.cloud_config or settings.cloud_provider:
        plugin.check(settings.cloud_provider or simulated.NAME, settings.cloud_config)
        settings = _listing_all(settings, _described(settings))
        chosen = _config(settings)
        provider = _provider(settings, seen, chosen)
        guard = Guard(provider, chosen.ownership, deadline_seconds=settings.cloud_provider_timeout_seconds)
        try:
            guard.observe([NodeRef.from_node(node) for node in seen.objects.nodes])
            made = _round(seen, seen.objects, guard, chosen, notes)
        finally:
            guard.close()
    else:
        objects = replace(seen.objects, nodes=tuple(map(dumped_cloud.with_id, seen.objects.nodes)))
        by_file, label = _config(settings) if settings.node_groups else None, settings.group_label
        labelled = dumped_cloud.NONE_LABELLED if by_file is None else _labelled(by_file)
        notes += _groupless(settings, seen, labelled)
        settings = _listing_all(settings, dumped_cloud.groups_of(objects.nodes, label, labelled).values())
        notes += _guessed(settings, objects.nodes)
        chosen = by_file or _config(settings)
        cloud = dumped_cloud.observe(objects.nodes, chosen.ownership, label, labelled)
        made = _round(seen, objects, cloud, chosen, notes)
    answer = answers.plan(made)
    if not seen.tells_of_pods:
        answer = replace(answer, cost_per_hour=replace(answer.cost_per_hour, idle=None))
    return answer, group_rows.groups(made), notes


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
        problem = f"no node says which group it is in: {mend}" if nodes else f"there is no Node: {mend}"
        raise InvalidInput(
            source=seen.source, field="Node metadata.labels", value=settings.group_label, problem=problem
        )
    yield f"no node says which group it is in, so none can be added, and nodes of one kind count as a group: {mend}"


def _seen(settings: PlanSettings) -> Seen:
    key = ConfigKey(settings.config_namespace or settings.namespace, settings.config_name)
    if not settings.file:
        return plan_sources.from_cluster(
            settings.kubeconfig,
            settings.namespace,
            key,
            minds_quotas=settings.capacity_quotas_enabled,
            minds_buffers=settings.capacity_buffer_pod_injection_enabled,
            minds_requests=settings.enable_provisioning_requests,
            context=settings.context,
        )
    if settings.cloud_provider not in ("", simulated.NAME):
        raise InvalidInput(
            source="--cloud-provider",
            field="cloudProvider",
            value=settings.cloud_provider,
            problem="files are planned without asking a cloud: leave it out, or describe one (simulated)",
        )
    files = [Path(each) for each in settings.file]
    seen = plan_sources.from_files(
        files,
        settings.namespace,
        key,
        minds_buffers=settings.capacity_buffer_pod_injection_enabled,
        minds_requests=settings.enable_provisioning_requests,
    )
    notes, left_out = list(seen.notes), dict[str, Any]()
    for field, (kind, setting) in _OPTIONAL.items():
        listed = getattr(seen.objects, field)
        if listed and not getattr(settings, setting):
            flag = setting.replace("_", "-")
            notes.append(f"{rendering.count(len(listed), kind)} passed by: --{flag} has them count")
            left_out[field] = ()
    return replace(seen, objects=replace(seen.objects, **left_out), notes=notes)


def _provider(settings: PlanSettings, seen: Seen, chosen: DecisionSettings) -> Provider:
    name = settings.cloud_provider or simulated.NAME
    if seen.client is not None:
        groups = ManagedGroups(
            options=chosen.group_options,
            minds_drift=chosen.disruption.replaces_any_drifted,
            discovery=settings.node_group_auto_discovery,
        )
        config = Path(settings.cloud_config) if settings.cloud_config else None
        request = ProviderRequest(
            config=config, client=seen.client, namespace=settings.namespace, clock=SystemClock(), groups=groups
        )
        return plugin.build(name, request)
    offer = MachineOffer(Path(settings.cloud_config))
    members: dict[str, set[str]] = {group.name: set() for group in offer.cloud.groups}
    for node in seen.objects.nodes:
        group = fake_nodes.belongs_to(node)
        if group in members:
            members[group].add(node.metadata.name)
    known = CloudBooks({name: cloud_books.entry_for_nodes(nodes, seen.objects.now) for name, nodes in members.items()})
    return SimulatedProvider(offer, Unwritten(lambda: known), list, SystemClock())


def _described(settings: PlanSettings) -> list[Group]:
    """The groups that a simulated cloud's file describes; flags alone list those of other clouds."""
    if settings.cloud_provider not in ("", simulated.NAME):
        return []
    return [Group(each.name, each.min, each.max, 0) for each in cloud_file.load(Path(settings.cloud_config)).groups]


def _listing_all(settings: PlanSettings, groups: Iterable[Group]) -> PlanSettings:
    """If no group is listed as the autoscaler's, all of them are."""
    if settings.nodes or settings.node_groups:
        return settings
    return with_fields(settings, nodes=tuple(f"{group.min_size}:{group.max_size}:{group.id}" for group in groups))


def _guessed(settings: PlanSettings, nodes: Iterable[Node]) -> Iterator[str]:
    """A note on machines without a price in Google's tables, which stand in for a cloud's own."""
    types = {gce.machine_type(node.metadata.labels or {}) for node in nodes}
    unknown = (
        sorted(each for each in types if not gce.is_known(each)) if settings.prices == decision_settings.AUTO else []
    )
    if unknown:
        named = ", ".join(each or "(none)" for each in unknown[:3]) + (", ..." if len(unknown) > 3 else "")
        yield (
            f"no price is known of machine type {named}: what Google's cores and memory cost stands in for it; "
            "give a file of prices with --prices"
        )


def _config(settings: PlanSettings) -> DecisionSettings:
    found = checked_settings.load(settings, time.monotonic)
    # The user does not want to wait until new pods have settled.
    return replace(found, pending=replace(found.pending, settling_seconds=0.0, gpu_settling_seconds=0.0))


def _round(
    seen: Seen, objects: ClusterObjects, cloud: ObservedCloud, chosen: DecisionSettings, notes: list[str]
) -> Iteration:
    offered_by = None
    if seen.node_side is not None:
        lending = Lending(seen.node_side, seen.node_side.decision, ManagerSettings(), ManualClock(objects.now))
        objects = replace(objects, expected=lending.expected(objects.nodes), peaks=lending.peaks(objects.nodes))
        offered_by = lending.offered_by
    if not seen.tells_of_pods:
        notes.append(
            f"there is no Pod in {seen.source}, so what nodes hold is not known, nor what is idle and which nodes "
            f"could go: {plan_sources.WHAT_TO_DUMP} tells of both"
        )
        chosen = replace(chosen, scales_down=False, groups=())
    marked = _unneeded_since(objects.nodes)
    made = iteration_plan.plan(
        objects,
        cloud,
        seen.registry,
        chosen,
        chance=random.Random(CHANCE),
        offered_by=offered_by,
        underway=DeletionsInProgress(ScaleDownHistory(marked)),
        dry_run=True,
    ).iteration
    if made.scale_down is not None:
        decided = _without_past(made.scale_down, marked)
        if decided is not made.scale_down:
            notes.append(
                "for how long nodes have not been needed is not known here; the manager deletes one after "
                f"--scale-down-unneeded-time, {durations.render(round(chosen.scale_down.group.unneeded_seconds))}"
            )
        made = replace(made, scale_down=decided)
    return replace(made, scans=scanning.preview_scans(chosen, objects, cloud.observed))


def _without_past(decided: ScaleDownDecision, marked: Collection[str]) -> ScaleDownDecision:
    """The decision without how long nodes have been unneeded, except where their taints say so."""
    young = (UnremovableReason.NOT_UNNEEDED_LONG, UnremovableReason.NOT_UNREADY_LONG)
    verdicts = {
        name: replace(each, explanation=ScaleExplanation(), unneeded_since=None, ripe_at=None)
        for name, each in decided.statuses.items()
        if each.reason in young and name not in marked
    }
    return replace(decided, statuses={**decided.statuses, **verdicts}) if verdicts else decided


def _unneeded_since(nodes: Iterable[Node]) -> dict[str, float]:
    """By node, in Unix seconds, from their taints: the command has not watched the nodes."""
    found = {}
    for node in nodes:
        for taint in node.spec.taints or ():
            if taint.key == TAINT_DELETION_CANDIDATE and taint.value.isascii() and taint.value.isdigit():
                found[node.metadata.name] = float(taint.value)
    return found
