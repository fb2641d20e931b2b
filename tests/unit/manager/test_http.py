"""The HTTP answers are those of docs/schemas, and the page loads nothing but itself."""

import importlib.resources
import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from manager import http
from manager.nodeside import answers, fleet_answers, usage_histograms
from manager.nodeside.answers import Explained, Nodes, Status
from manager.nodeside.decisions import KnownNode, LastWrite, Pending
from manager.nodeside.fleet_answers import FleetPrediction
from manager.nodeside.node_prediction import PredictionRow, PromiseRow, ShadowRow, WithdrawalRow
from manager.nodeside.node_trends import MOST_SPARKLINES, NodeAmounts, NodeTrend, NodeTrends, Sparklines
from manager.nodeside.noderesource import explain, report
from manager.nodeside.noderesource.explain import Known
from manager.nodeside.noderesource.writing import OfferChange
from manager.nodeside.usage_histograms import HistogramRow, NodeHistograms
from manager.nodeside.workload_trends import WorkloadTrend
from manager.nodeside.workloads import WorkloadPods, WorkloadsAnswer
from manager.pods import NodeRequests
from shared import names, web
from shared.api.nodemetric import UsageHistogram
from shared.clock import ManualClock
from shared.names import Tier
from shared.quantity import Resources
from shared.recommendation import ModelRecommendation
from tests.support import schemas
from tests.support.local_http import LOCAL_HTTP
from tests.unit.manager import fleets
from tests.unit.manager.objects import GIB, NOW, enabled, metric, node

FLEET = fleet_answers.fleet(fleets.fleet(fleets.report("n1"), fleets.report("n2")))
HOSTILE = '<img src=x onerror="alert(1)">'

REQUESTED = NodeRequests(Resources(2000, GIB), Resources(1000, GIB))
HISTOGRAM = UsageHistogram("cpu", (0, 500, 900), (9000, 1000), 480, 700, 800, 860)
REPORTED = msgspec.structs.replace(
    report.read(
        fleets.promising(metric(reclaimable={"cpu": "1", "memory": "1Gi"}, usage={"cpu": "500m", "memory": "2Gi"}))
    ),
    histograms=msgspec.json.encode((HISTOGRAM,)),
)
SIMULATED = node("n1", labels={names.LABEL_SIMULATED: "true"}, mid={names.MID_CPU: "1k", names.MID_MEMORY: "1Gi"})
STATES = {
    "n1": KnownNode(
        SIMULATED,
        REQUESTED,
        explain.decide(SIMULATED, REPORTED, Known(REQUESTED), enabled(), NOW),
        LastWrite(NOW, 0, "difference", "why", {Tier.MID: OfferChange(None, Resources(1000, GIB))}),
        Pending("later", NOW + 60),
    ),
    HOSTILE: KnownNode(node(HOSTILE), NodeRequests(), None, None),
}


class SlowLoops:
    def silent(self) -> dict[str, float]:
        return {"worker": 12.0}

    def overdue(self) -> dict[str, float]:
        return {}


class States:
    def states(self) -> list[KnownNode]:
        return list(STATES.values())

    def state(self, name: str) -> KnownNode | None:
        return STATES.get(name)


TRENDS = NodeTrends(
    lambda: {
        "n1": NodeAmounts.read(SIMULATED, REQUESTED, REPORTED),
        HOSTILE: NodeAmounts.read(node(HOSTILE), NodeRequests(), None),
    },
    ManualClock(NOW),
)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    app = http.application(
        reader=States(),
        trends=TRENDS,
        registry=CollectorRegistry(),
        status=lambda: Status("prod-1", True, False, ["pods"], False, "ns/cm", None, {}),
        fleet=lambda: FLEET,
        loops=SlowLoops(),
        version="1",
        now=lambda: NOW + 5,
    )
    server = web.server(app, "127.0.0.1:0")
    server.start()
    yield server.url
    server.close()


def test_the_last_day_is_told_of_each_node_and_of_all_together(url: str) -> None:
    TRENDS.record()
    for path, node_name in (("history", ""), ("nodes/n1/history", "n1")):
        told = msgspec.json.decode(LOCAL_HTTP.get(f"{url}/api/v1/{path}").content, type=NodeTrend)
        assert (told.node, told.times) == (node_name, ["2023-11-14T22:13:20Z"])
        assert (told.used.cpu_milli, told.used.memory_bytes) == ([500], [2 * GIB])
        assert told.predicted_peak.cpu_milli == [None]
    assert LOCAL_HTTP.get(f"{url}/api/v1/nodes/nowhere/history").status_code == 404


def test_the_last_day_of_a_page_of_nodes_is_one_bounded_answer(url: str) -> None:
    TRENDS.record()
    answer = LOCAL_HTTP.get(f"{url}/api/v1/history/nodes", params={"name": ["n1", HOSTILE, "nowhere"]})
    told = msgspec.json.decode(answer.content, type=Sparklines)
    assert told.nodes.keys() == {"n1", HOSTILE}
    assert told.nodes["n1"].used.cpu_milli == [500]
    too_many = LOCAL_HTTP.get(f"{url}/api/v1/history/nodes", params={"name": ["n1"] * (MOST_SPARKLINES + 1)})
    assert too_many.status_code == 422
    assert too_many.json()["detail"][0]["loc"] == ["query", "name"]
    assert LOCAL_HTTP.get(f"{url}/api/v1/history/nodes").status_code == 422


def test_the_table_tells_what_is_known_of_every_node(url: str) -> None:
    answer = msgspec.json.decode(LOCAL_HTTP.get(f"{url}/api/v1/nodes").content)
    assert (answer["cluster"], answer["time"]) == ("prod-1", "2023-11-14T22:13:25Z")
    first, second = answer["nodes"]
    assert first == {
        "name": "n1",
        "simulated": True,
        "allocatable": {"cpu_milli": 10_000, "memory_bytes": 100 * GIB},
        "requested": {"cpu_milli": 2000, "memory_bytes": GIB},
        "used": {"cpu_milli": 500, "memory_bytes": 2 * GIB},
        "predicted_peak": None,
        "reclaimable": {"cpu_milli": 1000, "memory_bytes": GIB},
        "mid": {"cpu_milli": 1000, "memory_bytes": GIB},
        "batch": {"cpu_milli": 0, "memory_bytes": 0},
        "reason": "cpu 1 by reclaimable, memory 1.00 GiB by reclaimable",
        "reported": REPORTED.updated,
        "report_reason": "",
        "wanted": {"cpu_milli": 1000, "memory_bytes": GIB},
        "bound": {"cpu": "reclaimable", "memory": "reclaimable"},
        "history_percent": 0,
        "prod_used": {"cpu_milli": 500, "memory_bytes": 2 * GIB},
        "prod_slowed": [],
        "prod_slowed_minutes_per_day": None,
    }
    assert (second["wanted"], second["bound"], second["history_percent"]) == (None, None, None)
    assert (second["name"], second["used"], second["reason"]) == (HOSTILE, None, "not decided yet")


def test_answers_are_compressed_for_clients_that_can_read_it(url: str) -> None:
    packed = LOCAL_HTTP.get(f"{url}/api/v1/nodes")
    plain = LOCAL_HTTP.get(f"{url}/api/v1/nodes", headers={"accept-encoding": "identity"})
    assert (packed.headers["content-encoding"], packed.headers["vary"]) == ("gzip", "Accept-Encoding")
    assert "content-encoding" not in plain.headers
    assert packed.content == plain.content
    assert int(packed.headers["content-length"]) < int(plain.headers["content-length"])


def test_an_answer_that_the_client_has_is_not_sent_again(url: str) -> None:
    first = LOCAL_HTTP.get(f"{url}/api/v1/nodes")
    assert (first.status_code, first.headers["cache-control"]) == (200, "private, no-cache")
    again = LOCAL_HTTP.get(f"{url}/api/v1/nodes", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
    assert "content-type" not in again.headers
    other = LOCAL_HTTP.get(f"{url}/api/v1/nodes/n1", headers={"if-none-match": first.headers["etag"]})
    assert (other.status_code, other.headers["etag"] != first.headers["etag"]) == (200, True)


def test_a_refusal_and_what_is_no_answer_of_the_api_have_no_tag_of_their_content(url: str) -> None:
    assert "etag" not in LOCAL_HTTP.get(f"{url}/api/v1/nodes/gone").headers
    assert "etag" not in LOCAL_HTTP.get(f"{url}/metrics").headers


def test_an_explanation_has_every_term_and_the_last_write(url: str) -> None:
    answer = msgspec.json.decode(LOCAL_HTTP.get(f"{url}/api/v1/nodes/n1").content, type=Explained)
    assert answer.cluster == "prod-1"
    assert (answer.resources.cpu.bound, answer.resources.cpu.result) == ("reclaimable", 1000)
    terms = {term.name for term in answer.resources.memory.terms}
    assert terms == {"prod_requested", "reclaimable", "allocatable", "threshold", "cap"}
    mid = answers.Amount(1000, GIB)
    assert answer.last_write == answers.LastWriteRow(
        "2023-11-14T22:13:20Z", "difference", "why", 1000, GIB, offers={"mid": mid}
    )
    assert answer.pending == answers.PendingWriteRow("later", "2023-11-14T22:14:20Z")
    assert set(answer.tiers) == {"mid", "batch"}
    assert (answer.tiers["mid"].cpu, answer.tiers["mid"].on_offer) == (answer.resources.cpu, mid)
    assert answer.tiers["batch"].on_offer is None
    assert all(term.source and term.time for tier in answer.tiers.values() for term in tier.memory.terms)


def test_how_a_nodes_models_keep_their_promises_is_told_and_which_one_to_use(url: str) -> None:
    told = msgspec.json.decode(LOCAL_HTTP.get(f"{url}/api/v1/nodes/n1").content, type=Explained).prediction
    assert told is not None
    assert (told.model, told.prior, told.problem) == ("peak-mix", "fleet of 40 nodes", None)
    assert told.promises[0] == PromiseRow("cpu", 86400, 1500, 1.0, 672, 3.0, 61.2)
    assert told.shadows == [
        ShadowRow("n-sigma-v2", 672, 0.4, 0.0, 36.4, 30.0),
        ShadowRow("percentile", 0, None, None, None, None),
    ]
    assert told.withdrawals == [WithdrawalRow(86400, 2.1, 0.0), WithdrawalRow(28 * 86400, 1.4, None)]
    assert told.recommended == ModelRecommendation(
        "n-sigma-v2",
        "Use n-sigma-v2: n-sigma-v2 was wrong in 0.4 % of 672 outcomes and lent 36 % of cpu and 30 % of memory, with a "
        "target of 1 %; peak-mix was wrong in 3.0 % of 672 outcomes and lent 61 % of cpu and 48 % of memory.",
    )


def test_how_often_prod_uses_how_much_of_a_node_is_told(url: str) -> None:
    told = msgspec.json.decode(LOCAL_HTTP.get(f"{url}/api/v1/nodes/n1/histograms").content, type=NodeHistograms)
    percentiles = {"50": 480, "95": 700, "98": 800, "99": 860}
    rows = [HistogramRow("cpu", [0, 500, 900], [9000, 1000], percentiles, None)]
    assert told == NodeHistograms("n1", "peak-mix", rows, None)
    assert LOCAL_HTTP.get(f"{url}/api/v1/nodes/nowhere/histograms").status_code == 404


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"resource": "gpu"}, "the resource must be cpu or memory"),
        ({"shares": ()}, "there must be 1 to 20 shares, and one bound more"),
        ({"shares": (1,) * 21, "bounds": tuple(range(22))}, "there must be 1 to 20 shares"),
        ({"bounds": (0, 500)}, "one bound more"),
        ({"bounds": (0, 900, 500)}, "the bounds must ascend"),
        ({"p95": -1}, "an amount must be 0 or more"),
        ({"shares": (9000, 10001)}, "a share must be 0 to 10000"),
    ],
)
def test_a_histogram_that_cannot_be_is_left_out_and_named(changes: dict[str, Any], problem: str) -> None:
    told = msgspec.json.encode((msgspec.structs.replace(HISTOGRAM, **changes),))
    found = usage_histograms.answer("n1", msgspec.structs.replace(REPORTED, histograms=told))
    assert found.histograms == []
    assert re.search(rf"status.prediction.usageHistograms\[.*{problem}", found.problem or "")


def test_histograms_that_cannot_be_read_spoil_nothing_else() -> None:
    for raw in (b"7", b'[{"bounds": "many"}]', b"[" * 5000):
        found = usage_histograms.answer("n1", msgspec.structs.replace(REPORTED, histograms=raw))
        assert (found.histograms, "usageHistograms" in (found.problem or "")) == ([], True)
    assert usage_histograms.answer("n1", None) == NodeHistograms("n1", "", [], None)


def test_the_fleets_promises_are_told(url: str) -> None:
    answer = msgspec.json.decode(LOCAL_HTTP.get(f"{url}/api/v1/prediction").content, type=FleetPrediction)
    assert answer == FLEET
    assert [(rate.resource, rate.outcomes, rate.missed) for rate in answer.rates] == [
        ("cpu", 1344, True),
        ("memory", 1344, False),
    ]
    assert answer.prior.source == "built-in"


def test_a_node_that_is_not_there_is_named(url: str) -> None:
    answer = LOCAL_HTTP.get(f"{url}/api/v1/nodes/nowhere")
    assert answer.status_code == 404
    assert answer.json() == {"detail": "there is no Node 'nowhere' in the cluster"}
    assert len(LOCAL_HTTP.get(f"{url}/api/v1/nodes/{'x' * 10_000}").content) < 300


@pytest.mark.parametrize(("path", "about"), [("healthz", {"worker": 12.0}), ("readyz", ["pods"])])
def test_probes_say_what_is_missing(url: str, path: str, about: object) -> None:
    answer = LOCAL_HTTP.get(f"{url}/{path}")
    assert answer.status_code == 503
    assert about in answer.json().values()


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("nodes", Nodes),
        ("explain", Explained),
        ("prediction", FleetPrediction),
        ("histograms", NodeHistograms),
        ("history", NodeTrend),
        ("sparklines", Sparklines),
        ("workloads", WorkloadsAnswer),
        ("workload_pods", WorkloadPods),
        ("workload_history", WorkloadTrend),
    ],
)
def test_the_published_schemas_are_those_of_the_answers(file: str, kind: type) -> None:
    assert schemas.published(file) == msgspec.json.schema(kind)


def test_the_page_may_load_nothing_but_its_own_files(url: str) -> None:
    page = LOCAL_HTTP.get(f"{url}/")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    loaded = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    for target in loaded:
        if not target.startswith("data:"):
            answer = LOCAL_HTTP.get(f"{url}/{target}")
            assert answer.status_code == 200, target
    assert not re.search(r"<script(?![^>]*src=)", page.text), "an inline script would be refused by the policy"


SCRIPTS = sorted(each.name for each in importlib.resources.files("manager.page").iterdir() if each.name.endswith(".js"))


def test_the_page_is_small_and_without_inline_styles(url: str) -> None:
    page = LOCAL_HTTP.get(f"{url}/").text
    files = [target for target in re.findall(r'(?:src|href)="([^"]+)"', page) if target.startswith("page/")]
    assert {f"page/{name}" for name in SCRIPTS} < set(files)
    assert len(page.encode()) + sum(len(LOCAL_HTTP.get(f"{url}/{target}").content) for target in files) < 110_000
    assert not re.search(r"<style|\bstyle=", page), "the policy would refuse it"


def test_a_file_of_the_page_that_has_not_changed_is_not_sent_again(url: str) -> None:
    for path in ("", "page/page.css", "page/course.js"):
        first = LOCAL_HTTP.get(f"{url}/{path}")
        again = LOCAL_HTTP.get(f"{url}/{path}", headers={"if-none-match": first.headers["etag"]})
        assert (first.status_code, again.status_code, again.content) == (200, 304, b"")
        other = LOCAL_HTTP.get(f"{url}/{path}", headers={"if-none-match": 'W/"another"'})
        assert (other.status_code, other.content) == (200, first.content)


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_page_is_sent_without_indentation_and_comments_and_line_by_line(url: str, name: str) -> None:
    source = importlib.resources.files("manager.page").joinpath(name).read_text().splitlines()
    sent = LOCAL_HTTP.get(f"{url}/page/{name}").text.splitlines()
    for line, kept in zip(source, sent, strict=True):
        code, _, comment = line.lstrip().partition("// ")
        assert kept in (line.lstrip(), code.rstrip())
        assert (kept == line.lstrip()) or not re.search("[`;]$", comment), "it may be no comment"


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_scripts_make_no_markup_out_of_text(url: str, name: str) -> None:
    script = LOCAL_HTTP.get(f"{url}/page/{name}").text
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", script)


def test_the_page_shows_all_that_is_told_of_a_nodes_prediction(url: str) -> None:
    script = LOCAL_HTTP.get(f"{url}/page/page.js").text
    told = (PredictionRow, PromiseRow, ShadowRow, WithdrawalRow)
    names = [*(field.name for kind in told for field in fields(kind)), *ModelRecommendation.__struct_fields__]
    assert [name for name in names if name not in script] == []


def test_the_api_page_needs_no_network(url: str) -> None:
    assert not re.search(r"https?://", LOCAL_HTTP.get(f"{url}/docs").text)
    assert {"/api/v1/nodes", "/api/v1/nodes/{name}"} <= LOCAL_HTTP.get(f"{url}/openapi.json").json()["paths"].keys()


def test_the_scripts_of_the_page_share_one_scope_and_no_name() -> None:
    scripts = [importlib.resources.files("manager.page").joinpath(name).read_text() for name in SCRIPTS]
    names = [
        name for script in scripts for name in set(re.findall(r"^(?:const|let|function) (\w+)", script, re.MULTILINE))
    ]
    assert sorted(names) == sorted(set(names))
