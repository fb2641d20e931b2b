"""The replacement of nodes."""

from typing import Annotated

import msgspec
from msgspec import Meta

from manager.autoscaler.settings.scale_down import ScaleDownSettings
from manager.autoscaler.settings.values import MOST_SECONDS, Key
from shared.settings import Fixed


class ConsolidationRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a replacement has to be worth. `consolidation_spot_alternatives`: this many groups must offer a saving
    before spot nodes are launched or replaced, because a single one may be gone tomorrow.
    """

    consolidation_min_savings_percent: Annotated[
        float,
        Meta(
            ge=0,
            le=100,
            description="Least saving of a replacement, as a percentage of the cost of the replaced nodes.",
        ),
    ] = 10.0
    consolidation_balance: Annotated[
        float,
        Meta(
            ge=0,
            le=100,
            description="Least ratio of saving to disruption: a replacement's share of the cluster's cost "
            "must be at least this many times its share of the cluster's disruption. At 0, "
            "disruption does not count.",
        ),
    ] = 0.5
    consolidation_min_node_age_seconds: Annotated[
        float, Meta(ge=0, le=MOST_SECONDS, description="Age below which a node is not replaced by consolidation.")
    ] = 1800.0
    consolidation_cooldown_seconds: Fixed[float] = 600.0
    consolidation_spot_alternatives: Fixed[int] = 15


class ConsolidationSettings(ScaleDownSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The replacement of nodes by cheaper ones."""

    consolidation: Annotated[
        str,
        Meta(
            pattern="^(off|price)$",
            description="price: replace nodes by fewer or cheaper ones if that saves enough; it needs "
            "scale-down and prices. off: do not.",
        ),
    ] = "off"
    consolidation_rules: ConsolidationRules = ConsolidationRules()


class DisruptionSettings(ConsolidationSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The replacement of nodes for reasons other than price, and the number of nodes at one time."""

    disruption_budgets: Annotated[
        tuple[Key, ...],
        Meta(
            description="Largest number of nodes being disrupted at the same time, for a replacement to "
            "start: 10%, 3, or 0;schedule=0 8 * * mon-fri;duration=10h;reasons=Expired+Drifted. "
            "May be given repeatedly; the smallest that applies counts. Empty nodes are limited "
            "only by budgets that name the reason Empty. A node group may have its own."
        ),
    ] = ("10%",)
    max_node_lifetime_seconds: Annotated[
        float,
        Meta(
            ge=0, le=315_360_000, description="Age at which a node is replaced. 0: never. A node group may set its own."
        ),
    ] = 0.0
    replace_drifted_nodes: Annotated[
        bool,
        Meta(
            description="Replace nodes that differ from what their group would launch now, if the cloud "
            "provider can detect it."
        ),
    ] = False
    replace_interrupted_nodes: Annotated[
        bool,
        Meta(
            description="Replace nodes before the cloud takes them, if it has announced scheduled maintenance "
            "or recommends a rebalance."
        ),
    ] = False
    node_repair_conditions: Annotated[
        tuple[Key, ...],
        Meta(
            description="Replace nodes that have had a condition for a time, for example Ready=Unknown:30m. "
            "May be given repeatedly. No node is repaired while more than 20 % of the nodes are "
            "unhealthy."
        ),
    ] = ()
    disruption_termination_grace_seconds: Annotated[
        float,
        Meta(
            ge=0,
            le=MOST_SECONDS,
            description="Time after the start of draining at which a node that is expired, drifted, unhealthy "
            "or interrupted is deleted with the pods that are still on it, whatever protects "
            "them. 0: never.",
        ),
    ] = 0.0
