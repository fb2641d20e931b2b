"""The reference pages of the site say what the code has; the pages written by hand cover what is generated."""

import inspect
import re
import subprocess
import sys
import typing
from collections.abc import Iterator, Mapping
from types import ModuleType

import msgspec
import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest

from agent.settings import AgentSettings
from agent.telemetry.cost import CostCollector
from deploy.site import metrics, python_api, reference
from manager.autoscaler.reporting.metrics import AutoscalerMetrics
from manager.autoscaler.scale_down.removal_status import UnremovableReason
from manager.daemon_settings import DaemonSettings
from manager.nodeside.metrics import ManagerCounters
from shared import names, settings
from shared.kube import metrics as kube_metrics
from shared.metric_families import CounterFamily
from shared.telemetry import Loops
from tests.support.apiserver import ROOT

OPERATIONS = (ROOT / "docs" / "operations.md").read_text()
TROUBLESHOOTING = (ROOT / "docs" / "troubleshooting.md").read_text()


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


@pytest.mark.parametrize(("declaration", "least"), [("from shared.metric_families import", 15), (" = EventReason(", 7)])
def test_no_module_that_declares_metrics_or_events_is_left_out(declaration: str, least: int) -> None:
    code = "import sys; from deploy.site import metrics; print(*sys.modules)"  # here other tests have imported more
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    files = (file for package in ("agent", "manager", "shared") for file in (ROOT / package).rglob("*.py"))
    declaring = {
        ".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files if declaration in file.read_text()
    }
    assert len(declaring) > least
    assert declaring - set(found.stdout.split()) == set()


def test_a_metric_that_is_declared_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="headroom_agent_reports is declared twice"):
        CounterFamily("headroom_agent_reports", "Another meaning.")


def test_a_metric_is_declared_with_its_labels_and_type() -> None:
    found = {family.exposed_name: family for family in metrics.families()}
    backoff = found["headroom_autoscaler_group_backoff"]
    assert (backoff.type, backoff.labels) == ("gauge", ("group", "reason"))
    chunks = found["headroom_autoscaler_buffer_chunks"]
    assert (chunks.labels, chunks.about[:25]) == (("namespace", "buffer", "kind"), "Chunks of CapacityBuffers")
    promised = found["headroom_agent_prediction_promised_total"]
    assert (promised.type, promised.labels) == ("counter", ("resource", "horizon_seconds", "unit"))


@pytest.mark.parametrize(
    "reason", ["TriggeredScaleUp", "ScaleDownFailed", "PressureEviction", "PredictionForgotten", "MidResourceEviction"]
)
def test_an_event_is_listed_wherever_its_reason_is_made(pages: Mapping[str, str], reason: str) -> None:
    assert f"| `{reason}` |" in pages["reference/events.md"]


def test_every_field_of_a_definition_is_listed_with_its_description(pages: Mapping[str, str]) -> None:
    crd = yaml.safe_load((ROOT / "deploy/helm/headroom/files/crds/nodemetrics.yaml").read_text())
    status = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    for name, field in status.items():
        assert f"| `status.{name}` | " in pages["reference/crds.md"]
        assert field.get("description", "").split("|")[0] in pages["reference/crds.md"]


@pytest.mark.parametrize("module", python_api.MODULES)
def test_every_name_for_plugins_is_listed_beside_an_example(pages: Mapping[str, str], module: ModuleType) -> None:
    page = pages["reference/python-api.md"]
    section = page.partition(f"## `{module.__name__}`")[2].partition("\n## ")[0]
    names = re.findall(r"^### (\w+)$", section, re.MULTILINE)
    protocol, example = python_api.MODULES[module]
    assert names[0] == protocol
    assert sorted(names) == sorted(module.__all__)
    assert (ROOT / "examples" / example).read_text().strip() in section
    assert " object at 0x" not in section


def _types(hint: object) -> Iterator[type]:
    if isinstance(hint, list | tuple):
        for each in hint:
            yield from _types(each)
    elif inspect.isclass(hint) and not typing.get_args(hint):
        yield hint
    else:
        yield from _types(typing.get_args(hint))


@pytest.mark.parametrize("module", python_api.MODULES)
def test_plugins_can_import_each_type_that_their_protocol_takes_or_returns(module: ModuleType) -> None:
    protocols = [value for value in vars(module).values() if getattr(value, "_is_protocol", False)]
    methods = [each for protocol in protocols for each in vars(protocol).values() if inspect.isfunction(each)]
    found = {each for method in methods for each in _types(list(typing.get_type_hints(method).values()))}
    ours = {each.__name__ for each in found if each.__module__.partition(".")[0] in ("agent", "manager", "shared")}
    assert len(ours) > 1
    assert ours - set(module.__all__) == set()


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
    known = {family.exposed_name for family in metrics.families()}
    assert name in known


@pytest.mark.parametrize("condition", sorted(v for k, v in vars(names).items() if k.startswith("CONDITION_")))
def test_operations_says_what_to_do_about_each_condition_of_a_node(condition: str) -> None:
    assert condition in OPERATIONS or condition.split("/")[1] in OPERATIONS


def test_troubleshooting_names_reasons_that_there_are() -> None:
    section = TROUBLESHOOTING.partition("## Node not removed")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([A-Z][a-z]+[A-Z]\w+)`", section))
    assert len(named) > 8
    assert named - set(UnremovableReason) == set()


@pytest.mark.parametrize(
    ("page", "prefix"),
    [
        ("cluster-autoscaler", "headroom_autoscaler_"),
        ("escalator", ""),
        ("koordinator", "headroom_agent_"),
    ],
)
def test_migration_pages_name_metrics_that_there_are(page: str, prefix: str) -> None:
    text = (ROOT / "docs" / "how-to" / f"{page}.md").read_text().partition("## Metrics")[2].partition("\n## ")[0]
    cells = [row.split("|")[2] for row in text.splitlines() if row.startswith("| `")]
    ours = [cell for cell in cells if not cell.startswith((" none", " absent", " the number of series"))]
    named = [re.match(r" (?:the sum of )?`(\w+)", cell) for cell in ours]
    found = {prefix + match[1] for match in named if match} - {f"{prefix}process_start_time_seconds"}
    assert len(found) >= 5
    assert found - {family.exposed_name for family in metrics.families()} == set()
