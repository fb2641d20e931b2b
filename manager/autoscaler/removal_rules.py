"""Turns the settings into the rules for removing and replacing nodes."""

from collections.abc import Sequence

from manager.autoscaler.decision_settings import FLAGS, NONE
from manager.autoscaler.disruption import rules as disruption
from manager.autoscaler.disruption.consolidation_rules import ConsolidationRules
from manager.autoscaler.disruption.disruption_limits import DisruptionLimits, parse_limits
from manager.autoscaler.disruption.rules import DisruptionRules
from manager.autoscaler.node_groups import NodeGroup
from manager.autoscaler.scale_down.rules import (
    ActuationOptions,
    Delays,
    DrainRules,
    GroupRules,
    Parallelism,
    ScaleDownRules,
)
from manager.autoscaler.scale_up_options import read_bounds
from manager.autoscaler.settings.autoscaler_settings import AutoscalerSettings
from shared.errors import InvalidInput

CONSOLIDATION_OFF = "off"


def read_scale_down(settings: AutoscalerSettings) -> ScaleDownRules:
    # Nodes that can go without a new node are left to scale-down, which saves the most, regardless of utilization.
    threshold = 1.0 if settings.consolidation == "price" else 0.5
    return ScaleDownRules(
        group=GroupRules(
            utilization_threshold=_either(settings.scale_down_utilization_threshold, threshold),
            gpu_utilization_threshold=_either(settings.scale_down_gpu_utilization_threshold, threshold),
            unneeded_seconds=settings.scale_down_unneeded_time_seconds,
            unready_seconds=settings.scale_down_unready_time_seconds,
            ignores_daemons=settings.ignore_daemonsets_utilization,
        ),
        drain=DrainRules(
            min_replica_count=settings.min_replica_count,
            skips_system_pods=settings.skip_nodes_with_system_pods,
            skips_local_storage=settings.skip_nodes_with_local_storage,
            skips_custom_controllers=settings.skip_nodes_with_custom_controller_pods,
            system_pod_seconds=settings.blocking_system_pod_distruption_timeout_seconds,
        ),
        delays=Delays(
            after_add_seconds=settings.scale_down_delay_after_add_seconds,
            after_delete_seconds=settings.scale_down_delay_after_delete_seconds,
            after_failure_seconds=settings.scale_down_delay_after_failure_seconds,
            local=settings.scale_down_delay_type_local,
        ),
        parallelism=Parallelism(settings.max_scale_down_parallelism, settings.max_drain_parallelism),
        bounds=read_bounds(settings),
        unready_enabled=settings.scale_down_unready_enabled,
        ignores_mirror_pods=settings.ignore_mirror_pods_utilization,
        recheck_seconds=settings.unremovable_node_recheck_timeout_seconds,
        soft_taints_at_once=settings.max_bulk_soft_taint_count,
        peak_margin_percent=settings.scale_down_peak_margin_percent,
    )


def _either(given: float | None, default: float) -> float:
    return default if given is None else given


def read_actuation(settings: AutoscalerSettings) -> ActuationOptions:
    return ActuationOptions(
        delay_seconds=settings.node_delete_delay_after_taint_seconds,
        cordons=settings.cordon_node_before_terminating,
        most_grace_seconds=settings.max_graceful_termination_sec,
        eviction_seconds=settings.max_pod_eviction_time_seconds,
        hold_seconds=settings.node_deletion_delay_timeout_seconds,
        gather_seconds=settings.node_deletion_batcher_interval_seconds,
        soft_taint_seconds=settings.max_bulk_soft_taint_time_seconds,
        evicts_daemons=settings.daemonset_eviction_for_occupied_nodes,
        evicts_daemons_of_empty=settings.daemonset_eviction_for_empty_nodes,
    )


def read_consolidation(settings: AutoscalerSettings, limits: DisruptionLimits) -> ConsolidationRules | None:
    """The rules of consolidation; None if no node is replaced for its price. `limits` apply to all disruption."""
    chosen = settings.consolidation
    if chosen == CONSOLIDATION_OFF:
        return None
    if not settings.scale_down_enabled:
        problem = "it needs scale-down, which is off (--scale-down-enabled)"
        raise InvalidInput(source=FLAGS, field="consolidation", value=chosen, problem=problem)
    if settings.prices == NONE:
        problem = "it needs prices, and there are none (--prices)"
        raise InvalidInput(source=FLAGS, field="consolidation", value=chosen, problem=problem)
    return ConsolidationRules(
        min_savings_percent=settings.consolidation_min_savings_percent,
        balance=settings.consolidation_balance,
        min_age_seconds=settings.consolidation_min_node_age_seconds,
        cooldown_seconds=settings.consolidation_cooldown_seconds,
        limits=limits,
        spot_alternatives=settings.consolidation_spot_alternatives,
    )


def read_disruption(settings: AutoscalerSettings, groups: Sequence[NodeGroup]) -> DisruptionRules:
    """The rules of disruption. The budgets are checked even if nothing is replaced."""
    found = DisruptionRules(
        lifetime_seconds=settings.max_node_lifetime_seconds,
        replaces_drifted=settings.replace_drifted_nodes,
        replaces_interrupted=settings.replace_interrupted_nodes,
        repairs=disruption.parse_repairs(settings.node_repair_conditions, source=FLAGS, name="node-repair-conditions"),
        grace_seconds=settings.disruption_termination_grace_seconds or None,
        limits=DisruptionLimits(parse_limits(settings.disruption_budgets, source=FLAGS, name="disruption-budgets")),
    )
    for name, value, is_on in (
        ("max-node-lifetime", found.lifetime_seconds, found.lifetime_seconds > 0),
        ("replace-drifted-nodes", True, found.replaces_drifted),
        ("replace-interrupted-nodes", True, found.replaces_interrupted),
        ("node-repair-conditions", settings.node_repair_conditions, found.repairs),
    ):
        if is_on and not settings.scale_down_enabled:
            problem = "it needs scale-down, which is off (--scale-down-enabled)"
            raise InvalidInput(source=FLAGS, field=name, value=value, problem=problem)
    found = disruption.with_groups(found, groups, settings.node_groups)
    for name, each in found.groups.items():
        if each.is_any_on(each.lifetime_seconds) and not settings.scale_down_enabled:
            problem = "its nodes are to be replaced, which needs scale-down (--scale-down-enabled)"
            raise InvalidInput(source=settings.node_groups, field="group", value=name, problem=problem)
    return found
