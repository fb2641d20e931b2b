"""What a decision on scale-up starts from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from manager.autoscaler.cloudprovider.ownership import Ownership
from manager.autoscaler.expander import chain
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
    """What was observed in one round.

    `groups` holds existing groups and theoretical ones. `snapshot` has upcoming nodes in it; `cluster_nodes` counts all
    nodes the API knows, ready or not. `quotas` are further ones than the bounds of the whole cluster. `expected` is
    what reclaiming gives within one reporting interval, by node. At most `new_groups` may be created.
    `templates_of_nodes` says, by node, what a node of its group is like when all is ready.
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
    """How it is decided. `bounds` and `max_nodes_total` are those of the whole cluster.

    With `uses_mix`, several groups at once take the place of the one that was chosen by price, where that is cheaper.
    """

    ownership: Ownership
    pricing: PricingModel | None = None
    preset: Preset = SEED
    expanders: tuple[str, ...] = (chain.DEFAULT,)
    priorities: Priorities = field(default_factory=Priorities)
    bounds: Mapping[str, ResourceBounds] = field(default_factory=dict)
    max_nodes_total: int = UNLIMITED
    estimates: EstimateRules = field(default_factory=EstimateRules)
    enforces_min_size: bool = False
    uses_mix: bool = True

    @property
    def usage(self) -> QuotaUsage:
        return QuotaUsage(self.estimates.gpu_label)
