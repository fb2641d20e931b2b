"""Two managers, one Lease: followers serve, the next one takes over, and a leader that was away writes nothing."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest

from manager.nodeside.node_writes import WRITE_TIMEOUT_SECONDS
from manager.nodeside.reports import CONFIG_REFUSED, STRATEGY_REFUSED, PersistentProblems, ReportedProblem
from shared import names
from shared.kube.events import ObjectRef, Recorder
from shared.quantity import Resources
from shared.stop import Stop
from tests.integration.manager.conftest import Cluster
from tests.integration.manager.process import ManagerProcess
from tests.support import eventually
from tests.support.apiserver import ApiServer, rule, write_kubeconfig

ours = pytest.mark.own_decision("what is wrong is kept and said by the manager alone")

GIB = 1 << 30
# Who leads stays the leader however slow the machine is, but for the tests that wait for a Lease's end.
LASTING = {"retry_period": "0.2s"}
ENDING = {"lease_duration": "3s", "renew_deadline": "2s", "retry_period": "0.2s"}
# Of a leader that keeps its Lease though each request about it takes LEASE_DELAY_SECONDS.
SLUGGISH = {"lease_duration": "10s", "renew_deadline": "8s", "retry_period": "0.2s"}
LEASE_DELAY_SECONDS = 0.5

StartProcess: TypeAlias = Callable[..., ManagerProcess]


@pytest.fixture
def start(server: ApiServer, cluster: Cluster, tmp_path: Path) -> Iterator[StartProcess]:
    """Starts replicas, and ends them with the test."""
    kubeconfig = str(write_kubeconfig(tmp_path / "kubeconfig", server.manager_connection()))
    started: list[ManagerProcess] = []

    def start(name: str, **flags: str) -> ManagerProcess:
        started.append(ManagerProcess(name, kubeconfig, cluster.namespace, tmp_path, **(LASTING | flags)))
        return started[-1]

    yield start
    for process in started:
        process.close()


@pytest.fixture
def pair(start: StartProcess, cluster: Cluster) -> tuple[ManagerProcess, ManagerProcess]:
    """A leader, and one who waits; both know all of the cluster."""
    return started_pair(start, cluster, LASTING)


@pytest.fixture
def ending_pair(start: StartProcess, cluster: Cluster) -> tuple[ManagerProcess, ManagerProcess]:
    """The same, where who waits does not wait for long."""
    return started_pair(start, cluster, ENDING)


def started_pair(start: StartProcess, cluster: Cluster, times: dict[str, str]) -> tuple[ManagerProcess, ManagerProcess]:
    cluster.configure()
    leader = start("first", **times)
    eventually(leader.leads)
    follower = start("second", **times)
    eventually(lambda: follower.get("/readyz").status_code == 200)
    return leader, follower


def test_a_follower_serves_what_the_leader_serves_and_writes_nothing(
    cluster: Cluster, pair: tuple[ManagerProcess, ManagerProcess]
) -> None:
    leader, follower = pair
    cluster.add_reporting_node("n1", at=time.time())
    eventually(lambda: cluster.mid("n1") == Resources(1500, GIB))
    path = "/api/v1/nodes/n1"  # a follower may see the Node before its NodeMetric
    eventually(lambda: follower.get(path).json().get("resources") == leader.get(path).json()["resources"])
    eventually(lambda: follower.get("/api/v1/nodes").json()["nodes"] == leader.get("/api/v1/nodes").json()["nodes"])
    assert follower.get("/").status_code == 200
    assert not follower.leads()
    assert follower.counted("node_writes_total") == follower.counted("node_metric_writes_total") == 0


@ours
@pytest.mark.thorough
def test_what_stays_wrong_is_said_by_the_leader_and_again_by_the_next_one(
    cluster: Cluster, pair: tuple[ManagerProcess, ManagerProcess]
) -> None:
    def said_by(*hosts: str) -> bool:
        said = {(event["reason"], event["source"]["host"]) for event in cluster.events()}
        return said == {(reason, host) for reason in (CONFIG_REFUSED, STRATEGY_REFUSED) for host in hosts}

    leader, follower = pair
    annotations = {names.ANNOTATION_COLOCATION_STRATEGY: '{"midCPUThresholdPercent": 900}'}
    cluster.add_node("n1", annotations=annotations)
    cluster.configure('{"enable": "x"}')
    for replica in pair:
        eventually(partial(replica.said, "configuration rejected"))
        eventually(partial(replica.said, "an annotation or label of the node is invalid"))
    eventually(lambda: said_by("first"))
    leader.signal(signal.SIGTERM)
    eventually(follower.leads)
    eventually(lambda: said_by("first", "second"))


@ours
def test_who_does_not_lead_keeps_what_is_wrong_until_it_does_or_it_is_put_right(cluster: Cluster) -> None:
    recorder, led, at_once = Recorder(cluster.client, "headroom-manager", "here"), threading.Event(), Stop()
    at_once.set()  # what is noted is written, and no more waited for
    standing = PersistentProblems(recorder, led.is_set)
    for name in ("wrong", "righted"):
        standing.replace(name, [ReportedProblem(ObjectRef("v1", "Node", name), STRATEGY_REFUSED, "it says nothing")])
    standing.replace("righted", ())
    recorder.run(at_once)
    assert cluster.events() == []
    led.set()
    standing.say_all()
    recorder.run(at_once)
    assert [event["involvedObject"]["name"] for event in cluster.events()] == ["wrong"]


def test_when_the_leader_is_killed_the_next_one_leads_once_the_lease_has_ended(
    cluster: Cluster, ending_pair: tuple[ManagerProcess, ManagerProcess]
) -> None:
    leader, follower = ending_pair
    cluster.add_reporting_node("n1", at=time.time())
    eventually(lambda: cluster.mid("n1") == Resources(1500, GIB))
    leader.signal(signal.SIGKILL)
    cluster.report("n1", at=time.time(), cpu="500m")
    eventually(follower.leads)
    eventually(lambda: cluster.mid("n1") == Resources(500, GIB))


def test_a_leader_that_was_paused_finds_its_time_over_and_leaves_its_queued_writes(
    server: ApiServer, cluster: Cluster, start: StartProcess
) -> None:
    cluster.configure()
    # So slow a writer has most of its writes still before it, and next to never one on its way.
    paused = start("first", writes_per_second="0.05", write_burst="4", **SLUGGISH)
    eventually(paused.leads)
    follower = start("second", **SLUGGISH)
    nodes = [f"n{number}" for number in range(4)]
    for name in nodes:
        cluster.add_node(name)
    for name in nodes:
        cluster.wait_for_metric(name)
    for name in nodes:
        cluster.report(name, at=time.time())
    eventually(lambda: paused.counted("pending_writes ") >= 3)
    paused.signal(signal.SIGSTOP)
    eventually(follower.leads)
    for name in nodes:
        cluster.report(name, at=time.time(), cpu="500m")
    eventually(lambda: [cluster.mid(name) for name in nodes] == [Resources(500, GIB)] * len(nodes))

    # What the Lease says now it cannot ask before it may write: it has to know by itself.
    server.fault(rule("delay", "leases", times=0, seconds=LEASE_DELAY_SECONDS))
    paused.signal(signal.SIGCONT)
    assert not paused.leads()
    written = paused.counted("node_writes_total") + paused.counted("node_metric_writes_total")
    cluster.report("n0", at=time.time(), cpu="300m")
    eventually(lambda: cluster.mid("n0") == Resources(300, GIB))
    # It looks at the cluster again, and decides; the write is the other's.
    eventually(lambda: paused.get("/api/v1/nodes/n0").json()["resources"]["cpu"]["result"] == 300)
    assert paused.counted("node_writes_total") + paused.counted("node_metric_writes_total") == written
    assert paused.counted("node_write_conflicts_total") == 0, "it did not even try"
    server.heal()
    assert [cluster.mid(name) for name in nodes[1:]] == [Resources(500, GIB)] * len(nodes[1:])
    eventually(follower.leads)


@pytest.mark.thorough
def test_a_write_that_was_on_its_way_when_the_leader_was_paused_is_refused(
    server: ApiServer, cluster: Cluster, ending_pair: tuple[ManagerProcess, ManagerProcess]
) -> None:
    paused, follower = ending_pair
    cluster.add_node("n1")
    cluster.wait_for_metric("n1")
    late = WRITE_TIMEOUT_SECONDS - 1.0
    server.fault(rule("delay", "^/api/v1/nodes/n1/status", method="PATCH", seconds=late))
    sent_after = time.monotonic()
    cluster.report("n1", at=time.time())
    eventually(lambda: server.faults_left() == 0)
    paused.signal(signal.SIGSTOP)
    eventually(follower.leads)
    cluster.report("n1", at=time.time(), cpu="500m")
    eventually(lambda: cluster.mid("n1") == Resources(500, GIB))
    assert time.monotonic() < sent_after + late, "the other one has to be the first"
    paused.signal(signal.SIGCONT)
    eventually(lambda: paused.counted("node_write_conflicts_total") == 1, 2 * late)
    assert not paused.leads()
    assert paused.counted("node_writes_total") == 0
    assert cluster.mid("n1") == Resources(500, GIB)
