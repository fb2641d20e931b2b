"""The settings that the autoscaler's decisions read."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from manager.autoscaler.cloudprovider.contract import GroupOptions
from manager.autoscaler.cloudprovider.ownership import Ownership
from manager.autoscaler.disruption.rules import ConsolidationRules, DisruptionRules
from manager.autoscaler.expander import chain
from manager.autoscaler.pricing.gce import GcePricing
from manager.autoscaler.pricing.model import FirstOffered, PricingModel
from manager.autoscaler.scale_down.removal_status import ScaleDownRules
from manager.autoscaler.scale_up.candidates import AutoprovisioningRules
from manager.autoscaler.scale_up.options import ScaleUpSettings
from manager.autoscaler.settings.autoscaler_settings import AutoscalerSettings
from manager.autoscaler.settings.estimates import BackoffTimes, HealthLimits, StartTimes, TaintRules
from manager.autoscaler.settings.modes import Mode
from manager.autoscaler.settings.pending_pods import PendingRules
from manager.autoscaler.settings.scale_down import ActuationOptions
from manager.autoscaler.utilization import rules as utilization
from manager.autoscaler.utilization.node_groups import NodeGroup
from shared.errors import InvalidInput

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

FLAGS = "flags"
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
    node_info_cache_expire_time_seconds: float = 315_360_000.0
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
        """The options of a group without overrides from its cloud."""
        rules = self.scale_down.group
        return GroupOptions(
            scale_down_utilization_threshold=rules.scale_down_utilization_threshold,
            scale_down_gpu_utilization_threshold=rules.scale_down_gpu_utilization_threshold,
            scale_down_unneeded_seconds=rules.scale_down_unneeded_time_seconds,
            scale_down_unready_seconds=rules.scale_down_unready_time_seconds,
            max_node_provision_seconds=self.start.max_node_provision_time_seconds,
            max_node_startup_seconds=self.start.max_node_startup_time_seconds,
            max_node_lifetime_seconds=self.disruption.max_node_lifetime_seconds,
            zero_or_max_node_scaling=rules.zero_or_max,
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
