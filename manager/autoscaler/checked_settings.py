"""Checks the settings together, once at the start, and makes of them what decisions read."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from manager.autoscaler import node_groups, removal_rules, scale_up_options
from manager.autoscaler.cloudprovider import ownership, plugin
from manager.autoscaler.cloudprovider.ownership import Ownership, SizeBounds
from manager.autoscaler.cluster_state.state import BackoffTimes, HealthLimits
from manager.autoscaler.decision_settings import FLAGS, DecisionSettings, StartTimes
from manager.autoscaler.expander import chain, ranking
from manager.autoscaler.expander.chain import ExpanderPlugins
from manager.autoscaler.node_groups import NodeGroup
from manager.autoscaler.scale_up.candidate_labels import GpuRules, Popularity, TolerationMode
from manager.autoscaler.scale_up.candidates import AutoprovisioningRules
from manager.autoscaler.scale_up.options import ScaleUpSettings
from manager.autoscaler.scale_up.pending_pods import PendingRules
from manager.autoscaler.settings.autoscaler_settings import AutoscalerSettings
from manager.autoscaler.settings.modes import Mode
from manager.autoscaler.snapshot.templates import TaintRules
from manager.autoscaler.utilization import rules as utilization
from shared.errors import InvalidInput

logger = logging.getLogger(__name__)


def load(settings: AutoscalerSettings, clock: Callable[[], float] | None = None) -> DecisionSettings:
    """Raises InvalidInput that names flag or file, group and field. `clock` (seconds) limits the time of estimates."""
    groups = _groups(settings)
    listed = _listed(settings, groups)
    chosen = settings.cloud_provider
    provider = plugin.find_with_file(chosen, settings.cloud_config) if chosen else None
    opted_in = plugin.opts_in(provider, settings.node_group_auto_discovery)
    if not listed and not settings.node_autoprovisioning and not opted_in:
        logger.warning(
            "no group is listed, and none may be created: see --nodes, --node-groups and --node-autoprovisioning"
        )
    if settings.node_autoprovisioning and provider is not None and not provider.creates_groups:
        needs = f": it needs {provider.creation_needs}" if provider.creation_needs else ""
        problem = f"no group can be created in {chosen}{needs}"
        raise InvalidInput(source=FLAGS, field="node-autoprovisioning", value=True, problem=problem)
    preset = ranking.PRESETS[settings.expander_preset]
    expanders = chain.parse(settings.expander, source=chain.SOURCE)
    loaded = ExpanderPlugins(settings)
    for name in expanders:
        if name != chain.RANDOM:
            loaded.get(name)
    disruption = removal_rules.read_disruption(settings, groups)
    taints = TaintRules(frozenset(settings.startup_taint), frozenset(settings.status_taint))
    return DecisionSettings(
        provider=settings.cloud_provider,
        scale_up=ScaleUpSettings(
            ownership=Ownership(listed, settings.autoprovisioning_prefix, opted_in),
            preset=preset,
            expanders=expanders,
            plugins=loaded,
            bounds=scale_up_options.read_bounds(settings),
            max_nodes_total=settings.max_nodes_total,
            estimates=scale_up_options.read_estimates(settings, clock),
            enforces_min_size=settings.enforce_node_group_min_size,
            uses_mix=settings.least_cost_mix,
        ),
        mode=Mode(settings.autoscaling_mode),
        group_modes={
            each.cloud_provider_group_name: each.effective_mode if each.takes_pending_pods else Mode.OBSERVE
            for each in groups
        },
        groups=groups,
        scanned=_scanned(settings, groups),
        autoprovisioning=AutoprovisioningRules(
            enabled=settings.node_autoprovisioning,
            prefix=settings.autoprovisioning_prefix,
            machine_types=frozenset(settings.machine_types),
            most_groups=settings.max_node_groups,
            most_autoprovisioned=settings.max_autoprovisioned_node_group_count,
            popularity=Popularity.CPU if preset is ranking.CLUSTER_AUTOSCALER else Popularity.PODS,
            tolerations=TolerationMode(settings.autoprovisioning_tolerations),
            gpus=GpuRules(default_type=settings.autoprovisioning_gpu_type),
            taints=taints,
        ),
        pending=PendingRules(
            expendable_below=settings.expendable_pods_priority_cutoff,
            delay_seconds=settings.new_pod_scale_up_delay_seconds,
            schedulers=frozenset(settings.allowed_scheduler_names),
            bypassed=frozenset(settings.bypassed_scheduler_names),
            consumers_wait=settings.enable_provisioning_requests,
        ),
        taints=taints,
        forces_daemons=settings.force_ds,
        template_seconds=settings.node_info_cache_expire_time_seconds,
        start=StartTimes(settings.max_node_provision_time_seconds, settings.max_node_startup_time_seconds),
        health=HealthLimits(settings.ok_total_unready_count, settings.max_total_unready_percentage),
        backoff=_backoff(settings),
        deletes_below_min=settings.force_delete_unregistered_nodes,
        scales_down=settings.scale_down_enabled,
        scale_down=removal_rules.read_scale_down(settings),
        minds_peaks=settings.scale_down_peaks,
        actuation=removal_rules.read_actuation(settings),
        scales_from_zero=settings.scale_up_from_zero,
        minds_capacity_quotas=settings.capacity_quotas_enabled,
        minds_capacity_buffers=settings.capacity_buffer_pod_injection_enabled,
        buffers_on_mid=settings.capacity_buffer_on_mid,
        minds_provisioning_requests=settings.enable_provisioning_requests,
        cluster_name=settings.cluster_name,
        salvo_seconds=settings.salvo_scale_up_time_budget_seconds if settings.salvo_scale_up else None,
        parallel=settings.parallel_scale_up,
        prices=scale_up_options.read_prices(settings, expanders, provider),
        simulation_seconds=settings.scale_down_simulation_timeout_seconds,
        consolidation=removal_rules.read_consolidation(settings, disruption.limits),
        disruption=disruption,
        clock=clock,
    )


def _groups(settings: AutoscalerSettings) -> tuple[NodeGroup, ...]:
    if not settings.node_groups:
        return ()
    return node_groups.load(Path(settings.node_groups), provider=settings.cloud_provider)


def _scanned(settings: AutoscalerSettings, groups: Sequence[NodeGroup]) -> tuple[utilization.ScanRules, ...]:
    """The rules of the groups that scale by utilization; every required field is checked."""
    is_dry = Mode(settings.autoscaling_mode) is not Mode.ENFORCE
    return tuple(
        utilization.check_rules(each, dry=is_dry, source=settings.node_groups) for each in groups if each.is_scanned
    )


def _listed(settings: AutoscalerSettings, groups: Sequence[NodeGroup]) -> dict[str, SizeBounds | None]:
    """All managed groups.

    The scan keeps the bounds of a group that scales by utilization alone, as Escalator does; the cloud keeps its own.
    """
    listed: dict[str, SizeBounds | None] = {**ownership.parse_nodes(settings.nodes)}
    for each in groups:
        group = each.cloud_provider_group_name
        if group in listed:
            source = f"{settings.node_groups}: group {each.name}"
            problem = f"listed by {ownership.FLAG}, too"
            raise InvalidInput(source=source, field="cloud_provider_group_name", value=group, problem=problem)
        listed[group] = each.bounds if each.takes_pending_pods else None
    return listed


def _backoff(settings: AutoscalerSettings) -> BackoffTimes:
    first, most = (
        settings.initial_node_group_backoff_duration_seconds,
        settings.max_node_group_backoff_duration_seconds,
    )
    if first > most:
        field_name = "initial-node-group-backoff-duration"
        raise InvalidInput(source=FLAGS, field=field_name, value=first, problem=f"above the longest, {most:g} s")
    return BackoffTimes(first, most, settings.node_group_backoff_reset_timeout_seconds)
