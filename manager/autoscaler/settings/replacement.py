"""The replacement of nodes."""

from typing import Annotated

from msgspec import Meta

from manager.autoscaler.settings.scale_down import ScaleDownSettings
from manager.autoscaler.settings.values import MOST_SECONDS, Key


class ConsolidationSettings(ScaleDownSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The replacement of nodes by cheaper ones."""

    consolidation: Annotated[
        str,
        Meta(
            pattern="^(off|price)$",
            description="price: replace nodes by fewer or cheaper ones where that saves enough; needs scale-down and "
            "prices",
        ),
    ] = "off"
    consolidation_min_savings_percent: Annotated[
        float, Meta(ge=0, le=100, description="of what the replaced nodes cost, to be saved at least")
    ] = 10.0
    consolidation_balance: Annotated[
        float,
        Meta(
            ge=0,
            le=100,
            description="what the share of the cluster's cost that is saved has to be, of the share of its disruption",
        ),
    ] = 0.5
    consolidation_min_node_age_seconds: Annotated[
        float, Meta(ge=0, le=MOST_SECONDS, description="no younger node is replaced")
    ] = 1800.0
    consolidation_cooldown_seconds: Annotated[
        float,
        Meta(ge=0, le=MOST_SECONDS, description="no replacement begins for so long after nodes were added or deleted"),
    ] = 600.0
    consolidation_spot_alternatives: Annotated[
        int, Meta(ge=0, description="groups of spot nodes that would save, before spot nodes are replaced or bought")
    ] = 15


class DisruptionSettings(ConsolidationSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The replacement of nodes for reasons other than price, and the number of nodes at one time."""

    disruption_budgets: Annotated[
        tuple[Key, ...],
        Meta(
            description="nodes on their way out at one time at most, for a replacement to begin: 10%, 3, or "
            "0;schedule=0 8 * * mon-fri;duration=10h;reasons=Expired+Drifted; may be given repeatedly, and the "
            "smallest counts; empty nodes go by those that name the reason Empty; a group may have its own"
        ),
    ] = ("10%",)
    max_node_lifetime_seconds: Annotated[
        float, Meta(ge=0, le=315_360_000, description="after which a node is replaced; 0: never; a group may differ")
    ] = 0.0
    replace_drifted_nodes: Annotated[
        bool, Meta(description="replace nodes that are not what their group would launch now, where the cloud can tell")
    ] = False
    replace_interrupted_nodes: Annotated[
        bool,
        Meta(
            description="replace nodes for which the cloud has announced a scheduled maintenance or recommends a "
            "rebalance, before it takes them"
        ),
    ] = False
    node_repair_conditions: Annotated[
        tuple[Key, ...],
        Meta(
            description="replace nodes that have had a condition for so long: Ready=Unknown:30m; may be given "
            "repeatedly; none while more than 20 % of the nodes are unhealthy"
        ),
    ] = ()
    disruption_termination_grace_seconds: Annotated[
        float,
        Meta(
            ge=0,
            le=MOST_SECONDS,
            description="after so long of draining, a node that is replaced for its own sake goes with the pods that "
            "are still there, whatever protects them; 0: never",
        ),
    ] = 0.0
