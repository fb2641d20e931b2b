"""Predicted peaks of pods come from the NodeMetrics of the nodes that are looked at, and what is odd is left out."""

from collections.abc import Iterator
from typing import Any

import pytest

from manager.nodeside import pod_peaks
from manager.nodeside.pod_peaks import PodPeaks
from shared.clock import ManualClock
from shared.kube.client import Client
from shared.kube.config import Connection
from shared.quantity import Resources
from tests.unit.kube.scripted import Answer, ScriptedServer, answer, status
from tests.unit.manager.objects import NOW

KNOWN = Resources(250, 1 << 20)


def pod(name: str, extensions: object) -> dict[str, object]:
    return {"name": name, "namespace": "shop", "podUsage": {}, "extensions": extensions}


def metric(*pods: dict[str, object]) -> Answer:
    item = {"metadata": {"name": "a", "uid": "u", "resourceVersion": "1"}, "status": {"podsMetric": list(pods)}}
    return answer({"kind": "NodeMetricList", "metadata": {"resourceVersion": "1"}, "items": [item]})


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    scripted = ScriptedServer()
    yield scripted
    scripted.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def peaks(server: ScriptedServer, clock: ManualClock) -> Iterator[PodPeaks]:
    client = Client(Connection(server.url), "test")
    yield PodPeaks(client, clock)
    client.close()


@pytest.mark.parametrize(
    ("extensions", "peak"),
    [
        ({"predictedPeak": {"cpu": "250m", "memory": "1Mi"}, "more": [1]}, KNOWN),
        ({"predictedPeak": {"cpu": "-1", "memory": "1Mi"}}, None),
        ({"predictedPeak": {"cpu": "much", "memory": "1Mi"}}, None),
        ({"other": "of Koordinator's agents"}, None),
        (None, None),
    ],
)
def test_a_peak_is_read_and_what_cannot_be_one_is_none(
    server: ScriptedServer, peaks: PodPeaks, extensions: Any, peak: Resources | None
) -> None:
    server.then(metric(pod("odd", extensions), pod("db-0", {"predictedPeak": {"cpu": "250m", "memory": "1Mi"}})))
    assert peaks.read({"a": ["shop/db-0", "shop/odd"]}) == {"shop/db-0": KNOWN} | (
        {} if peak is None else {"shop/odd": peak}
    )
    assert [request.query["fieldSelector"] for request in server.requests] == ["metadata.name=a"]


def test_no_report_says_anything_of_a_pod_on_another_node(server: ScriptedServer, peaks: PodPeaks) -> None:
    foreign = pod("db-0", {"predictedPeak": {"cpu": "9", "memory": "9Gi"}})
    server.then(metric(pod("db-0", {"predictedPeak": {"cpu": "250m", "memory": "1Mi"}})), metric(foreign))
    assert peaks.read({"a": ["shop/db-0"], "b": ["shop/db-1"]}) == {"shop/db-0": KNOWN}


@pytest.mark.parametrize("odd", [status(403, "Forbidden"), metric(pod("odd", {"predictedPeak": "1 core"}))])
def test_a_node_that_cannot_be_read_costs_its_own_peaks_alone(
    server: ScriptedServer, peaks: PodPeaks, odd: Answer
) -> None:
    server.then(odd)
    assert peaks.read({"a": ["shop/db-0"]}) == {}
    server.then(metric(pod("db-0", {"predictedPeak": {"cpu": "250m", "memory": "1Mi"}})))
    assert peaks.read({"b": ["shop/db-0"]}) == {"shop/db-0": KNOWN}


def test_a_node_is_read_once_a_minute_and_many_at_once_not_at_all(
    server: ScriptedServer, peaks: PodPeaks, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.then(*(metric() for _ in range(10)))
    for seconds, reads in ((0, 1), (pod_peaks.KEPT_SECONDS - 1, 1), (1, 2)):
        clock.advance(seconds)
        peaks.read({"a": []})
        assert len(server.requests) == reads
    assert peaks.read({f"n{number}": [] for number in range(pod_peaks.MOST_READ + 1)}) == {}
    assert len(server.requests) == 2
    monkeypatch.setattr(pod_peaks, "MOST_KEPT", 1)
    for reads, node in ((3, "b"), (4, "a")):  # the oldest one goes
        peaks.read({node: []})
        assert len(server.requests) == reads
