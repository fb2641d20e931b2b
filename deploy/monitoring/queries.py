"""PromQL over Headroom's metrics, and the panels that more than one dashboard has.

Replicas of the manager answer alike, so its gauges are joined by `max` before they are summed.
"""

from deploy.monitoring.grafana import COLUMNS, TARGETS, Panel

CORES, BYTES, SHARE, SECONDS, COUNT, MONEY = "none", "bytes", "percentunit", "s", "short", "currencyUSD"
QUARTER, THIRD = COLUMNS // 4, COLUMNS // 3


def joined(function: str, by: str, expression: str) -> str:
    return f"{function} by ({by}) ({expression})" if by else f"{function}({expression})"


def gauge(name: str, *where: str) -> str:
    return f"headroom_{name}{{{', '.join([TARGETS, *where])}}}"


def rate(name: str, by: str = "", *where: str) -> str:
    return joined("sum", by, f"rate({gauge(f'{name}_total', *where)}[$__rate_interval])")


def most(name: str, by: str = "", *where: str) -> str:
    return joined("max", by, gauge(name, *where))


def mean(name: str, by: str = "") -> str:
    return joined("avg", by, gauge(name))


def or_none(expression: str) -> str:
    """0 while there is no series, as for counters of what has not happened yet."""
    return f"{expression} or vector(0)"


def stat(title: str, description: str, unit: str, expression: str, limit: float | None = None) -> Panel:
    return Panel(title, description, unit, {title: expression}, "stat", QUARTER, height=4, limit=limit)
