"""Grafana's dashboard model, as far as the dashboards here need it.

The forms follow the rules of Grafana's dashboard-linter: one data source variable, `job` and `instance` variables that
every selector uses, a title, a description and a unit on every panel.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]

SCHEMA_VERSION = 39  # Grafana 10.4 and newer, which migrate it further by themselves
COLUMNS = 24  # of Grafana's grid
TARGETS = 'job=~"$job", instance=~"$instance"'
"""What every selector has, so that both variables choose."""
_SOURCE: Json = {"type": "prometheus", "uid": "$datasource"}
_STEPS_OF_A_LIMIT = [{"color": "green", "value": None}]


@dataclass(frozen=True)
class Panel:
    """One picture of `queries`, PromQL by legend.

    `unit` is Grafana's; a value above `limit` is red; `kind`: timeseries, stat or table.
    """

    title: str
    description: str
    unit: str
    queries: Mapping[str, str]
    kind: str = "timeseries"
    width: int = COLUMNS // 2
    height: int = 8
    stacked: bool = False
    limit: float | None = None
    minimum: float | None = 0

    def rendered(self, number: int, x: int, y: int) -> Json:
        custom: Json = {}
        if self.kind == "timeseries":
            mode = "normal" if self.stacked else "none"
            custom = {"fillOpacity": 30 if self.stacked else 5, "showPoints": "never", "stacking": {"mode": mode}}
        steps = [*_STEPS_OF_A_LIMIT, *([] if self.limit is None else [{"color": "red", "value": self.limit}])]
        defaults: Json = {"unit": self.unit, "custom": custom, "thresholds": {"mode": "absolute", "steps": steps}}
        if self.minimum is not None:
            defaults["min"] = self.minimum
        instant = self.kind == "table"
        return {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": self.description,
            "datasource": _SOURCE,
            "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
            "fieldConfig": {"defaults": defaults, "overrides": []},
            "options": _options(self.kind),
            "targets": [
                _target(chr(ord("A") + at), legend, query, instant)
                for at, (legend, query) in enumerate(self.queries.items())
            ],
        }


@dataclass(frozen=True)
class PanelRow:
    """A heading, and the panels below it."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Variable:
    """A list to choose from. `query` is Grafana's label_values()."""

    name: str
    label: str
    query: str
    multiple: bool = True

    def rendered(self) -> Json:
        return {
            "name": self.name,
            "label": self.label,
            "type": "query",
            "datasource": _SOURCE,
            "query": {"query": self.query, "refId": self.name},
            "definition": self.query,
            "refresh": 2,  # when the time range changes
            "sort": 1,
            **({"multi": True, "includeAll": True, "allValue": ".+", "current": _ALL} if self.multiple else {}),
        }


_ALL = {"selected": True, "text": ["All"], "value": ["$__all"]}
# Every process of Headroom has this metric, whatever it does.
_EVERYWHERE = "headroom_http_connections"
JOB = Variable("job", "Job", f"label_values({_EVERYWHERE}, job)")
INSTANCE = Variable("instance", "Instance", f'label_values({_EVERYWHERE}{{job=~"$job"}}, instance)')


def dashboard(
    uid: str, title: str, description: str, rows: Iterable[PanelRow], variables: Sequence[Variable] = ()
) -> Json:
    """The model that Grafana imports. Panels fill a row from the left and go to the next line where it is full."""
    source = {"name": "datasource", "label": "Data Source", "type": "datasource", "query": "prometheus", "refresh": 1}
    return {
        "uid": uid,
        "title": title,
        "description": description,
        "tags": ["headroom"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": False,
        "graphTooltip": 1,  # one crosshair in all panels
        "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [source, *(each.rendered() for each in (JOB, INSTANCE, *variables))]},
        "links": [{"type": "dashboards", "tags": ["headroom"], "title": "Headroom", "asDropdown": True}],
        "panels": list(_laid_out(rows)),
    }


def _laid_out(rows: Iterable[PanelRow]) -> Iterable[Json]:
    number = y = 0
    for row in rows:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "panels": [],
            "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1},
        }
        x, y, line_height = 0, y + 1, 0
        for panel in row.panels:
            if x + panel.width > COLUMNS:
                x, y, line_height = 0, y + line_height, 0
            number += 1
            yield panel.rendered(number, x, y)
            x, line_height = x + panel.width, max(line_height, panel.height)
        y += line_height


def _target(reference: str, legend: str, query: str, instant: bool) -> Json:
    shape = {"instant": True, "range": False, "format": "table"} if instant else {"range": True}
    return {"refId": reference, "datasource": _SOURCE, "expr": query, "legendFormat": legend, **shape}


def _options(kind: str) -> Json:
    if kind == "timeseries":
        return {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}
    reduce = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    return {"reduceOptions": reduce, "colorMode": "value", "graphMode": "area"} if kind == "stat" else {}
