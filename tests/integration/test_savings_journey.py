"""From a Prometheus to the savings: the real server, with days of a cluster's usage filled in, and the real PromQL.

What comes out is known from what went in, and a recommendation that is followed is not made again.
"""

import copy
import json
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest
import yaml

from deploy import cli
from deploy.prices import book
from shared.names import MID_CPU
from tests.support import eventually, schemas
from tests.support.local_http import LOCAL_HTTP
from tests.support.programs import program
from tests.unit.prices.cloud_prices import write_table
from tests.unit.savings.clusters import DAY, END, GIB, NOW, container, dumped, node, pod

DAYS = 8
SCRAPE_SECONDS = 120
MONTH = 730
EACH = 0.192 * MONTH  # of an m5.xlarge in us-east-1
Objects: TypeAlias = list[dict[str, Any]]
Used: TypeAlias = Callable[[float], tuple[float, float]]  # cores and bytes, by the hour of the day


def busy_for_two_hours(idle: float, busy: float, memory: float) -> Used:
    """A load of a twelfth of the day, which a quantile of all samples of a week hardly sees."""
    return lambda hour: (busy, memory) if 9 <= hour < 11 else (idle, memory / 2)


USED: dict[str, Used] = {
    "web-5d9c7b-0": busy_for_two_hours(0.2, 0.3, 1 * GIB),
    "web-5d9c7b-1": busy_for_two_hours(0.2, 0.3, 1 * GIB),
    "web-5d9c7b-2": busy_for_two_hours(0.3, 1.2, 1.5 * GIB),
    "report-5d9c7b-0": busy_for_two_hours(0.4, 0.6, 3 * GIB),
}
GONE = "web-5d9c7b-9"  # it ran in the first four days, and used more memory than the others


def shop() -> Objects:
    web = (pod(f"web-5d9c7b-{n}", "web", place, container("main", "3", "10Gi")) for n, place in enumerate("abc"))
    report = pod("report-5d9c7b-0", "report", "d", container("main", "2", "8Gi"))
    nodes = [node(name) for name in "abcd"]
    nodes[-1]["status"]["allocatable"] = {**nodes[-1]["status"]["allocatable"], MID_CPU: "2000"}
    return [*nodes, *web, report]


def samples(objects: Objects) -> Iterator[str]:
    """What cAdvisor and kube-state-metrics would have said, in OpenMetrics' text format, series by series."""
    placed = {each["metadata"]["name"]: each["spec"]["nodeName"] for each in objects if each["kind"] == "Pod"}
    start = END - DAYS * DAY
    times = [start + SCRAPE_SECONDS * step for step in range(int(DAYS * DAY / SCRAPE_SECONDS) + 1)]
    cpu, memory, info, requests = list[str](), list[str](), list[str](), list[str]()
    for name, used in (USED | {GONE: lambda hour: (0.1, 2.0 * GIB)}).items():
        labels, total = f'namespace="shop",pod="{name}",container="main"', 0.0
        asked = ("2", str(8 * GIB)) if name.startswith("report") else ("3", str(10 * GIB))
        for time in times if name != GONE else times[: len(times) // 2]:
            cores, amount = used(time % DAY / 3600)
            total += cores * SCRAPE_SECONDS
            cpu.append(f"container_cpu_usage_seconds_total{{{labels}}} {total} {time}")
            memory.append(f"container_memory_working_set_bytes{{{labels}}} {amount} {time}")
            info.append(f'kube_pod_info{{namespace="shop",pod="{name}",node="{placed.get(name, "a")}"}} 1 {time}')
            for resource, quantity in zip(("cpu", "memory"), asked, strict=True):
                requests.append(
                    f'kube_pod_container_resource_requests{{{labels},resource="{resource}"}} {quantity} {time}'
                )
    lent = list(lending(times))
    requests += [line for line in lent if line.startswith("kube_pod_container_resource_requests")]
    for family, kind, lines in (
        ("container_cpu_usage_seconds", "counter", cpu),
        ("container_memory_working_set_bytes", "gauge", memory),
        ("kube_pod_info", "gauge", info),
        ("kube_pod_container_resource_requests", "gauge", requests),
        *(
            (family, "gauge", [line for line in lent if line.startswith(f"{family}{{")])
            for family in (
                "headroom_manager_node_mid_cpu_cores",
                "headroom_manager_node_batch_cpu_cores",
                "headroom_manager_node_mid_memory_bytes",
                "kube_pod_status_phase",
            )
        ),
    ):
        yield f"# TYPE {family} {kind}"
        yield from sorted(lines, key=lambda line: line[: line.index("}")])
    yield "# EOF"


def lending(times: list[float]) -> Iterator[str]:
    """What two replicas of a manager said in the last two days, and a Mid pod that ran in the last of them."""
    for time in times:
        if time > END - 2 * DAY:
            for replica in ("m-0", "m-1"):
                labels = f'{{node="d",pod="{replica}"}}'
                yield f"headroom_manager_node_mid_cpu_cores{labels} 2 {time}"
                yield f"headroom_manager_node_batch_cpu_cores{labels} 3 {time}"
                yield f"headroom_manager_node_mid_memory_bytes{labels} 0 {time}"
            labels = 'namespace="shop",pod="bid-0"'
            asked = f'{labels},container="main",node="d",resource="kubernetes_io_mid_cpu"'
            yield f"kube_pod_container_resource_requests{{{asked}}} 1000 {time}"
            for phase, is_so in (("Running", time > END - DAY), ("Pending", time <= END - DAY)):
                yield f'kube_pod_status_phase{{{labels},phase="{phase}"}} {int(is_so)} {time}'


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The URL of a Prometheus that has scraped the shop for eight days."""
    filled, data, file = tmp_path / "filled.txt", tmp_path / "data", tmp_path / "prometheus.yml"
    filled.write_text("\n".join(samples(shop())) + "\n")
    made = subprocess.run(
        [
            program("promtool"),
            "tsdb",
            "create-blocks-from",
            "openmetrics",
            "--quiet",
            "--max-block-duration=256h",
            filled,
            data,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    file.write_text(yaml.safe_dump({"global": {"scrape_interval": "1m"}}))
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                program("prometheus"),
                f"--config.file={file}",
                f"--storage.tsdb.path={data}",
                "--storage.tsdb.retention.time=100y",
                f"--web.listen-address={url.removeprefix('http://')}",
            ],
            stdout=output,
            stderr=output,
        )

    def is_ready() -> bool:
        assert process.poll() is None, log.read_text()
        try:
            return LOCAL_HTTP.get(f"{url}/-/ready").status_code == 200
        except httpx.HTTPError:
            return False

    try:
        eventually(is_ready, 60.0)
        yield url
    finally:
        process.terminate()
        process.wait(60)


def followed(objects: Objects, advice: Any) -> Objects:
    """The cluster after its recommended requests were applied."""
    wanted = {row["workload"]: row for row in advice["containers"]}
    changed = copy.deepcopy(objects)
    for each in changed:
        if each["kind"] == "Pod":
            row = wanted[each["metadata"]["labels"]["app"]]
            requests = {
                "cpu": f"{row['cpu']['recommended_request']}m",
                "memory": str(row["memory"]["recommended_request"]),
            }
            each["spec"]["containers"][0]["resources"]["requests"] = requests
    return changed


def stages(found: Any) -> dict[str, Any]:
    return {stage["stage"]: stage for stage in found["stages"]}


@pytest.mark.thorough
@pytest.mark.own_decision("Prometheus and the command line work alone, without an API server")
def test_from_a_prometheus_to_savings_to_requests_that_leave_nothing_more_to_save(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(book.FOLDER, str(tmp_path / "prices"))
    write_table(tmp_path / "prices")

    def asked(command: str, objects: Objects) -> Any:
        path = dumped(tmp_path / "dump.json", *objects)
        given = ["-f", str(path), "--prometheus", server, "--until", NOW, "--history-days", str(DAYS), "-o", "json"]
        assert (cli.app([command, *given], standalone_mode=False) or 0) == 0
        found = json.loads(capsys.readouterr().out)
        assert list(schemas.problems(found, schemas.published(command))) == []
        return found

    before, advice = asked("savings", shop()), asked("recommend", shop())
    assert before["knowledge"]["known"] == {"prometheus": 2}
    assert before["knowledge"]["sure"] == "high: 8.0 days of 100% of containers"

    # The busiest replica's two hours a day count in full, and so does a replica that is gone.
    web, report = advice["containers"]
    assert (web["cpu"]["recommended_request"], report["cpu"]["recommended_request"]) == (1380, 690)
    assert web["memory"]["recommended_request"] == pytest.approx(1.15 * 2 * GIB, rel=1e-3)
    assert f"of {GONE} on" in web["memory"]["detail"]
    assert report["memory"]["recommended_request"] == pytest.approx(1.15 * 3 * GIB, rel=1e-3)

    # Both tiers of a node count once, at the larger, whoever says so; what a pod holds counts while it runs.
    since = before["since"]
    record, core_hour = since["record"], since["offered"] / 2 / MONTH
    assert record["hours"] == 48
    assert record["offered"] == pytest.approx(48 * 3 * core_hour, abs=0.01)
    assert record["lent"] == pytest.approx(24 * core_hour, abs=0.01)

    freed = 3 * (3000 - 1380) + 2000 - 690
    assert stages(before)["right-sizing"]["cpu"] == advice["cpu_saved"] == freed
    assert stages(before)["nodes not needed then"]["saved"] == pytest.approx(2 * EACH, abs=0.01)
    assert before["without_headroom"] == pytest.approx(2 * EACH, abs=0.02)

    # Of the requests that are left, what is promised covers all that was used at once, and no more than half was asked.
    cpu, memory = before["lendable"]
    assert 2400 <= cpu["promised"] <= cpu["requested"] / 2
    assert 6.5 * GIB <= memory["promised"] <= memory["requested"] / 2
    assert (cpu["violation_percent"], memory["violation_percent"], cpu["days"]) == (0, 0, DAYS)

    after = asked("savings", followed(shop(), advice))
    assert stages(after)["right-sizing"]["cpu"] == stages(after)["right-sizing"]["memory"] == 0
    assert stages(after)["nodes not needed today"]["saved"] == pytest.approx(2 * EACH, abs=0.01)
    assert not any(row["changes"] for row in asked("recommend", followed(shop(), advice))["containers"])
