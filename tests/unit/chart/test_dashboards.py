"""Grafana's dashboards: by the rules of its dashboard-linter, and about metrics that exist."""

import json
import re
from collections.abc import Iterator
from typing import Any, TypeAlias

import pytest
import yaml

from deploy.site.metrics import families
from tests.support.apiserver import ROOT

Json: TypeAlias = dict[str, Any]
FOLDER = ROOT / "deploy" / "helm" / "headroom" / "files" / "dashboards"
DASHBOARDS = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(FOLDER.iterdir())}
COLUMNS = 24  # of Grafana's grid
RULES = FOLDER.parent / "rules.yaml"
METRIC = re.compile(r"\bheadroom_\w+(?=[{\[)\s]|$)")
SELECTOR = re.compile(r"\bheadroom_\w+(\{[^}]*\})?")
UNITS = {
    "none",
    "short",
    "bytes",
    "s",
    "percent",
    "percentunit",
    "currencyUSD",
    "ops",
    "wps",
    "reqps",
    "cpm",
    "bool_yes_no",
}

every_dashboard = pytest.mark.parametrize("dashboard", DASHBOARDS.values(), ids=DASHBOARDS.keys())


def panels(dashboard: Json) -> list[Json]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def expressions(dashboard: Json) -> Iterator[str]:
    return (target["expr"] for panel in panels(dashboard) for target in panel["targets"])


def alerts() -> list[Json]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def exported() -> set[str]:
    return {family.exposed_name for family in families()}


def is_exported(metric: str, known: set[str]) -> bool:
    plain = re.sub(r"_(bucket|count|sum)$", "", metric)
    return bool(known & {metric, plain})


@every_dashboard
def test_queries_ask_for_metrics_that_exist(dashboard: Json) -> None:
    known = exported()
    for expression in expressions(dashboard):
        found = METRIC.findall(expression)
        assert found
        assert [metric for metric in found if not is_exported(metric, known)] == []


def test_rules_ask_for_metrics_that_exist() -> None:
    known = exported()
    for rule in alerts():
        assert [metric for metric in METRIC.findall(rule["expr"]) if not is_exported(metric, known)] == []


@every_dashboard
def test_one_data_source_a_job_and_an_instance_can_be_chosen(dashboard: Json) -> None:
    variables = {each["name"]: each for each in dashboard["templating"]["list"]}
    (source,) = [each for each in variables.values() if each["type"] == "datasource"]
    assert (source["name"], source["label"], source["query"]) == ("datasource", "Data Source", "prometheus")
    for name in ("job", "instance"):
        variable = variables[name]
        assert (variable["label"], variable["multi"], variable["allValue"]) == (name.title(), True, ".+")
    for variable in variables.values():
        if variable["type"] == "query":
            assert variable["datasource"]["uid"] == "$datasource"
            assert variable["query"]["query"].startswith("label_values(")
            assert variable["refresh"] == 2


@every_dashboard
def test_every_panel_says_what_it_shows_in_which_unit_and_from_where(dashboard: Json) -> None:
    for panel in panels(dashboard):
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
        assert panel["targets"]
        for each in (panel, *panel["targets"]):
            assert each["datasource"] == {"type": "prometheus", "uid": "$datasource"}


@every_dashboard
def test_every_selector_keeps_to_the_chosen_jobs_and_instances(dashboard: Json) -> None:
    for expression in expressions(dashboard):
        for selector in SELECTOR.finditer(expression):
            assert 'job=~"$job"' in (selector[1] or ""), expression
            assert 'instance=~"$instance"' in selector[1], expression


@every_dashboard
def test_counters_are_read_as_rates_over_a_range_that_fits_the_scrapes(dashboard: Json) -> None:
    for expression in expressions(dashboard):
        for total in re.finditer(r"(\w+)\(headroom_\w+_total\{[^}]*\}(\[[^]]+\])?", expression):
            assert total[1] in ("rate", "increase"), expression
            assert total[2] in ("[$__rate_interval]", "[1d]"), expression
        assert len(re.findall(r"_total\{", expression)) == len(re.findall(r"_total\{[^}]*\}\[", expression))


@every_dashboard
def test_panels_fill_the_grid_without_covering_each_other(dashboard: Json) -> None:
    cells: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= COLUMNS
        covered = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not covered & cells
        cells |= covered
    numbers = [panel["id"] for panel in dashboard["panels"]]
    assert len(numbers) == len(set(numbers))


def test_a_dashboard_is_a_config_map_that_kubernetes_takes() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 1 << 20


def test_every_alert_has_a_section_in_operations() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    headings = set(re.findall(r"^### (Headroom\w+)$", text, re.MULTILINE))
    assert headings == {rule["alert"] for rule in alerts() if "alert" in rule}


def test_every_alert_has_a_threshold_as_its_last_number() -> None:
    for rule in alerts():
        if "alert" in rule:
            assert re.search(r"[<>] [0-9.]+$", rule["expr"]), rule["alert"]
            assert rule["labels"].keys() == {"severity"}
            assert rule["annotations"].keys() == {"summary", "description"}
            assert "{{" not in rule["annotations"]["summary"]


@every_dashboard
def test_no_query_is_asked_under_two_names(dashboard: Json) -> None:
    assert len({json.dumps(panel["targets"]) for panel in panels(dashboard)}) == len(panels(dashboard))
