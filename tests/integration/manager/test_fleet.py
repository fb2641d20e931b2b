"""What agents have learned reaches all nodes, survives the manager, and a missed target is said where people look."""

import time
from typing import Any

import pytest

from manager.main import Manager
from manager.nodeside import fleet
from shared import durations
from shared.kube.errors import Invalid
from shared.kube.resources import NODEMETRICS
from tests.integration.manager.conftest import Cluster, StartManager, SteppedClock, counted, explained, fetch
from tests.support import eventually

pytestmark = pytest.mark.own_decision("the manager works it out from reports, whichever API server they came from")

NODES = [f"n{number}" for number in range(22)]
TAIL = {"quantile": "0.3", "meanExcess": "0.1", "days": "28"}


@pytest.fixture(autouse=True)
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "TURN_SECONDS", 0.1)


def promise(cluster: Cluster, name: str, *, at: float, **changes: Any) -> None:
    """What an agent says of its promises."""
    one = {
        "horizonSeconds": 86400,
        "peak": {"cpu": "1500m", "memory": "1Gi"},
        "targetViolationPercent": "1",
        "outcomes": 672,
        "cpuViolationPercent": "3.00",
        "memoryViolationPercent": "0.10",
        "cpuTail": TAIL,
        "memoryTail": TAIL,
        **changes,
    }
    prediction = {"model": "peak-mix", "promises": [one], "prior": {"source": "fleet", "nodes": 22}}
    status = {"updateTime": durations.timestamp(at), "prediction": prediction}
    cluster.client.patch(NODEMETRICS, name, {"status": status}, subresource="status")


def prior(cluster: Cluster, name: str) -> Any:
    return cluster.client.get(NODEMETRICS, name)["spec"].get("predictionPrior")


def promising_fleet(cluster: Cluster, at: float) -> None:
    for name in NODES:
        cluster.add_node(name, lends=None)
    for name in NODES:
        cluster.wait_for_metric(name)
        promise(cluster, name, at=at)


def stepped(clock: SteppedClock) -> bool:
    """Lets one turn come."""
    clock.advance(1)
    return True


def test_the_fleets_prior_reaches_every_node_and_a_restarted_manager_goes_on_with_it(
    cluster: Cluster, start_manager: StartManager
) -> None:
    cluster.configure()
    manager = start_manager()
    promising_fleet(cluster, time.time())
    eventually(lambda: counted(manager, "prediction_prior_nodes") > 0)
    eventually(lambda: all(prior(cluster, name) is not None for name in NODES))
    sent = prior(cluster, "n0")
    tail = {"quantile": "0.300", "meanExcess": "0.100"}
    assert sent["horizons"] == [{"horizonSeconds": 86400, "cpu": tail, "memory": tail}]
    manager.close()

    again = start_manager()
    eventually(lambda: counted(again, "prediction_prior_nodes") > 0)
    cluster.add_node("late", lends=None)
    cluster.wait_for_metric("late")
    eventually(lambda: prior(cluster, "late") is not None)
    assert prior(cluster, "n0") == sent


def test_a_missed_target_is_an_event_a_metric_and_an_answer(cluster: Cluster, start_manager: StartManager) -> None:
    clock = SteppedClock()
    cluster.configure()
    manager = start_manager(clock)
    promising_fleet(cluster, clock.now())
    eventually(lambda: stepped(clock) and counted(manager, _of_cpu("outcomes")) == 672 * len(NODES))
    assert counted(manager, _of_cpu("target_missed")) == 1
    assert fetch(manager, "/api/v1/prediction").json()["alarms"] == []
    assert not cluster.events(fleet.TARGET_MISSED)
    a_day_later = clock.now() + fleet.DAY_SECONDS
    for name in NODES:
        promise(cluster, name, at=a_day_later)
    eventually(lambda: _reported(manager, NODES[-1]) == durations.timestamp(a_day_later))
    clock.advance(fleet.DAY_SECONDS)
    (event,) = eventually(lambda: cluster.events(fleet.TARGET_MISSED) if stepped(clock) else [])
    assert "promises of cpu for 24 h were broken in 3.00 % of" in event["message"]
    assert event["involvedObject"]["kind"] == "ConfigMap"
    assert len(fetch(manager, "/api/v1/prediction").json()["alarms"]) == 1


def test_a_node_that_says_what_cannot_be_is_left_out_and_says_why(
    cluster: Cluster, start_manager: StartManager
) -> None:
    cluster.configure()
    manager = start_manager()
    cluster.add_node("n1", lends=None)
    cluster.wait_for_metric("n1")
    with pytest.raises(Invalid):
        promise(cluster, "n1", at=time.time(), cpuTail={**TAIL, "quantile": "NaN"})
    promise(cluster, "n1", at=time.time(), cpuTail={**TAIL, "days": "999"})
    eventually(lambda: counted(manager, "prediction_refused_nodes") == 1)
    found = eventually(lambda: explained(manager, "n1")["prediction"])
    assert found["promises"] == []
    assert "status.prediction.promises[86400].cpuTail" in found["problem"]


def _of_cpu(name: str) -> str:
    return f'prediction_{name}{{horizon_seconds="86400",resource="cpu"}}'


def _reported(manager: Manager, name: str) -> object:
    rows = fetch(manager, "/api/v1/nodes").json()["nodes"]
    return next((row["reported"] for row in rows if row["name"] == name), None)
