"""What cannot be understood is refused alone, and the version before it stays."""

from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from agent.states_informer.informer import StatesInformer, node_state
from agent.states_informer.pods import describe
from shared.api.core import Container, Node, NodeStatus, Pod, PodSpec, ResourceRequirements
from shared.api.meta import ObjectMeta
from shared.kube.client import Client
from shared.kube.config import Connection
from shared.telemetry import Loops
from tests.support import certain, eventually
from tests.unit.agent.cluster import NodeServer, named
from tests.unit.agent.pods import pod
from tests.unit.kube.scripted import event


@pytest.mark.parametrize(
    "meaningless",
    [
        Pod(metadata=ObjectMeta(name="p")),
        Pod(metadata=ObjectMeta(uid="u", creation_timestamp="yesterday")),
        Pod(
            metadata=ObjectMeta(uid="u"),
            spec=PodSpec(containers=(Container(resources=ResourceRequirements(requests={"cpu": "lots"})),)),
        ),
    ],
    ids=["no uid", "no instant", "no quantity"],
)
def test_a_pod_that_means_nothing_is_refused(meaningless: Pod) -> None:
    with pytest.raises(ValueError):
        describe(meaningless)


def test_a_finished_pod_holds_no_request_and_a_terminating_one_neither() -> None:
    assert pod().holds_request
    assert not pod(phase="Failed").holds_request
    assert not pod(terminating=True).holds_request
    assert pod(terminating=True).running


NODE = Node(status=NodeStatus(allocatable={"cpu": "3", "memory": "8Gi"}))


def test_a_node_whose_allocatable_means_nothing_is_refused() -> None:
    with pytest.raises(ValueError):
        node_state(Node(status=NodeStatus(allocatable={"cpu": "lots"})))


def asking(cpu: object) -> dict[str, object]:
    return {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}


OBJECTS: dict[str, list[Any]] = {
    "nodes": [named("n", 1, status={"allocatable": {"cpu": "4", "memory": "8Gi"}})],
    "pods": [
        named("good", 1, spec=asking("2")),
        named("meaningless", 1, spec=asking("lots")),
        named("wrong-type", 1, spec="a text"),
    ],
    "nodemetrics": [named("n", 1, spec={"predictPolicy": {"sigmaCPU": 3}})],
}
EVENTS = {
    "nodes": [event("MODIFIED", named("n", 2, status={"allocatable": {"cpu": "lots"}}))],
    "pods": [
        event("MODIFIED", named("good", 2, spec=asking("lots"))),
        event("ADDED", named("late", 2, spec=asking("1"))),
    ],
    "nodemetrics": [
        event("MODIFIED", named("n", 2, spec={"predictPolicy": {"sigmaCPU": 3}}, status={"updateTime": "x"})),
        event("MODIFIED", named("n", 3, spec="a text")),
        event("MODIFIED", named("n", 4, spec={"predictPolicy": "a text"})),
        event("DELETED", named("n", 5)),
    ],
}


@pytest.fixture
def server() -> Iterator[NodeServer]:
    serving = NodeServer(OBJECTS, EVENTS)
    yield serving
    serving.close()


def test_a_node_metric_is_there_once_its_spec_is_in_force(server: NodeServer) -> None:
    there: list[bool] = []
    client = Client(Connection(server.url), "test")
    states = StatesInformer(
        client, "n", registry=CollectorRegistry(), on_spec=lambda _: there.append(states.has_node_metric)
    )
    loops = Loops()
    states.start(loops)
    try:
        eventually(lambda: len(there) == 3)
        assert there == [False, True, False], "the first spec is not in force before, and with the last one it goes"
    finally:
        loops.close()


def test_meaningless_objects_are_left_out_alone_and_the_versions_before_them_stay(server: NodeServer) -> None:
    specs: list[object] = []
    registry = CollectorRegistry()
    client = Client(Connection(server.url), "test")
    states = StatesInformer(client, "n", registry=registry, on_spec=specs.append)
    loops = Loops()
    states.start(loops)
    try:
        eventually(lambda: len(states.pods()) == 2)
        assert {one.uid: one.request.cpu_milli for one in states.pods()} == {"uid-good": 2000, "uid-late": 1000}
        eventually(lambda: registry.get_sample_value("headroom_agent_refused_objects_total", {"kind": "Node"}) == 1)
        state = certain(states.node())
        assert state.allocatable.cpu_milli == 4000
        eventually(lambda: len(specs) == 3)
        assert specs == [{"predictPolicy": {"sigmaCPU": 3}}, {"predictPolicy": "a text"}, None]
        assert states.synced
    finally:
        loops.close()
    assert registry.get_sample_value("headroom_agent_refused_objects_total", {"kind": "Pod"}) == 2
