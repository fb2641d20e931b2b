"""Dashboards of what is lent and kept: the cluster, one node, and the truth of predictions.

Panels of one node choose by the label `node`, which the chart's monitors give the agents.
"""

from deploy.monitoring.grafana import Panel, PanelRow, Variable, dashboard
from deploy.monitoring.queries import (
    BYTES,
    CORES,
    COUNT,
    SECONDS,
    SHARE,
    THIRD,
    gauge,
    joined,
    mean,
    most,
    or_none,
    rate,
    stat,
)

_NODE = 'node=~"$node"'
_RESOURCES = {"cpu": ("CPU", CORES, "cpu_cores"), "memory": ("Memory", BYTES, "memory_bytes")}
"""Title, unit, and the end of the manager's names of metrics."""


def _of(function: str, name: str, resource: str, *where: str) -> str:
    return joined(function, "", gauge(f"agent_{name}", f'resource="{resource}"', *where))


def _offer(tier: str, measure: str, *where: str) -> str:
    return f"sum({most(f'manager_node_{tier}_{measure}', 'node', *where)})"


def _lending(resource: str, function: str, *where: str) -> Panel:
    title, unit, measure = _RESOURCES[resource]
    about = "What prod pods request above the predicted peak of prod pods and system can be lent."
    queries = {
        "allocatable": _of(function, "allocatable", resource, *where),
        "requested by prod": _of(function, "prod_requested", resource, *where),
        "predicted peak": _of(function, "prod_peak", resource, *where),
        "used": _of(function, "node_usage", resource, *where),
        "reclaimable": _of(function, "prod_reclaimable", resource, *where),
        "Mid on offer": _offer("mid", measure, *where),
        "Batch on offer": _offer("batch", measure, *where),
    }
    return Panel(title, about, unit, queries, height=10)


_REPORT_AGE = most("manager_node_metric_age_seconds", "node")

_OVERVIEW = (
    PanelRow(
        "Now",
        [
            stat("Nodes that report", "Nodes with a NodeMetric.", COUNT, f"count({_REPORT_AGE})"),
            stat("Mid CPU on offer", "Cores that Nodes show as mid-cpu.", CORES, _offer("mid", "cpu_cores")),
            stat("Mid memory on offer", "Bytes that Nodes show as mid-memory.", BYTES, _offer("mid", "memory_bytes")),
            stat(
                "Nodes with a shortfall",
                "Nodes whose Mid or Batch pods hold more than there is now.",
                COUNT,
                f"sum({most('manager_shortfall_nodes', 'tier, cause')})",
                limit=1,
            ),
        ],
    ),
    PanelRow("Lending", [_lending("cpu", "sum"), _lending("memory", "sum")]),
    PanelRow(
        "Decisions",
        [
            Panel(
                "Nodes by what bounds Mid CPU",
                "Which term of the formula is the smallest one, by nodes.",
                COUNT,
                {"{{bound}}": most("manager_nodes", "bound", 'tier="mid"', 'resource="cpu"')},
                stacked=True,
            ),
            Panel(
                "Writes to Nodes",
                "Node statuses that the manager wrote, by reason.",
                "wps",
                {"{{reason}}": rate("manager_node_writes", "reason")},
            ),
            Panel(
                "Evictions",
                "Pods of a tier that were evicted because their node had too little, by outcome.",
                "ops",
                {"{{tier}} {{outcome}}": or_none(rate("manager_evictions", "tier, outcome"))},
            ),
            Panel(
                "Longest shortfall",
                "For how long pods of a tier have held more than their node has, on the worst node.",
                SECONDS,
                {"{{tier}}": or_none(most("manager_shortfall_seconds", "tier"))},
                limit=900,
            ),
        ],
    ),
    PanelRow(
        "Health",
        [
            Panel(
                "Age of reports",
                "The oldest and the median report. A node whose report is older than 15 minutes lends nothing.",
                SECONDS,
                {"oldest": f"max({_REPORT_AGE})", "median": f"quantile(0.5, {_REPORT_AGE})"},
                limit=900,
            ),
            Panel(
                "Failures",
                "Reports that did not arrive, nodes that could not be brought up to date, loops that failed.",
                "ops",
                {
                    "reports": rate("agent_report_failures"),
                    "nodes": or_none(rate("manager_failures")),
                    "loops": or_none(rate("loop_failures")),
                },
            ),
            Panel(
                "Requests to the API server",
                "Of agents and manager, by the status code of the answer.",
                "reqps",
                {"{{code}}": rate("kube_requests", "code")},
            ),
            Panel(
                "CPU of the agents",
                "Cores that an agent takes: the mean, and the busiest one.",
                CORES,
                {
                    "mean": f"avg(rate({gauge('agent_cpu_seconds_total')}[$__rate_interval]))",
                    "busiest": f"max(rate({gauge('agent_cpu_seconds_total')}[$__rate_interval]))",
                },
            ),
        ],
    ),
)


def _by_class(resource: str) -> Panel:
    title, unit, _ = _RESOURCES[resource]
    queries = {
        "{{priority}}": most("agent_class_usage", "priority", f'resource="{resource}"', _NODE),
        "system": _of("max", "system_usage", resource, _NODE),
    }
    about = "Usage of all pods of a class, and of the node beyond its pods."
    return Panel(f"{title} by priority class", about, unit, queries, stacked=True)


def _largest_pods(resource: str) -> Panel:
    title, unit, _ = _RESOURCES[resource]
    usage = most("agent_pod_usage", "namespace, pod", f'resource="{resource}"', _NODE)
    return Panel(f"{title}: the ten largest pods", "By the last sample.", unit, {"": f"topk(10, {usage})"}, "table")


_ONE_NODE = (
    PanelRow("Lending", [_lending("cpu", "max", _NODE), _lending("memory", "max", _NODE)]),
    PanelRow("Usage", [_by_class("cpu"), _by_class("memory")]),
    PanelRow("Pods", [_largest_pods("cpu"), _largest_pods("memory")]),
    PanelRow(
        "Agent",
        [
            Panel(
                "Reports",
                "By reason: the period, a prediction that moved, pressure, or silence for too long.",
                "cpm",
                {"{{reason}}": f"60 * {rate('agent_reports', 'reason', _NODE)}"},
                width=THIRD,
            ),
            Panel(
                "Sampling",
                "Ticks by outcome. Others than complete ones are samples that were missed.",
                "ops",
                {"{{outcome}}": rate("agent_ticks", "outcome", _NODE)},
                width=THIRD,
            ),
            Panel(
                "Memory of the agent",
                "Memory that is the agent's alone, by what is behind it. Files are its metric cache.",
                BYTES,
                {"{{backing}}": most("agent_uss_bytes", "backing", _NODE)},
                width=THIRD,
                stacked=True,
            ),
        ],
    ),
)

_EACH, _BY = "{{resource}} over {{horizon_seconds}} s", "resource, horizon_seconds"


def _beside(resource: str) -> Panel:
    """Means over outcomes, from the sums that the agents count."""
    title, unit, _ = _RESOURCES[resource]
    promised, realised, outcomes = (
        joined("sum", "horizon_seconds", f"increase({counter}[1d])")
        for name in ("promised", "realised", "outcomes")
        for counter in [gauge(f"agent_prediction_{name}_total", f'resource="{resource}"')]
    )
    about = "Mean over the outcomes of a day of the peak that was promised, and of the peak that came."
    queries = {
        "promised, {{horizon_seconds}} s": f"{promised} / {outcomes}",
        "came, {{horizon_seconds}} s": f"{realised} / {outcomes}",
    }
    return Panel(f"{title}: promised beside what came", about, unit, queries)


_PREDICTION = (
    PanelRow(
        "Kept and broken",
        [
            Panel(
                "Violated promises of the fleet",
                "Share of the promises of 28 days in which more was used than promised, beside what policies allow.",
                SHARE,
                {
                    _EACH: most("manager_prediction_violated_ratio", _BY),
                    f"target, {_EACH}": most("manager_prediction_target_ratio", _BY),
                },
            ),
            Panel(
                "Worst node",
                "The highest share of violated promises of any node.",
                SHARE,
                {_EACH: most("agent_prediction_violated_ratio", _BY)},
            ),
            Panel(
                "Promises that were judged",
                "Promises of 28 days whose horizon has passed. Below a thousand, a share says little.",
                COUNT,
                {_EACH: most("manager_prediction_outcomes", _BY)},
            ),
            Panel(
                "What the agents know",
                "Share of the hours of 28 days with a known outcome, and share of the cold start that is over.",
                SHARE,
                {
                    _EACH: mean("agent_prediction_coverage_ratio", _BY),
                    "cold start": mean("agent_prediction_history_ratio"),
                },
            ),
        ],
    ),
    PanelRow(
        "Promised and realised",
        [
            _beside("cpu"),
            _beside("memory"),
            Panel(
                "Lent",
                "Mean share of requests above the promise, over the outcomes of 28 days.",
                SHARE,
                {_EACH: mean("agent_prediction_lent_ratio", _BY)},
            ),
            Panel(
                "Withdrawn a day",
                "Share of what is lent that is taken back a day.",
                SHARE,
                {
                    "{{resource}} over {{window_seconds}} s": mean(
                        "agent_prediction_withdrawn_ratio", "resource, window_seconds"
                    )
                },
            ),
        ],
    ),
    PanelRow(
        "Other predictors",
        [
            Panel(
                "Violated promises of models that lend nothing",
                "What each model beside the one in force would have broken.",
                SHARE,
                {f"{{{{model}}}}, {_EACH}": mean("agent_shadow_violated_ratio", f"model, {_BY}")},
            ),
            Panel(
                "What they would have lent",
                "Mean share of requests above their promises.",
                SHARE,
                {f"{{{{model}}}}, {_EACH}": mean("agent_shadow_lent_ratio", f"model, {_BY}")},
            ),
        ],
    ),
)


OVERVIEW = dashboard(
    "headroom-overview",
    "Headroom / Overview",
    "What the cluster lends, and whether agents and manager are well.",
    _OVERVIEW,
)
NODE = dashboard(
    "headroom-node",
    "Headroom / Node",
    "One node: usage, requests, the predicted peak and what is on offer.",
    _ONE_NODE,
    [
        Variable(
            "node", "Node", 'label_values(headroom_manager_node_metric_age_seconds{job=~"$job"}, node)', multiple=False
        )
    ],
)
PREDICTION = dashboard(
    "headroom-prediction",
    "Headroom / Prediction truth",
    "How often more was used than was promised, beside the target, and what promises cost in unlent capacity.",
    _PREDICTION,
)
