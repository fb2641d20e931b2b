"""Usage, requests and places of pods from a server that speaks Prometheus' API."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from deploy.backtest import prometheus
from deploy.backtest.prometheus import Period, Prometheus
from deploy.backtest.samples import on_grid
from deploy.backtest.server import Access
from shared.errors import HeadroomError, InvalidInput
from tests.support.command_line import Run
from tests.support.webhooks import certificate
from tests.unit.backtest import traces
from tests.unit.backtest.prometheus_server import PrometheusServer
from tests.unit.backtest.test_command import results

END = float(traces.START)
DAY = 86_400.0


def add_pods(server: PrometheusServer) -> None:
    """Two nodes with two pods of 2 cores each, one pod without a request, and one that came late."""

    def labels(pod: int) -> dict[str, str]:
        return {"namespace": "web", "pod": f"p{pod}", "node": f"n{pod % 2}"}

    def used(pod: int) -> Callable[[float], float | None]:
        return lambda time: None if pod == 3 and time < END - DAY else 0.1 * (pod + 1)

    pods = [(labels(pod), used(pod)) for pod in range(5)]
    server.series["container_cpu_usage_seconds_total"] = pods
    server.series["container_memory_working_set_bytes"] = pods
    requests = [({"namespace": "web", "pod": f"p{pod}"}, lambda time: 2.0) for pod in range(4)]
    server.series['kube_pod_container_resource_requests{resource="cpu"'] = requests
    server.series['kube_pod_container_resource_requests{resource="memory"'] = requests
    owners = {0: ("ReplicaSet", "front-5d9c7b"), 1: ("StatefulSet", "store"), 2: ("Node", "n0"), 3: ("Job", "run-28")}
    server.series["kube_pod_owner"] = [
        ({"namespace": "web", "pod": f"p{pod}", "owner_kind": kind, "owner_name": name}, lambda time: 1.0)
        for pod, (kind, name) in owners.items()
    ]


@pytest.fixture
def server(server: PrometheusServer) -> PrometheusServer:
    add_pods(server)
    return server


@pytest.fixture
def opened() -> Iterator[Callable[..., Prometheus]]:
    """Connects to a server, until the test is over."""
    with contextlib.ExitStack() as stack:
        yield lambda url, **access: stack.enter_context(Prometheus(url, Access(**access)))


def test_pods_have_their_usage_their_node_and_what_they_requested(
    server: PrometheusServer, opened: Callable[..., Prometheus]
) -> None:
    samples = prometheus.samples(opened(server.url), "cpu", Period(END - 3 * DAY, END, 300))
    assert samples.names == ["web/p0", "web/p1", "web/p2", "web/p4", "web/p3"]
    assert samples.nodes == ["n0", "n1", "n0", "n0", "n1"]
    assert np.array_equal(samples.cores, [2, 2, 2, np.nan, 2], equal_nan=True)
    assert samples.workloads == ["web/Deployment/front", "web/StatefulSet/store", "", "", "web/CronJob/run"]
    usage = on_grid(samples).usage
    assert usage.shape == (5, 3 * 288 + 1)
    assert np.isnan(usage[4]).sum() == 2 * 288
    assert samples.source == server.url.removeprefix("http://")
    assert "rate(container_cpu_usage_seconds_total" in server.queries[0]["query"]
    assert "group_left (node)" in server.queries[0]["query"]


@pytest.mark.parametrize(
    ("resource", "query"),
    [
        ("cpu", "max_over_time((sum by (namespace, pod) (rate(container_cpu_usage_seconds_total"),
        ("memory", "max_over_time((sum by (namespace, pod) (container_memory_working_set_bytes"),
    ],
)
def test_of_each_step_the_maximum_is_asked_for(
    server: PrometheusServer, opened: Callable[..., Prometheus], resource: str, query: str
) -> None:
    period = Period(END - DAY, END, 300)
    samples = prometheus.samples(opened(server.url), resource, period, aggregate="max")
    assert samples.aggregate == "max"
    assert query in server.queries[0]["query"]
    assert ")[300s:60s]" in server.queries[0]["query"]


@pytest.mark.parametrize(("step", "days"), [(1.0, 1.2), (300.0, 20.0)])
def test_long_queries_are_split_below_what_prometheus_answers(
    server: PrometheusServer, step: float, days: float, opened: Callable[..., Prometheus]
) -> None:
    server.series = {"up": [({"pod": "p"}, lambda time: 1.0)]}
    period = Period(END - days * DAY, END, step)
    times = [time for series in opened(server.url).query_range("up", period) for time, _ in series.values]
    assert times == [period.start + step * point for point in range(int(days * DAY / step) + 1)]
    assert len(server.queries) > 1


def test_a_token_is_sent_and_read_again_when_it_was_replaced(
    server: PrometheusServer, tmp_path: Path, opened: Callable[..., Prometheus]
) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    server.token = "first"
    client, period = opened(server.url, token_file=token), Period(END - 600, END, 300)
    assert len(prometheus.samples(client, "memory", period).names) == 5
    server.token = "second"
    with pytest.raises(HeadroomError, match="401 who are you"):
        prometheus.samples(client, "memory", period)
    token.write_text("second")
    assert len(prometheus.samples(client, "memory", period).names) == 5
    token.write_text("two words")
    with pytest.raises(InvalidInput, match="token on one line"):
        prometheus.samples(client, "memory", period)


def test_a_server_is_believed_by_its_ca_alone(tmp_path: Path, opened: Callable[..., Prometheus]) -> None:
    files = certificate(tmp_path)
    server = PrometheusServer(files)
    add_pods(server)
    period = Period(END - 600, END, 300)
    try:
        known = opened(server.url, ca_file=files[0])
        assert len(prometheus.samples(known, "cpu", period).names) == 5
        with pytest.raises(HeadroomError, match="CERTIFICATE_VERIFY_FAILED"):
            prometheus.samples(opened(server.url), "cpu", period)
    finally:
        server.close()


def test_a_server_that_is_busy_is_asked_again_and_its_error_is_told(
    server: PrometheusServer, opened: Callable[..., Prometheus]
) -> None:
    client, period = opened(server.url), Period(END - 600, END, 300)
    server.failures = [503, 503]
    assert len(prometheus.samples(client, "cpu", period).names) == 5
    server.failures = [503] * 9
    with pytest.raises(HeadroomError, match="503 not now"):
        prometheus.samples(client, "cpu", period)
    server.failures, server.series = [], {}
    with pytest.raises(HeadroomError, match="400 parse error"):
        prometheus.samples(client, "cpu", period)


def test_pods_that_nobody_knows_are_no_source(server: PrometheusServer, opened: Callable[..., Prometheus]) -> None:
    server.series = {"container_cpu": []}
    with pytest.raises(InvalidInput, match="no series"):
        prometheus.samples(opened(server.url), "cpu", Period(END - 600, END, 300))


@pytest.mark.parametrize("url", ["ftp://host", "http://", "https://host/?query=up", "http://me:secret@host"])
def test_a_url_that_is_none_is_refused_without_its_secrets(url: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Prometheus(url, Access())
    assert "secret" not in str(refused.value)


def test_the_command_replays_what_a_server_has(server: PrometheusServer, backtest: Run) -> None:
    asked = ["--since", "72h", "--until", "2023-11-15T00:00:00Z", "--step", "15m", "--model", "borg-default"]
    status, out, err = backtest(server.url, *asked, "-o", "json")
    assert status == 0
    assert [(one["resource"], one["nodes"]) for one in results(out)] == [("cpu", 2), ("memory", 2)]
    assert "1 of 5 series requested nothing and are left out" in err


@pytest.mark.parametrize(
    ("flag", "value"),
    [("--since", "0"), ("--since", "9000h"), ("--step", "7m"), ("--until", "soon"), ("--ca-file", "gone.pem")],
)
def test_a_bad_period_or_file_is_named(server: PrometheusServer, backtest: Run, flag: str, value: str) -> None:
    status, _, err = backtest(server.url, flag, value)
    assert status == 2
    assert f"{flag}: '{value}'" in err
