"""Monitors, rules and dashboards of the chart; promtool judges the rules, and fires each alert."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.local.identities import CHART
from shared import durations
from tests.chart.helm import Helm, Manifest, one
from tests.support.programs import program

MONITORING = CHART / "ci" / "monitoring-values.yaml"
ALL_RULES = ("--set", "monitoring.rules.enabled=true")
CASES: dict[str, dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "alerts.yaml").read_text())
MINUTE = 60

pytestmark = pytest.mark.embedded_only("no server is asked")


def rules(helm: Helm, *values: str | Path) -> dict[str, Any]:
    """What Prometheus would load."""
    return dict(one(helm.objects(*values), "PrometheusRule", "headroom")["spec"])


def alerts(spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for group in spec["groups"] for rule in group["rules"] if "alert" in rule}


def of_kind(objects: list[Manifest], kind: str) -> list[Manifest]:
    return [each for each in objects if each["kind"] == kind]


def checked(directory: Path, *arguments: str) -> str:
    """What promtool prints of files in `directory`, which it has to find right."""
    command = [str(program("promtool")), *arguments]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_nothing_of_it_is_there_by_default(helm: Helm) -> None:
    kinds = {each["kind"] for each in helm.objects()}
    assert not kinds & {"ServiceMonitor", "PodMonitor", "PrometheusRule"}
    assert not [each for each in of_kind(helm.objects(), "ConfigMap") if "dashboard" in each["metadata"]["name"]]


@pytest.mark.parametrize("values", [ALL_RULES, ("--values", MONITORING)], ids=["default", "changed"])
def test_promtool_accepts_the_rules(helm: Helm, values: tuple[str | Path, ...], tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules(helm, *values)))
    assert "SUCCESS" in checked(tmp_path, "check", "rules", "--lint-fatal", "rules.yaml")


@pytest.mark.thorough
def test_each_alert_fires_when_it_has_to_and_not_before(helm: Helm, tmp_path: Path) -> None:
    spec = rules(helm, *ALL_RULES)
    found = alerts(spec)
    assert found.keys() == CASES.keys()
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(spec))
    tests = [test for name, case in CASES.items() for test in trials(found[name], case)]
    file = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(file))
    checked(tmp_path, "test", "rules", "tests.yaml")


def trials(rule: dict[str, Any], case: dict[str, Any]) -> list[dict[str, Any]]:
    """promtool's tests of one alert: nothing just before its time, then the alert; and nothing of a quiet cluster."""
    # A rate needs two samples before it says anything.
    minutes = int(durations.parse(rule["for"]) // MINUTE) + 2
    value = case.get("value", "")
    labels = {**case.get("labels", {}), **rule["labels"]}
    description = re.sub(r"{{ \$value[^}]*}}", value, rule["annotations"]["description"])
    for name, label in labels.items():
        description = description.replace(f"{{{{ $labels.{name} }}}}", label)
    expected = {"exp_labels": labels, "exp_annotations": rule["annotations"] | {"description": description}}

    def trial(series: dict[str, Any], checks: list[tuple[int, list[dict[str, Any]]]]) -> dict[str, Any]:
        values = [{"series": name, "values": _samples(each, minutes)} for name, each in series.items()]
        judged = [
            {"eval_time": f"{minute}m", "alertname": rule["alert"], "exp_alerts": fired} for minute, fired in checks
        ]
        return {"interval": "1m", "input_series": values, "alert_rule_test": judged}

    early = int(durations.parse(rule["for"]) // MINUTE) - 1
    return [trial(case["fires"], [(early, []), (minutes, [expected])]), trial(case["quiet"], [(minutes, [])])]


@pytest.mark.thorough
def test_nodes_in_short_trouble_one_after_the_other_fire_nothing(helm: Helm, tmp_path: Path) -> None:
    """There is a node in trouble all the time, and never one for as long as the alert waits."""
    spec = rules(helm, *ALL_RULES)
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(spec))
    found = {name: rule for name, rule in alerts(spec).items() if "node" in CASES[name].get("labels", {})}
    assert {"HeadroomAgentDown", "HeadroomReportsStale", "HeadroomEnforcerDown"} <= found.keys()
    tests = [in_turns(rule, CASES[name]) for name, rule in found.items() if name != "HeadroomReportsFailing"]
    file = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(file))
    checked(tmp_path, "test", "rules", "tests.yaml")


def in_turns(rule: dict[str, Any], case: dict[str, Any]) -> dict[str, Any]:
    """Six nodes, each in trouble a little shorter than the alert waits, and the next before the one before is over."""
    minutes, nodes = int(durations.parse(rule["for"]) // MINUTE), 6
    name, bad = next(iter(case["fires"].items()))
    good = next(iter(case["quiet"].values()))
    turn = minutes - 2
    series = []
    for place in range(nodes):
        before, after = place * turn, (nodes - place) * turn
        values = " ".join(
            f"{value}x{count - 1}" for value, count in ((good, before), (bad, turn + 1), (good, after)) if count
        )
        series.append({"series": name.replace("n1", f"n{place}").replace('"a"', f'"i{place}"'), "values": values})
    checks = [
        {"eval_time": f"{minute}m", "alertname": rule["alert"], "exp_alerts": []} for minute in range(nodes * turn)
    ]
    return {"interval": "1m", "input_series": series, "alert_rule_test": checks}


def test_descriptions_say_the_durations_that_are_in_force(helm: Helm) -> None:
    changed = "monitoring.rules.alerts.HeadroomAgentDown.for=3m"
    values = ("--set", changed, "--set", "colocationConfig.strategy.degradeTimeMinutes=7")
    found = alerts(rules(helm, *ALL_RULES, *values))
    down, stale = (found[name] for name in ("HeadroomAgentDown", "HeadroomReportsStale"))
    assert "has not answered Prometheus for 3m." in down["annotations"]["description"]
    assert "once its last report is 7 minutes old" in down["annotations"]["description"]
    assert stale["expr"].endswith("> 420")
    assert "older than 420 s for 5m" in stale["annotations"]["description"]
    own = alerts(rules(helm, *ALL_RULES, *values, "--set", "monitoring.rules.alerts.HeadroomReportsStale.threshold=99"))
    assert own["HeadroomReportsStale"]["expr"].endswith("> 99")
    assert not [rule for rule in found.values() if re.search(r"(?<![{$ ]){[a-z]+}", rule["annotations"]["description"])]


def _samples(value: Any, minutes: int) -> str:
    """`+1` grows by one a minute, and any other number stays."""
    step = str(value)[1:] if str(value).startswith("+") else "0"
    return f"{0 if step != '0' else value}+{step}x{minutes}"


def test_an_alert_can_be_changed_and_left_out(helm: Helm) -> None:
    before, after = alerts(rules(helm, *ALL_RULES)), alerts(rules(helm, "--values", MONITORING))
    assert before.keys() - after.keys() == {"HeadroomUnpricedNodes"}
    shortfall = after["HeadroomShortfall"]
    assert shortfall["expr"] == before["HeadroomShortfall"]["expr"].replace("900", "300")
    assert (shortfall["for"], shortfall["labels"]) == ("1m", {"severity": "critical"})
    unchanged = before.keys() & after.keys() - {"HeadroomShortfall"}
    for name in unchanged:
        assert after[name]["expr"] == before[name]["expr"]


def test_every_alert_links_to_its_section(helm: Helm) -> None:
    for name, rule in alerts(rules(helm, "--values", MONITORING)).items():
        page = "https://docs.example.com/headroom/operations.html"
        assert rule["annotations"]["runbook_url"] == f"{page}#{name.lower()}"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("monitoring.rules.alerts.Nonsense.for=1m", "there is no such alert"),
        ("monitoring.rules.alerts.HeadroomShortfall.threshold=-1", "threshold"),
        ("monitoring.rules.alerts.HeadroomShortfall.for=soon", "for"),
        ("monitoring.rules.alerts.HeadroomShortfall.severity=page", "severity"),
        ("monitoring.monitors.interval=often", "interval"),
        ("monitoring.dashboards.namespace=Not A Name", "namespace"),
    ],
)
def test_values_that_mean_nothing_are_refused(helm: Helm, value: str, words: str) -> None:
    assert words in helm.refusal(*ALL_RULES, "--set", value)


def test_monitors_scrape_with_prometheus_own_rights_and_name_the_node(helm: Helm) -> None:
    objects = helm.objects("--values", MONITORING)
    monitors = {
        each["metadata"]["labels"]["app.kubernetes.io/component"]: each for each in of_kind(objects, "ServiceMonitor")
    }
    for component, monitor in monitors.items():
        assert monitor["metadata"]["labels"]["release"] == "kube-prometheus-stack"
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        (endpoint,) = monitor["spec"]["endpoints"]
        chosen = [each for each in of_kind(objects, "Service") if wanted <= each["metadata"]["labels"].items()]
        ports = [port for each in chosen for port in each["spec"]["ports"] if port["name"] == endpoint["port"]]
        assert len(ports) == 1
        assert endpoint["scheme"] == "https"
        assert endpoint["bearerTokenFile"] == "/var/run/secrets/kubernetes.io/serviceaccount/token"
        targets = {each["targetLabel"]: each for each in endpoint["relabelings"]}
        assert targets["job"]["replacement"] == f"headroom-{component}"
        assert ("node" in targets) == (component == "agent")
    assert monitors.keys() == {"agent", "manager"}
    manager = monitors["manager"]["spec"]["endpoints"][0]["tlsConfig"]
    assert manager == {"serverName": "headroom-manager", "ca": {"configMap": {"name": "headroom-ca", "key": "ca.crt"}}}


def test_without_tls_and_authorization_monitors_ask_as_anyone_may(helm: Helm) -> None:
    open_access = ("--set", "access.tls=false,access.authorization=false")
    for monitor in of_kind(helm.objects("--values", MONITORING, *open_access), "ServiceMonitor"):
        assert not monitor["spec"]["endpoints"][0].keys() & {"scheme", "tlsConfig", "bearerTokenFile"}


def test_dashboards_are_where_grafanas_sidecar_looks(helm: Helm) -> None:
    objects = of_kind(helm.objects("--values", MONITORING), "ConfigMap")
    found = [each for each in objects if "grafana_dashboard" in each["metadata"]["labels"]]
    files = sorted((CHART / "files" / "dashboards").glob("*.json"))
    assert {name for each in found for name in each["data"]} == {path.name for path in files}
    for each in found:
        assert each["metadata"]["namespace"] == "monitoring"
        assert each["metadata"]["annotations"] == {"grafana_folder": "Headroom"}
        ((name, content),) = each["data"].items()
        assert content.rstrip("\n") == (CHART / "files" / "dashboards" / name).read_text().rstrip("\n")
