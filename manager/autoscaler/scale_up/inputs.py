"""The inputs of a scale-up decision."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from manager.autoscaler.cloudprovider.ownership import Ownership
from manager.autoscaler.expander import chain
from manager.autoscaler.expander.plugins import ExpanderPlugins
from manager.autoscaler.expander.priority import Priorities
from manager.autoscaler.expander.ranking import SEED, Preset
from manager.autoscaler.limits import UNLIMITED, Quota, ResourceBounds
from manager.autoscaler.pricing.model import PricingModel
from manager.autoscaler.scale_up.groups import GroupState, QuotaUsage
from manager.autoscaler.scale_up.options import EstimateRules
from manager.autoscaler.snapshot.cluster import ClusterSnapshot, NodeInfo
from manager.autoscaler.snapshot.equivalence_groups import EquivalenceGroup
from shared.quantity import Amounts


@dataclass(frozen=True)
class ScaleUpInput:
    """The observations of one iteration.

    `groups` holds existing groups and theoretical ones. `snapshot` includes upcoming nodes; `cluster_nodes` counts all
    Nodes of the API server, ready or not. `quotas` are those besides the bounds of the whole cluster. `expected` is
    what reclaiming adds within one reporting interval, by node. At most `new_groups` may be created.
    `templates_of_nodes` gives, by node, a node of its group that is completely ready.
    """

    snapshot: ClusterSnapshot
    classes: Sequence[EquivalenceGroup] = ()
    groups: Sequence[GroupState] = ()
    cluster_nodes: int = 0
    quotas: tuple[Quota, ...] = ()
    expected: Mapping[str, Amounts] = field(default_factory=dict)
    new_groups: int = 1
    templates_of_nodes: Mapping[str, NodeInfo] = field(default_factory=dict)


@dataclass(frozen=True)
class ScaleUpSettings:
    """The settings of a decision. `plugins` load the `expanders`. `bounds` and `max_nodes_total` are those of the whole
    cluster.

    With `uses_mix`, several groups at once replace the group chosen by price, where that is cheaper.
    """

    ownership: Ownership
    pricing: PricingModel | None = None
    preset: Preset = SEED
    expanders: tuple[str, ...] = (chain.DEFAULT,)
    plugins: ExpanderPlugins = field(default_factory=ExpanderPlugins)
    priorities: Priorities = field(default_factory=Priorities)
    bounds: Mapping[str, ResourceBounds] = field(default_factory=dict)
    max_nodes_total: int = UNLIMITED
    estimates: EstimateRules = field(default_factory=EstimateRules)
    enforces_min_size: bool = False
    uses_mix: bool = True

    @property
    def usage(self) -> QuotaUsage:
        return QuotaUsage(self.estimates.gpu_label)
