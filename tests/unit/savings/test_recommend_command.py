"""`headroom recommend`: from a dump and a server that speaks Prometheus' API to a table, sheets and patches."""

import csv
import io
import json
import shlex
from typing import Any

import msgspec
import pytest
import yaml

from deploy.savings.rows import Recommendations
from tests.support import schemas
from tests.support.command_line import Run
from tests.unit.backtest.prometheus_server import PrometheusServer
from tests.unit.savings import clusters
from tests.unit.savings.clusters import GIB, MIB, container, node, pod, shop
from tests.unit.savings.conftest import Command, Dump


def test_what_a_workload_used_in_a_week_becomes_its_requests_with_the_money_in_them(
    server: PrometheusServer, dump: Dump, recommend: Command
) -> None:
    path = dump(*shop())
    clusters.serve(server, {(f"web-5d9c7b-{number}", "main"): (0.2 + 0.2 * number, 2.0 * GIB) for number in range(3)})
    found = recommend.answer("-f", path, "--prometheus", server.url, "--until", clusters.NOW)
    (row,) = found["containers"]
    assert (row["workload"], row["kind"], row["replicas"]) == ("web", "Deployment", 3)
    assert (row["source"], row["confidence"], row["gap_days"]) == ("prometheus", "high", 0)
    assert row["cpu"]["recommended_request"] == 690  # the busiest of three used 0.6 cores, and 15 %
    assert "web-5d9c7b-2" in row["cpu"]["detail"]
    assert row["memory"]["recommended_request"] == -(-2 * GIB * 1.15 // MIB) * MIB
    assert row["memory"]["recommended_limit"] == 12 * GIB
    assert found["cpu_saved"] == 3 * (3000 - 690)
    nodes_cost = 3 * 0.192 * 730
    assert 0 < row["cost_then"] < row["cost_now"] < nodes_cost
    assert row["saved"] == pytest.approx(row["cost_now"] - row["cost_then"], abs=0.02)
    assert found["saved_per_month"] == row["saved"]
    assert row["risk"] == "low"


def test_the_split_of_nodes_prices_adds_up_to_what_nodes_cost(dump: Dump, recommend: Command) -> None:
    whole = [node("a"), pod("w-5d9c7b-0", "w", "a", container("main", "4", "16Gi"))]
    path = dump(*whole)
    found = recommend.answer("-f", path)
    assert found["containers"][0]["cost_now"] == pytest.approx(0.192 * 730, abs=0.01)
    assert "no usage is known" in " ".join(found["notes"])


def test_patches_name_what_changes_in_the_forms_of_kustomize_kubectl_and_helm(
    server: PrometheusServer, dump: Dump, recommend: Command
) -> None:
    path = dump(*shop())
    clusters.serve(server, {(f"web-5d9c7b-{number}", "main"): (0.6, 2.0 * GIB) for number in range(3)})
    given = ("-f", path, "--prometheus", server.url, "--until", clusters.NOW)
    component = yaml.safe_load(recommend(*given, "-o", "patch"))
    (entry,) = component["patches"]
    assert entry["target"] == {"kind": "Deployment", "name": "web", "namespace": "shop"}
    (patched,) = yaml.safe_load(entry["patch"])["spec"]["template"]["spec"]["containers"]
    requests = {"cpu": "690m", "memory": "2356Mi"}
    assert patched == {"name": "main", "resources": {"requests": requests, "limits": {"memory": "12Gi"}}}
    words = shlex.split(recommend(*given, "-o", "kubectl"))
    assert words[:5] == ["kubectl", "patch", "deployment", "web", "--namespace"]
    (in_line,) = json.loads(words[-1])["spec"]["template"]["spec"]["containers"]
    assert in_line == patched
    values = yaml.safe_load(recommend(*given, "-o", "helm"))
    assert values == {"shop/Deployment/web": {"resources": patched["resources"]}}
    note = shlex.split(recommend(*given, "-o", "annotate"))[-1].partition("=")[2]
    assert json.loads(note)["containerRecommendations"][0]["target"] == requests


def test_a_table_says_what_changes_and_why_the_rest_stays(
    server: PrometheusServer, dump: Dump, recommend: Command
) -> None:
    path = dump(*shop(), pod("db-0", "db", "a", container(cpu="1"), kind="StatefulSet"))
    clusters.serve(server, {("web-5d9c7b-0", "main"): (0.6, 2.0 * GIB)})
    given = ("-f", path, "--prometheus", server.url, "--until", clusters.NOW)
    text = recommend(*given, "-o", "wide")
    assert "shop/web" in text
    assert "3 -> 690m" in text
    assert "p95 600m of web-5d9c7b-0 on 2025-12" in text
    assert "no data" in text
    rows = list(csv.DictReader(io.StringIO(recommend(*given, "-o", "csv"))))
    assert {row["workload"]: row["cpu_reason"] for row in rows} == {"web": "quantile", "db": "no data"}


def checkpoint(weights: dict[str, int], memory: dict[str, int], **status: Any) -> list[dict[str, Any]]:
    """With the VerticalPodAutoscaler whose it is."""
    about = {"firstSampleStart": "2025-12-20T00:00:00Z", "lastSampleStart": "2025-12-31T00:00:00Z"}
    reference = {"referenceTimestamp": "2025-12-31T00:00:00Z", "totalWeight": 100.0}
    said = {
        "version": "v3",
        "cpuHistogram": {**reference, "bucketWeights": weights},
        "memoryHistogram": {**reference, "bucketWeights": memory},
        "totalSamplesCount": 15_000,
        **about,
        **status,
    }
    meta = {"name": "web-main", "namespace": "shop"}
    target = {"targetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"}}
    return [
        {"kind": "VerticalPodAutoscaler", "metadata": {"name": "web", "namespace": "shop"}, "spec": target},
        {
            "kind": "VerticalPodAutoscalerCheckpoint",
            "metadata": meta,
            "spec": {"vpaObjectName": "web", "containerName": "main"},
            "status": said,
        },
    ]


def test_the_checkpoints_of_a_vpa_that_only_looks_on_are_a_source(dump: Dump, recommend: Command) -> None:
    path = dump(*shop(), *checkpoint({"29": 10000, "30": 200}, {"36": 10000}))
    (row,) = recommend.answer("-f", path)["containers"]
    assert row["source"] == "vpa"
    assert row["days"] == 11
    start = 0.01 * (1.05**30 - 1) / 0.05  # of the bucket after the one that 95 % of samples are in
    assert row["cpu"]["used_quantile"] == pytest.approx(start * 1000, rel=1e-6)
    (row,) = recommend.answer("-f", path, "--estimator", "vpa")["containers"]
    assert row["cpu"]["reason"] == "vpa"
    assert row["cpu"]["recommended_request"] == int(start * 1000) + int(int(start * 1000) * 0.15)


def test_a_checkpoint_that_cannot_be_read_is_named_and_passed_by(dump: Dump, recommend: Command) -> None:
    path = dump(*shop(), *checkpoint({"400": 10000}, {"3": 1}))
    found = recommend.answer("-f", path)
    assert any("web-main is passed by: no such bucket: 400" in note for note in found["notes"])
    assert found["containers"][0]["cpu"]["reason"] == "no data"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--estimator", "guess"), "--estimator"),
        (("--limits", "none"), "--limits"),
        (("--until", "yesterday"), "--until"),
        (("--prices", "/nowhere.yaml"), "/nowhere.yaml"),
        (("--prometheus", "ftp://x"), "ftp://x"),
    ],
)
def test_what_means_nothing_is_refused_with_its_name(
    arguments: tuple[str, str], named: str, dump: Dump, headroom: Run
) -> None:
    status, _, err = headroom("recommend", "-f", dump(*shop()), *arguments)
    assert status == 2
    assert named in err


def test_a_dead_replica_of_the_same_workload_counts(server: PrometheusServer, dump: Dump, recommend: Command) -> None:
    path = dump(*shop())
    used = {("web-5d9c7b-0", "main"): (0.1, 1.0 * GIB), ("web-77aa-zz", "main"): (0.8, 4.0 * GIB)}
    clusters.serve(server, used)
    (row,) = recommend.answer("-f", path, "--prometheus", server.url, "--until", clusters.NOW)["containers"]
    assert row["cpu"]["recommended_request"] == 920
    assert row["memory"]["recommended_request"] == -(-4 * GIB * 1.15 // MIB) * MIB


def test_the_published_schema_is_that_of_the_answer() -> None:
    assert schemas.published("recommend") == msgspec.json.schema(Recommendations)
