"""Dashboards of the autoscaler, and of what the nodes cost."""

from deploy.monitoring.grafana import Panel, PanelRow, dashboard
from deploy.monitoring.queries import COUNT, MONEY, SECONDS, gauge, joined, most, or_none, rate, stat

_HOURS_A_MONTH = 730

_STEPS = joined(
    "sum", "le, function", f"rate({gauge('autoscaler_function_duration_seconds_bucket')}[$__rate_interval])"
)

_AUTOSCALER = (
    PanelRow(
        "Now",
        [
            stat(
                "Healthy", "No while too many nodes are not ready.", "bool_yes_no", most("autoscaler_cluster_healthy")
            ),
            stat("Held", "Yes while nothing can be decided.", "bool_yes_no", most("autoscaler_held"), limit=1),
            stat(
                "Unneeded nodes",
                "Nodes that the cluster could do without.",
                COUNT,
                or_none(f"sum({most('autoscaler_unneeded_nodes', 'group')})"),
            ),
            stat(
                "Overdue",
                "By how much the iteration under way is late.",
                SECONDS,
                most("autoscaler_round_overdue_seconds"),
                limit=120,
            ),
        ],
    ),
    PanelRow(
        "Demand and supply",
        [
            Panel(
                "Pending pods",
                "left: they fit on nothing that may be bought; triggered: a node is bought for them.",
                COUNT,
                {"{{kind}}": most("autoscaler_pending_pods", "kind")},
                stacked=True,
            ),
            Panel("Nodes", "By state.", COUNT, {"{{state}}": most("autoscaler_nodes", "state")}, stacked=True),
            Panel(
                "Size of groups",
                "Nodes that each group is to have.",
                COUNT,
                {"{{group}}": most("autoscaler_group_size", "group", 'bound="target"')},
            ),
            Panel(
                "Utilization of groups",
                "Demand on the untainted nodes of groups that scale by it.",
                "percent",
                {"{{group}} {{resource}}": or_none(most("autoscaler_scan_utilization_percent", "group, resource"))},
            ),
        ],
    ),
    PanelRow(
        "Actions",
        [
            Panel(
                "What was done to groups",
                "Sizes raised and lowered, groups created and deleted, by result.",
                "ops",
                {"{{what}} {{result}}": or_none(rate("autoscaler_acts", "what, result"))},
            ),
            Panel(
                "Nodes that failed to come",
                "By reason.",
                "ops",
                {"{{reason}}": or_none(rate("autoscaler_failures", "reason"))},
            ),
            Panel(
                "Nodes that stay",
                "Nodes that cannot be removed, by what keeps them.",
                COUNT,
                {"{{reason}}": or_none(most("autoscaler_unremovable_nodes", "reason"))},
                stacked=True,
            ),
            Panel(
                "Duration of steps",
                "95th percentile of what each step of an iteration takes.",
                SECONDS,
                {"{{function}}": f"histogram_quantile(0.95, {_STEPS})"},
            ),
        ],
    ),
)


def _monthly(title: str, description: str, name: str, *where: str) -> Panel:
    return stat(title, description, MONEY, f"{_HOURS_A_MONTH} * {most(f'autoscaler_{name}', '', *where)}")


_COST = (
    PanelRow(
        "A month, of 730 hours at the present rate",
        [
            _monthly("Cost of all nodes", "What all nodes cost.", "cost_per_hour"),
            _monthly("Not requested", "The part that no pod requests.", "idle_cost_per_hour"),
            _monthly(
                "Reclaimed and used",
                "The part that Mid and Batch pods hold of reclaimed capacity.",
                "reclaimed_cost_per_hour",
                'state="used"',
            ),
            _monthly("Savable", "Nodes that the cluster could do without.", "savable_cost_per_hour"),
        ],
    ),
    PanelRow(
        "An hour",
        [
            Panel(
                "Cost",
                "Of all nodes, of what no pod requests, of what is reclaimed, and of what could go.",
                MONEY,
                {
                    "all nodes": most("autoscaler_cost_per_hour"),
                    "not requested": most("autoscaler_idle_cost_per_hour"),
                    "reclaimed, {{state}}": most("autoscaler_reclaimed_cost_per_hour", "state"),
                    "savable": most("autoscaler_savable_cost_per_hour"),
                },
            ),
            Panel(
                "Cost of groups",
                "What the nodes of each group cost.",
                MONEY,
                {"{{group}}": most("autoscaler_group_cost_per_hour", "group")},
                stacked=True,
            ),
            Panel(
                "Nodes without a price",
                "No cost contains them.",
                COUNT,
                {"nodes": most("autoscaler_unpriced_nodes")},
                limit=1,
            ),
        ],
    ),
)


AUTOSCALER = dashboard(
    "headroom-autoscaler",
    "Headroom / Autoscaler",
    "Pending pods, node groups, what is bought and removed, and what keeps the rest.",
    _AUTOSCALER,
)
COST = dashboard(
    "headroom-cost",
    "Headroom / Cost",
    "What the nodes cost, what of it is idle or reclaimed, and what could be saved, as the price model has it.",
    _COST,
)
