"""The settings that the autoscaler's decisions read. `load` checks them together, once at the start."""

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from manager.autoscaler.cloudprovider import ownership, plugin
from manager.autoscaler.cloudprovider.contract import GroupOptions
from manager.autoscaler.cloudprovider.ownership import Ownership, SizeBounds
from manager.autoscaler.cloudprovider.plugin import ProviderPlugin
from manager.autoscaler.disruption import rules
from manager.autoscaler.disruption.disruption_limits import DisruptionLimits, parse_limits
from manager.autoscaler.disruption.rules import DisruptionRules
from manager.autoscaler.estimator import limits
from manager.autoscaler.estimator.limits import ResourceBounds
from manager.autoscaler.expander import chain, ranking
from manager.autoscaler.expander.chain import ExpanderPlugins
from manager.autoscaler.pricing import price_sources
from manager.autoscaler.pricing.gce import GcePricing
from manager.autoscaler.pricing.model import GIB, FirstOffered, PricingModel
from manager.autoscaler.scale_down.removal_status import GroupRules, ScaleDownRules
from manager.autoscaler.scale_up.candidate_labels import Popularity, TolerationMode
from manager.autoscaler.scale_up.candidates import AutoprovisioningRules
from manager.autoscaler.scale_up.options import EstimateRules, ScaleUpSettings, TimeLimits
from manager.autoscaler.settings.autoscaler_settings import AutoscalerSettings
from manager.autoscaler.settings.estimates import BackoffTimes, HealthLimits, StartTimes, TaintRules
from manager.autoscaler.settings.modes import Mode
from manager.autoscaler.settings.pending_pods import PendingRules
from manager.autoscaler.settings.replacement import ConsolidationRules
from manager.autoscaler.settings.scale_down import ActuationOptions
from manager.autoscaler.utilization import node_groups
from manager.autoscaler.utilization import rules as utilization
from manager.autoscaler.utilization.node_groups import NodeGroup
from shared.errors import InvalidInput

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

logger = logging.getLogger(__name__)

FLAGS = "flags"
CONSOLIDATION_OFF = "off"
AUTO, PROVIDER, GCE, NONE = "auto", "provider", "gce", "none"
_ORDER = tuple(Mode)  # from the least to the most effect

Provided = Callable[[], PricingModel | None]


def of_same_names(kind: type[T], settings: AutoscalerSettings, **derived: Any) -> T:
    """A `kind` with `derived`, and with the settings and sections whose names its other fields have."""
    names = {each.name for each in dataclasses.fields(kind)} & {*settings.__struct_fields__}
    return kind(**{name: getattr(settings, name) for name in names} | derived)


@dataclass(frozen=True)
class DecisionSettings:
    """`scale_up` holds the scale-up settings, except those that each iteration determines: prices, priorities, GPU
    label.

    `mode` caps the mode of every group, `group_modes` holds the modes of the file's groups for pending pods. `groups`
    are all groups of the file, `scanned` are the rules of groups that scale by utilization. `prices` is the value of
    `--prices`, or the model from a file. Without `consolidation` no node is replaced for its price; `disruption` says
    which nodes are replaced for other reasons. `marks_own_nodes`: the cloud itself marks all of its nodes as not to be
    disrupted. `settles`: an iteration waits while all pending pods are new.
    """

    marks_own_nodes: bool = False
    scale_up: ScaleUpSettings = field(default_factory=lambda: ScaleUpSettings(Ownership()))
    mode: Mode = Mode.ENFORCE
    group_modes: Mapping[str, Mode] = field(default_factory=dict)
    groups: tuple[NodeGroup, ...] = ()
    scanned: tuple[utilization.ScanRules, ...] = ()
    autoprovisioning: AutoprovisioningRules = field(default_factory=AutoprovisioningRules)
    pending: PendingRules = field(default_factory=PendingRules)
    settles: bool = True
    taints: TaintRules = field(default_factory=TaintRules)
    force_ds: bool = False
    start: StartTimes = field(default_factory=StartTimes)
    health: HealthLimits = field(default_factory=HealthLimits)
    backoff: BackoffTimes = field(default_factory=BackoffTimes)
    force_delete_unregistered_nodes: bool = False
    scale_down_enabled: bool = True
    scale_down: ScaleDownRules = field(default_factory=ScaleDownRules)
    scale_down_peaks: bool = True
    scale_down_simulation_timeout_seconds: float = 30.0
    actuation: ActuationOptions = field(default_factory=ActuationOptions)
    capacity_quotas_enabled: bool = False
    capacity_buffer_pod_injection_enabled: bool = False
    capacity_buffer_on_mid: bool = False
    cluster_name: str = ""
    salvo_seconds: float | None = None
    parallel_scale_up: bool = False
    prices: str | PricingModel = AUTO
    listed: PricingModel = field(default_factory=GcePricing)  # where the cloud has no prices of its own
    consolidation: ConsolidationRules | None = None
    replacement_search_seconds: float = 5.0  # of one search, while everything else waits
    disruption: DisruptionRules = field(default_factory=DisruptionRules)
    clock: Callable[[], float] | None = None

    @property
    def ownership(self) -> Ownership:
        return self.scale_up.ownership

    @property
    def uses_priorities(self) -> bool:
        """Whether an expander reads its ConfigMap."""
        return chain.PRIORITY in self.scale_up.expanders

    @property
    def scanned_groups(self) -> frozenset[str]:
        """Groups whose nodes leave by utilization; only one component removes nodes from a group."""
        return frozenset(each.cloud_provider_group_name for each in self.groups if each.is_scanned)

    def mode_of(self, group: str) -> Mode:
        """The mode of a group for pending pods: its own mode, capped by the global one.

        A group that scales by utilization alone is only observed.
        """
        return self._capped(self.group_modes.get(group, self.mode))

    @property
    def group_options(self) -> GroupOptions:
        """The options of a group without overrides from its cloud."""
        rules = self.scale_down.group
        return GroupOptions(
            scale_down_utilization_threshold=rules.scale_down_utilization_threshold,
            scale_down_gpu_utilization_threshold=rules.scale_down_gpu_utilization_threshold,
            scale_down_unneeded_time_seconds=rules.scale_down_unneeded_time_seconds,
            scale_down_unready_time_seconds=rules.scale_down_unready_time_seconds,
            max_node_provision_time_seconds=self.start.max_node_provision_time_seconds,
            max_node_startup_time_seconds=self.start.max_node_startup_time_seconds,
            max_node_lifetime_seconds=self.disruption.max_node_lifetime_seconds,
            zero_or_max_node_scaling=rules.zero_or_max_node_scaling,
            ignore_daemonsets_utilization=rules.ignore_daemonsets_utilization,
        )

    def answers_pending_pods(self, group: str) -> bool:
        """Whether the group may grow for unschedulable pods."""
        return all(each.takes_pending_pods for each in self.groups if each.cloud_provider_group_name == group)

    def scan_mode_of(self, group: NodeGroup) -> Mode:
        """The mode of a group that scales by utilization."""
        return self._capped(group.effective_mode)

    def own_mode_of(self, group: str) -> Mode:
        """The mode of a group, whether it scales for pending pods or by utilization."""
        found = next((each for each in self.groups if each.cloud_provider_group_name == group), None)
        return self.mode_of(group) if found is None else self.scan_mode_of(found)

    def _capped(self, mode: Mode) -> Mode:
        return min(self.mode, mode, key=_ORDER.index)

    def unpriced(self, model: PricingModel | None) -> dict[str, InvalidInput]:
        """The problem if options are compared by the cloud's own prices, and the cloud has none."""
        if model is not None or self.prices != PROVIDER or chain.PRICE not in self.scale_up.expanders:
            return {}
        problem = f"the cloud has no prices of its own, and the expander {chain.PRICE} needs some"
        return {"--prices": InvalidInput(source=FLAGS, field="prices", value=PROVIDER, problem=problem)}

    def pricing(self, provided: Provided) -> PricingModel | None:
        """The pricing model; `provided` asks the cloud for its own, if that is configured."""
        match self.prices:
            case str() as chosen if chosen == NONE:
                return None
            case str() as chosen if chosen == GCE:
                return GcePricing()
            case str() as chosen if chosen == PROVIDER:
                return provided()
            case str():
                own = provided()
                return self.listed if own is None else FirstOffered((own, self.listed))
            case model:
                return model


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
    if settings.node_autoprovisioning and provider is not None:
        _check_creates_groups(provider, chosen)
    preset = ranking.PRESETS[settings.expander_preset]
    expanders = chain.parse(settings.expander, source=chain.SOURCE)
    loaded = ExpanderPlugins(settings)
    for name in expanders:
        if name != chain.RANDOM:
            loaded.get(name)
    return of_same_names(
        DecisionSettings,
        settings,
        marks_own_nodes=provider is not None and provider.marks_own_nodes,
        scale_up=of_same_names(
            ScaleUpSettings,
            settings,
            ownership=Ownership(listed, settings.autoprovisioning_prefix, opted_in),
            preset=preset,
            expanders=expanders,
            plugins=loaded,
            bounds=_read_bounds(settings),
            estimates=_read_estimates(settings, clock),
        ),
        mode=Mode(settings.autoscaling_mode),
        group_modes={
            each.cloud_provider_group_name: each.effective_mode if each.takes_pending_pods else Mode.OBSERVE
            for each in groups
        },
        groups=groups,
        scanned=_scanned(settings, groups),
        autoprovisioning=of_same_names(
            AutoprovisioningRules,
            settings,
            popularity=Popularity.CPU if preset is ranking.CLUSTER_AUTOSCALER else Popularity.PODS,
            autoprovisioning_tolerations=TolerationMode(settings.autoprovisioning_tolerations),
        ),
        backoff=_checked(settings.backoff),
        scale_down=_read_scale_down(settings),
        salvo_seconds=settings.salvo_scale_up_time_budget_seconds if settings.salvo_scale_up else None,
        prices=_read_prices(settings, expanders, provider),
        consolidation=_read_consolidation(settings),
        disruption=_read_disruption(settings, groups),
        clock=clock,
    )


def _check_creates_groups(provider: ProviderPlugin, name: str) -> None:
    if not provider.creates_groups:
        needs = f": it needs {provider.creation_needs}" if provider.creation_needs else ""
        problem = f"no group can be created in {name}{needs}"
        raise InvalidInput(source=FLAGS, field="node-autoprovisioning", value=True, problem=problem)


def _groups(settings: AutoscalerSettings) -> tuple[NodeGroup, ...]:
    if not settings.node_groups:
        return ()
    return node_groups.load(Path(settings.node_groups))


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


def _checked(times: BackoffTimes) -> BackoffTimes:
    first, most = times.initial_node_group_backoff_duration_seconds, times.max_node_group_backoff_duration_seconds
    if first > most:
        field_name = "initial-node-group-backoff-duration"
        raise InvalidInput(source=FLAGS, field=field_name, value=first, problem=f"above the longest, {most:g} s")
    return times


def _read_bounds(settings: AutoscalerSettings) -> dict[str, ResourceBounds]:
    cpu = _range("min-cpu", settings.min_cpu, settings.max_cpu)
    memory = _range("min-memory", settings.min_memory, settings.max_memory)
    in_bytes = ResourceBounds(*(None if each is None else each * GIB for each in (memory.low, memory.high)))
    bounds = {limits.CPU: cpu, limits.MEMORY: in_bytes}
    for text in settings.gpu_total:
        kind, found = limits.parse_gpu_total(text)
        if kind in bounds:
            raise InvalidInput(source=FLAGS, field="gpu-total", value=text, problem="one type twice")
        bounds[kind] = found
    return {resource: each for resource, each in bounds.items() if each != ResourceBounds()}


def _range(field: str, low: int | None, high: int | None) -> ResourceBounds:
    """The bounds of one resource; a minimum of 0 means none."""
    if low is not None and high is not None and low > high:
        raise InvalidInput(source=FLAGS, field=field, value=low, problem=f"above the maximum of {high}")
    return ResourceBounds(low or None, high)


def _read_estimates(settings: AutoscalerSettings, clock: Callable[[], float] | None) -> EstimateRules:
    time = None
    if clock is not None:
        time = TimeLimits(
            clock, settings.max_binpacking_time_seconds, settings.max_nodegroup_binpacking_duration_seconds
        )
    return of_same_names(EstimateRules, settings, time=time)


def _read_prices(
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
    return chosen if chosen in (AUTO, PROVIDER, GCE, NONE) else price_sources.load(Path(chosen))


def _read_scale_down(settings: AutoscalerSettings) -> ScaleDownRules:
    # Nodes that can go without a new node are left to scale-down, which saves the most, regardless of utilization.
    threshold = 1.0 if settings.consolidation == "price" else 0.5
    group = of_same_names(
        GroupRules,
        settings,
        scale_down_utilization_threshold=_either(settings.scale_down_utilization_threshold, threshold),
        scale_down_gpu_utilization_threshold=_either(settings.scale_down_gpu_utilization_threshold, threshold),
    )
    return of_same_names(ScaleDownRules, settings, group=group, bounds=_read_bounds(settings))


def _either(given: float | None, default: float) -> float:
    return default if given is None else given


def _read_consolidation(settings: AutoscalerSettings) -> ConsolidationRules | None:
    """The rules of consolidation; None if no node is replaced for its price."""
    chosen = settings.consolidation
    if chosen == CONSOLIDATION_OFF:
        return None
    if not settings.scale_down_enabled:
        problem = "it needs scale-down, which is off (--scale-down-enabled)"
        raise InvalidInput(source=FLAGS, field="consolidation", value=chosen, problem=problem)
    if settings.prices == NONE:
        problem = "it needs prices, and there are none (--prices)"
        raise InvalidInput(source=FLAGS, field="consolidation", value=chosen, problem=problem)
    return settings.consolidation_rules


def _read_disruption(settings: AutoscalerSettings, groups: Sequence[NodeGroup]) -> DisruptionRules:
    """The rules of disruption. The budgets are checked even if nothing is replaced."""
    found = of_same_names(
        DisruptionRules,
        settings,
        repairs=rules.parse_repairs(settings.node_repair_conditions, source=FLAGS, name="node-repair-conditions"),
        grace_seconds=settings.disruption_termination_grace_seconds or None,
        limits=DisruptionLimits(parse_limits(settings.disruption_budgets, source=FLAGS, name="disruption-budgets")),
    )
    for name, value, is_on in (
        ("max-node-lifetime", found.max_node_lifetime_seconds, found.max_node_lifetime_seconds > 0),
        ("replace-drifted-nodes", True, found.replace_drifted_nodes),
        ("replace-interrupted-nodes", True, found.replace_interrupted_nodes),
        ("node-repair-conditions", settings.node_repair_conditions, found.repairs),
    ):
        if is_on and not settings.scale_down_enabled:
            problem = "it needs scale-down, which is off (--scale-down-enabled)"
            raise InvalidInput(source=FLAGS, field=name, value=value, problem=problem)
    found = rules.with_groups(found, groups, settings.node_groups)
    for name, each in found.groups.items():
        if each.is_any_on(each.max_node_lifetime_seconds) and not settings.scale_down_enabled:
            problem = "its nodes are to be replaced, which needs scale-down (--scale-down-enabled)"
            raise InvalidInput(source=settings.node_groups, field="group", value=name, problem=problem)
    return found
