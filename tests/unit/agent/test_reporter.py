"""Reports are made of the newest state, arrive in the end, and never come too often or too large."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent.metric_cache.series import Usage
from agent.reporter import conditions
from agent.reporter.reporter import BURST, SECONDS_EACH
from agent.reporter.schedule import ReportReason
from agent.states_informer.kubelet import LOST_SECONDS, KubeletAccess
from shared import durations
from shared.kube.config import Connection
from tests.support import eventually
from tests.unit.agent.cluster import NodeServer, Reporting, objects
from tests.unit.kube.scripted import Request, ScriptedServer, answer, error_event, reset, status

Start = Callable[..., tuple[NodeServer, Reporting]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    made: list[tuple[NodeServer, Reporting]] = []

    def start(pods: int = 1, **settings: Any) -> tuple[NodeServer, Reporting]:
        server = NodeServer(objects(pods))
        made.append((server, Reporting(tmp_path, server, pods, **settings)))
        return made[-1]

    yield start
    for _, reporting in made:
        reporting.close()


def sent(request: Request) -> Any:
    (operation,) = request.body
    return operation["value"]


def reason(request: Request) -> str:
    return str(sent(request)["prediction"]["reportReason"])


def told(request: Request) -> dict[str, tuple[str, str]]:
    return {one["type"]: (one["status"], one["reason"]) for one in sent(request)["prediction"]["conditions"]}


def test_a_report_is_one_patch_of_the_status_and_its_reason_is_counted(start: Start) -> None:
    server, reporting = start()
    reporting.pass_seconds(40)
    (request,) = server.writes
    assert request.method == "PATCH"
    assert request.path.endswith("/nodemetrics/n/status")
    assert request.headers["Content-Type"] == "application/json-patch+json"
    assert sent(request)["updateTime"] == durations.timestamp(reporting.clock.now() - 10)
    assert sent(request)["podsMetric"][0]["podUsage"]["resources"] == {"cpu": "500m", "memory": "1Gi"}
    assert reporting.value("reports_total", reason="Periodic") == 1
    assert reporting.value("last_report_timestamp_seconds") == reporting.clock.now() - 10
    assert reporting.value("report_bytes") == len(json.dumps(request.body, separators=(",", ":")))


def test_after_ten_minutes_without_the_api_server_the_newest_state_comes_first(start: Start) -> None:
    server, reporting = start()
    reporting.pass_seconds(60)
    samples = sent(server.writes[-1])["prediction"].get("samples", 0)
    arrived = len(server.writes)
    server.refusal = reset()
    reporting.usage = Usage(1.5, 3 * 2**30)
    reporting.pass_seconds(600)
    tries = len(server.writes) - arrived
    assert 20 <= tries <= 60 + BURST  # each 30 s at the latest, each 10 s at the most
    assert reporting.value("report_failures_total") == tries
    assert reporting.cache.last_second == reporting.cache.second()
    server.refusal = None
    before = reporting.clock.now()
    reporting.pass_seconds(41)  # the longest wait of the backoff, and that of the limit
    first = server.writes[arrived + tries]
    assert durations.instant(sent(first)["updateTime"]) > before
    assert sent(first)["nodeMetric"]["nodeUsage"]["resources"]["cpu"] == "1750m"
    assert sent(first)["prediction"]["samples"] >= samples + 20
    reporting.pass_seconds(60)
    assert reporting.value("report_failures_total") == tries


@pytest.mark.parametrize(
    ("code", "name"),
    [(409, "Conflict"), (410, "Expired"), (422, "Invalid"), (429, "TooManyRequests"), (500, "InternalError")],
)
def test_a_report_that_is_refused_is_owed_with_its_reason(start: Start, code: int, name: str) -> None:
    server, reporting = start()
    server.then(status(code, name))
    reporting.pass_seconds(30 + BURST)
    reporting.pass_seconds(int(SECONDS_EACH))
    refused, arrived, *_ = server.writes
    assert reason(refused) == reason(arrived) == ReportReason.PERIODIC
    assert sent(refused)["updateTime"] < sent(arrived)["updateTime"]
    assert reporting.value("report_failures_total") == 1
    assert reporting.value("reports_total", reason="Periodic") == 1


def test_a_server_that_asks_for_patience_gets_it(start: Start) -> None:
    server, reporting = start()
    server.then(status(429, "TooManyRequests", retry_after="25"))
    reporting.pass_seconds(30 + 24)
    assert len(server.writes) == 1
    reporting.pass_seconds(4)
    assert len(server.writes) == 2


def test_a_node_metric_deleted_in_between_is_waited_for_and_no_failure(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    server, reporting = start()
    server.refusal = status(404, "NotFound")
    reporting.pass_seconds(120)
    assert len(server.writes) > 1
    assert reporting.value("report_failures_total") == 0
    assert caplog.text.count("NodeMetric does not exist yet") == 1
    server.refusal = None
    reporting.pass_seconds(41)
    assert reporting.reporter.last is not None


def test_a_change_of_the_claim_is_reported_at_the_next_check(start: Start) -> None:
    server, reporting = start()
    reporting.pass_seconds(85)
    assert [reason(request) for request in server.writes] == ["Periodic", "PredictionChanged"]  # trained meanwhile
    reporting.pass_seconds(10)
    reporting.usage = Usage(1.9, 2**30)
    reporting.pass_seconds(50)
    assert reason(server.writes[-1]) == "PredictionChanged"
    assert len(server.writes) == 4


def test_no_one_can_make_reports_come_more_often_than_the_limit_allows(start: Start) -> None:
    server, reporting = start()
    server.refusal = status(500, "InternalError")
    for _ in range(300):
        reporting.schedule.failed(reporting.clock.monotonic(), ReportReason.PERIODIC, retry_after=0.0)
        reporting.pass_seconds(1)
    assert len(server.writes) <= 300 / SECONDS_EACH + BURST


def test_a_report_that_would_be_too_large_goes_out_without_its_pods_and_says_so(start: Start) -> None:
    server, reporting = start(pods=200, report_size_bytes=16 << 10)
    reporting.pass_seconds(30)
    (request,) = server.writes
    assert sent(request)["podsMetric"] == []
    assert told(request)[conditions.PODS_COMPLETE] == ("False", "ReportTooLarge")
    assert "200 pods" in next(
        one["message"] for one in sent(request)["prediction"]["conditions"] if one["type"] == conditions.PODS_COMPLETE
    )
    assert sent(request)["nodeMetric"]["nodeUsage"]["resources"]["cpu"] == "100250m"
    assert (reporting.value("report_bytes") or 0) < 16 << 10


@pytest.mark.parametrize("aggregate_seconds", [300, 604800])
def test_a_node_that_cannot_be_read_goes_stale(start: Start, aggregate_seconds: int) -> None:
    server, reporting = start()
    reporting.pass_seconds(30)
    reporting.reporter.apply({"metricCollectPolicy": {"aggregateDurationSeconds": aggregate_seconds}})
    for _ in range(600):
        reporting.clock.advance(1)
        reporting.reporter.look(reporting.schedule)
    assert durations.instant(sent(server.writes[-1])["updateTime"]) < reporting.clock.now() - 550


def test_a_condition_keeps_the_time_it_changed_before_a_restart(tmp_path: Path) -> None:
    accepted = {"type": conditions.POLICY_ACCEPTED, "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}
    ready = {"type": conditions.MODEL_READY, "status": "False", "lastTransitionTime": "2020-01-01T00:00:00Z"}
    before = objects()
    before["nodemetrics"][0]["status"] = {"prediction": {"conditions": [accepted, ready]}}
    server = NodeServer(before)
    with closing(Reporting(tmp_path, server)) as reporting:
        reporting.pass_seconds(90)
        changed = {
            one["type"]: one["lastTransitionTime"] for one in sent(server.writes[-1])["prediction"]["conditions"]
        }
        assert changed[conditions.POLICY_ACCEPTED] == "2020-01-01T00:00:00Z"
        assert durations.instant(changed[conditions.MODEL_READY]) > reporting.clock.now() - 90


def test_when_the_kubelet_is_gone_for_long_nothing_is_claimed_any_more(tmp_path: Path) -> None:
    listing = objects()
    server, kubelet = NodeServer(listing), ScriptedServer()
    whole = answer({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": listing["pods"]})
    kubelet.then(whole)  # and no other answer
    access = KubeletAccess(Connection(kubelet.url), interval_seconds=3600)
    with closing(kubelet), closing(Reporting(tmp_path, server, kubelet=access)) as reporting:
        reporting.pass_seconds(int(LOST_SECONDS))
        status = sent(server.writes[-1])
        assert status["prodReclaimableMetric"]["resource"]["resources"]["cpu"] != "0"
        reporting.pass_seconds(30)
        status = sent(server.writes[-1])
        assert status["prodReclaimableMetric"]["resource"]["resources"] == {"cpu": "0", "memory": "0"}
        assert told(server.writes[-1])[conditions.MODEL_READY] == ("False", "PodsUnknown")
        assert status["nodeMetric"]["nodeUsage"]["resources"]["cpu"] == "750m"


def test_when_the_api_server_tells_no_pods_for_long_nothing_is_claimed_until_it_does(tmp_path: Path) -> None:
    listing = objects()
    server = NodeServer(listing, {"pods": [error_event(403, "Forbidden")]})

    def claimed() -> dict[str, str]:
        return dict(sent(server.writes[-1])["prodReclaimableMetric"]["resource"]["resources"])

    with closing(Reporting(tmp_path, server)) as reporting:
        server.unreadable["pods"] = status(403, "Forbidden")
        eventually(lambda: reporting.clock.waiting)  # to try again, and so the watch is over
        reporting.pass_seconds(int(LOST_SECONDS))
        assert claimed()["cpu"] != "0"
        reporting.pass_seconds(30)
        assert claimed() == {"cpu": "0", "memory": "0"}
        assert told(server.writes[-1])[conditions.MODEL_READY] == ("False", "PodsUnknown")
        listing["pods"].clear()
        del server.unreadable["pods"]

        def synced_again() -> bool:
            reporting.clock.advance(1)
            return reporting.states.synced

        eventually(synced_again)
        assert reporting.states.pods() == []


def test_after_a_long_outage_of_the_api_server_no_report_takes_back_what_is_known_again_in_a_moment(
    tmp_path: Path,
) -> None:
    server = NodeServer(objects(), {"pods": [error_event(403, "Forbidden")]})

    def claims(since: int) -> list[str]:
        writes = server.writes[since:]
        return [sent(one)["prodReclaimableMetric"]["resource"]["resources"]["cpu"] for one in writes]

    with closing(Reporting(tmp_path, server)) as reporting:
        server.unreadable = {"pods": reset(), "nodemetrics": reset()}
        reporting.pass_seconds(90)
        assert claims(0)[-1] != "0"
        server.refusal = reset()
        tried = len(server.writes)
        reporting.pass_seconds(int(LOST_SECONDS) + 120)
        assert not reporting.states.synced
        away = len(server.writes)
        assert away > tried
        del server.unreadable["nodemetrics"]
        server.refusal = None
        back_at = reporting.clock.monotonic()
        while reporting.client.answers.last_at < back_at:
            reporting.pass_seconds(1)
        assert not reporting.states.synced
        del server.unreadable["pods"]
        reporting.pass_seconds(30)

        def synced_again() -> bool:
            reporting.clock.advance(1)  # without a look, however long that takes here
            return reporting.states.synced

        eventually(synced_again)
        reporting.pass_seconds(90)
        assert claims(away)
        assert "0" not in claims(away)
