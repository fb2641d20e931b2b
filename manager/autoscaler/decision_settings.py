"""The settings that the autoscaler's decisions read, checked once, at the start."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from manager.autoscaler import limits, node_groups
from manager.autoscaler.autoprovisioning.candidates import AutoprovisioningRules
from manager.autoscaler.autoprovisioning.labels import GpuRules, Popularity, TolerationMode
from manager.autoscaler.cloudprovider import build, ownership
from manager.autoscaler.cloudprovider.contract import GroupOptions
from manager.autoscaler.cloudprovider.ownership import Ownership, SizeBounds
from manager.autoscaler.cloudprovider.plugin import ProviderPlugin
from manager.autoscaler.cluster_state.state import BackoffTimes, HealthLimits
from manager.autoscaler.consolidation.rules import ConsolidationRules, DisruptionLimit, parse_limit
from manager.autoscaler.disruption import rules as disruption
from manager.autoscaler.disruption.rules import DisruptionRules
from manager.autoscaler.expander import chain, ranking
from manager.autoscaler.expander.chain import ExpanderPlugins
from manager.autoscaler.limits import ResourceBounds
from manager.autoscaler.modes import Mode
from manager.autoscaler.node_groups import NodeGroup
from manager.autoscaler.pending_pods import PendingRules
from manager.autoscaler.pricing import price_file
from manager.autoscaler.pricing.gce import GcePricing
from manager.autoscaler.pricing.model import GIB, FirstOffered, PricingModel
from manager.autoscaler.scale_down.rules import (
    ActuationOptions,
    Delays,
    DrainRules,
    GroupRules,
    Parallelism,
    ScaleDownRules,
)
from manager.autoscaler.scale_up.balancing import IGNORED_LABELS, SimilarityRules
from manager.autoscaler.scale_up.options import EstimateRules, ScaleUpSettings, TimeLimits
from manager.autoscaler.settings import AutoscalerSettings
from manager.autoscaler.snapshot.templates import TaintRules
from manager.autoscaler.utilization import rules as utilization
from shared.errors import InvalidInput

logger = logging.getLogger(__name__)

FLAGS = "flags"
CONSOLIDATION_OFF = "off"
AUTO, PROVIDER, GCE, NONE = "auto", "provider", "gce", "none"
_ORDER = tuple(Mode)  # from doing least to doing most

Provided = Callable[[], PricingModel | None]


@dataclass(frozen=True)
class StartTimes:
    """How long a new node may take, in seconds, where its group sets nothing else."""

    provision_seconds: float = 900.0
    startup_seconds: float = 900.0


@dataclass(frozen=True)
class DecisionSettings:
    """`scale_up` holds the scale-up settings, except those that each iteration finds out: prices, priorities, GPU
    label.

    `mode` caps the mode of every group, `group_modes` holds the modes of the file's groups for pending pods. `groups`
    are all groups of the file, `scanned` the rules of those that scale by utilization. `prices` is the value of
    `--prices`, or the model from a file. Without `consolidation` no node is replaced for its price; `disruption` says
    which are for other reasons. `minds_peaks`: nodes go only if the others also hold the predicted usage.
    """

    provider: str = ""
    scale_up: ScaleUpSettings = field(default_factory=lambda: ScaleUpSettings(Ownership()))
    mode: Mode = Mode.ENFORCE
    group_modes: Mapping[str, Mode] = field(default_factory=dict)
    groups: tuple[NodeGroup, ...] = ()
    scanned: tuple[utilization.ScanRules, ...] = ()
    autoprovisioning: AutoprovisioningRules = field(default_factory=AutoprovisioningRules)
    pending: PendingRules = field(default_factory=PendingRules)
    taints: TaintRules = field(default_factory=TaintRules)
    forces_daemons: bool = False
    template_seconds: float = 315_360_000.0
    start: StartTimes = field(default_factory=StartTimes)
    health: HealthLimits = field(default_factory=HealthLimits)
    backoff: BackoffTimes = field(default_factory=BackoffTimes)
    deletes_below_min: bool = False
    scales_down: bool = True
    scale_down: ScaleDownRules = field(default_factory=ScaleDownRules)
    minds_peaks: bool = True
    simulation_seconds: float = 30.0
    actuation: ActuationOptions = field(default_factory=ActuationOptions)
    scales_from_zero: bool = True
    minds_capacity_quotas: bool = False
    minds_capacity_buffers: bool = False
    buffers_on_mid: bool = False
    minds_provisioning_requests: bool = False
    cluster_name: str = ""
    salvo_seconds: float | None = None
    parallel: bool = False
    prices: str | PricingModel = AUTO
    consolidation: ConsolidationRules | None = None
    disruption: DisruptionRules = field(default_factory=DisruptionRules)
    clock: Callable[[], float] | None = None

    @property
    def ownership(self) -> Ownership:
        return self.scale_up.ownership

    @property
    def uses_priorities(self) -> bool:
        """Whether an expander reads its ConfigMap."""
        return chain.PRIORITY in self.scale_up.expanders

    def mode_of(self, group: str) -> Mode:
        """The mode of a group for pending pods: its own mode, capped by the global one.

        A group that scales by utilization alone is only observed.
        """
        return self._capped(self.group_modes.get(group, self.mode))

    @property
    def group_options(self) -> GroupOptions:
        """The options of a group whose cloud overrides none."""
        rules = self.scale_down.group
        return GroupOptions(
            scale_down_utilization_threshold=rules.utilization_threshold,
            scale_down_gpu_utilization_threshold=rules.gpu_utilization_threshold,
            scale_down_unneeded_seconds=rules.unneeded_seconds,
            scale_down_unready_seconds=rules.unready_seconds,
            max_node_provision_seconds=self.start.provision_seconds,
            max_node_startup_seconds=self.start.startup_seconds,
            max_node_lifetime_seconds=self.disruption.lifetime_seconds,
            zero_or_max_node_scaling=rules.zero_or_max,
            ignore_daemonsets_utilization=rules.ignores_daemons,
        )

    def answers_pending_pods(self, group: str) -> bool:
        """Whether the group may grow for unschedulable pods."""
        return all(each.takes_pending_pods for each in self.groups if each.cloud_provider_group_name == group)

    def scan_mode_of(self, group: NodeGroup) -> Mode:
        """The mode of a group that scales by utilization."""
        return self._capped(group.effective_mode)

    def _capped(self, mode: Mode) -> Mode:
        return min(self.mode, mode, key=_ORDER.index)

    def unpriced(self, model: PricingModel | None) -> dict[str, InvalidInput]:
        """The problem where options are compared by the cloud's own prices and the cloud has none."""
        if model is not None or self.prices != PROVIDER or chain.PRICE not in self.scale_up.expanders:
            return {}
        problem = f"the cloud has no prices of its own, and the expander {chain.PRICE} needs some"
        return {"--prices": InvalidInput(source=FLAGS, field="prices", value=PROVIDER, problem=problem)}

    def pricing(self, provided: Provided) -> PricingModel | None:
        """The pricing model; `provided` asks the cloud for its own, where that is configured."""
        match self.prices:
            case str() as chosen if chosen == NONE:
                return None
            case str() as chosen if chosen == GCE:
                return GcePricing()
            case str() as chosen if chosen == PROVIDER:
                return provided()
            case str():
                own = provided()
                return GcePricing() if own is None else FirstOffered((own, GcePricing()))
            case model:
                return model


def load(settings: AutoscalerSettings, clock: Callable[[], float] | None = None) -> DecisionSettings:
    """Raises InvalidInput that names flag or file, group and field. `clock` (seconds) limits the time of estimates."""
    groups = _groups(settings)
    listed = _listed(settings, groups)
    provider = build.find(settings.cloud_provider) if settings.cloud_provider else None
    opted_in = build.opts_in(provider, settings.node_group_auto_discovery)
    if not listed and not settings.node_autoprovisioning and not opted_in:
        logger.warning(
            "no group is listed, and none may be created: see --nodes, --node-groups and --node-autoprovisioning"
        )
    if settings.node_autoprovisioning and provider is not None and not provider.creates_groups:
        problem = f"no group can be created in {settings.cloud_provider}"
        raise InvalidInput(source=FLAGS, field="node-autoprovisioning", value=True, problem=problem)
    preset = ranking.PRESETS[settings.expander_preset]
    expanders = chain.parse(settings.expander, source=chain.SOURCE)
    loaded = ExpanderPlugins(settings)
    for name in expanders:
        if name != chain.RANDOM:
            loaded.get(name)
    taints = TaintRules(frozenset(settings.startup_taint), frozenset(settings.status_taint))
    return DecisionSettings(
        provider=settings.cloud_provider,
        scale_up=ScaleUpSettings(
            ownership=Ownership(listed, settings.autoprovisioning_prefix, opted_in),
            preset=preset,
            expanders=expanders,
            plugins=loaded,
            bounds=_bounds(settings),
            max_nodes_total=settings.max_nodes_total,
            estimates=_estimates(settings, clock),
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
        scale_down=_scale_down(settings),
        minds_peaks=settings.scale_down_peaks,
        actuation=_actuation(settings),
        scales_from_zero=settings.scale_up_from_zero,
        minds_capacity_quotas=settings.capacity_quotas_enabled,
        minds_capacity_buffers=settings.capacity_buffer_pod_injection_enabled,
        buffers_on_mid=settings.capacity_buffer_on_mid,
        minds_provisioning_requests=settings.enable_provisioning_requests,
        cluster_name=settings.cluster_name,
        salvo_seconds=settings.salvo_scale_up_time_budget_seconds if settings.salvo_scale_up else None,
        parallel=settings.parallel_scale_up,
        prices=_prices(settings, expanders, provider),
        simulation_seconds=settings.scale_down_simulation_timeout_seconds,
        consolidation=_consolidation(settings),
        disruption=_disruption(settings, groups),
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


def _bounds(settings: AutoscalerSettings) -> dict[str, ResourceBounds]:
    cpu = _range("cores-total", settings.cores_total, "cpu", settings.min_cpu, settings.max_cpu)
    memory = _range("memory-total", settings.memory_total, "memory", settings.min_memory, settings.max_memory)
    in_bytes = ResourceBounds(*(None if each is None else each * GIB for each in (memory.low, memory.high)))
    bounds = {limits.CPU: cpu, limits.MEMORY: in_bytes}
    for text in settings.gpu_total:
        kind, found = limits.parse_gpu_total(text)
        if kind in bounds:
            raise InvalidInput(source=FLAGS, field="gpu-total", value=text, problem="one type twice")
        bounds[kind] = found
    return {resource: each for resource, each in bounds.items() if each != ResourceBounds()}


def _either(given: float | None, default: float) -> float:
    return default if given is None else given


def _scale_down(settings: AutoscalerSettings) -> ScaleDownRules:
    # Consolidation leaves to scale-down what can go without a new node, which saves the most, whatever its utilization.
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
        bounds=_bounds(settings),
        unready_enabled=settings.scale_down_unready_enabled,
        ignores_mirror_pods=settings.ignore_mirror_pods_utilization,
        recheck_seconds=settings.unremovable_node_recheck_timeout_seconds,
        soft_taints_at_once=settings.max_bulk_soft_taint_count,
        peak_margin_percent=settings.scale_down_peak_margin_percent,
    )


def _consolidation(settings: AutoscalerSettings) -> ConsolidationRules | None:
    """None where nothing is replaced for its price."""
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
        limits=_disruption_limits(settings),
        spot_alternatives=settings.consolidation_spot_alternatives,
    )


def _disruption(settings: AutoscalerSettings, groups: Sequence[NodeGroup]) -> DisruptionRules:
    """The budgets are checked even where nothing is replaced."""
    found = DisruptionRules(
        lifetime_seconds=settings.max_node_lifetime_seconds,
        lifetimes=disruption.lifetimes(groups, settings.node_groups),
        replaces_drifted=settings.replace_drifted_nodes,
        replaces_interrupted=settings.replace_interrupted_nodes,
        repairs=disruption.parse_repairs(settings.node_repair_conditions, source=FLAGS, name="node-repair-conditions"),
        grace_seconds=settings.disruption_termination_grace_seconds or None,
        limits=_disruption_limits(settings),
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
    return found


def _disruption_limits(settings: AutoscalerSettings) -> tuple[DisruptionLimit, ...]:
    return tuple(parse_limit(each, source=FLAGS, name="disruption-budgets") for each in settings.disruption_budgets)


def _actuation(settings: AutoscalerSettings) -> ActuationOptions:
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


def _range(total: str, text: str, name: str, low: int | None, high: int | None) -> ResourceBounds:
    """The bounds of one resource from either of the two flag forms; a minimum of 0 means none."""
    if text and (low is not None or high is not None):
        raise InvalidInput(
            source=FLAGS, field=total, value=text, problem=f"min-{name} and max-{name} say the same; give one of both"
        )
    source = total if text else f"min-{name}"
    if text:
        low, high = map(int, text.split(":"))
    if low is not None and high is not None and low > high:
        raise InvalidInput(source=FLAGS, field=source, value=text or low, problem=f"above the maximum of {high}")
    return ResourceBounds(low or None, high)


def _estimates(settings: AutoscalerSettings, clock: Callable[[], float] | None) -> EstimateRules:
    time = None
    if clock is not None:
        time = TimeLimits(
            clock, settings.max_binpacking_time_seconds, settings.max_nodegroup_binpacking_duration_seconds
        )
    return EstimateRules(
        balance_similar=settings.balance_similar_node_groups,
        all_or_nothing=settings.scale_up_all_or_nothing,
        fast_path=settings.fastpath_binpacking_enabled,
        most_nodes=settings.max_nodes_per_scaleup,
        similarity=SimilarityRules(
            settings.memory_difference_ratio,
            settings.max_allocatable_difference_ratio,
            settings.max_free_difference_ratio,
            IGNORED_LABELS | frozenset(settings.balancing_ignore_label),
            frozenset(settings.balancing_label),
        ),
        time=time,
    )


def _backoff(settings: AutoscalerSettings) -> BackoffTimes:
    first, most = (
        settings.initial_node_group_backoff_duration_seconds,
        settings.max_node_group_backoff_duration_seconds,
    )
    if first > most:
        field_name = "initial-node-group-backoff-duration"
        raise InvalidInput(source=FLAGS, field=field_name, value=first, problem=f"above the longest, {most:g} s")
    return BackoffTimes(first, most, settings.node_group_backoff_reset_timeout_seconds)


def _prices(
    settings: AutoscalerSettings, expanders: Sequence[str], provider: ProviderPlugin | None
) -> str | PricingModel:
    """Checks that prices are configured: an option without a price is never chosen, so without prices nothing would
    grow.
    """
    chosen = settings.prices
    if chain.PRICE in expanders:
        problem = ""
        if chosen == NONE:
            problem = f"the expander {chain.PRICE} needs prices: give some, or another --expander"
        elif chosen == PROVIDER and provider is not None and not provider.has_prices:
            problem = f"{settings.cloud_provider} has no prices of its own, and the expander {chain.PRICE} needs some"
        if problem:
            raise InvalidInput(source=FLAGS, field="prices", value=chosen, problem=problem)
    return chosen if chosen in (AUTO, PROVIDER, GCE, NONE) else price_file.load(Path(chosen))
