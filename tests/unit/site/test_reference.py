"""The reference pages of the site say what the code has; the pages written by hand cover what is generated."""

import re
from collections.abc import Mapping

import msgspec
import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest

from agent.settings import AgentSettings
from agent.telemetry.cost import CostCollector
from deploy.site import metrics, reference
from manager.autoscaler.reporting.metrics import AutoscalerMetrics
from manager.daemon_settings import DaemonSettings
from manager.nodeside.metrics import ManagerCounters
from shared import names, settings
from shared.kube import metrics as kube_metrics
from shared.telemetry import Loops
from tests.support.apiserver import ROOT

OPERATIONS = (ROOT / "docs" / "operations.md").read_text()


@pytest.fixture(scope="module")
def pages() -> Mapping[str, str]:
    return reference.pages()


@pytest.mark.parametrize(("page", "kind"), [("agent", AgentSettings), ("manager", DaemonSettings)])
def test_every_setting_is_listed_with_its_key(pages: Mapping[str, str], page: str, kind: type[msgspec.Struct]) -> None:
    listed = set(re.findall(r"^\| `--[a-z0-9-]+` \| `(\w+)` \|", pages[f"reference/{page}.md"], re.MULTILINE))
    assert listed >= set(settings.shown(kind()))


def test_every_metric_that_is_scraped_is_listed_with_its_meaning(pages: Mapping[str, str]) -> None:
    registry = CollectorRegistry()
    ManagerCounters(registry)
    AutoscalerMetrics(registry)
    kube_metrics.Metrics(registry)
    Loops(registry)
    registry.register(CostCollector())
    scraped = re.findall(r"^# HELP (\w+) (.+)$", generate_latest(registry).decode(), re.MULTILINE)
    scraped = [(name, about) for name, about in scraped if not name.endswith("_created")]
    assert len(scraped) > 25
    for name, about in scraped:
        assert re.search(rf"^\| `{name}` \| .* \| {re.escape(about)} \|$", pages["reference/metrics.md"], re.MULTILINE)


def test_labels_and_types_of_a_metric_follow_helpers_that_make_it() -> None:
    found = {family.name: family for family in metrics.families()}
    backoff = found["headroom_autoscaler_group_backoff"]
    assert (backoff.type, backoff.labels) == ("gauge", ("group", "reason"))
    promised = found["headroom_agent_prediction_promised_total"]
    assert (promised.type, promised.labels) == ("counter", ("resource", "horizon_seconds", "unit"))


@pytest.mark.parametrize(
    "reason", ["TriggeredScaleUp", "ScaleDownFailed", "PressureEviction", "PredictionForgotten", "MidResourceShort"]
)
def test_an_event_is_listed_wherever_its_reason_is_made(pages: Mapping[str, str], reason: str) -> None:
    assert f"| `{reason}` |" in pages["reference/events.md"]


def test_every_field_of_a_definition_is_listed_with_its_description(pages: Mapping[str, str]) -> None:
    crd = yaml.safe_load((ROOT / "deploy/helm/headroom/files/crds/nodemetrics.yaml").read_text())
    status = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    for name, field in status.items():
        assert f"| `status.{name}` | " in pages["reference/crds.md"]
        assert field.get("description", "").split("|")[0] in pages["reference/crds.md"]


@pytest.mark.parametrize(
    "path",
    [
        "GET /api/v1/pods/{uid}",
        "GET /api/v1/nodes/{name}",
        "GET /api/v1/workloads",
        "POST /api/v1/plan",
        "POST /scheduler/filter",
    ],
)
def test_every_path_is_listed(pages: Mapping[str, str], path: str) -> None:
    assert f"| `{path}` | " in pages["reference/http.md"]


def test_names_of_our_own_and_of_others_are_listed_and_those_of_kubernetes_are_not(pages: Mapping[str, str]) -> None:
    page = pages["reference/names.md"]
    assert f"| `{names.ANNOTATION_FORGET}` |" in page
    assert "| `cluster-autoscaler.kubernetes.io/safe-to-evict` |" in page
    assert "topology.kubernetes.io/zone" not in page


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(headroom_[a-z_]+)[`{]", OPERATIONS))))
def test_operations_speaks_of_metrics_that_there_are(name: str) -> None:
    known = {family.name.replace("{tier}", "mid") for family in metrics.families()}
    assert name in known


@pytest.mark.parametrize("condition", sorted(v for k, v in vars(names).items() if k.startswith("CONDITION_")))
def test_operations_says_what_to_do_about_each_condition_of_a_node(condition: str) -> None:
    assert condition in OPERATIONS or condition.split("/")[1] in OPERATIONS
